"""Logs: all partitions of a broker, over one or more log directories.

Opening, creating and removing them, the checkpoints they share, and passes that the broker calls from its
own tasks. What says "blocking" may run in a thread: it works on copies and never touches a log's state.
Left to others: when passes run (broker/node.py), who is told of a failed directory (broker/replicas.py).
"""

from collections.abc import Collection, Mapping, Sequence
from uuid import UUID

import structlog

from ..protocol.kinds import Clock, TopicPartition
from .aside import NAME_MAX
from .cleaning.checkpoint import CleanerOffsets
from .condemned import DELETED, Condemned
from .config import StorageConfig, TopicConfig
from .disk import Disk, DiskError, ReplicaElsewhere, disk_error
from .epochs import EpochHistory
from .fresh import Fresh
from .handles import OpenSegments
from .log import Log
from .opening import (
    AmbiguousDirectory,
    Crew,
    Directory,
    Opening,
    Stop,
    one_by_one,
    parse_directory,
)
from .places import Places
from .producers import ProducerStates
from .promises import Promises
from .recovery import BeforeLoss, Obstructed, Recovered
from .retention import FOREVER, expired, with_ends

__all__ = ["STRAY", "AmbiguousDirectory", "Logs", "Obstructed", "Stop", "parse_directory"]

log = structlog.get_logger(__name__)

STRAY = "-stray"


