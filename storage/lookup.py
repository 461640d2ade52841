"""Which record was written when: offsets by timestamp, through the time indexes.

Timestamps come from producers, so they need not rise with offsets; the answers are Kafka's: the first
offset that is as late as asked, and the record with the largest timestamp.
"""

from collections.abc import Sequence

from ..protocol.batches import BatchHeader
from ..protocol.primitives import Malformed
from ..protocol.records import iterate
from .segment import Segment

Found = tuple[int, int, int]  # timestamp, offset, leader epoch


def first_at(segments: Sequence[Segment], ms: int, start: int, end: int) -> Found | None:
    """The first record in [start, end) whose timestamp is at least `ms`."""
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if segment.base_offset >= end:
            return None
        before_start = following is not None and following.base_offset <= start
        if before_start or segment.newest[0] < ms:
            continue
        position = segment.index.floor(segment.times.floor(ms))
        for at, header in segment.headers(position):
            if header.base_offset >= end:
                return None
            if header.max_timestamp >= ms and header.next_offset > start:
                found = _first_in(segment, at, header, ms, start, end)
                if found is not None:
                    return found
    return None


def newest(segments: Sequence[Segment], start: int, end: int) -> Found | None:
    """The first of the records with the largest timestamp, if it lies in [start, end)."""
    holding = [segment for segment in segments if segment.size]
    if not holding:
        return None
    segment = max(holding, key=lambda s: s.newest[0])
    ms, offset = segment.newest
    found = segment.locate(offset)
    if found is None or found[1].base_offset >= end:
        return None
    return _first_in(segment, *found, ms, start, end)


def _first_in(
    segment: Segment, position: int, header: BatchHeader, ms: int, start: int, end: int
) -> Found | None:
    """The first such record of one batch. Of a batch that cannot be opened its header's word is taken:
    its producer has sealed it so, and nobody else's lookups shall suffer from that.
    """
    try:
        for record in iterate(segment.file.pread(position, header.size), verify=False):
            if record.timestamp >= ms and start <= record.offset < end:
                return record.timestamp, record.offset, header.leader_epoch
    except Malformed:
        return header.max_timestamp, max(start, header.base_offset), header.leader_epoch
    return None
