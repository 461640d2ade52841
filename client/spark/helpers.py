"""What makes reading with Spark easier: a scan with bounds from its condition, snapshots, descriptions, lag.

Spark tells a Python source no condition that can be relied on (in 4.3 a pushed filter outlives its query), so
`scan` takes it by itself. All but the listener ask the brokers from the program that calls them.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import StreamingQueryListener

from ...base.types import TopicPartition
from ...protocol.messages.offsets import EARLIEST, LATEST
from . import plan, snapshot
from .client import SparkCluster
from .leaders import LARGEST_TIMESTAMP, ListedOffset, LogSizes, OffsetsAt, known
from .option_table import CHOICE, COLUMNS, FILE, METADATA_COLUMNS, SERVERS
from .options import OVERRULED, SourceOptions, parse
from .predicates import Bounds, bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

MOMENT_MAX_MS = 253_402_300_799_000  # the last second of the year 9999
DESCRIPTION = (
    "topic string, partition int, topicId string, leader int, leaderEpoch int, replicas array<int>, "
    "inSyncReplicas array<int>, earliestOffset bigint, latestOffset bigint, offsets bigint, bytes bigint, "
    "earliestTimestamp timestamp, latestTimestamp timestamp"
)


def scan(
    spark: "SparkSession",
    servers: str,
    topic: str,
    where: str | None = None,
    columns: Sequence[str] | None = None,
    **options: Any,
) -> "DataFrame":
    """The records of a topic that a condition lets through, fetching little more than those.

    `where` is SQL over the columns. Lower bounds of `timestamp`, bounds of `offset`, and `partition` restrict
    what is fetched; all of it is checked on what came. The snapshot is taken now; of one that is given as
    JSON (option `snapshot`), partitions and bounds of `offset` leave a part.
    """
    found = bounds(where) if where is not None else Bounds(names=frozenset())
    given = {SERVERS: servers, "subscribe": topic, **{name: _text(value) for name, value in options.items()}}
    is_pinned = parse(given).snapshot.startswith("{")
    if found.times and not is_pinned:
        least = [ms for ms in (_milliseconds(spark, each) for each in found.times) if ms is not None]
        if least and not any(name.lower().startswith("starting") for name in options):
            given |= {
                "startingTimestamp": str(max(0, *least)),
                "startingOffsetsByTimestampStrategy": "latest",
            }
    done = CHOICE if is_pinned else OVERRULED  # by the snapshot; what it overrules is told
    read = {name: value for name, value in given.items() if not name.startswith(done)}
    read["snapshot"] = _snapshot(given, found, topic)
    wanted = _needed(columns, found)
    if wanted is not None:
        read["columns"] = ",".join(wanted)
    frame = spark.read.format("strandline").options(**read).load()
    frame = frame if where is None else frame.where(where)
    return frame if columns is None else frame.select(*columns)


def take_snapshot(options: Mapping[str, Any]) -> str:
    """What a read with these options would read now, as JSON: option `snapshot` reads just that again.

    Of options that name such a snapshot, that one.
    """
    return _snapshot({name: _text(value) for name, value in options.items()}, Bounds())


def compare(spark: "SparkSession", log_dirs: Sequence[str], topic: str) -> "DataFrame":
    """The records of a topic in which its closed replicas differ; see offline/compare.py."""
    from .offline import compare as comparison  # few need it, and what it stands on

    return comparison.compare(spark, log_dirs, topic)


def describe(spark: "SparkSession", servers: str, topics: str = ".*", **options: Any) -> "DataFrame":
    """A row for each partition of the topics that match: leader, replicas, offsets, bytes, times.

    What only a leader can tell is null where there is none.
    """
    given = {SERVERS: servers, "subscribePattern": topics}
    parsed = parse({**given, **{name: _text(value) for name, value in options.items()}})
    cluster = SparkCluster(parsed.cluster)
    try:
        rows = _descriptions(cluster, parsed)
    finally:
        cluster.close()
    return spark.createDataFrame(rows, DESCRIPTION)


class Lag(NamedTuple):
    """How far a query is behind its topics, after a batch."""

    query: str  # its name, or its id if it has none
    batch: int
    by_partition: dict[TopicPartition, int]

    @property
    def total(self) -> int:
        return sum(self.by_partition.values())


class LagListener(StreamingQueryListener):
    """`spark.streams.addListener(LagListener())`: the lag of every query after its last batch, in `lags`."""

    def __init__(self, on_lag: Callable[[Lag], None] = lambda lag: None) -> None:
        """`on_lag` hears of every batch, in a thread of Spark's."""
        self.lags: dict[str, Lag] = {}
        self._on_lag = on_lag

    def onQueryProgress(self, event: "QueryProgressEvent") -> None:
        """A batch has ended."""
        progress = event.progress
        behind: dict[TopicPartition, int] = {}
        for source in progress.sources:
            behind |= lag_of(source.latestOffset, source.endOffset)
        lag = Lag(progress.name or str(progress.id), progress.batchId, behind)
        self.lags[lag.query] = lag
        self._on_lag(lag)

    def onQueryStarted(self, event: "QueryStartedEvent") -> None:
        """Nothing is known yet."""

    def onQueryIdle(self, event: "QueryIdleEvent") -> None:
        """Nothing has changed."""

    def onQueryTerminated(self, event: "QueryTerminatedEvent") -> None:
        """What was known last stays."""


