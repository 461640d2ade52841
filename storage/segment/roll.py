"""When a segment is full, and how much of a run of replicated batches goes into the active one.

Left to others: opening the next segment (log/segments.py).
"""

from collections.abc import Sequence
from typing import Protocol

from ..config import TopicConfig
from .batch_walk import Placed
from .index import OFFSET_ENTRY, RELATIVE_MAX, TIME_ENTRY


class Filled(Protocol):
    """What is known of the active segment."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def first_time(self) -> int | None:
        """The timestamp of its first batch."""


class RollLimits:
    """When a segment is full: bytes, age of its first batch, bytes of an index.

    `jitter_ms`: each segment rolls up to this much earlier, by a different part of it, so that segments that
    began together do not all roll together.
    """

    __slots__ = ("jitter_ms", "offset_entries_max", "segment_bytes", "segment_ms", "time_entries_max")

    def __init__(self, segment_bytes: int, segment_ms: int, index_bytes_max: int, jitter_ms: int = 0) -> None:
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms
        self.jitter_ms = min(jitter_ms, segment_ms)
        self.offset_entries_max = index_bytes_max // OFFSET_ENTRY.size
        self.time_entries_max = index_bytes_max // TIME_ENTRY.size - 1  # one is kept for the closing entry


def limits_of(config: TopicConfig) -> RollLimits:
    """The limits for a topic's segments."""
    segment_ms = config.segment_ms
    if config.compacted:  # only a closed segment can be cleaned
        segment_ms = min(segment_ms, config.max_compaction_lag_ms)
    return RollLimits(config.segment_bytes, segment_ms, config.index_bytes_max, config.segment_jitter_ms)


def stretch_end(run: Sequence[Placed], first: int, segment: Filled, limits: RollLimits) -> int:
    """Where a stretch of `run` ends that may go into `segment` in one write; `first` is known to fit.

    `Segment.must_roll` decides about the next stretch.
    """
    header = run[first][1]
    room = limits.segment_bytes - segment.size - header.size
    started = header.max_timestamp if segment.first_time is None else segment.first_time
    last = first + 1
    while last < len(run):
        header = run[last][1]
        if (
            header.size > room
            or header.last_offset - segment.base_offset > RELATIVE_MAX
            or header.max_timestamp - started > limits.segment_ms
        ):
            break
        room -= header.size
        last += 1
    return last
