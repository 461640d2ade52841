"""What a batch read has beyond Spark's own source: snapshots, columns, splits by bytes, a group's offsets."""

import logging
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import CaseInsensitiveDict

from strandline.base.types import TopicPartition
from strandline.client.spark import StrandlineDataSource, snapshot
from strandline.client.spark.client import SparkCluster
from strandline.client.spark.options import parse
from strandline.client.spark.plan import PlanError, Span
from strandline.protocol.apis import Api

pytestmark = pytest.mark.spark

T0 = TopicPartition("t", 0)


def load(spark: SparkSession, double: Any, **options: Any) -> DataFrame:
    reader = spark.read.format("strandline").option("kafka.bootstrap.servers", double.servers)
    return reader.options(**{"subscribe": "t", **options}).load()


def fill(double: Any, batches: int = 20, per_batch: int = 10, size: int = 1) -> Any:
    log = double.log("t")
    for number in range(batches):
        values = [(1000, None, b"%d" % (number * per_batch + index) * size, []) for index in range(per_batch)]
        log.add(values)
    return log


def first_line(trouble: PySparkException) -> str:
    return str(trouble).splitlines()[0]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"minPartition": 3}, "unknown option minpartition; did you mean minPartitions?"),
        ({"subscribe": "nowhere"}, "no such topic or partition: nowhere"),
        (
            {"startingOffsets": '{"t": {"0": 1, "7": 1}}'},
            "the starting bounds must name exactly the partitions that are read; see t-7",
        ),
        ({"kafka.bootstrap.servers": "127.0.0.1:1"}, "no broker can be reached at 127.0.0.1:1"),
        ({"columns": "value,size"}, "names size; there are key, value"),
        ({"snapshot": "{}"}, "snapshot is not JSON of a snapshot"),
        ({"endingOffsets": "earliest"}, "endingOffsets must not be earliest"),
    ],
)
def test_trouble_is_one_sentence_at_load(
    spark: SparkSession, double: Any, options: dict[str, Any], sentence: str
) -> None:
    """In the first line of the exception that Spark shows, and no traceback below it."""
    fill(double)
    with pytest.raises(PySparkException) as error:
        load(spark, double, **{"fetchOffset.retryIntervalMs": 10, **options})
    assert sentence in first_line(error.value)
    assert "Traceback" not in str(error.value) and str(error.value).count("\n") < 4


def test_trouble_with_a_schema_is_one_sentence(spark: SparkSession, double: Any) -> None:
    """Spark asks a source nothing at load() if the user gives a schema: it is told by the first action."""
    fill(double)
    source = spark.read.format("strandline").option("bootstrap.servers", double.servers)
    with pytest.raises(PySparkException) as error:
        source.option("subscribe", "t").schema("value string").load().count()
    assert "column value string does not exist; expected one of key binary" in first_line(error.value)
    with pytest.raises(PySparkException) as error:
        source.options(subscribe="t", snapshot="load").schema("value binary").load().count()
    assert "snapshot=load is not supported with schema()" in first_line(error.value)


def test_loss_in_a_task_is_one_sentence(spark: SparkSession, double: Any) -> None:
    log = fill(double)

    def retain(count: int) -> None:
        log.start, log.batches = 150, log.batches[15:]

    double.on_fetch = retain
    with pytest.raises(PySparkException) as error:
        load(spark, double, **{"kafka.max.partition.fetch.bytes": 500}).collect()
    assert "t-0: records [0, 150) are gone, the log has [150, 200)" in str(error.value)
    assert "Traceback (most recent call last)" not in str(error.value)


def test_what_has_no_effect_is_told_once(double: Any, caplog: pytest.LogCaptureFixture) -> None:
    fill(double)
    given = {"bootstrap.servers": double.servers, "subscribe": "t", "groupIdPrefix": "etl"}
    source = StrandlineDataSource(CaseInsensitiveDict({**given, "maxTriggerDelay": "1s"}))
    with caplog.at_level(logging.WARNING):
        schema = source.schema()
        source.streamReader(schema)
        reader = source.reader(schema)
        told = [record.getMessage() for record in caplog.records]
        reader.partitions()
        reader.partitions()
    assert told == [
        "option_without_effect note=groupIdPrefix has no effect: "
        "offsets live in Spark; commitOffsetsToGroup writes them to a group"
    ]
    (late,) = [record.getMessage() for record in caplog.records[1:]]
    assert "maxTriggerDelay has no effect: it limits a streaming trigger" in late, "told when a batch is read"


