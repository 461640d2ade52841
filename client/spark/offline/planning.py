"""Plans a read of closed log directories: which offsets there are, and whose files serve them.

Without brokers the end of a partition is what its replicas prove committed (storage/offline/proof.py), or
with `upto=leo` the end of one replica's log. With `read_committed` the range is read once beforehand, for
only its markers tell which transactions were aborted, and which are undecided.
Left to others: bounds and splits (client/spark/plan.py), the tasks (reading.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from uuid import UUID

from ....base.types import TopicPartition
from ....protocol.primitives import NO_UUID
from ....storage.offline.directories import ClosedDirectories, ClosedReplica, Unusable
from ....storage.offline.proof import FAR, latest, prove
from ....storage.offline.reading import NoReplica, RangeReader, Source, first_at
from ....storage.offline.transactions import outcomes
from .. import plan, snapshot
from ..options import ClosedLogs, SourceOptions
from .reading import Aborts, Part, lose, pass_over, pieces, tell_once

INTERNAL = frozenset({"__consumer_offsets", "__transaction_state", "__cluster_metadata"})


@dataclass(frozen=True, slots=True)
class View:
    """A partition as the read sees it."""

    sources: tuple[Source, ...]
    start: int
    end: int
    epoch: int
    topic_id: UUID
    aborted: Aborts = ()


def check(options: SourceOptions) -> None:
    """Raise for directories that cannot be read, and for topics that are not there."""
    found = _opened(options)
    if options.snapshot.startswith("{"):
        snapshot.of_json(options.snapshot)
    else:
        plan.check_named(options, _selected(options, found))


def bounds(options: SourceOptions) -> list[plan.Span]:
    """One span for each partition that has something to read."""
    found = _opened(options)
    return _resolved(options, _views(options, found, _selected(options, found)))


def parts(options: SourceOptions) -> list[Part]:
    """The tasks."""
    found = _opened(options)
    if options.snapshot.startswith("{"):
        listed = snapshot.of_json(options.snapshot)
        views = _views(options, found, [span.partition for span in listed])
        spans = [_checked(span, views[span.partition], options.fail_on_data_loss) for span in listed]
    else:
        views = _views(options, found, _selected(options, found))
        spans = _resolved(options, views)
    density = None
    if options.split_bytes is not None:
        density = {span.partition: _density(views[span.partition]) for span in spans}
    spans = plan.split(
        spans, options.partitions_min, options.partition_records_max, options.split_bytes, density
    )
    return [_part(span, views[span.partition]) for span in spans]


def _part(span: plan.Span, view: View) -> Part:
    here = tuple(each for each in view.aborted if each[2] >= span.start and each[1] < span.end)
    return Part(span, view.sources, here)


# ------------------------------------------------------------ which partitions


def _opened(options: SourceOptions) -> ClosedDirectories:
    closed = _closed(options)
    try:
        found = ClosedDirectories(closed.directories)
    except Unusable as trouble:
        raise plan.PlanError(str(trouble)) from trouble
    brokers = ", ".join(map(str, found.brokers))
    if closed.replica is not None and closed.replica not in found.brokers:
        raise plan.PlanError(f"replica={closed.replica}: the directories are those of brokers {brokers}")
    if closed.to_log_end and closed.replica is None and len(found.brokers) > 1:
        raise plan.PlanError(
            f"upto=leo reads one replica's log as it stands: choose it by the option replica, from {brokers}"
        )
    return found


def _closed(options: SourceOptions) -> ClosedLogs:
    assert options.closed is not None, "other reads ask brokers"
    return options.closed


def _selected(options: SourceOptions, found: ClosedDirectories) -> list[TopicPartition]:
    """The partitions to read. One that is missing between others is an error: its broker was forgotten."""
    only = _closed(options).replica
    there: dict[str, list[int]] = {}
    for tp, brokers in found.partitions.items():
        if only is None or only in brokers:
            there.setdefault(tp.topic, []).append(tp.partition)
    chosen = plan.select(options.topics, there, INTERNAL)
    if only is None and options.fail_on_data_loss and not options.topics.partitions:
        for topic in sorted({tp.topic for tp in chosen}):
            missing = sorted(set(range(max(there[topic]))).difference(there[topic]))
            if missing:
                raise plan.PlanError(
                    f"{topic} lacks partitions {', '.join(map(str, missing))}: add the log directories of "
                    "their brokers, or name those to be read with assign"
                )
    return chosen


def _views(
    options: SourceOptions, found: ClosedDirectories, chosen: Sequence[TopicPartition]
) -> dict[TopicPartition, View]:
    try:
        replicas = {tp: found.replicas(tp) for tp in chosen}
    except Unusable as trouble:
        raise plan.PlanError(str(trouble)) from trouble
    only = _closed(options).replica
    ids = _topic_ids(replicas, only)
    views: dict[TopicPartition, View] = {}
    for tp, listed in replicas.items():
        same = [each for each in listed if each.topic_id in (None, ids[tp.topic]) or ids[tp.topic] == NO_UUID]
        views[tp] = _with_outcomes(tp, options, _view(tp, same, ids[tp.topic], _closed(options)))
    return views


def _topic_ids(
    replicas: Mapping[TopicPartition, Sequence[ClosedReplica]], only: int | None
) -> dict[str, UUID]:
    """The id of each topic; PlanError if replicas differ. With `only`, this broker's id counts."""
    found: dict[str, dict[UUID, ClosedReplica]] = {}
    for tp, listed in replicas.items():
        known = found.setdefault(tp.topic, {})
        for each in listed:
            if each.topic_id is not None and only in (None, each.broker):
                known.setdefault(each.topic_id, each)
    for topic, known in found.items():
        if len(known) > 1:
            differing = ", ".join(f"{each.directory} has {topic_id}" for topic_id, each in known.items())
            raise plan.PlanError(
                f"topic {topic} was deleted and created again, its ids differ: {differing}; leave out the "
                "directories of one of them, or read one broker with the option replica"
            )
    return {topic: next(iter(known), NO_UUID) for topic, known in found.items()}


