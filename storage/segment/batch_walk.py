"""Walking from batch to batch by header, and checking what a batch's checksum does not cover.

The checksum does not cover base offset, length, epoch and magic. They are checked against the batch before: a
batch begins where that one ends, in bytes and in offsets (a compacted log may leave offsets out), and its
epoch is not lower. Nothing read from disk is returned before it has passed.
`walk` is the walker. Three loops go their own way because a header object for each batch would cost more than
all else that they do: `reach` and `whole_batches`, which every read needs, and the scan after a crash
(recovery/scan_segment.py).
Left to others: the files (segment.py), checksums (checksums.py, recovery/scan_segment.py, and readers of the
records), batches that are in memory (protocol/batches.py).
"""

from collections.abc import Callable, Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from ...protocol.batches import HEADER_SIZE, LENGTH_END, MAGIC, BatchHeader, read_header
from ...protocol.batches import headers as batches_of
from ...protocol.markers import EndMarker, read_marker
from ...protocol.primitives import Buffer, Malformed
from .index import OffsetIndex

BLOCK_BYTES = 8192  # read at once when walking from header to header
LENGTH_MIN = HEADER_SIZE - LENGTH_END
ANY_EPOCH = (1 << 31) - 1
_read_step = Struct(">qiib6xi").unpack_from  # base offset, length, epoch, magic, last offset delta

Pread = Callable[[int, int], bytes | bytearray]
Placed = tuple[int, BatchHeader]  # where, and what


class CorruptBatch(Exception):
    """Bytes in a log, or sent for one, are not the batches they should be."""


class WrongIndex(Exception):
    """An index entry does not match the batch at its position."""


class WalkRules(NamedTuple):
    """What is allowed in the log that is walked."""

    gaps: bool = True  # offsets may be missing between batches
    epoch_min: int = -1
    epoch_max: int = ANY_EPOCH
    verify: bool = False  # hold what is read to its checksums, too


class Step(NamedTuple):
    """A batch on the way: its position, offsets and size, and where its header can be read."""

    position: int
    base_offset: int
    next_offset: int
    size: int
    block: bytes | bytearray
    skip: int

    @property
    def header(self) -> BatchHeader:
        return read_header(self.block, self.skip)


class WalkStart(NamedTuple):
    """Where to begin: at a batch with a known base offset, or at one that an index entry points to.

    Our entries have the last offset of their batch. Kafka's may have that of a later batch, the last one of
    the same write. In a log without gaps the walk to it is a check in itself.
    """

    position: int
    base_offset: int = -1
    last_offset: int = -1


def walk(pread: Pread, position: int, stop: int) -> Iterator[Placed]:
    """The batches from `position`, a batch's start, up to `stop`, or to where there can be none.

    Reads headers only, each of them once.
    """
    block: bytes | bytearray = b""
    at = position
    while position <= stop - HEADER_SIZE:
        skip = position - at
        if len(block) - skip < HEADER_SIZE:
            block, at, skip = pread(position, BLOCK_BYTES), position, 0
            if len(block) < HEADER_SIZE:
                return
        header = read_header(block, skip)
        if header.magic != MAGIC or header.batch_length < LENGTH_MIN or header.last_offset_delta < 0:
            return
        yield position, header
        position += header.size


def headers(pread: Pread, where: str, position: int, stop: int) -> Iterator[Placed]:
    """The same, of a segment that has batches all the way. Raises CorruptBatch where there can be none."""
    for at, header in walk(pread, position, stop):
        yield at, header
        position = at + header.size
    if position < stop:
        raise CorruptBatch(f"{where}: expected a batch at {position}")


def in_order(batches: Iterable[Placed], where: str, expected: int, gaps: bool) -> Iterator[Placed]:
    """The same batches. Raises CorruptBatch at one that does not continue `expected`; -1: the first may."""
    for at, header in batches:
        base = header.base_offset
        if base != expected and expected >= 0 and (base < expected or not gaps):
            raise CorruptBatch(f"{where}: expected a batch at position {at} that continues offset {expected}")
        yield at, header
        expected = header.next_offset


def runs(
    pread: Pread, position: int, stop: int, window_bytes: int
) -> Iterator[tuple[memoryview, list[Placed]]]:
    """Complete batches from `position`, a batch's start, in pieces of a window or of one larger batch.

    The places are those within the piece. Ends where a batch is cut short; raises Malformed where there can
    be none, once all before it has been yielded.
    """
    while stop - position >= HEADER_SIZE:
        data = memoryview(pread(position, min(window_bytes, stop - position)))
        found = _complete(data)
        if not found and len(data) >= HEADER_SIZE:
            size = read_header(data).size
            if size > stop - position:
                return
            data = memoryview(pread(position, size))
            found = _complete(data)
        if not found:
            return
        at, header = found[-1]
        yield data[: at + header.size], found
        position += at + header.size


