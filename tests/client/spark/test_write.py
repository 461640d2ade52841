"""A real Spark session writes to topics as it would with its own Kafka sink."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StringType, StructField, StructType

from strandline.base.types import TopicPartition
from strandline.client.producer.partitioner import partition_for_key
from strandline.client.spark import StrandlineDataSource
from strandline.client.spark.sink.produce import Written
from strandline.client.spark.sink.task import TaskDone
from strandline.client.spark.sink.write import TaskWritten, summary
from strandline.protocol.apis import Api
from strandline.protocol.batches import read_header
from strandline.protocol.compression import Codec
from strandline.protocol.records import Record, iterate

pytestmark = pytest.mark.spark

WAIT_S = 300


def save(frame: DataFrame, double: Any, **options: Any) -> None:
    writer = frame.write.format("strandline").option("kafka.bootstrap.servers", double.servers)
    writer.options(**{"topic": "t", **options}).mode("append").save()


def records(double: Any, topic: str = "t", partition: int = 0) -> list[Record]:
    return list(iterate(b"".join(double.logs[TopicPartition(topic, partition)].batches)))


def first_line(error: pytest.ExceptionInfo[Any]) -> str:
    return str(error.value).splitlines()[0]


def test_rows_become_records_with_all_their_columns(spark: SparkSession, double: Any) -> None:
    for topic in ("a", "b"):
        for partition in range(2):
            double.log(topic, partition, leader=1 + partition)
    moment = datetime(2024, 5, 6, 7, 8, 9, 123_456, UTC)
    headers = [("h1", b"x"), ("h2", None)]
    rows = [
        ("a", 0, "key", "value", headers, moment),
        ("b", 1, None, "no key", None, moment),
        ("b", 1, "tombstone", None, [], None),
    ]
    schema = (
        "topic string, partition int, key string, value string, "
        "headers array<struct<key: string, value: binary>>, timestamp timestamp, offset bigint"
    )
    frame = spark.createDataFrame([(*row, 0) for row in rows], schema).coalesce(1)
    writer = frame.write.format("strandline").option("bootstrap.servers", double.servers)
    writer.mode("append").save()
    at_ms = 1_714_979_289_123
    assert records(double, "a") == [Record(0, at_ms, b"key", b"value", (("h1", b"x"), ("h2", None)))]
    first, second = records(double, "b", 1)
    assert first == Record(0, at_ms, None, b"no key", ())
    assert second._replace(timestamp=0) == Record(1, 0, b"tombstone", None, ())
    assert abs(second.timestamp / 1000 - datetime.now(UTC).timestamp()) < WAIT_S


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_written(spark: SparkSession, double: Any, codec: Codec) -> None:
    log = double.log("t")
    frame = spark.range(2000).selectExpr("cast(id as string) as value").coalesce(1)
    save(frame, double, **{"kafka.compression.type": codec.name.lower()})
    assert log.values() == [b"%d" % at for at in range(2000)]
    assert {read_header(batch).codec for batch in log.batches} == {codec}


def test_keys_go_where_kafka_sends_them_and_binary_is_text(spark: SparkSession, double: Any) -> None:
    for partition in range(3):
        double.log("t", partition, leader=1 + partition % 2)
    frame = spark.range(500).selectExpr(
        "cast(id as string) as key", "cast(cast(id as string) as binary) as value"
    )
    save(frame, double)
    found = {one.key: at for at in range(3) for one in records(double, partition=at)}
    assert found == {b"%d" % at: partition_for_key(b"%d" % at, 3) for at in range(500)}
    assert all(one.key == one.value for at in range(3) for one in records(double, partition=at))


def test_tasks_without_rows_ask_nothing(spark: SparkSession, double: Any) -> None:
    double.log("t")
    save(spark.range(0).selectExpr("cast(id as string) as value"), double)
    assert double.asked == []


def test_what_is_wrong_is_told_in_the_first_line(spark: SparkSession, double: Any) -> None:
    double.log("t")
    values = spark.range(3).selectExpr("cast(id as string) as value")
    for frame, options, reason in (
        (values, {"topik": "t"}, "unknown option topik; did you mean topic?"),
        (values, {"exactlyOnce": "true", "kafka.acks": "1"}, "exactlyOnce=true contradicts kafka.acks=1"),
        (spark.range(3), {}, "there is no column value, of type string or binary; there are id"),
    ):
        with pytest.raises(PySparkException) as error:
            save(frame, double, **options)
        assert reason in first_line(error), error.value
    with pytest.raises(PySparkException) as error:
        values.write.format("strandline").option("bootstrap.servers", double.servers).option(
            "topic", "t"
        ).mode("overwrite").save()
    assert "mode overwrite is not supported: what a topic has stays" in first_line(error)
    assert double.asked == []


def test_a_bad_row_is_told_in_the_first_line_with_its_place(spark: SparkSession, double: Any) -> None:
    double.log("t")
    frame = spark.range(0, 100, 1, 2).selectExpr(
        "cast(id as string) as value", "if(id = 77, null, 't') as topic"
    )
    writer = frame.write.format("strandline").option("bootstrap.servers", double.servers)
    with pytest.raises(PySparkException) as error:
        writer.mode("append").save()
    assert "task 1, row 27: its topic is null; name one in column topic" in str(error.value)
    print(first_line(error))


def test_a_stream_is_written_and_goes_on_after_a_restart(
    spark: SparkSession, double: Any, tmp_path: Path
) -> None:
    came, log = double.log("came"), double.log("t")
    source = spark.readStream.format("strandline").options(
        **{"bootstrap.servers": double.servers, "subscribe": "came", "startingOffsets": "earliest"}
    )

    def run(**options: Any) -> None:
        writer = source.load().select("key", "value").writeStream.format("strandline")
        writer = writer.options(**{"bootstrap.servers": double.servers, "topic": "t", **options})
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).queryName("copies")
        assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_S)

    for begin in (0, 50):
        came.add([(1000 + at, None, b"%d" % at, []) for at in range(begin, begin + 50)])
        run()
    assert log.values() == [b"%d" % at for at in range(100)]
    came.add([(2000, None, b"more", [])])
    with pytest.raises(StreamingQueryException) as error:
        run(exactlyOnce="true", **{"kafka.acks": "1"})
    assert "exactlyOnce=true contradicts kafka.acks=1" in first_line(error), error.value
    run()
    assert log.values()[100:] == [b"more"]


def test_complete_mode_is_refused(spark: SparkSession, double: Any, tmp_path: Path) -> None:
    double.log("came").add([(1000, None, b"x", [])])
    double.log("t")
    frame = spark.readStream.format("strandline").options(
        **{"bootstrap.servers": double.servers, "subscribe": "came", "startingOffsets": "earliest"}
    )
    counts = frame.load().groupBy("value").count().selectExpr("value")
    writer = counts.writeStream.format("strandline").outputMode("complete")
    writer = writer.options(**{"bootstrap.servers": double.servers, "topic": "t"})
    with pytest.raises(StreamingQueryException) as error:
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        query.awaitTermination(WAIT_S)
    assert "output mode complete is not supported" in first_line(error), error.value


def test_a_leader_that_dies_between_batches_costs_nothing(spark: SparkSession, double: Any) -> None:
    logs = [double.log("t", partition, leader=1) for partition in range(2)]

    def die() -> None:
        double.elect(2)
        double.kill(1)

    double.after_append = lambda count: die() if count == 3 else None
    frame = spark.range(20_000).selectExpr("cast(id as string) as value").coalesce(1)
    save(frame, double, **{"kafka.batch.size": 4096})
    written = [value for log in logs for value in log.values()]
    assert len(written) == 20_000 and set(written) == {b"%d" % at for at in range(20_000)}


def test_a_commit_tells_rows_bytes_and_offsets_by_partition() -> None:
    one = TaskWritten(TaskDone({TopicPartition("t", 0): Written(10, 500, 5, 14)}))
    two = TaskWritten(
        TaskDone(
            {TopicPartition("t", 0): Written(3, 60, 20, 22), TopicPartition("t", 1): Written(1, 9, -1, -1)}
        )
    )
    assert summary([one, None, two]) == {
        "rows": 14,
        "bytes": 569,
        "partitions": {"t-0": [13, 5, 22], "t-1": [1, -1, -1]},
    }


def test_writers_are_made_on_the_driver_without_a_broker() -> None:
    source = StrandlineDataSource(CaseInsensitiveDict({"bootstrap.servers": "nowhere:1", "topic": "t"}))
    schema = StructType([StructField("value", StringType())])
    assert source.writer(schema, overwrite=False).write(iter(())).plain["partitions"] == []
    assert source.streamWriter(schema, overwrite=False).write(iter(())).plain["partitions"] == []


def test_a_write_speaks_produce_alone(spark: SparkSession, double: Any) -> None:
    double.log("t")
    save(spark.range(10).selectExpr("cast(id as string) as value").coalesce(1), double)
    spoken = {api for _, api in double.asked}
    assert spoken == {Api.API_VERSIONS, Api.METADATA, Api.INIT_PRODUCER_ID, Api.PRODUCE}
