"""Closed log directories, of one or more brokers: whose they are, which partitions, what is known of each.

They must be of one cluster, and no broker may be working in them: its lock says so, on this machine. Nothing
is locked, created or changed here.
Left to others: whether they are still the same later (identity.py), what follows from it (proof.py), the
records (replica_log.py).
"""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from ...base.types import TopicPartition
from ..cleaning.checkpoint import CLEANER_OFFSETS
from ..directories.incarnation import CLEAN_MARKER, INCARNATION
from ..directories.log_manager import parse_directory
from ..directories.open_logs import MARKED
from ..log import checkpoints
from ..log.checkpoints import Unreadable
from ..log.leader_epochs import NONE, Entry, EpochHistory
from ..segment.file_names import INDEX
from ..segment.index import OFFSET_ENTRY
from .identity import DISK, Owned, Stamp, owned, refuse_lock, stamp, topic_id
from .proof import Replica
from .replica_log import ReplicaLog, Tail

BROKER_ID, NODE_ID = "broker.id", "node.id"  # the second is that of Kafka without ZooKeeper


class Unusable(ValueError):
    """The directories cannot be read, or not together; the message says why."""


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A log directory and its small files."""

    path: Path
    broker: int
    cluster: str | None
    owned: Owned  # as it was before anything else was read
    partitions: frozenset[TopicPartition]
    given_up: frozenset[TopicPartition]  # renamed, and to be removed
    high_watermarks: dict[TopicPartition, int]
    starts: dict[TopicPartition, int]
    cleaned: frozenset[TopicPartition]  # partitions that were compacted there
    kafka_was_killed: bool

    @classmethod
    def opened(cls, path: str) -> "LogDirectory":
        """What is in it; raises Unusable."""
        folder = Path(path)
        if not folder.is_dir():
            raise Unusable(f"{path} is no directory, as seen from here")
        refuse_lock(folder, Unusable)
        try:
            seen = owned(folder)
            properties = checkpoints.read_properties(DISK, str(folder / checkpoints.META_PROPERTIES))
            if properties is None:
                raise Unusable(
                    f"{path} has no {checkpoints.META_PROPERTIES}, so it is no broker's log directory: "
                    "expected the directory that holds one folder for each partition"
                )
            broker = properties.get(BROKER_ID, properties.get(NODE_ID, ""))
            if not broker.isdecimal():
                raise Unusable(f"{folder / checkpoints.META_PROPERTIES} names no broker")
            names = [each.name for each in folder.iterdir() if each.is_dir()]
            partitions = frozenset(filter(None, map(parse_directory, names)))
            marked = filter(None, map(MARKED.fullmatch, names))
            high_watermarks = _offsets(folder, checkpoints.HIGH_WATERMARKS)
            return cls(
                path=folder,
                broker=int(broker),
                cluster=properties.get("cluster.id"),
                owned=seen,
                partitions=partitions,
                given_up=frozenset(TopicPartition(each[1], int(each[2])) for each in marked),
                high_watermarks=high_watermarks,
                starts=_offsets(folder, checkpoints.START_OFFSETS),
                cleaned=frozenset(_offsets(folder, CLEANER_OFFSETS)),
                kafka_was_killed=_kafka_was_killed(folder, partitions, list(high_watermarks)),
            )
        except Unreadable as trouble:
            raise Unusable(str(trouble)) from trouble


class ClosedReplica(NamedTuple):
    """A replica of a partition in one of the directories."""

    directory: Path
    topic_id: UUID | None
    facts: Replica
    stamp: Stamp
    high_watermark: int  # as written, even if it cannot be believed; -1: not at all
    gaps: bool  # compaction may have left offsets out
    doubt: str = ""  # why its high watermark is not believed

    @property
    def broker(self) -> int:
        return self.facts.broker


class ClosedDirectories:
    """All directories of a read."""

    def __init__(self, paths: Sequence[str]) -> None:
        """Raises Unusable."""
        self._directories = [LogDirectory.opened(path) for path in paths]
        _check_distinct(self._directories)
        self._cleaned = frozenset[TopicPartition]().union(*(each.cleaned for each in self._directories))

    @property
    def brokers(self) -> list[int]:
        """The brokers whose directories these are."""
        return sorted({each.broker for each in self._directories})

    @property
    def partitions(self) -> dict[TopicPartition, list[int]]:
        """All partitions, and the brokers whose replicas are here."""
        found: dict[TopicPartition, list[int]] = {}
        for each in sorted(self._directories, key=lambda directory: directory.broker):
            for partition in sorted(each.partitions):
                found.setdefault(partition, []).append(each.broker)
        return found

    @property
    def named(self) -> frozenset[TopicPartition]:
        """The partitions that a checkpoint tells of, whether their folders are here or not.

        A broker takes a partition that it gives up out of its checkpoints, at the latest when it has removed
        the folder.
        """
        return frozenset[TopicPartition]().union(
            *(
                (each.high_watermarks.keys() | each.starts.keys()) - each.given_up
                for each in self._directories
            )
        )

    def replicas(self, partition: TopicPartition) -> list[ClosedReplica]:
        """The replicas of a partition that have a log, by their brokers; raises Unusable."""
        found = [self._replica(each, partition) for each in self._directories if partition in each.partitions]
        return sorted((each for each in found if each is not None), key=lambda replica: replica.broker)

    def _replica(self, where: LogDirectory, partition: TopicPartition) -> ClosedReplica | None:
        folder = where.path / str(partition)
        high_watermark = where.high_watermarks.get(partition, -1)
        try:
            topic, seen = topic_id(folder), stamp(folder, where.owned)
            log = ReplicaLog(folder)
        except Unreadable as trouble:
            raise Unusable(str(trouble)) from trouble
        except FileNotFoundError:
            if high_watermark > where.starts.get(partition, 0):
                raise Unusable(
                    f"{folder} has no .log file, but {checkpoints.HIGH_WATERMARKS} says that records up to "
                    f"{high_watermark} were committed: copy the segments too, or leave {where.path} out"
                ) from None
            return None  # made, but not written to before its broker ended
        tail = log.tail()
        epochs, gaps = _epochs(folder, log, tail), self._may_have_gaps(folder, partition)
        doubt = _doubt(where, folder, tail.end, high_watermark) if where.kafka_was_killed else ""
        facts = Replica(
            broker=where.broker,
            epochs=epochs,
            high_watermark=-1 if doubt else high_watermark,
            start=max(where.starts.get(partition, 0), log.bases[0]),
        )
        return ClosedReplica(folder, topic, facts, seen, high_watermark, gaps, doubt)

    def _may_have_gaps(self, folder: Path, partition: TopicPartition) -> bool:
        """Whether the log was compacted, by its settings; Kafka keeps none: then by its cleaner's marks."""
        try:
            kept = checkpoints.read_topic_config(DISK, str(folder / checkpoints.TOPIC_CONFIG))
        except Unreadable:
            kept = None
        return partition in self._cleaned or (kept is not None and kept.gaps)