def _complete(data: memoryview) -> list[Placed]:
    found: list[Placed] = []
    try:
        for placed in batches_of(data):
            found.append(placed)
    except Malformed:
        if not found:
            raise
    return found


def _block(pread: Pread, where: str, position: int) -> bytes | bytearray:
    block = pread(position, BLOCK_BYTES)
    if len(block) < HEADER_SIZE:
        raise CorruptBatch(f"{where}: the batch at {position} is larger than the rest of the file")
    return block


def reach(pread: Pread, where: str, start: WalkStart, stop: int, offset: int, gaps: bool) -> Step | None:
    """The first batch from `start` on that reaches `offset`: it holds it, or comes after a gap that does.

    Every read that goes to a file begins here, so it does not use `walk`: no object is made for the batches
    that are only passed, which takes a third of the time.
    """
    position, expected = start.position, start.base_offset
    if expected < 0 and not 0 <= position <= stop - HEADER_SIZE:
        raise WrongIndex(f"{where}: {position} is no valid start of a batch")
    block: bytes | bytearray = b""
    at, last = position, -1
    while position < stop:
        skip = position - at
        if skip > last:
            block, at, skip = _block(pread, where, position), position, 0
            last = len(block) - HEADER_SIZE
        base_offset, length, _, magic, delta = _read_step(block, skip)
        if expected < 0:
            last_offset = base_offset + delta
            lies = last_offset > start.last_offset or (gaps and last_offset < start.last_offset)
            if lies or magic != MAGIC or delta < 0 or length < LENGTH_MIN:
                raise WrongIndex(
                    f"{where}: the batch at {position} does not end with offset {start.last_offset}"
                )
        elif (
            magic != MAGIC
            or length < LENGTH_MIN
            or delta < 0
            or (base_offset != expected and (not gaps or base_offset < expected))
        ):
            raise CorruptBatch(f"{where}: expected a batch at position {at} that continues offset {expected}")
        expected = base_offset + delta + 1
        if expected > offset:
            return Step(position, base_offset, expected, length + LENGTH_END, block, skip)
        position += length + LENGTH_END
    if position != stop:
        raise CorruptBatch(f"{where}: the last batch extends beyond {stop}")
    return None


def whole_batches(
    data: bytes | bytearray, where: str, start: int, room: int, rest: int, expected: int, end: int,
    rules: WalkRules,
) -> tuple[int, int, int]:  # fmt: skip
    """Check the batches at the front of `data`, which was read from position `start` of `where`.

    Returns the bytes of those that fit `room`, the offset after them, and the size of the first. `data`
    begins with the batch at `expected`, or after a gap that holds it. It reaches one header further than
    `room`, unless the segment, of which `rest` bytes are left, ends before. Batches that begin at `end` or
    later are left out. A loop of its own, as `reach` is and for the same reason.
    """
    gaps, epoch, epoch_max, _ = rules
    at = first = 0
    seen = len(data) - HEADER_SIZE
    while at <= seen:
        base_offset, length, batch_epoch, magic, delta = _read_step(data, at)
        size = length + LENGTH_END
        if (
            base_offset != expected
            or batch_epoch != epoch
            or magic != MAGIC
            or size < HEADER_SIZE
            or delta < 0
            or at + size > rest
        ):
            follows = base_offset == expected or (gaps and base_offset > expected)
            shaped = magic == MAGIC and HEADER_SIZE <= size <= rest - at and delta >= 0
            if not (follows and shaped and epoch <= batch_epoch <= epoch_max):
                raise CorruptBatch(
                    f"{where}: expected a batch at position {at} that continues offset {expected}"
                )
            epoch = batch_epoch
        if base_offset >= end:
            break
        first = first or size
        if at + size > room:
            break
        at += size
        expected = base_offset + delta + 1
    else:
        if at < rest:
            raise CorruptBatch(f"{where}: the batch at {start + at} is larger than the rest of the file")
    return at, expected, first


def marker_in(data: Buffer, at: int, header: BatchHeader) -> EndMarker | None:
    """The marker in the batch of a log; None if it has none.

    Also if it cannot be read, though its checksum is right: nobody knows what it decides, so its transaction
    stays open.
    """
    try:
        return read_marker(data, at, header) if header.is_control else None
    except Malformed:
        return None


def index_of(pread: Pread, where: str, base_offset: int, stop: int, interval: int = 4096) -> OffsetIndex:
    """The offset index that a segment should have, from its headers."""
    index = OffsetIndex()
    unindexed = 0
    for position, header in in_order(headers(pread, where, 0, stop), where, base_offset, gaps=True):
        if unindexed > interval:
            index.append(header.last_offset - base_offset, position)
            unindexed = 0
        unindexed += header.size
    return index
