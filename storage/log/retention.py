"""Retention: which segments may be deleted. Pure.

Segments are deleted oldest first, and never one with a record at or above the high watermark. It looks at the
segments that go and one more: a log of ten thousand segments costs no more than one of two.
Left to others: removing them (log.py), when (broker/upkeep/passes.py), compaction.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from ..config import TopicConfig

FOREVER = -1


class Aging(Protocol):
    """What retention needs of a segment. Its age may have to be read from a file, so that is asked last."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def age_from_ms(self) -> int: ...


S = TypeVar("S", bound=Aging)


def with_ends(segments: Sequence[S], end_offset: int) -> Iterable[tuple[S, int]]:
    """Each segment with its end offset (exclusive)."""
    for place, segment in enumerate(segments, 1):
        yield segment, segments[place].base_offset if place < len(segments) else end_offset


def expired(
    segments: Iterable[tuple[Aging, int]],
    log_bytes: int,
    config: TopicConfig,
    now_ms: int,
    start_offset: int,
    high_watermark: int,
    count_max: int,
) -> int:
    """How many of the oldest segments may go, at most `count_max`. An empty active segment always stays.

    Age and size count only if cleanup.policy has delete; what is before the log start goes anyway.
    """
    surplus = log_bytes - config.retention_bytes
    sized = config.deletes and config.retention_bytes != FOREVER
    timed = config.deletes and config.retention_ms != FOREVER
    count = 0
    for segment, next_offset in segments:
        empty_tail = segment.size == 0 and next_offset == segment.base_offset
        if count == count_max or empty_tail or next_offset > high_watermark:
            break
        if not (
            next_offset <= start_offset
            or (sized and surplus >= segment.size)
            or (timed and now_ms - segment.age_from_ms > config.retention_ms)
        ):
            break
        surplus -= segment.size
        count += 1
    return count