# ------------------------------------------------------------ what there is to read of them


def _view(tp: TopicPartition, replicas: Sequence[ClosedReplica], topic_id: UUID, closed: ClosedLogs) -> View:
    """What a partition's replicas prove, or what one of them has."""
    mine = [each for each in replicas if closed.replica in (None, each.broker)]
    if not mine:
        return View((), 0, 0, -1, topic_id)
    if closed.to_log_end:
        (each,) = mine
        source = _source(each, FAR)._replace(epochs=())
        return View((source,), source.start, source.log().tail().end, latest(each.facts.epochs), topic_id)
    proven = prove([each.facts for each in replicas])
    _tell(tp, replicas, proven.agreed)
    limits = dict(zip(replicas, proven.agreed, strict=True))
    newest_first = sorted(mine, key=lambda each: (-latest(each.facts.epochs), each.broker))
    sources = tuple(_source(each, limits[each]) for each in newest_first)
    start, end = proven.start, proven.end
    if closed.replica is not None:
        source = sources[0]
        reaches = max(source.log().tail().end, min(source.high_watermark, source.limit))
        start, end = source.start, min(end, source.limit, reaches)
    return View(sources, start, max(start, end), proven.epoch, topic_id)


def _source(replica: ClosedReplica, limit: int) -> Source:
    return Source(
        broker=replica.broker,
        directory=str(replica.directory),
        start=replica.facts.start,
        limit=limit,
        epochs=replica.facts.epochs,
        high_watermark=replica.high_watermark,
        gaps=replica.gaps,
    )


def _tell(tp: TopicPartition, replicas: Sequence[ClosedReplica], agreed: Sequence[int]) -> None:
    """Tell what a user who compares with what was acknowledged would ask about."""
    for each, until in zip(replicas, agreed, strict=True):
        if each.doubt:
            tell_once("high_watermark_not_believed", partition=str(tp), broker=each.broker, reason=each.doubt)
        elif each.high_watermark < 0:
            reason = "replication-offset-checkpoint has no entry: by this replica nothing is proven committed"
            tell_once("high_watermark_not_found", partition=str(tp), broker=each.broker, reason=reason)
        elif each.high_watermark > max(until, each.facts.start):
            tell_once(
                "committed_records_superseded",
                partition=str(tp),
                broker=each.broker,
                start=until,
                end=each.high_watermark,
                reason="an election outside of the ISR began a later epoch without them",
            )


def _with_outcomes(tp: TopicPartition, options: SourceOptions, view: View) -> View:
    """With read_committed: ended at the last stable offset, and with what was aborted."""
    if not options.cluster.isolation or view.start == view.end:
        return view
    reader = RangeReader(view.sources, view.start, view.end, pass_over)
    runs = (piece.run for piece in pieces(tp, reader, options.fail_on_data_loss))
    found = outcomes(runs, view.end)
    aborted = tuple((each.producer_id, each.first_offset, each.last_offset) for each in found.aborted)
    return replace(view, end=found.last_stable, aborted=aborted)


def _resolved(options: SourceOptions, views: Mapping[TopicPartition, View]) -> list[plan.Span]:
    start_times, end_times = (plan.times(bound, views) for bound in (options.start, options.end))
    at = partial(_offset_at, strict=options.fail_on_data_loss)
    logs = {
        tp: plan.PartitionBounds(
            earliest=view.start,
            latest=view.end,
            leader_epoch=view.epoch,
            start_by_time=at(tp, view, start_times.get(tp)),
            end_by_time=at(tp, view, end_times.get(tp)),
            topic_id=view.topic_id,
        )
        for tp, view in views.items()
    }
    return plan.resolve(options, logs)


def _offset_at(tp: TopicPartition, view: View, ms: int | None, strict: bool) -> int:
    """The offset that a time stands for; -1 if no record is so late."""
    start = view.start
    while ms is not None and start < view.end:
        try:
            found = first_at(view.sources, ms, start, view.end, pass_over)
            return -1 if found is None else found
        except NoReplica as gone:
            start = RangeReader(view.sources, gone.position, view.end, pass_over).next_good()
            lose(tp, gone, start, strict)
    return -1


def _checked(span: plan.Span, view: View, strict: bool) -> plan.Span:
    """A span of a snapshot, as far as it is there."""
    if NO_UUID not in (span.topic_id, view.topic_id) and span.topic_id != view.topic_id:
        raise plan.DataLoss(
            f"{span.partition}: topic {span.partition.topic} was deleted and created again since"
        )
    if strict and not view.start <= span.start <= span.end <= view.end:
        raise plan.DataLoss(
            f"{span.partition}: records [{span.start}, {span.end}) are not all there: [{view.start}, "
            f"{view.end}) can be read. To read what is there, set failOnDataLoss=false"
        )
    start = max(span.start, view.start)
    return span._replace(start=start, end=max(start, min(span.end, view.end)))


def _density(view: View) -> float:
    """The bytes of one offset, on average."""
    logs = view.sources[0].log()
    return logs.size() / max(1, logs.tail().end - logs.bases[0])
