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
from ....storage.log.leader_epochs import NONE, Entry
from ....storage.offline.directories import ClosedDirectories, ClosedReplica, Unusable
from ....storage.offline.proof import FAR, Proven, latest, prove
from ....storage.offline.reading import NoReplica, RangeReader, Source, first_at
from ....storage.offline.transactions import Markers
from .. import plan, snapshot
from ..options import ClosedLogs, SourceOptions
from . import members
from .reading import Part, Uncommitted, lose, pass_over, pieces, tell_once

SUPERSEDED = (
    "committed_records_superseded",
    "an election outside of the ISR began a later epoch without them",
)
UNRELATED = (
    "replica_shares_no_epoch",
    "the newest history knows no epoch of this replica: these records were deleted elsewhere since, or "
    "others have taken their place",
)


@dataclass(frozen=True, slots=True)
class View:
    """A partition as the read sees it."""

    sources: tuple[Source, ...]
    start: int
    end: int
    epoch: int
    topic_id: UUID
    epochs: tuple[Entry, ...] = ()  # the history of what is read
    left_out: Uncommitted = ()


def check(options: SourceOptions) -> None:
    """Raise for directories that cannot be read, and for topics that are not there."""
    found = _opened(options)
    if options.snapshot.startswith("{"):
        snapshot.of_json(options.snapshot)
    else:
        plan.check_named(options, members.selected(options, found))


def bounds(options: SourceOptions) -> list[plan.Span]:
    """One span for each partition that has something to read."""
    found = _opened(options)
    return _resolved(options, _chosen(options, found))


def parts(options: SourceOptions) -> list[Part]:
    """The tasks."""
    found = _opened(options)
    if options.snapshot.startswith("{"):
        listed = snapshot.of_json(options.snapshot)
        views = _views(options, found, [span.partition for span in listed])
        spans = [_checked(span, views[span.partition], options.fail_on_data_loss) for span in listed]
    else:
        views = _chosen(options, found)
        spans = _resolved(options, views)
    density = None
    if options.split_bytes is not None:
        density = {span.partition: _density(views[span.partition]) for span in spans}
    spans = plan.split(
        spans, options.partitions_min, options.partition_records_max, options.split_bytes, density
    )
    return [_part(span, views[span.partition]) for span in spans]


def _chosen(options: SourceOptions, found: ClosedDirectories) -> dict[TopicPartition, View]:
    partitions = members.selected(options, found)
    members.tell_absent(options, found, partitions)
    return _views(options, found, partitions)


def _part(span: plan.Span, view: View) -> Part:
    here = tuple(
        each for each in view.left_out if each.last_offset >= span.start and each.first_offset < span.end
    )
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


def _views(
    options: SourceOptions, found: ClosedDirectories, chosen: Sequence[TopicPartition]
) -> dict[TopicPartition, View]:
    try:
        replicas = {tp: found.replicas(tp) for tp in chosen}
    except Unusable as trouble:
        raise plan.PlanError(str(trouble)) from trouble
    ids, same = members.of_one_topic(options, replicas)
    return {
        tp: _with_outcomes(tp, options, _view(tp, listed, ids[tp.topic], _closed(options)))
        for tp, listed in same.items()
    }


# ------------------------------------------------------------ what there is to read of them


def _view(tp: TopicPartition, replicas: Sequence[ClosedReplica], topic_id: UUID, closed: ClosedLogs) -> View:
    """What a partition's replicas prove, or what one of them has."""
    mine = [each for each in replicas if closed.replica in (None, each.broker)]
    if not mine:
        return View((), 0, 0, -1, topic_id)
    if closed.to_log_end:
        (each,) = mine
        source = _source(each, FAR)._replace(epochs=())
        epochs = each.facts.epochs
        end = max(source.log().tail().end, each.facts.high_watermark)  # what it had and has not is lost
        return View((source,), source.start, end, latest(epochs), topic_id, epochs)
    proven = prove([each.facts for each in replicas])
    _tell(tp, replicas, proven.agreed)
    if closed.replica is None:
        _tell_starts(tp, replicas, proven)
    limits = dict(zip(replicas, proven.agreed, strict=True))
    newest_first = sorted(mine, key=lambda each: (-latest(each.facts.epochs), each.broker))
    sources = tuple(_source(each, limits[each]) for each in newest_first)
    start, end = proven.start, proven.end
    if closed.replica is not None:
        source = sources[0]
        reaches = max(source.log().tail().end, min(source.high_watermark, source.limit))
        start, end = source.start, min(end, source.limit, reaches)
    return View(sources, start, max(start, end), proven.epoch, topic_id, sources[0].epochs)


