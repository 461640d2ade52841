"""Which log to clean next, and which part of it. Pure.

The dirtiest log goes first: the one with the largest share of bytes that no cleaning has seen yet. Never
cleaned are the active segment, uncommitted records, records younger than the topic's lag, and anything after
the beginning of a transaction without an end.
Left to others: the cleaning (clean.py), what is in progress or cannot be cleaned
(broker/upkeep/compaction.py).
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from ...base.values import dataclass
from ..segment.index import RELATIVE_MAX

if TYPE_CHECKING:
    from ..config import TopicConfig


class Soiled(Protocol):
    """What planning needs of a segment. Times may have to be read from a file, so they are asked last."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def age_from_ms(self) -> int:
        """The newest timestamp in it."""
        ...

    def first_ms(self) -> int:
        """The timestamp of its first batch; -1 if it has none."""
        ...


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What planning needs of a log."""

    segments: Sequence[Soiled]
    start_offset: int
    end_offset: int
    stable: int  # the last stable offset: all before it is committed, and no transaction is open
    cleaned_to: int | None  # from the checkpoint; None before the first cleaning
    config: "TopicConfig"
    undecided_from: int | None = None  # start of a transaction that had no end at the last cleaning


@dataclass(frozen=True, slots=True)
class Dirt:
    """How dirty a log is: [first_dirty, upper) may be cleaned; `upper` is a segment's base offset."""

    first_dirty: int
    upper: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool  # max.compaction.lag.ms has passed

    @property
    def ratio(self) -> float:
        """The share of dirty bytes among all that a cleaning would read."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def first_dirty(facts: LogFacts) -> int:
    """Where the last cleaning ended; the log start if that offset is no longer in the log."""
    known = facts.cleaned_to
    if known is None or not facts.start_offset <= known <= facts.end_offset:
        return facts.start_offset
    return known


def dirt(facts: LogFacts, now_ms: int) -> Dirt:
    """How dirty a log is."""
    begin = first_dirty(facts)
    sealed = facts.segments[:-1]
    end = min(facts.stable, facts.segments[-1].base_offset)
    if facts.undecided_from is not None:
        end = min(end, facts.undecided_from)
    lag_ms = facts.config.min_compaction_lag_ms
    reach = [*(segment.base_offset for segment in facts.segments[1:]), facts.end_offset]
    dirty = [segment for segment, after in zip(sealed, reach, strict=False) if after > begin]
    if lag_ms > 0:
        young = (s.base_offset for s in dirty if s.age_from_ms > now_ms - lag_ms)
        end = min(end, next(young, end))
    # complete segments only: the one that holds `end` stays as it is
    uppers = [after for after in reach[:-1] if after <= end]
    upper = max([begin, *uppers])
    assert begin <= upper <= max(begin, facts.segments[-1].base_offset), "the active segment stays as it is"
    ready = [segment for segment in dirty if segment.base_offset < upper and begin < upper]
    return Dirt(
        begin,
        upper,
        sum(s.size for s, after in zip(sealed, reach, strict=False) if after <= begin),
        sum(segment.size for segment in ready),
        _overdue(dirty, facts.config.max_compaction_lag_ms, now_ms),
    )


def _overdue(dirty: Iterable[Soiled], lag_ms_max: int, now_ms: int) -> bool:
    if now_ms <= lag_ms_max:
        return False
    return any(0 < segment.first_ms() < now_ms - lag_ms_max for segment in dirty)


def is_due(found: Dirt, config: "TopicConfig") -> bool:
    """Whether a log is dirty enough, or has waited long enough."""
    if found.dirty_bytes == 0:
        return False
    return found.overdue or found.ratio > config.min_cleanable_dirty_ratio


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A closed segment to be cleaned: where it begins and how large its files are."""

    base_offset: int
    size: int
    index_bytes: int
    time_index_bytes: int


def groups(
    sources: Sequence[SourceSegment], upper: int, segment_bytes: int, index_bytes_max: int
) -> list[list[SourceSegment]]:
    """Groups of neighbours that fit into one segment, by bytes, indexes and range of offsets."""
    after = [*(source.base_offset for source in sources[1:]), upper]
    assert after == sorted(set(after)), "segments are cleaned in their order, and none from `upper` on"
    found: list[list[SourceSegment]] = []
    for source, next_offset in zip(sources, after, strict=True):
        group = found[-1] if found else None
        if (
            group is not None
            and sum(s.size for s in group) + source.size <= segment_bytes
            and sum(s.index_bytes for s in group) + source.index_bytes <= index_bytes_max
            and sum(s.time_index_bytes for s in group) + source.time_index_bytes <= index_bytes_max
            and next_offset - 1 - group[0].base_offset <= RELATIVE_MAX
        ):
            group.append(source)
        else:
            found.append([source])
    return found
