"""Plans the ranges that tasks read, from the options and the brokers' offsets. Pure.

The snapshot is taken once: a range's end is the high watermark at planning, so a task that Spark repeats
reads the same records. Splitting follows Spark's own Kafka source, record for record.
Left to others: asking brokers (client.py, snapshot.py), reading a range (fetch.py).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple
from uuid import UUID

from ...base.types import TopicPartition
from ...protocol.messages.offsets import EARLIEST, LATEST
from ...protocol.primitives import NO_UUID
from .option_values import Bound, Everywhere, Offsets, Times, Topics
from .options import SourceOptions


class DataLoss(RuntimeError):
    """Requested records are gone; `failOnDataLoss=false` reads what is left. If others have taken their place
    (the topic was created again, the log was truncated and written again) it is raised in any case."""


class PlanError(ValueError):
    """The options do not fit the topics that exist."""


class Span(NamedTuple):
    """Records of one partition with `start <= offset < end`: the work of one task."""

    partition: TopicPartition
    start: int
    end: int
    leader_epoch: int = -1  # at planning: no record of the span has a later one; -1: not known
    topic_id: UUID = NO_UUID  # at planning; a topic that was created again has another one

    @property
    def size(self) -> int:
        """The number of offsets. After compaction there are fewer records, which only reading would tell."""
        return max(0, self.end - self.start)

    def plain(self) -> tuple[Any, ...]:
        """Built-in values only: Spark hands them on through processes that may not know this class."""
        return (*self.partition, self.start, self.end, self.leader_epoch, self.topic_id.bytes)

    @classmethod
    def of_plain(cls, found: Sequence[Any]) -> "Span":
        """What `plain` made."""
        topic, partition, start, end, epoch, topic_id = found
        return cls(TopicPartition(topic, partition), start, end, epoch, UUID(bytes=topic_id))


class PartitionBounds(NamedTuple):
    """A leader's offsets of one partition, and the offsets of bounds given as times; -1 if there is none."""

    earliest: int
    latest: int
    leader_epoch: int = -1
    start_by_time: int = -1
    end_by_time: int = -1
    topic_id: UUID = NO_UUID


def select(
    topics: Topics,
    there: Mapping[str, Sequence[int]],
    internal: Collection[str] = (),
    missing_ok: bool = False,
) -> list[TopicPartition]:
    """The partitions to read, of those that exist. A named one that is missing is an error, or left out.

    As in Spark's own source, a pattern is looked for anywhere in a name, and matches no internal topic.
    """
    if topics.pattern is not None:
        names: Iterable[str] = (
            name for name in there if topics.pattern.search(name) and name not in internal
        )
    else:
        names = topics.names
    known = {TopicPartition(name, number) for name, numbers in there.items() for number in numbers}
    chosen = topics.partitions or [
        TopicPartition(name, number) for name in names for number in there.get(name, (-1,))
    ]
    missing = [tp for tp in chosen if tp not in known]
    if missing and not missing_ok:
        raise PlanError(f"no such topic or partition: {', '.join(_name(tp) for tp in missing)}")
    return sorted(set(chosen).difference(missing))


