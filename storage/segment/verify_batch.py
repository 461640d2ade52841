"""Check one batch of an open log, as a reader would: is it what was written?

Left to others: who asks, and why (broker/replicas/refused_batch.py), all batches of a segment
(recovery/scan_segment.py).
Why: docs/decisions/0029-what-a-flipped-bit-may-do.md
"""

from bisect import bisect_right
from collections.abc import Sequence
from contextlib import closing

from ...protocol.batches import crc_ok
from .batch_walk import CorruptBatch
from .segment import Segment


def damage_at(segments: Sequence[Segment], offset: int, end: int, gaps: bool = False) -> str:
    """What is wrong with the batch that reaches `offset`; empty if nothing. Blocking.

    With `gaps` it may begin later: compaction may have left nothing from `offset` on in the segment.
    """
    place = bisect_right(segments, offset, key=_base_offset) - 1
    if place < 0 or offset >= end:
        return ""
    try:
        for segment in segments[place : None if gaps else place + 1]:
            with closing(segment.apart()) as own:
                found = own.locate(offset, gaps)
                if found is not None:
                    position, header = found
                    if crc_ok(own.file.pread(position, header.size), 0, header):
                        return ""
                    return f"the checksum of the batch at {header.base_offset} does not match"
    except CorruptBatch as error:
        return str(error)
    return "" if gaps else f"offset {offset} is not in the segment that should hold it"


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
