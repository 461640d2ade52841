"""Read a segment batch by batch, believe nothing, and say where it stops being good.

A batch cut short at the very end is a torn write, which nobody was ever told of. All else that is wrong
is corruption: its CRC does not cover base offset, length, epoch and magic, so these are held against
their neighbours.
Left to others: what is done about it (storage/recovery.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum

from ..protocol.batches import BASE_OFFSET, HEADER_SIZE, MAGIC, BatchHeader, crc_ok, read_header
from .index import OffsetIndex, TimeIndex
from .segment import NO_TIME, Segment

BLOCK_BYTES = 4 << 20


class Fault(Enum):
    """Why a scan stopped before the end of a segment."""

    NONE = "none"
    TORN = "torn"
    CORRUPT = "corrupt"


@dataclass(slots=True)
class Scan:
    """What a scan found: good up to `valid_bytes`, which is offset `end_offset`."""

    segment: Segment
    end_offset: int
    valid_bytes: int = 0
    fault: Fault = Fault.NONE
    reason: str = ""
    epochs: list[tuple[int, int]] = field(default_factory=list)
    index: OffsetIndex = field(default_factory=OffsetIndex)
    times: TimeIndex = field(default_factory=TimeIndex)

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1


class Window:
    """A segment's bytes through one block at a time, enlarged for a batch that is larger."""

    __slots__ = ("at", "block", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.block = memoryview(b"")
        self.at = 0

    def get(self, position: int, size: int) -> memoryview:
        """`size` bytes at `position`, or fewer at the segment's end."""
        skip = position - self.at
        if skip < 0 or skip + size > len(self.block):
            self.block = memoryview(self.segment.file.pread(position, max(size, BLOCK_BYTES)))
            self.at, skip = position, 0
        return self.block[skip : skip + size]


def scan(segment: Segment, expected: int, epoch: int, gaps: bool, interval: int) -> Scan:
    """Check every batch of `segment`: the first must stand at `expected`, under `epoch` or a later one."""
    found = Scan(segment, expected)
    newest, newest_offset, unindexed = NO_TIME, segment.base_offset, 0
    for position, header in _good_batches(found, epoch, gaps):
        if header.leader_epoch != found.latest_epoch:
            found.epochs.append((header.leader_epoch, header.base_offset))
        if header.max_timestamp > newest:
            newest, newest_offset = header.max_timestamp, header.last_offset
        if unindexed > interval:
            found.index.append(header.last_offset - segment.base_offset, position)
            found.times.append(newest, newest_offset - segment.base_offset)
            unindexed = 0
        unindexed += header.size
        found.valid_bytes = position + header.size
        found.end_offset = header.next_offset
    return found


def _good_batches(found: Scan, epoch: int, gaps: bool) -> Iterator[tuple[int, BatchHeader]]:
    """Batches up to the first fault, which is noted in `found`."""
    segment, window = found.segment, Window(found.segment)
    position, size = 0, found.segment.size
    while position < size:
        head = window.get(position, HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            found.fault, found.reason = Fault.TORN, f"{len(head)} bytes of a header at {position}"
            return
        header = read_header(head)
        epoch = max(epoch, found.latest_epoch)
        wrong = misplaced(header, found.end_offset, epoch, gaps)
        if not wrong and position + header.size > size:
            rest = window.get(position, size - position)
            if not _followed(rest, header):
                found.fault, found.reason = Fault.TORN, f"batch cut short at {position}"
                return
            wrong = "its length reaches over good batches"
        if not wrong and not crc_ok(window.get(position, header.size), 0, header):
            wrong = "its checksum does not match"
        if wrong:
            found.fault, found.reason = Fault.CORRUPT, f"{segment.base_offset}@{position}: {wrong}"
            return
        yield position, header
        position += header.size


def misplaced(header: BatchHeader, expected: int, epoch: int, gaps: bool) -> str:
    """What is wrong with a header among its neighbours; empty if nothing."""
    if header.magic != MAGIC or header.size < HEADER_SIZE or header.last_offset_delta < 0:
        return "it is no batch"
    if header.base_offset < expected or (header.base_offset > expected and not gaps):
        return f"it has offset {header.base_offset}, {expected} is next"
    if header.leader_epoch < epoch:
        return f"it has epoch {header.leader_epoch} after {epoch}"
    return ""


def _followed(rest: memoryview, header: BatchHeader) -> bool:
    """Whether a good batch stands inside what `header` claims: then its length lies, no write was torn."""
    data = bytes(rest)
    wanted = BASE_OFFSET.pack(header.next_offset)
    at = data.find(wanted, HEADER_SIZE)
    while at >= 0 and at + HEADER_SIZE <= len(data):
        following = read_header(data, at)
        if following.magic == MAGIC and crc_ok(data, at, following):
            return True
        at = data.find(wanted, at + 1)
    return False
