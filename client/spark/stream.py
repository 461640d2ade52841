"""The stream reader: where a stream begins, how far the next batch goes, and what its tasks read.

One object serves a query's questions, in one process as long as the query runs; tasks get another one, made
from the same options. Its state is a convenience: what a batch needs to be run again is in its two offsets.

Spark asks for the initial offset again if batch 0 did not end, and hands no checkpoint. With `latest` that
would be a later one, and what came in between would be lost. So the first batch is empty: its end, which
Spark keeps, is the initial offset. The end also says where it begins, whatever is found the second time.
Left to others: offsets and how they follow from one another (offsets.py), reading (reader.py).
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn
from uuid import UUID

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from ...base.logger import get_logger
from ...base.types import TopicPartition
from ...protocol.messages.offsets import EARLIEST, LATEST
from . import groups, offsets, plan, snapshot
from .admission import (
    HAS_ADMISSION_CONTROL,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from .client import SparkCluster, cluster_for
from .leaders import epoch_ends, list_offsets
from .offsets import Found, Place, StreamOffset
from .options import OptionError, SourceOptions
from .reader import part_of, parts_of, read_part
from .telling import tell, told_plainly

if TYPE_CHECKING:
    import pyarrow as pa

log = get_logger(__name__)

ROWS_UNLIMITED = 1 << 62  # not ReadAllAvailable, which Spark says for trigger(once=True) alone

Json = dict[str, Any]


class StrandlineStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Micro-batches of the records that the options describe."""

    def __init__(
        self,
        options: SourceOptions,
        columns: Sequence[str],
        now: Callable[[], float] = time.monotonic,
        cluster: SparkCluster | None = None,
        told: Collection[str] = (),
    ) -> None:
        """`told` are notes that the user has heard."""
        self.options = options
        self.columns = columns
        self._now = now
        self._notes = {*options.notes, *weaker(options)}.difference(told)
        self._given = cluster
        self._initial: StreamOffset | None = None
        self._is_begun = False  # a batch was planned, or its end asked for
        self._was_asked = False  # for a latest offset
        self._last: StreamOffset | None = None  # the end of the last batch that was planned
        self._target: dict[TopicPartition, Found] | None = None  # of trigger(availableNow=True)
        self._seen: dict[TopicPartition, int] = {}  # the latest offsets, as last heard
        self._believed: frozenset[str] = frozenset()  # what was missing or lost at the last look
        self._verified: dict[TopicPartition, tuple[Any, ...]] = {}
        self._triggered_at: float | None = None
        self._uncommitted: groups.Reasons = {}  # by the last commit to a group

    @property
    def _cluster(self) -> SparkCluster:
        return self._given or cluster_for(self.options.cluster)

    # ------------------------------------------------------------ asked by Spark, on the driver

    def initialOffset(self) -> Json:
        """Where a new query begins. The same each time it is asked in this process."""
        with told_plainly():
            if self._initial is None:
                self._initial = self._begin()
            return self._initial.json()

    def latestOffset(self, start: Json | None = None, limit: ReadLimit | None = None) -> Json:
        """The end of the next batch.

        PySpark 4.1 tells neither where it begins nor how much it may read. After a restart it plans the last
        batch as an empty one first, so that is known; a limit is left aside then, for with
        trigger(availableNow=True) it asks once and would leave the rest.
        """
        with told_plainly():
            self._notes -= tell(self._notes)
            begin = self._last if start is None else StreamOffset.of_json(start)
            begin = self._initial if begin is None else begin
            unlimited = isinstance(limit, ReadAllAvailable)
            unlimited_by_age = start is None and not self._was_asked
            self._was_asked = True
            first = begin if begin == self._initial and not self._is_begun else None
            self._is_begun = True
            if first is not None and not unlimited:
                end = first
            else:
                end = self._next(begin, unlimited or unlimited_by_age)
            self._last = end if first is None else offsets.begun_at(first, end)
            return self._last.json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The limit that Spark hands to `latestOffset`."""
        return ReadMaxRows(self.options.limits.offsets_max or ROWS_UNLIMITED)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix what is there now as the end of this run. Later partitions are left to the next one."""
        with told_plainly():
            self._target, _ = self._cluster.patiently(lambda: self._find(StreamOffset({})))

    def reportLatestOffset(self) -> Json | None:
        """The latest offsets as last heard; with the end of the batch they tell the lag."""
        return offsets.by_topic(self._seen.items()) if self._seen else None

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        """The tasks of one batch."""
        with told_plainly():
            self._is_begun = True
            last = self._last = StreamOffset.of_json(end)
            spans = offsets.spans(StreamOffset.of_json(start), last, self.options.fail_on_data_loss)
            return parts_of(self._cluster.patiently(lambda: snapshot.cut(self._cluster, self.options, spans)))

    def commit(self, end: Json) -> None:
        """The batch with this end is done for good, one batch later; a group hears of it if one is named."""
        if self.options.group is not None:
            places = StreamOffset.of_json(end).places
            committed = {tp: place.offset for tp, place in places.items()}
            told = self._uncommitted
            self._uncommitted = groups.commit(self._cluster, self.options.group, committed, told)

    def stop(self) -> None:
        """The query has ended."""
        self._cluster.close()

    # ------------------------------------------------------------ in the tasks

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The rows of one span. A commit to a group follows the batch, not the task."""
        if (part := part_of(partition)) is not None:
            skip_replaced = not self.options.fail_on_data_loss
            with told_plainly():
                yield from read_part(self.options, self.columns, part, skip_replaced, group=None)

    # ------------------------------------------------------------ how

    def _begin(self) -> StreamOffset:
        logs = self._cluster.patiently(lambda: snapshot.logs_of(self._cluster, self.options))
        places = {
            tp: Place(place, logs[tp].leader_epoch) for tp, place in plan.starts(self.options, logs).items()
        }
        self._seen = {tp: each.latest for tp, each in logs.items()}
        ids = {tp.topic: each.topic_id for tp, each in logs.items()}
        return offsets.advanced(StreamOffset({}), places, {}, ids, None)

    def _next(self, start: StreamOffset | None, unlimited: bool) -> StreamOffset:
        """The end of a batch from `start` on; without one, everything up to now."""
        strict = self.options.fail_on_data_loss
        found, ids = self._cluster.patiently(lambda: self._find(start or StreamOffset({})))
        if start is None:
            everything = {tp: Place(each.latest, each.epoch) for tp, each in found.items()}
            return offsets.advanced(StreamOffset({}), everything, {}, ids, None)
        mine = self._of_this_run(found, start)
        places = offsets.begins(start, mine, ids, strict)
        limits = self.options.limits
        if not unlimited and self._target is None and self._is_too_little(offsets.waiting(places, mine)):
            return start
        self._tell_losses(start, places)
        self._triggered_at = self._now()
        upto = self._on_target(mine)
        return offsets.advanced(start, places, upto, ids, None if unlimited else limits.offsets_max)

    def _is_too_little(self, waiting: int) -> bool:
        """Whether to wait for more offsets, as Spark's own source does; the first batch never waits."""
        least = self.options.limits.offsets_min
        if least is None or self._triggered_at is None or waiting >= least:
            return False
        return self._now() - self._triggered_at < self.options.limits.delay_seconds

    def _of_this_run(
        self, found: Mapping[TopicPartition, Found], start: StreamOffset
    ) -> dict[TopicPartition, Found]:
        """All partitions; of a run that ends by itself, those that were there when it or the stream began."""
        if self._target is None:
            return dict(found)
        return {tp: each for tp, each in found.items() if tp in self._target or tp in start.places}

    def _on_target(self, found: Mapping[TopicPartition, Found]) -> dict[TopicPartition, Found]:
        """What is there, or what was there when a run that ends by itself saw the partition first."""
        if self._target is None:
            return dict(found)
        target = self._target = {**found, **self._target}
        return {tp: each._replace(latest=min(each.latest, target[tp].latest)) for tp, each in found.items()}

    def _find(self, start: StreamOffset) -> tuple[dict[TopicPartition, Found], dict[str, UUID]]:
        """All partitions as they are now.

        What looks like loss is looked at again, for the broker that was asked may lag: but once, not again
        by every trigger.
        """
        cluster = self._cluster
        for attempt in range(cluster.options.retries + 1):
            if attempt:
                cluster.sleep(cluster.options.retry_seconds)
            found, ids = self._look(start)
            doubts = offsets.doubts(start, found, ids) | self._missing(found)
            if doubts <= self._believed:
                break
        for doubt in sorted(doubts - self._believed):
            log.warning("stream_in_doubt", doubt=doubt)
        self._believed = doubts
        self._seen = {tp: each.latest for tp, each in found.items()}
        return offsets.without_stale(start, found, ids), ids

    def _look(self, start: StreamOffset) -> tuple[dict[TopicPartition, Found], dict[str, UUID]]:
        cluster, topics = self._cluster, self.options.topics
        there = snapshot.known_topics(cluster, topics)
        partitions = plan.select(topics, there, cluster.view.internal, missing_ok=True)
        ids = {tp.topic: cluster.view.topic_ids[tp.topic] for tp in partitions}
        latest = list_offsets(cluster, dict.fromkeys(partitions, LATEST))
        same = {tp for tp in start.places if tp in latest and not offsets.is_again(start, ids, tp.topic)}
        new = dict.fromkeys((tp for tp in partitions if tp not in same), EARLIEST)
        earliest = list_offsets(cluster, new)
        ends = self._epoch_ends({tp: start.places[tp] for tp in same})
        found = {
            tp: Found(
                latest=latest[tp].offset,
                epoch=latest[tp].epoch,
                earliest=earliest[tp].offset if tp in earliest else -1,
                epoch_end=ends.get(tp, -1),
            )
            for tp in partitions
        }
        return found, ids

    def _missing(self, found: Mapping[TopicPartition, Found]) -> frozenset[str]:
        """What the options name and nobody knows."""
        topics = self.options.topics
        named = {f"topic {name}" for name in topics.names} | {str(tp) for tp in topics.partitions}
        there = {f"topic {tp.topic}" for tp in found} | {str(tp) for tp in found}
        return frozenset(f"{each} does not exist" for each in named - there)

    def _epoch_ends(self, places: Mapping[TopicPartition, Place]) -> dict[TopicPartition, int]:
        """Where the places' epochs end. A log can be cut only when its leader changes: then it is asked."""
        leaders = self._cluster.view.leaders
        facts = {tp: (place, leaders.get(tp)) for tp, place in places.items()}
        unsure = {tp for tp, fact in facts.items() if self._verified.get(tp) != fact and fact[0].epoch >= 0}
        ends = epoch_ends(self._cluster, {tp: places[tp].epoch for tp in unsure})
        for tp, end in ends.items():
            if end.offset >= places[tp].offset:
                self._verified[tp] = facts[tp]
        known = {tp: places[tp].offset for tp in places if tp not in unsure and places[tp].epoch >= 0}
        return {**known, **{tp: end.offset for tp, end in ends.items()}}

    def _tell_losses(self, start: StreamOffset, places: Mapping[TopicPartition, Place]) -> None:
        for tp, place in places.items():
            before = start.places.get(tp)
            if place != before and place.begin >= 0:
                log.warning("stream_goes_on_elsewhere", partition=str(tp), offset=place.begin, before=before)


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream that cannot be: it says so when it is asked the first question.

    Raised while the reader is made, Spark's Python process would hide the trouble behind one of its own. A
    query that is started again is asked for the tasks of its last batch first.
    """

    def __init__(self, trouble: OptionError) -> None:
        self._trouble = trouble

    def initialOffset(self) -> Json:
        self._refuse()

    def latestOffset(self, start: Json | None = None, limit: ReadLimit | None = None) -> Json:
        self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        self._refuse()

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        self._refuse()

    def _refuse(self) -> NoReturn:
        with told_plainly():
            raise self._trouble


def weaker(options: SourceOptions, has_admission_control: bool = HAS_ADMISSION_CONTROL) -> set[str]:
    """What this PySpark cannot do."""
    if has_admission_control:
        return set()
    notes = {"trigger(availableNow=True) reads everything in one batch before PySpark 4.2"}
    if options.limits.offsets_max is not None:
        notes.add("maxOffsetsPerTrigger does not cap the first batch after a restart before PySpark 4.2")
    return notes