def lag_of(latest: str | None, end: str | None) -> dict[TopicPartition, int]:
    """The lag of one source; none for a source of another kind."""
    try:
        ends = _by_partition(end)
        return {tp: max(0, offset - ends.get(tp, 0)) for tp, offset in _by_partition(latest).items()}
    except (ValueError, TypeError, AttributeError):
        return {}


def _by_partition(offsets: str | None) -> dict[TopicPartition, int]:
    topics = json.loads(offsets or "{}")
    return {
        TopicPartition(topic, int(number)): int(offset)
        for topic, numbers in topics.items()
        for number, offset in numbers.items()
    }


def _text(value: Any) -> str:
    """As Spark writes an option."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _needed(columns: Sequence[str] | None, found: Bounds) -> list[str] | None:
    """The columns to fetch: those wanted and those that the condition mentions; None for all."""
    if columns is None or found.names is None:
        return None
    wanted = {name.lower() for name in columns} | found.names
    return [name for name in (*COLUMNS, *METADATA_COLUMNS, FILE) if name.lower() in wanted]


def _milliseconds(spark: "SparkSession", expression: str) -> int | None:
    """A constant time, as Spark would compare with it; None if it is not constant, or no time."""
    try:
        row = spark.sql(f"SELECT unix_millis(CAST(({expression}) AS TIMESTAMP))").first()
    except PySparkException:
        return None
    return None if row is None or row[0] is None else int(row[0])


def _snapshot(given: Mapping[str, str], found: Bounds, topic: str | None = None) -> str:
    spans = (_within(each, found) for each in _spans(parse(given)) if topic in (None, each.partition.topic))
    return snapshot.to_json([span for span in spans if span.size])


def _spans(options: SourceOptions) -> list[plan.Span]:
    """What a read with these options reads now."""
    if options.snapshot.startswith("{"):
        return snapshot.of_json(options.snapshot)
    if options.closed is not None:
        from .offline import planning  # few reads need it, and what it stands on

        return planning.bounds(options)
    cluster = SparkCluster(options.cluster)
    try:
        return snapshot.bounds(cluster, options)
    finally:
        cluster.close()


def _within(span: plan.Span, found: Bounds) -> plan.Span:
    """The part of a span that the bounds leave."""
    if found.partitions is not None and span.partition.partition not in found.partitions:
        return span._replace(end=span.start)
    start = span.start if found.offset_min is None else max(span.start, found.offset_min)
    end = span.end if found.offset_max is None else min(span.end, found.offset_max + 1)
    return span._replace(start=start, end=end)


def _descriptions(cluster: SparkCluster, options: SourceOptions) -> list[tuple[Any, ...]]:
    there = snapshot.topics_of(cluster, options.topics)
    partitions = plan.select(options.topics, there, cluster.view.internal)
    left = set(partitions)
    listed: list[Mapping[TopicPartition, ListedOffset]] = []
    for place in (EARLIEST, LATEST, 0, LARGEST_TIMESTAMP):
        wanted = dict.fromkeys(left, place)
        listed.append(known(cluster, wanted, OffsetsAt(wanted, cluster.options.isolation)))
        left = set(listed[-1])  # who did not answer is not waited for again
    sizes = known(cluster, left, LogSizes())
    rows: list[tuple[Any, ...]] = []
    for tp in partitions:
        leader, replicas = cluster.view.leaders.get(tp), cluster.view.replicas[tp]
        told: tuple[Any, ...] = (None,) * 6
        if tp in left:
            start, end, first, newest = (each[tp] for each in listed)
            told = (
                *(start.offset, end.offset, end.offset - start.offset, sizes.get(tp, 0)),
                *(_moment(first.timestamp), _moment(newest.timestamp)),
            )
        at = (None, None) if leader is None else (leader.broker, leader.epoch)
        place_of = tp.topic, tp.partition, str(cluster.view.topic_ids[tp.topic])
        rows.append((*place_of, *at, list(replicas.assigned), list(replicas.in_sync), *told))
    return rows


def _moment(ms: int) -> datetime | None:
    """None if no record has a time, or if a producer wrote one that no calendar has."""
    return None if ms < 0 or ms > MOMENT_MAX_MS else datetime.fromtimestamp(ms / 1000, UTC)
