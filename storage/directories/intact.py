"""The proof of intactness: does this broker still have the data it had before? Pure.

A broker may be elected only for data that it can prove to have. Each log directory keeps the number of the
last incarnation, the boot it ran in, and since which incarnation the data is intact. A clean marker says that
everything was synced. The verdict of this start follows from these and from ZooKeeper's record.
Left to others: the files themselves (incarnation.py), what may be elected (controller/).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from pydantic import BaseModel

from ...base.types import TopicPartition
from ...base.values import dataclass

FROM_KAFKA = 0  # `intact_since` of a broker that found all that Apache Kafka's broker of its id had
DOUBTS_MAX = 100  # with more doubtful partitions than this the broker as a whole is not intact


class IncarnationFile(BaseModel, frozen=True, extra="forbid"):
    """What a log directory remembers of the last start."""

    version: int = 1
    last_k: int
    boot_id: str
    intact_since: int
    intact_since_of: dict[str, int] = {}
    flush_mode: bool
    lost_note: bool = False  # written before data is lost, cleared by the next registration
    doubts: list[str] = []  # the same, for single partitions


@dataclass(frozen=True, slots=True)
class Remembered:
    """The worst of all log directories' files: None where one of them is missing or they differ."""

    last_k: int | None
    boot_id: str | None
    intact_since: int
    intact_since_of: Mapping[str, int]
    flush_mode: bool
    lost_note: bool
    doubts: frozenset[str]
    clean: bool
    is_kafkas: bool = False  # Apache Kafka has closed every directory cleanly, and we never had one of them


@dataclass(frozen=True, slots=True)
class Intactness:
    """This incarnation, and since which one the data is intact; exceptions by partition."""

    k: int
    intact_since: int
    intact_since_of: dict[str, int] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()

    @property
    def intact(self) -> bool:
        """Whether the broker as a whole has the data it had before."""
        return self.intact_since < self.k

    def again(self, k: int, doubts: Collection[TopicPartition] = ()) -> "Intactness":
        """The same broker as incarnation `k`, as intact as before but for replicas now found in `doubts`."""
        of = {**self.intact_since_of, **dict.fromkeys(map(str, doubts), k)}
        if len(of) > DOUBTS_MAX:
            return Intactness(k, k, reasons=(f"{len(of)} doubtful partitions",))
        return Intactness(k, self.intact_since, of)

    def intact_for(self, partition: TopicPartition) -> int:
        """Since which incarnation the data of this partition is intact."""
        return self.intact_since_of.get(str(partition), self.intact_since)


def worst(files: Sequence[IncarnationFile | None], clean: bool) -> Remembered:
    """Merge the directories' files: one that is missing or disagrees destroys the proof."""
    there = [file for file in files if file is not None]
    complete = bool(there) and len(there) == len(files)
    ks = {file.last_k for file in there}
    boots = {file.boot_id for file in there}
    of: dict[str, int] = {}
    for file in there:
        for partition, k in file.intact_since_of.items():
            of[partition] = max(k, of.get(partition, 0))
    return Remembered(
        last_k=ks.pop() if complete and len(ks) == 1 else None,
        boot_id=boots.pop() if complete and len(boots) == 1 else None,
        intact_since=max((file.intact_since for file in there), default=0),
        intact_since_of=of,
        flush_mode=complete and all(file.flush_mode for file in there),
        lost_note=any(file.lost_note for file in there),
        doubts=frozenset(p for file in there for p in file.doubts),
        clean=clean,
    )


def judge(
    before: Remembered,
    *,
    boot_id: str,
    z_k: int,
    z_dirs: Collection[str],
    dirs: Collection[str],
    failed_dirs: Collection[str] = (),
    recovery_lost: bool = False,
) -> Intactness:
    """The data-intact proof. `z_k` and `z_dirs` are ZooKeeper's record, `dirs` the directories present.

    The first start on directories that Apache Kafka has closed cleanly has what Kafka's broker had.
    """
    k = z_k + 1
    if before.is_kafkas and k == 1 and not (recovery_lost or before.lost_note or failed_dirs):
        return Intactness(k, FROM_KAFKA, dict.fromkeys(sorted(before.doubts), k))
    survived = before.clean or before.boot_id == boot_id or before.flush_mode
    broken = {
        "no incarnation file in every log directory, or they differ": before.last_k is None,
        "the machine rebooted without a clean shutdown, and log.flush.before.ack was off": not survived,
        "a log directory is missing": not set(z_dirs) <= set(dirs),
        "a log directory failed": not set(failed_dirs).isdisjoint(z_dirs) or bool(failed_dirs),
        "the log directories are not those of the last incarnation": before.last_k not in (z_k, z_k + 1),
        "recovery lost records": recovery_lost,
        "an earlier start recorded a loss": before.lost_note,
    }
    reasons = tuple(reason for reason, holds in broken.items() if holds)
    if reasons:
        return Intactness(k, k, {}, reasons)
    of = {p: since for p, since in before.intact_since_of.items() if since > before.intact_since}
    of.update(dict.fromkeys(before.doubts, k))
    if len(of) > DOUBTS_MAX:
        return Intactness(k, k, {}, (f"{len(of)} partitions are doubtful",))
    return Intactness(k, before.intact_since, dict(sorted(of.items())))
