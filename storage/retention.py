"""Which segments may go: a pure rule over what is known of them.

Old segments go whole, oldest first, and never one that holds a record above the high watermark.
Left to others: taking them away (storage/logs.py), compaction.
"""

from collections.abc import Sequence
from typing import NamedTuple

from .config import TopicConfig

FOREVER = -1


class SegmentFacts(NamedTuple):
    """What retention asks of a segment; `newest_ms` is its creation if its records carry no time."""

    next_offset: int
    size: int
    newest_ms: int


def expired(
    segments: Sequence[SegmentFacts], config: TopicConfig, now_ms: int, start_offset: int, high_watermark: int
) -> int:
    """How many of the oldest segments may go. An empty active segment always stays."""
    surplus = sum(s.size for s in segments) - config.retention_bytes
    sized = config.deletes and config.retention_bytes != FOREVER
    timed = config.deletes and config.retention_ms != FOREVER
    count = 0
    for segment in segments:
        old = timed and now_ms - segment.newest_ms > config.retention_ms
        large = sized and surplus >= segment.size
        below_start = segment.next_offset <= start_offset
        if segment.size == 0 or segment.next_offset > high_watermark or not (old or large or below_start):
            break
        surplus -= segment.size
        count += 1
    return count