def _source(replica: ClosedReplica, limit: int) -> Source:
    return Source(
        broker=replica.broker,
        directory=str(replica.directory),
        start=replica.facts.start,
        limit=limit,
        epochs=replica.facts.epochs,
        high_watermark=replica.high_watermark,
        gaps=replica.gaps,
        stamp=replica.stamp,
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
            event, reason = SUPERSEDED if until else UNRELATED
            start = max(until, each.facts.start)
            tell_once(
                event,
                partition=str(tp),
                broker=each.broker,
                start=start,
                end=each.high_watermark,
                reason=reason,
            )


def _tell_starts(tp: TopicPartition, replicas: Sequence[ClosedReplica], proven: Proven) -> None:
    """Tell what is not read although a replica has it: what another one has deleted does not come back."""
    starts = {
        each.broker: each.facts.start
        for each, until in zip(replicas, proven.agreed, strict=True)
        if each.facts.start < min(until, proven.start)
    }
    if starts:
        tell_once(
            "replicas_start_apart",
            partition=str(tp),
            start=proven.start,
            earlier=", ".join(f"{start} on broker {broker}" for broker, start in sorted(starts.items())),
            reason="what a replica has deleted is not read from others; to see it, read one with the option "
            "replica",
        )


def _with_outcomes(tp: TopicPartition, options: SourceOptions, view: View) -> View:
    """With read_committed: ended at the last stable offset, and with what was aborted."""
    if not options.cluster.isolation or view.start == view.end:
        return view
    reader = RangeReader(view.sources, view.start, view.end, pass_over)
    markers = Markers()

    def lost(start: int, end: int) -> None:
        if undecided := markers.lose(start, end):
            reason = (
                f"their markers may have been in [{start}, {end}), which cannot be read: they are left out"
            )
            tell_once("transactions_never_decided", partition=str(tp), transactions=undecided, reason=reason)

    for piece in pieces(tp, reader, options.fail_on_data_loss, lost):
        markers.see(piece.run)
    for doubt in markers.doubts:
        if options.fail_on_data_loss:
            raise plan.DataLoss(f"{tp}: {doubt}. To read what is left, set failOnDataLoss=false")
        tell_once("marker_counts_as_abort", partition=str(tp), reason=str(doubt))
    found = markers.outcomes(view.end)
    return replace(view, end=found.last_stable, left_out=found.left_out)


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
    _check_topic(span, view)
    start = max(span.start, view.start)
    there = span._replace(start=start, end=max(start, min(span.end, view.end)))
    if there.size:
        _check_epochs(there, view)
    if strict and not view.start <= span.start <= span.end <= view.end:
        raise plan.DataLoss(
            f"{span.partition}: records [{span.start}, {span.end}) are not all there: [{view.start}, "
            f"{view.end}) can be read. To read what is there, set failOnDataLoss=false"
        )
    return there


def _check_topic(span: plan.Span, view: View) -> None:
    topic = span.partition.topic
    if span.topic_id != view.topic_id:
        if NO_UUID not in (span.topic_id, view.topic_id):
            raise plan.DataLoss(f"{span.partition}: topic {topic} was deleted and created again since")
        which = "the snapshot has no id of it" if span.topic_id == NO_UUID else "no replica has its id"
        tell_once("topic_not_verified", topic=topic, reason=f"{which}: it may have been created again since")


def _check_epochs(span: plan.Span, view: View) -> None:
    """Raise DataLoss if others have taken the place of records of the snapshot.

    That is so from where an epoch begins that is later than the snapshot's. The history tells it even of
    records that were compacted away since. One that is made of the batches begins an epoch behind damage too
    early: then nothing tells, and what may be of others is not read.
    """
    planned = span.leader_epoch
    if planned == NONE:
        return
    later, begins = next((entry for entry in view.epochs if entry[0] > planned), (NONE, FAR))
    if begins < span.end:
        raise plan.DataLoss(
            f"{span.partition}: leader epoch {later} begins at offset {begins}, but the snapshot was taken "
            f"in epoch {planned}: records [{max(begins, span.start)}, {span.end}) were truncated and "
            "rewritten since. Take the snapshot again"
        )
    if planned > view.epoch:
        tell_once(
            "snapshot_epoch_not_known",
            partition=str(span.partition),
            epoch=planned,
            latest=view.epoch,
            reason="these directories may be older than the snapshot: what an election outside of the ISR "
            "has cut since would be read as it was before",
        )


def _density(view: View) -> float:
    """The bytes of one offset, on average; 0 where there is no replica to read."""
    if not view.sources:
        return 0
    logs = view.sources[0].log()
    return logs.size() / max(1, logs.tail().end - logs.bases[0])