def test_columns_are_chosen_by_name_and_in_order(spark: SparkSession, double: Any) -> None:
    fill(double)
    frame = load(spark, double, columns="offset, value")
    assert frame.columns == ["offset", "value"]
    assert frame.selectExpr("count(1)", "sum(cast(string(value) as long) - offset)").first() == (200, 0)
    assert load(spark, double, columns="topic").distinct().collect() == [("t",)]


def test_metadata_columns_tell_what_the_batch_and_the_fetch_know(spark: SparkSession, double: Any) -> None:
    log = double.log("t", leader=2)
    log.add([(1, None, b"plain", [])] * 3)
    double.elect(2)
    log.add([(1, b"\0\0\0\1", b"marker", [])], control=True)
    log.add([(1, None, b"sent", [])] * 2, producer_id=7, producer_epoch=1, base_sequence=40)
    frame = load(spark, double, metadataColumns="true", includeHeaders="true")
    assert frame.columns[7:] == [
        *("headers", "leaderEpoch", "producerId", "producerEpoch", "baseSequence"),
        *("batchBaseOffset", "servedBy", "highWatermark"),
    ]
    rows = frame.drop("key", "topic", "partition", "timestamp", "timestampType", "headers").collect()
    plain = [(bytearray(b"plain"), offset, 5, None, None, None, 0, 2, 6) for offset in range(3)]
    sent = [(bytearray(b"sent"), offset, 6, 7, 1, 40, 4, 2, 6) for offset in (4, 5)]
    assert [tuple(row) for row in rows] == plain + sent
    swapped = load(spark, double, columns="batchBaseOffset,value,leaderEpoch")
    assert tuple(swapped.collect()[-1]) == (4, bytearray(b"sent"), 6)


def test_splits_are_made_by_bytes(spark: SparkSession, double: Any) -> None:
    log = fill(double, size=100)
    whole = sum(map(len, log.batches))
    frame = load(spark, double, splitBytes=whole // 4 + 1, columns="offset")
    assert frame.rdd.getNumPartitions() == 4
    assert sorted(row.offset for row in frame.collect()) == list(range(200))
    assert load(spark, double, splitBytes=2 * whole).rdd.getNumPartitions() == 1


def test_a_snapshot_at_load_is_the_same_on_both_sides_of_a_join(spark: SparkSession, double: Any) -> None:
    """Spark plans both sides by themselves, while a producer goes on."""
    log = fill(double)

    def produce(node: int, api: Api) -> None:
        if api == Api.LIST_OFFSETS:
            log.add([(1000, None, b"late", [])] * 10)

    double.after_answer = produce
    orphans = {}
    for moment in ("load", "plan"):
        frame = load(spark, double, snapshot=moment, columns="offset")
        joined = frame.alias("a").join(frame.alias("b"), "offset", "full_outer")
        orphans[moment] = joined.where("a.offset is null or b.offset is null").count()
    assert orphans["load"] == 0 < orphans["plan"]


def test_a_snapshot_as_json_repeats_a_read(spark: SparkSession, double: Any) -> None:
    log = fill(double)
    options = parse(
        {"bootstrap.servers": double.servers, "subscribe": "t", "startingOffsets": '{"t":{"0":7}}'}
    )
    cluster = SparkCluster(options.cluster)
    taken = snapshot.to_json(snapshot.bounds(cluster, options))
    log.add([(1000, None, b"late", [])])
    again = spark.read.format("strandline").options(**{"bootstrap.servers": double.servers}, snapshot=taken)
    for parts in (1, 3):
        offsets = [row.offset for row in again.option("minPartitions", parts).load().collect()]
        assert sorted(offsets) == list(range(7, 200))
    double.make_again("t").add([(1, None, b"other", [])] * 300)
    with pytest.raises(PySparkException, match="topic t was deleted and created again"):
        again.load().collect()
    cluster.close()


def test_a_snapshot_survives_its_text() -> None:
    spans = [Span(T0, 3, 9, 5), Span(TopicPartition("ü", 1), 0, 1)]
    assert snapshot.of_json(snapshot.to_json(spans)) == spans
    assert [Span.of_plain(span.plain()) for span in spans] == spans
    for text in ("[]", "{", '{"strandline.snapshot": 2, "partitions": []}', '{"strandline.snapshot": 1}'):
        with pytest.raises(PlanError, match="is not JSON of a snapshot"):
            snapshot.of_json(text)


def test_offsets_are_committed_when_a_range_was_read(spark: SparkSession, double: Any) -> None:
    fill(double)
    frame = load(spark, double, commitOffsetsToGroup="seen", columns="offset")
    assert double.committed == {}
    assert frame.count() == 200
    assert double.committed == {("seen", T0): 200}
