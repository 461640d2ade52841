"""A real Spark session reads topics as it would with its own Kafka source."""

import threading
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from strandline.client.spark import StrandlineDataSource
from strandline.protocol.compression import Codec

pytestmark = pytest.mark.spark

KAFKA_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, "
    "timestamp timestamp, timestampType int"
)


def load(spark: SparkSession, double: Any, **options: Any) -> DataFrame:
    reader = spark.read.format("strandline").option("kafka.bootstrap.servers", double.servers)
    return reader.options(**{"subscribe": "t", **options}).load()


def fill(double: Any, partitions: int = 2, batches: int = 50, per_batch: int = 20) -> int:
    for partition in range(partitions):
        log = double.log("t", partition, leader=1 + partition % 2)
        for number in range(batches):
            values = [
                (1_700_000_000_000 + number, b"k%d" % partition, b"%d" % (number * per_batch + index), [])
                for index in range(per_batch)
            ]
            log.add(values, codec=Codec(number % 5))
    return partitions * batches * per_batch


def test_the_schema_is_that_of_sparks_kafka_source(spark: SparkSession, double: Any) -> None:
    fill(double)
    assert load(spark, double).schema == StructType.fromDDL(KAFKA_SCHEMA)
    with_headers = KAFKA_SCHEMA + ", headers array<struct<key: string, value: binary>>"
    assert load(spark, double, includeHeaders=True).schema == StructType.fromDDL(with_headers)


def test_rows_are_the_records(spark: SparkSession, double: Any) -> None:
    log = double.log("t", 0, start=7)
    log.add(
        [(1_500, b"key", b"value", [("a", b"1"), ("b", None)]), (2_500, None, None, [])], codec=Codec.ZSTD
    )
    rows = [row.asDict(recursive=True) for row in load(spark, double, includeHeaders="true").collect()]
    first = {
        "key": bytearray(b"key"),
        "value": bytearray(b"value"),
        "topic": "t",
        "partition": 0,
        "offset": 7,
        "timestampType": 0,
        "headers": [{"key": "a", "value": bytearray(b"1")}, {"key": "b", "value": None}],
    }
    times = [row.pop("timestamp") for row in rows]
    assert rows == [first, {**first, "key": None, "value": None, "offset": 8, "headers": None}]
    utc = [moment.astimezone(UTC) for moment in times]
    assert utc == [datetime(1970, 1, 1, 0, 0, second, 500_000, UTC) for second in (1, 2)]


def test_every_record_comes_once_however_it_is_cut(spark: SparkSession, double: Any) -> None:
    total = fill(double)
    wanted = {(partition, offset) for partition in range(2) for offset in range(total // 2)}
    for partitions in (1, 7):
        frame = load(spark, double, minPartitions=partitions)
        assert abs(frame.rdd.getNumPartitions() - max(partitions, 2)) <= 2
        found = [(row.partition, row.offset) for row in frame.select("partition", "offset").collect()]
        assert len(found) == total and set(found) == wanted
    bounds = {"startingOffsets": '{"t": {"0": 333, "1": -2}}', "endingOffsets": '{"t": {"0": 334, "1": 3}}'}
    values = {bytes(row.value) for row in load(spark, double, **bounds).collect()}
    assert values == {b"333", b"0", b"1", b"2"}
    timed = load(spark, double, startingTimestamp=1_700_000_000_049)
    assert timed.count() == 40


def test_a_schema_may_leave_columns_out(spark: SparkSession, double: Any) -> None:
    total = fill(double)
    source = spark.read.format("strandline").option("bootstrap.servers", double.servers)
    few = source.option("subscribe", "t").schema("offset bigint, value binary").load()
    assert few.columns == ["offset", "value"]
    assert few.selectExpr("count(1)", "sum(cast(string(value) as long) - offset)").first() == (total, 0)
    with pytest.raises(AnalysisException, match="column value string does not exist"):
        source.option("subscribe", "t").schema("value string").load().count()


def test_a_dataframe_keeps_its_snapshot(spark: SparkSession, double: Any) -> None:
    total = fill(double)
    frame = load(spark, double)
    assert frame.count() == total
    double.log("t").add([(1, None, b"late", [])])
    assert frame.count() == total
    assert load(spark, double).count() == total + 1


def test_nothing_to_read_is_no_rows(spark: SparkSession, double: Any) -> None:
    double.log("t")
    assert load(spark, double).collect() == []


def test_sql_reads_too(spark: SparkSession, double: Any) -> None:
    total = fill(double)
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW t USING strandline "
        f"OPTIONS (`bootstrap.servers` '{double.servers}', subscribe 't')"
    )
    assert spark.sql("SELECT count(*) FROM t WHERE partition = 1").first() == (total // 2,)


def test_bad_options_are_told_at_load(spark: SparkSession, double: Any) -> None:
    fill(double, batches=1)
    with pytest.raises(AnalysisException, match=r"unknown option minpartition; did you mean minPartitions\?"):
        load(spark, double, minPartition=3)
    with pytest.raises(AnalysisException, match="no such topic or partition: nowhere"):
        load(spark, double, subscribe="nowhere", **{"fetchOffset.retryIntervalMs": 10})


def test_the_leader_dies_in_the_middle_of_a_task(spark: SparkSession, double: Any) -> None:
    total = fill(double, batches=400)

    def die(count: int) -> None:
        if count == 20:
            double.kill(1)
            threading.Timer(1.0, double.elect, args=(2,)).start()

    double.on_fetch = die
    frame = load(spark, double, **{"kafka.max.partition.fetch.bytes": 2000})
    found = frame.selectExpr("count(1)", "count(distinct partition, offset)", "sum(offset)").first()
    half = total // 2
    assert found == (total, total, half * (half - 1))
    assert list(double.brokers) == [2]


def test_the_name_is_the_products() -> None:
    assert StrandlineDataSource.name() == "strandline"
