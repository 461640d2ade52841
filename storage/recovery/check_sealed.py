"""The quick check of a segment that need not be scanned: do its files belong together?

The .log file is walked from its last index entry to its end, to find one that was cut short or grew. The last
entries of both indexes are checked against their batches. That is a few small reads for a segment of a
gigabyte, and nothing is kept in memory.
Left to others: scanning the segments that do not pass (scan_segment.py).
Why: docs/decisions/0023-believed-until-something-differs.md
"""

from collections.abc import Iterator
from contextlib import closing
from typing import NamedTuple

from ...protocol.batches import HEADER_SIZE, MAGIC, BatchHeader, crc_ok, read_header
from ...protocol.markers import EndMarker
from ..disk import File
from ..segment.batch_walk import marker_in, walk
from ..segment.file_names import INDEX, LOG, TIME_INDEX
from ..segment.index import OFFSET_ENTRY, TIME_ENTRY
from ..segment.segment import NO_TIME, Segment

WALK_BYTES_MAX = 64 << 20  # a last index entry further from the end than this is implausible


class SegmentEnd(NamedTuple):
    """A segment's end offset, and the epoch of its last batch; -1 if it is empty."""

    offset: int
    epoch: int


def sealed_end(segment: Segment, following: int | None, gaps: bool) -> SegmentEnd | None:
    """The end of a segment whose data was synced; None if it must be scanned.

    `following` is the base offset of the next segment, None for the last one. In the last one the checksums
    of the batches at the end are checked, because nothing else tells where the log ends.
    """
    disk = segment.disk
    if not all(disk.exists(segment.path(suffix)) for suffix in (INDEX, TIME_INDEX)):
        return None if segment.size else SegmentEnd(segment.base_offset, -1)
    with closing(disk.open(segment.path(LOG))) as file:
        entry = _last_entry(segment)
        newest = None if entry is None else _newest(segment, file)
        if entry is None or newest is None:
            return None
        found = _walk_to_end(segment, file, entry, newest, gaps, check=following is None)
    if found is None:
        return None
    if following is None or found.offset == following or (gaps and found.offset < following):
        return SegmentEnd(found.offset if following is None else following, found.epoch)
    return None


def _last_entry(segment: Segment) -> tuple[int, int] | None:
    """The last entry of the offset index, (0, 0) without one; None if it cannot be this segment's index."""
    with closing(segment.disk.open(segment.path(INDEX))) as file:
        size = file.size()
        if size == 0:
            return 0, 0
        if size % OFFSET_ENTRY.size:
            return None
        first, _ = OFFSET_ENTRY.unpack(file.pread(0, OFFSET_ENTRY.size))
        last, position = OFFSET_ENTRY.unpack(file.pread(size - OFFSET_ENTRY.size, OFFSET_ENTRY.size))
    return (last, position) if 0 <= first <= last and 0 < position < segment.size else None


def _newest(segment: Segment, log: File) -> int | None:
    """The time in the last entry of the time index, -1 without one; None if no batch with that time ends at
    its offset.
    """
    with closing(segment.disk.open(segment.path(TIME_INDEX))) as file:
        size = file.size()
        if size == 0:
            timed = any(header.max_timestamp >= 0 for _, header in walk(log.pread, 0, segment.size))
            return None if timed else NO_TIME
        if size % TIME_ENTRY.size or size // TIME_ENTRY.size > segment.size:
            return None
        first_time, first = TIME_ENTRY.unpack(file.pread(0, TIME_ENTRY.size))
        last_time, last = TIME_ENTRY.unpack(file.pread(size - TIME_ENTRY.size, TIME_ENTRY.size))
    if first_time > last_time or not 0 <= first <= last:
        return None
    offset = segment.base_offset + last
    for _, header in walk(log.pread, floor_position(segment, last), segment.size):
        if header.last_offset >= offset:  # Kafka's entry has the record's own offset, anywhere in its batch
            is_right = header.max_timestamp == last_time and header.base_offset <= offset
            return int(last_time) if is_right else None
    return None


def _walk_to_end(
    segment: Segment, log: File, entry: tuple[int, int], newest: int, gaps: bool, check: bool
) -> SegmentEnd | None:
    """Walk the headers to the end of the file; None unless the last batch ends exactly there, or if a time
    on the way is later than the `newest`: then the time index was cut short.
    """
    last, position = entry
    if segment.size - position > WALK_BYTES_MAX:
        return None
    end, indexed = SegmentEnd(segment.base_offset, -1), position > 0
    for at, header in walk(log.pread, position, segment.size):
        leap = header.base_offset - end.offset
        if indexed:
            leap, indexed = header.last_offset - segment.base_offset - last, False
        if leap < 0 or (leap and not gaps) or header.max_timestamp > newest:
            return None
        if check and not crc_ok(log.pread(at, header.size), 0, header):
            return None
        end, position = SegmentEnd(header.next_offset, header.leader_epoch), at + header.size
    return end if position == segment.size else None


def headers_from(segment: Segment, offset: int) -> Iterator[BatchHeader]:
    """The batches from one at or before `offset` on."""
    with closing(segment.disk.open(segment.path(LOG))) as file:
        begin = floor_position(segment, offset - segment.base_offset)
        for _, header in walk(file.pread, begin, segment.size):
            yield header


def produced_from(segment: Segment, offset: int) -> Iterator[tuple[BatchHeader, EndMarker | None]]:
    """The same, only batches with a producer, each with its marker if it has one."""
    with closing(segment.disk.open(segment.path(LOG))) as file:
        begin = floor_position(segment, offset - segment.base_offset)
        for at, header in walk(file.pread, begin, segment.size):
            if header.producer_id >= 0:
                yield header, marker_in(file.pread(at, header.size), 0, header) if header.is_control else None


def floor_position(segment: Segment, relative: int) -> int:
    """The position of a batch at or before `relative`, from a few entries of the index file.

    0 if the entry does not match the batch at its position.
    """
    if relative <= 0 or not segment.disk.exists(segment.path(INDEX)):
        return 0
    with closing(segment.disk.open(segment.path(INDEX))) as file:
        low, high, found = 0, file.size() // OFFSET_ENTRY.size, (0, 0)
        while low < high:
            middle = (low + high) // 2
            entry = OFFSET_ENTRY.unpack(file.pread(middle * OFFSET_ENTRY.size, OFFSET_ENTRY.size))
            if entry[0] <= relative:
                low, found = middle + 1, entry
            else:
                high = middle
    last, position = found
    if not 0 < position <= segment.size - HEADER_SIZE:
        return 0
    with closing(segment.disk.open(segment.path(LOG))) as file:
        header = read_header(file.pread(position, HEADER_SIZE))
    return position if header.last_offset == segment.base_offset + last and header.magic == MAGIC else 0
