"""Helpers: scans fetch what their conditions need, snapshots repeat, descriptions and lags are true."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest
from pyspark.sql import SparkSession

from strandline.base.types import TopicPartition
from strandline.client.spark.admission import HAS_ADMISSION_CONTROL
from strandline.client.spark.helpers import Lag, LagListener, describe, lag_of, scan, take_snapshot
from strandline.protocol.apis import Api

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
START_MS = 1_767_225_600_000  # 2026-01-01


def fill(double: Any) -> None:
    """Two partitions with a record each minute of an hour, one record in a batch."""
    for partition in range(2):
        log = double.log("t", partition, leader=1 + partition)
        for minute in range(60):
            log.add([(START_MS + minute * 60_000, b"k%d" % (minute % 3), b"%d" % minute, [])])


def fetched(double: Any) -> int:
    return sum(api == Api.FETCH for _, api in double.asked)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("where", "rows", "fetches"),
    [
        ("timestamp >= '2026-01-01 00:55:00'", 10, 5 * 2),
        ("timestamp >= '2026-01-01 00:55:00' AND partition = 1 AND key = cast('k1' as binary)", 2, 5),
        ("offset between 10 and 19", 20, 10 * 2),
        ("partition IN (0) AND offset >= 50 AND value <> cast('55' as binary)", 9, 10),
        ("offset >= 59 OR offset < 1", 4, 60 * 2),
        ("timestamp > '2027-01-01'", 0, 0),
    ],
)
def test_a_scan_fetches_what_its_condition_needs(
    spark: SparkSession, double: Any, where: str, rows: int, fetches: int
) -> None:
    fill(double)
    small = {"kafka.max.partition.fetch.bytes": 1}  # a batch at a time, so what is fetched can be counted
    found = scan(spark, double.servers, "t", where, columns=["value", "offset"], **small)
    everything = scan(spark, double.servers, "t").where(where).select("value", "offset")
    assert found.columns == ["value", "offset"]
    assert fetched(double) == 0, "nothing is fetched before an action"
    came = found.collect()
    assert fetched(double) == fetches
    assert sorted(came) == sorted(everything.collect())
    assert len(came) == rows


@pytest.mark.spark
def test_a_snapshot_is_taken_now_and_read_later(spark: SparkSession, double: Any) -> None:
    fill(double)
    given = {"bootstrap.servers": double.servers, "subscribe": "t", "includeHeaders": True}
    taken = take_snapshot({**given, "startingTimestamp": START_MS + 59 * 60_000})
    double.log("t").add([(1, None, b"late", [])])
    again = spark.read.format("strandline").options(**given, snapshot=taken).load()
    assert sorted((row.partition, row.offset) for row in again.collect()) == [(0, 59), (1, 59)]


@pytest.mark.spark
def test_a_scan_of_a_snapshot_reads_its_part_of_that(spark: SparkSession, double: Any) -> None:
    """And nothing that came later, or stood before it."""
    fill(double)
    double.log("other").add([(1, None, b"x", [])])
    bounds = '{"t": {"0": 5, "1": 5}, "other": {"0": 0}}'
    given = {"bootstrap.servers": double.servers, "subscribe": "t,other", "startingOffsets": bounds}
    taken = take_snapshot(given)
    for partition in range(2):
        double.log("t", partition).add([(START_MS, None, b"late", [])])
    assert take_snapshot({**given, "snapshot": taken}) == taken
    where = "partition = 1 AND (offset < 8 OR offset > 58) AND timestamp >= '2026-01-01 00:06:00'"
    for condition, rows in ((where, [6, 7, 59]), ("partition = 1", [*range(5, 60)]), ("offset < 5", [])):
        found = scan(spark, double.servers, "t", condition, columns=["offset", "topic"], snapshot=taken)
        assert sorted(found.collect()) == [(offset, "t") for offset in rows]


@pytest.mark.parametrize(("pinned", "left"), [(True, {"startingOffsets"}), (False, set())])
def test_a_scan_leaves_out_what_its_snapshot_was_made_of(double: Any, pinned: bool, left: set[str]) -> None:
    """What the user's own snapshot overrules stays, and so is told."""
    fill(double)
    given = {"startingOffsets": "earliest"}
    if pinned:
        given["snapshot"] = take_snapshot({"bootstrap.servers": double.servers, "subscribe": "t"})
    session = MagicMock()
    scan(session, double.servers, "t", "timestamp >= '2026-01-01'", **given)
    (read,) = (call.kwargs for call in session.read.format.return_value.options.call_args_list)
    assert set(read) == {"kafka.bootstrap.servers", "snapshot"} | left