def times(bound: Bound, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The times in ms to look up, if the bound is given by time."""
    if not isinstance(bound, Times):
        return {}
    if bound.everywhere is not None:
        return dict.fromkeys(partitions, bound.everywhere)
    return {tp: bound.by_partition[tp] for tp in partitions if tp in bound.by_partition}


def resolve(options: SourceOptions, logs: Mapping[TopicPartition, PartitionBounds]) -> list[Span]:
    """One span with fixed bounds for each partition that has something to read."""
    check_named(options, logs)
    spans: list[Span] = []
    for partition, log in sorted(logs.items()):
        start, end = _start(options, partition, log), _end(options, partition, log)
        if end < min(start, log.latest):  # a start that is only just there may be behind `latest`
            raise PlanError(f"{partition}: the starting offset {start} is after the ending offset {end}")
        if start < end:
            spans.append(Span(partition, start, end, log.leader_epoch, log.topic_id))
    return spans


def check_named(
    options: SourceOptions, partitions: Iterable[TopicPartition], all_of_them: bool = True
) -> None:
    """Check that bounds by partition name no others, and all of them if they must."""
    known = set(partitions)
    for side, bound in (("start", options.start), ("end", options.end)):
        if isinstance(bound, Everywhere) or (isinstance(bound, Times) and bound.everywhere is not None):
            continue
        named = set(bound.by_partition)
        odd = (named - known) | (known - named if all_of_them else set())
        if odd:
            names = ", ".join(_name(tp) for tp in sorted(odd))
            raise PlanError(
                f"the {side}ing bounds must name exactly the partitions that are read; see {names}"
            )


def starts(
    options: SourceOptions, logs: Mapping[TopicPartition, PartitionBounds]
) -> dict[TopicPartition, int]:
    """Where a stream begins."""
    check_named(options, logs)
    return {tp: _start(options, tp, log) for tp, log in logs.items()}


def split(
    spans: Sequence[Span],
    partitions_min: int | None,
    records_max: int | None = None,
    split_bytes: int | None = None,
    density: Mapping[TopicPartition, float] | None = None,
) -> list[Span]:
    """Split large spans, so that there are about `partitions_min` and none has over `records_max` records.

    Nor has any over `split_bytes`, by the `density` of its log: the bytes of one offset on average.
    """
    parts = [span for span in spans if span.size]
    if records_max is not None:
        parts = [part for span in parts for part in _divide(span, -(-span.size // records_max))]
    if split_bytes is not None and density is not None:
        parts = [
            part
            for span in parts
            for part in _divide(span, ceil(span.size * density.get(span.partition, 0) / split_bytes) or 1)
        ]
    if partitions_min is None or len(parts) >= partitions_min:
        return parts
    total = sum(span.size for span in parts)
    small = {span for span in parts if _share(span.size, total, partitions_min) == 1}
    total -= sum(span.size for span in small)
    left = max(partitions_min - len(small), 1)
    return [
        part
        for span in parts
        for part in ([span] if span in small else _divide(span, _share(span.size, total, left)))
    ]


def _share(size: int, total: int, parts: int) -> int:
    """A span's share of the parts, rounded half up as in Java."""
    return max(int(size / total * parts + 0.5), 1)


def _divide(span: Span, parts: int) -> list[Span]:
    found: list[Span] = []
    start = span.start
    for left in range(min(parts, span.size), 0, -1):
        end = start + (span.end - start) // left
        if end > start:
            found.append(span._replace(start=start, end=end))
        start = end
    return found


def _start(options: SourceOptions, partition: TopicPartition, log: PartitionBounds) -> int:
    match options.start:
        case Times():
            if log.start_by_time >= 0:
                return max(log.start_by_time, log.earliest)
            if not options.unmatched_start_is_latest:
                raise PlanError(
                    f"{partition}: no record is at or after the starting timestamp. To start at the "
                    "end instead, set startingOffsetsByTimestampStrategy=latest"
                )
            return log.latest
        case Offsets(by_partition) if by_partition[partition] >= 0:
            return _inside("starting", options, partition, by_partition[partition], log)
    return log.latest if _place(options.start, partition) == LATEST else log.earliest


def _end(options: SourceOptions, partition: TopicPartition, log: PartitionBounds) -> int:
    match options.end:
        case Times():  # asked for after the latest offset, so it may be behind it
            return min(log.end_by_time, log.latest) if log.end_by_time >= 0 else log.latest
        case Offsets(by_partition) if by_partition[partition] != LATEST:
            return _inside("ending", options, partition, by_partition[partition], log)
    return log.latest


def _inside(
    side: str, options: SourceOptions, partition: TopicPartition, offset: int, log: PartitionBounds
) -> int:
    if log.earliest <= offset <= log.latest:
        return offset
    if options.fail_on_data_loss:
        there = f"the log has [{log.earliest}, {log.latest})"
        if options.cluster.isolation and offset > log.latest:
            there = f"read_committed ends at {log.latest}, and behind it a transaction may be open"
        raise DataLoss(
            f"{partition}: the {side} offset {offset} is out of range: {there}. To read what is there, "
            "set failOnDataLoss=false"
        )
    return min(max(offset, log.earliest), log.latest)


def _place(bound: Bound, partition: TopicPartition) -> int:
    """EARLIEST, LATEST or an offset, if the bound is not given by time."""
    match bound:
        case Everywhere(position):
            return position
        case Offsets(by_partition):
            return by_partition[partition]
    return EARLIEST


def _name(tp: TopicPartition) -> str:
    return tp.topic if tp.partition < 0 else str(tp)