def _epochs(folder: Path, log: ReplicaLog, tail: Tail) -> tuple[Entry, ...]:
    """The history that its file has, if it fits the last batch; otherwise that of the batches.

    A file that is missing, damaged or from before the last epoch would let the log agree with one that it
    was cut from. What it has beyond the log's end is true all the same: epochs without a record yet.
    """
    try:
        found = EpochHistory(checkpoints.read_epochs(DISK, str(folder / checkpoints.EPOCHS)) or ())
    except Unreadable:
        found = EpochHistory()
    if tail.epoch == NONE or found.epoch_at(tail.last_offset) == tail.epoch:
        return tuple(found.entries)
    begun = (entry for entry in found.entries if entry[1] >= tail.end and entry[0] > tail.epoch)
    return (*log.epochs(), *begun)


def _doubt(where: LogDirectory, folder: Path, end: int, high_watermark: int) -> str:
    """Why the high watermark of a killed Kafka broker may be of records that were cut since.

    Kafka cuts a log first, and writes the lower high watermark up to 5 s later. A cut that reaches below it
    leaves a shorter log, or a newer `leader-epoch-checkpoint`: others have taken the place of the records.
    """
    if high_watermark < 0:
        return ""
    if end < high_watermark:
        return f"the log ends at offset {end}, below the high watermark {high_watermark}"
    try:
        epochs, watermarks = (
            path.stat().st_mtime_ns
            for path in (folder / checkpoints.EPOCHS, where.path / checkpoints.HIGH_WATERMARKS)
        )
    except FileNotFoundError:
        return ""
    if epochs <= watermarks:
        return ""
    return f"{folder / checkpoints.EPOCHS} is newer than {where.path / checkpoints.HIGH_WATERMARKS}"


def _kafka_was_killed(
    folder: Path, partitions: Iterable[TopicPartition], checkpointed: list[TopicPartition]
) -> bool:
    """Whether a Kafka broker worked here last, and was killed.

    `incarnation.json` alone does not tell: Kafka leaves Strandline's where it is. What a killed Kafka leaves,
    and Strandline never: a preallocated index, or a checkpoint that is not sorted.
    """
    if (folder / CLEAN_MARKER).exists():
        return False
    if not (folder / INCARNATION).exists() or checkpointed != sorted(checkpointed):
        return True
    return any(_has_preallocated_index(folder / str(partition)) for partition in partitions)


def _has_preallocated_index(folder: Path) -> bool:
    """Whether the newest index has empty space behind its entries, as that of a log that Kafka has open."""
    newest = max((name for name in os.listdir(folder) if name.endswith(INDEX)), default=None)
    if newest is None:
        return False
    with (folder / newest).open("rb") as file:
        file.seek(0, os.SEEK_END)
        if file.tell() < OFFSET_ENTRY.size:
            return False
        file.seek(-OFFSET_ENTRY.size, os.SEEK_END)
        return not any(file.read())


def _offsets(folder: Path, name: str) -> dict[TopicPartition, int]:
    return checkpoints.read_offsets(DISK, str(folder / name))


def _check_distinct(directories: Iterable[LogDirectory]) -> None:
    """One cluster, and each replica once."""
    clusters: dict[str, LogDirectory] = {}
    holders: dict[tuple[int, TopicPartition], LogDirectory] = {}
    paths: set[Path] = set()
    for each in directories:
        if each.path.resolve() in paths:
            raise Unusable(f"{each.path} is given twice")
        paths.add(each.path.resolve())
        if each.cluster is not None:
            clusters.setdefault(each.cluster, each)
        for partition in sorted(each.partitions):
            other = holders.setdefault((each.broker, partition), each)
            if other is not each:
                raise Unusable(
                    f"broker {each.broker} has {partition} in {other.path} and in {each.path}"
                    f"{_ids(partition, other, each)}: give one of them"
                )
    if len(clusters) > 1:
        listed = ", ".join(f"{each.path} of {cluster}" for cluster, each in sorted(clusters.items()))
        raise Unusable(f"the directories are of different clusters: {listed}")


def _ids(partition: TopicPartition, *places: LogDirectory) -> str:
    """What tells two replicas of one broker apart, if their topic's ids differ."""
    try:
        found = [topic_id(each.path / str(partition)) for each in places]
    except Unreadable as trouble:
        raise Unusable(str(trouble)) from trouble
    return "" if len(set(found)) == 1 else f" with topic ids {found[0]} and {found[1]}"
