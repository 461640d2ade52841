"""Spark writes to three real brokers: what other clients read, and what kills and moves of leaders cost."""

import re
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from strandline.base.types import TopicPartition
from strandline.client.results import ConsumerRecord
from strandline.client.sync import Consumer
from strandline.protocol.compression import Codec

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WAIT_S = 300
PARTITIONS = 3


@pytest.fixture
def topic(strandline_cluster: Any, request: pytest.FixtureRequest) -> str:
    name = "sink-" + re.sub(r"\W", "-", request.node.name.removeprefix("test_"))[-60:]
    admin = AdminClient({"bootstrap.servers": strandline_cluster.bootstrap})
    (made,) = admin.create_topics([NewTopic(name, PARTITIONS, 3)]).values()
    made.result(60)
    return name


def save(frame: DataFrame, cluster: Any, topic: str, **options: Any) -> None:
    writer = frame.write.format("strandline").option("kafka.bootstrap.servers", cluster.bootstrap)
    writer.options(**{"topic": topic, **options}).mode("append").save()


def read(cluster: Any, topic: str, partitions: int = PARTITIONS) -> list[ConsumerRecord]:
    """All records of the topic, by the bundled consumer."""
    there = [TopicPartition(topic, at) for at in range(partitions)]
    with Consumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(there)
        ends = consumer.end_offsets(there)
        found: list[ConsumerRecord] = []
        while len(found) < sum(ends.values()):
            found += consumer.poll(1000)
        return found


def test_the_bundled_consumer_reads_every_column_and_codec(
    spark: SparkSession, strandline_cluster: Any, topic: str
) -> None:
    moment = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
    schema = (
        "partition int, key binary, value string, timestamp timestamp, "
        "headers array<struct<key: string, value: binary>>"
    )
    rows = [(at % 3, b"%d" % at, f"värde {at}", moment, [("n", b"%d" % at), ("n", None)]) for at in range(90)]
    rows += [(0, None, None, moment, None)]
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    wanted = [
        (at, key, None if value is None else value.encode(), tuple(headers or ()))
        for at, key, value, _, headers in rows
    ]
    for codec in Codec:
        save(frame, strandline_cluster, topic, **{"kafka.compression.type": codec.name})
    found = read(strandline_cluster, topic)
    assert {record.timestamp for record in found} == {1_714_979_289_000}
    came = [(record.partition, record.key, record.value, record.headers) for record in found]
    assert sorted(came, key=repr) == sorted(wanted * len(Codec), key=repr)


def test_keys_have_the_partitions_that_librdkafkas_murmur2_gives_them(
    spark: SparkSession, strandline_cluster: Any, topic: str
) -> None:
    keys = [b"key %d" % at for at in range(300)] + [bytes(range(at)) for at in range(1, 60)]
    producer = Producer(
        {"bootstrap.servers": strandline_cluster.bootstrap, "partitioner": "murmur2_random", "linger.ms": 5}
    )
    for key in keys:
        producer.produce(topic, b"theirs", key=key)
    assert producer.flush(60) == 0
    save(
        spark.createDataFrame([(key, "ours") for key in keys], "key binary, value string"),
        strandline_cluster,
        topic,
    )
    places: dict[bytes, dict[bytes, int]] = {b"ours": {}, b"theirs": {}}
    for record in read(strandline_cluster, topic):
        places[record.value][record.key] = record.partition
    assert places[b"ours"] == places[b"theirs"] and len(places[b"ours"]) == len(keys)


@pytest.mark.parametrize("gracefully", [False, True])
def test_a_leader_that_goes_in_the_middle_costs_no_row_and_repeats_none(
    spark: SparkSession, strandline_cluster: Any, topic: str, gracefully: bool
) -> None:
    rows, some = 150_000, 5_000
    broker = strandline_cluster.brokers[strandline_cluster.leader(topic, 0)]
    came = 0

    def end_it() -> None:
        nonlocal came
        there = [TopicPartition(topic, at) for at in range(PARTITIONS)]
        with Consumer(strandline_cluster.bootstrap) as consumer:
            while came < some:
                came = sum(consumer.end_offsets(there).values())
        broker.stop() if gracefully else broker.kill()

    ending = threading.Thread(target=end_it, daemon=True)
    ending.start()
    frame = spark.range(0, rows, 1, 2).selectExpr("lpad(cast(id as string), 100, '0') as value")
    try:
        save(frame, strandline_cluster, topic, **{"kafka.batch.size": 4096})
    finally:
        ending.join(WAIT_S)
        broker.start()
        strandline_cluster.wait_ready(3)
    assert came < rows, "it went in the middle"
    values = [record.value for record in read(strandline_cluster, topic)]
    assert len(values) == rows
    assert set(values) == {b"%0100d" % at for at in range(rows)}


def test_a_stream_copies_every_record_over_restarts(
    spark: SparkSession, strandline_cluster: Any, topic: str, tmp_path: Path
) -> None:
    source = f"{topic}-source"
    options = {"bootstrap.servers": strandline_cluster.bootstrap}
    frame = spark.range(0, 1000, 1, 1).selectExpr("cast(id as string) as key", "cast(id as string) as value")
    copies = spark.readStream.format("strandline").options(
        **options, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=700
    )
    for _ in range(2):
        save(frame, strandline_cluster, source)
        writer = copies.load().writeStream.format("strandline").options(**options, topic=topic)
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_S)
    found = [record.value for record in read(strandline_cluster, topic)]
    assert sorted(found) == sorted(2 * [b"%d" % at for at in range(1000)])


def test_a_row_that_the_broker_refuses_is_named(
    spark: SparkSession, strandline_cluster: Any, topic: str
) -> None:
    frame = spark.range(0, 20, 1, 1).selectExpr("repeat('x', if(id = 13, 1500000, 10)) as value")
    with pytest.raises(PySparkException) as error:
        save(frame, strandline_cluster, topic, **{"kafka.max.request.size": 1 << 21})
    assert "task 0, row 13: not written to " in str(error.value)
    assert "MESSAGE_TOO_LARGE" in str(error.value)
    with pytest.raises(
        PySparkException, match=r"row 13: its record takes \d+ bytes, above kafka.max.request"
    ):
        save(frame, strandline_cluster, topic)