class Logs:
    """The logs of a broker. `recovered` tells what opening them has cost."""

    _opening: Opening

    def __init__(
        self,
        dirs: Sequence[str],
        disk: Disk,
        config: StorageConfig,
        clock: Clock,
        offline: Mapping[str, str] | None = None,
    ) -> None:
        self.places = Places(dirs, offline)
        self.disk = disk
        self.config = config
        self.clock = clock
        self.logs: dict[TopicPartition, Log] = {}
        self.closed: set[TopicPartition] = set()  # there, but to mend them there was no room
        self.recovered: list[Recovered] = []
        self.condemned = Condemned()
        self.starts_moved = False  # since log start offsets were last written down
        self.removed_from: set[str] = set()  # directories in which removals wait for a sync
        self._dir_of: dict[TopicPartition, str] = {}
        self._promises = Promises(disk, self.places, self._dir_of)
        self.cleaned = CleanerOffsets(disk, self._dir_of.get)  # up to where logs are compacted
        self._open_segments = OpenSegments(
            config.sealed_open_max, config.open_files_max or max(disk.open_files_max() // 2, 16)
        )

    @classmethod
    def open(
        cls,
        dirs: Sequence[str],
        disk: Disk,
        config: StorageConfig,
        clock: Clock,
        *,
        clean: bool,
        before_loss: BeforeLoss,
        offline: Mapping[str, str] | None = None,
        same_boot: bool = True,
        doubts: Collection[str] = (),
        crew: Crew = one_by_one,
    ) -> "Logs":
        """Open every log in `dirs`; those that are `offline`, or turn out to be, are left out. Blocking.

        `clean` says that the previous process closed them all (Incarnations.clean), `same_boot` that what it
        wrote is still there, `doubts` in which partitions it found damage. `before_loss` must have written
        its note to the medium when it returns. `crew` works on several logs at once.
        """
        logs = cls(dirs, disk, config, clock, offline)
        stop = Stop(clean, same_boot, doubts)
        opening = Opening(disk, config, clock, logs._open_segments, stop, before_loss, crew)
        logs._opening = opening
        for directory in opening.open(logs.places.usable):
            logs._take(directory)
        return logs

    def open_again(self, path: str) -> Directory:
        """What could not be opened in this directory for want of room, for `take_again`. Blocking."""
        return self._opening.open_again(path, [p for p in self.closed if self._dir_of[p] == path])

    def take_again(self, directory: Directory) -> None:
        """What could be opened now is ours. Raises OSError or DiskError if the directory has failed."""
        if directory.failure is not None:
            raise directory.failure
        for opened, _, _ in directory.opened:
            self.closed.discard(opened.partition)
        self._take(directory)

    def _take(self, directory: Directory) -> None:
        """What was found in a directory is ours; a failed one is offline, unless it is the only one."""
        if directory.failure is not None:
            if self.places.usable == [directory.path]:
                raise directory.failure
            self.give_up(directory.path, str(directory.failure))
        self.condemned.add(directory.condemned)
        for opened, cost, known in directory.opened:
            partition = opened.partition
            self._adopt(opened, directory.path)
            self._promises.recovery_points[partition] = known.recovery_point
            self._promises.start_offsets[partition] = known.start_offset or 0
            self.recovered.append(cost)
            self.high_watermarks[partition] = max(
                opened.start_offset, min(known.high_watermark, opened.end_offset)
            )
        for partition, known in directory.closed.items():
            self.closed.add(partition)
            self._dir_of[partition] = directory.path
            self._promises.start_offsets[partition] = known.start_offset or 0
            self.high_watermarks[partition] = known.high_watermark
        self.cleaned.adopt({p: end for p, end in directory.cleaned.items() if p in self.logs})

    # -- one log

    def get(self, partition: TopicPartition) -> Log | None:
        return self.logs.get(partition)

    def directory_of(self, partition: TopicPartition) -> str:
        """The log directory that holds the partition, also when it is offline."""
        return self._dir_of[partition]

    def give_up(self, directory: str, reason: str) -> list[TopicPartition]:
        """A directory is offline from now on: its logs are closed as they are. The partitions it held."""
        self.places.lose(directory, reason)
        gone = [partition for partition in self.logs if self._dir_of[partition] == directory]
        for partition in gone:
            self.logs.pop(partition).fail()
            self.cleaned.forget(partition)
        return gone

    def create(
        self, partition: TopicPartition, topic_id: UUID | None, config: TopicConfig, is_new: bool = True
    ) -> Log:
        """An empty log, on the medium; the log that is there if there is one. Blocking. Raises DiskError."""
        existing = self.logs.get(partition)
        if existing is not None:
            return existing
        fresh = self.fresh(partition, topic_id, config, is_new)
        fresh.make(self.disk, self.clock.wall_ms(), sync=True)
        return self.begin(fresh)

    def fresh(
        self, partition: TopicPartition, topic_id: UUID | None, config: TopicConfig, is_new: bool = True
    ) -> Fresh:
        """A log to be made in the directory with the fewest.

        A replica that is not new (`is_new`) may lie in a directory that is offline: then it is not begun
        elsewhere, for it would be empty. Raises DiskError.
        """
        assert partition not in self.logs, f"{partition} has a log"
        if self.places.offline and not is_new:
            raise ReplicaElsewhere(", ".join(self.places.offline), OSError(f"{partition} may be there"))
        if partition in self.closed:
            raise ReplicaElsewhere(
                self._dir_of[partition], OSError(f"no room to mend the log of {partition}")
            )
        self._lower(partition, 0, 0)  # there may have been a log of this name
        directory = self._dir_of[partition] = self.places.for_new(self._dir_of.values())
        return Fresh(partition, topic_id, config, directory)

    def begin(self, fresh: Fresh) -> Log:
        """The log whose files have been made. Raises DiskError if they have not."""
        fresh.check(self.places.offline)
        if fresh.error is not None:
            del self._dir_of[fresh.partition]
            raise fresh.error
        assert fresh.segment is not None, "it was made"
        begun = Log(
            self.disk,
            fresh.path,
            fresh.partition,
            fresh.config,
            segments=[fresh.segment],
            start_offset=0,
            end_offset=0,
            epochs=EpochHistory(),
            producers=ProducerStates(self.config.producer_ids_max),
            open_segments=self._open_segments,
            topic_id=fresh.topic_id,
            tail_bytes_max=self.config.tail_cache_bytes,
        )
        self._adopt(begun, fresh.directory)
        return begun

    def _adopt(self, each: Log, directory: str) -> None:
        partition = each.partition
        self.logs[partition] = each
        self._dir_of[partition] = directory
        each.before_cut = lambda end, start: self._lower(partition, end, start)
        each.start_moved = self._start_moved
        each.gone = self.condemned.add

    def _start_moved(self, _offset: int) -> None:
        self.starts_moved = True

    def lower(self, ends: Mapping[TopicPartition, int]) -> None:
        """Logs are about to be cut to these `ends`. Blocking. Raises DiskError."""
        self._promises.lower_all(ends)

    def _lower(self, partition: TopicPartition, end: int, start: int) -> None:
        self.cleaned.lower(partition, end)
        self._promises.lower(partition, end, start)

    def remove(self, partition: TopicPartition, name: UUID, suffix: str = DELETED, sync: bool = True) -> str:
        """Take a log away at once by renaming its directory; it is deleted later. Raises DiskError.

        With `suffix=STRAY` the data is kept for an operator and never served. Without `sync` the new name
        waits for `settle_removals`. A log whose directory cannot be renamed stays.
        """
        gone, directory = self.logs[partition], self._dir_of[partition]
        tail = f"-{partition.partition}.{name.hex}{suffix}"
        target = f"{directory}/{partition.topic[: NAME_MAX - len(tail)]}{tail}"
        try:
            self.disk.rename(gone.directory, target)
        except OSError as error:
            raise disk_error(gone.directory, error) from error
        del self.logs[partition], self._dir_of[partition]
        self.cleaned.forget(partition)
        gone.abandon()  # the checkpoint files keep its entries until they are written again
        if suffix == DELETED:
            self.condemned.add([target], gone.config.file_delete_delay_ms)
        self.removed_from.add(directory)
        if sync:
            self.settle_removals()
        return target

    def settle_removals(self) -> None:
        """Bring the new names of removed logs to the medium. Blocking. Raises DiskError.

        Checkpoints forget them then, for a log that they name and that is not there counts as lost.
        """
        while self.removed_from:
            directory = self.removed_from.pop()
            try:
                self.disk.sync_dir(directory)
            except OSError as error:
                raise disk_error(directory, error) from error
            self._promises.forget_removed(directory)

    # -- checkpoints

    @property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """As they were written down last."""
        return self._promises.high_watermarks

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Write down the watermarks. Blocking. Raises DiskError."""
        self._promises.give_watermarks({p: at for p, at in high_watermarks.items() if p in self.logs})

    def checkpoint_recovery_points(self) -> None:
        """Write down up to where each log is on the medium, and where it starts. Blocking."""
        self._promises.give_recovery_points(
            lambda: {partition: each.flushed_offset for partition, each in dict(self.logs).items()}
        )
        self.checkpoint_start_offsets()

    def checkpoint_start_offsets(self) -> None:
        """Write down where logs begin, if that is not where their first segment does. Blocking."""
        self._promises.give_starts(self._starts)

    def _starts(self) -> dict[TopicPartition, int]:
        self.starts_moved = False  # first: what moves meanwhile may or may not be written
        written = self._promises.start_offsets
        starts = {p: start for p in list(self.closed) if (start := written.get(p))}
        return starts | {p: start for p, each in dict(self.logs).items() if (start := begins_within(each))}

    # -- passes

    def retire(self, each: Log, high_watermark: int, count_max: int) -> int:
        """Take up to `count_max` expired segments out of a log; returns how many. Raises DiskError."""
        config, now_ms = each.config, self.clock.wall_ms()
        segments = with_ends(each.segments, each.end_offset)
        log_bytes = each.size if config.retention_bytes != FOREVER else 0
        count = expired(segments, log_bytes, config, now_ms, each.start_offset, high_watermark, count_max)
        if count:
            self.condemned.add(each.retire(count, now_ms), config.file_delete_delay_ms)
        return count

    def configure(self, config: StorageConfig) -> None:
        """Another configuration holds from now on. What topics inherit of it is told to logs one by one."""
        self.config = config
        for each in self.logs.values():
            each.producers.producers_max = config.producer_ids_max

    def expire_producers(self, each: Log) -> int:
        """Forget producers of a log that have been silent for producer.id.expiration.ms."""
        return each.producers.expire(self.clock.wall_ms(), self.config.producer_id_expiration_ms)

    def close(self, clean: bool = True) -> bool:
        """Close all logs; True if every one is whole on the medium, so that a clean marker may be written.

        One in which damage was found counts as closed: that it is in doubt is written down already. With
        `clean=False` nothing is written. Blocking.
        """
        good = clean and not self.closed  # those must be read again
        for each in self.logs.values():
            try:
                if clean:
                    each.close()
                    good = good and (each.damaged or not each.failed)
                else:
                    each.abandon()
            except DiskError as error:
                log.error("log_not_closed", partition=str(each.partition), reason=str(error))
                good = False
        if clean:
            try:
                self.checkpoint_recovery_points()
            except DiskError as error:  # a longer recovery
                log.error("recovery_points_not_written", reason=str(error))
                good = False
        return good


def begins_within(each: Log) -> int | None:
    """Where the log begins, if that is behind the beginning of its first segment. A thread may ask."""
    first, start = each.segments[:1], each.start_offset
    return start if first and first[0].base_offset < start else None
