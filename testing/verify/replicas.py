"""The audit of the replicas: when everything is healthy and nobody writes, all logs of a partition are alike.

Of each partition that is asked about, the logs of those brokers that hold a replica, byte for byte from the
first segment to the end, so up to the watermark and beyond. What differs is told with the offset of the first
batch that does, and the watermarks.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from ...base.types import TopicPartition
from ...protocol.batches import HEADER_SIZE, read_header
from ...storage.disk import RealDisk
from ...storage.log.checkpoints import HIGH_WATERMARKS, Unreadable, read_offsets
from ..waiting import until

PARTITION = re.compile(r"(?P<topic>.+)-(?P<number>\d+)")
NOWHERE = -1
CLEAN = ".kafka_cleanshutdown"
DELETED, STRAY = "-delete", "-stray"
LEFT_OVER = (DELETED, STRAY, "-future")


Holders = Mapping[TopicPartition, Sequence[int]]
"""The brokers that hold a replica, by partition."""


def wait_same(directories: Callable[[], dict[int, Path]], holders: Holders, within_s: float) -> None:
    """Wait until the audit finds nothing. AssertionError with what it found last."""
    found: list[str] = []

    def same() -> bool:
        found[:] = audit(directories(), holders)
        return not found

    try:
        until(same, within_s, "the replicas are alike", every_s=0.5)
    except AssertionError as failure:
        raise AssertionError("\n  ".join([str(failure), *found])) from None


def audit(places: dict[int, Path], holders: Holders) -> list[str]:
    """A sentence for each partition whose replicas differ, or lack; `places`: the log directories."""
    found = (compared(str(tp), holders[tp], places) for tp in sorted(holders))
    return [sentence for sentence in found if sentence]


def strays(places: dict[int, Path], holders: Holders) -> list[str]:
    """Logs where no replica should be, or that are about to be deleted; but none that was set aside."""
    wanted = {id: {str(tp) for tp, brokers in holders.items() if id in brokers} for id in places}
    return [
        str(folder)
        for id, data in places.items()
        for folder in data.iterdir()
        if (holds_log(folder) or folder.name.endswith(DELETED)) and folder.name not in wanted[id]
    ]


def holds_log(folder: Path) -> bool:
    return PARTITION.fullmatch(folder.name) is not None and folder.is_dir()


def compared(name: str, holders: Sequence[int], places: dict[int, Path]) -> str:
    """What is different about a partition's replicas; empty if nothing is."""
    folders = {id: places[id] / name for id in holders if id in places}
    if missing := [id for id in holders if id not in folders or not folders[id].is_dir()]:
        return f"{name}: brokers {missing} have no replica of it"
    logs = {id: log_of(folder) for id, folder in folders.items()}
    for (one, log), (other, its_log) in pairwise(sorted(logs.items())):
        if log != its_log:
            at = first_difference(log, its_log)
            offset = offset_at(log if len(log) > len(its_log) else its_log, at)
            told = {id: watermark(places[id], name) for id in holders}
            sizes = {id: len(each) for id, each in logs.items()}
            return (
                f"{name}: brokers {one} and {other} differ from offset {offset} (byte {at}) on; watermarks "
                f"as checkpointed {told}, bytes {sizes}"
            )
    return ""


def log_of(folder: Path) -> bytes:
    return b"".join(segment.read_bytes() for segment in sorted(folder.glob("*.log")))


def first_difference(one: bytes, other: bytes) -> int:
    """The first byte that is not the same; the length of the shorter one if the other goes on after it."""
    low, high = 0, min(len(one), len(other))
    while low < high:  # the first `low` bytes are alike
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def offset_at(log: bytes, position: int) -> int:
    """The base offset of the batch that this byte is in."""
    at = 0
    while at + HEADER_SIZE <= len(log):
        header = read_header(log, at)
        if header.batch_length <= 0:
            break
        if position < at + header.size:
            return header.base_offset
        at += header.size
    return NOWHERE


def watermark(place: Path, name: str) -> int:
    """As the broker has written it last."""
    found = PARTITION.fullmatch(name)
    assert found is not None, name
    try:
        known = read_offsets(RealDisk(), str(place / HIGH_WATERMARKS))
    except Unreadable:  # it is being replaced
        return NOWHERE
    return known.get(TopicPartition(found["topic"], int(found["number"])), NOWHERE)


def untidy(places: dict[int, Path], has_moved: bool = False, kafkas: Collection[int] = ()) -> list[str]:
    """A sentence for what a controlled stop of all brokers has left in their log directories and must not
    leave.

    No clean marker; a log that is to be deleted; an epoch that begins at two offsets (one without a record
    may be known to its leader alone). Where partitions were moved, a replica may have been moved away from a
    broker that was dead: it has set that log aside, for good. Brokers of `kafkas` delete nothing in the first
    half minute after a start.
    """
    left_over = tuple(end for end in LEFT_OVER if end != STRAY or not has_moved)
    begins: dict[tuple[str, str], set[str]] = {}
    wrong = []
    for id, data in places.items():
        if not (data / CLEAN).exists():
            wrong.append(f"broker {id} did not stop cleanly")
        for place in sorted(data.iterdir()):
            if place.name.endswith(left_over) and id not in kafkas:
                wrong.append(f"{place} was left over")
            checkpoint = place / "leader-epoch-checkpoint"
            if checkpoint.exists():
                for line in checkpoint.read_text().splitlines()[2:]:
                    epoch, start = line.split()
                    begins.setdefault((place.name, epoch), set()).add(start)
    return wrong + [
        f"{name}: epoch {epoch} begins at {' and at '.join(sorted(found))}"
        for (name, epoch), found in begins.items()
        if len(found) > 1
    ]