@pytest.mark.spark
def test_a_description_has_a_row_for_each_partition(spark: SparkSession, double: Any) -> None:
    fill(double)
    double.log("empty")
    double.log("other")
    rows = {(row.topic, row.partition): row for row in describe(spark, double.servers, "^t$|empty").collect()}
    assert sorted(rows) == [("empty", 0), ("t", 0), ("t", 1)]
    row = rows["t", 1]
    assert (row.leader, row.leaderEpoch, row.replicas, row.inSyncReplicas) == (2, 5, [1, 2], [1, 2])
    assert (row.earliestOffset, row.latestOffset, row.offsets) == (0, 60, 60)
    assert row.bytes == sum(map(len, double.log("t", 1).batches))
    moments = [each.astimezone(UTC) for each in (row.earliestTimestamp, row.latestTimestamp)]
    assert moments == [datetime(2026, 1, 1, 0, minute, tzinfo=UTC) for minute in (0, 59)]
    nothing = rows["empty", 0]
    assert (nothing.offsets, nothing.bytes, nothing.earliestTimestamp, nothing.latestTimestamp) == (
        0,
        0,
        None,
        None,
    )


@pytest.mark.spark
def test_a_description_tells_what_is_there_of_a_partition_without_a_leader(
    spark: SparkSession, double: Any
) -> None:
    """Of all times, that is when one looks."""
    fill(double)
    double.log("t", 1).leader = 9
    lone, led = "fetchOffset.retryIntervalMs", {}
    for row in describe(spark, double.servers, "t", **{lone: 10}).collect():
        led[row.partition] = (row.leader, row.replicas, row.latestOffset, row.latestTimestamp is None)
    assert led == {0: (1, [1, 2], 60, False), 1: (None, [1, 2], None, True)}


@pytest.mark.spark
def test_a_description_survives_times_that_no_calendar_has(spark: SparkSession, double: Any) -> None:
    """Of a producer that writes nanoseconds."""
    double.log("t").add([(START_MS * 1_000_000, None, b"x", [])])
    (row,) = describe(spark, double.servers, "t").collect()
    assert (row.latestOffset, row.latestTimestamp) == (1, None)


@pytest.mark.spark
@pytest.mark.skipif(not HAS_ADMISSION_CONTROL, reason="Spark asks for no latest offset to report, before 4.2")
def test_a_listener_knows_the_lag_after_each_batch(spark: SparkSession, double: Any, tmp_path: Path) -> None:
    fill(double)
    heard: list[Lag] = []
    listener = LagListener(heard.append)
    spark.streams.addListener(listener)
    try:
        given = {"bootstrap.servers": double.servers, "subscribe": "t", "startingOffsets": "earliest"}
        stream = spark.readStream.format("strandline").options(**given, maxOffsetsPerTrigger=60).load()
        writer = stream.writeStream.format("noop").queryName("watched")
        writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
        assert writer.start().awaitTermination(300)
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    finally:
        spark.streams.removeListener(listener)
    assert [(lag.batch, lag.total) for lag in heard][:3] == [(0, 120), (1, 60), (2, 0)]
    assert heard[1].by_partition == {T0: 30, T1: 30}
    assert listener.lags["watched"] == heard[-1]


def test_the_lag_is_what_is_there_and_not_read() -> None:
    end = '{"#t 6a1b0000-0000-0000-0000-000000000000 0:5": {}, "t": {"0": 7}}'
    assert lag_of('{"t": {"0": 10, "1": 4}}', end) == {T0: 3, T1: 4}
    assert lag_of(None, None) == {}
    assert lag_of("5", "4") == {} == lag_of("[]", "x"), "a source of another kind"
