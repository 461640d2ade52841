"""Spark and three real brokers: a leader that is killed, and what only real brokers can tell."""

import threading
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from strandline.client.spark.helpers import describe

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RECORDS = 60_000
PARTITIONS = 3


def test_a_killed_leader_costs_no_record(spark: SparkSession, strandline_cluster: Any) -> None:
    servers = strandline_cluster.bootstrap
    admin = AdminClient({"bootstrap.servers": servers})
    (made,) = admin.create_topics([NewTopic("spark-reads", PARTITIONS, 3)]).values()
    made.result(30)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "compression.type": "lz4"})
    for number in range(RECORDS):
        producer.produce("spark-reads", b"%0100d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0

    frame = (
        spark.read.format("strandline")
        .option("bootstrap.servers", servers)
        .option("subscribe", "spark-reads")
        .option("kafka.max.partition.fetch.bytes", 4096)
        .load()
    )
    assert frame.count() == RECORDS
    leader = strandline_cluster.leader("spark-reads", 0)
    killing = threading.Timer(0.3, strandline_cluster.brokers[leader].kill)
    killing.start()
    try:
        rows = frame.selectExpr(
            "count(1)",
            "count(distinct partition, offset)",
            "count(distinct value)",
            "sum(cast(string(value) as long))",
        ).first()
    finally:
        killing.join()
        strandline_cluster.brokers[leader].start()
        strandline_cluster.wait_ready(3)
    assert rows == (RECORDS, RECORDS, RECORDS, RECORDS * (RECORDS - 1) // 2)


def test_what_brokers_tell_of_their_logs(spark: SparkSession, strandline_cluster: Any) -> None:
    """Sizes, times, epochs, producers; and what they are told: a group's offsets."""
    servers, topic = strandline_cluster.bootstrap, "spark-asks"
    admin = AdminClient({"bootstrap.servers": servers})
    (made,) = admin.create_topics([NewTopic(topic, 2, 3)]).values()
    made.result(30)
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 50})
    for number in range(1000):
        producer.produce(topic, b"%0100d" % number, partition=0, timestamp=1_767_225_600_000 + number)
    assert producer.flush(60) == 0

    rows = describe(spark, servers, topic).orderBy("partition").collect()
    assert [(row.earliestOffset, row.latestOffset) for row in rows] == [(0, 1000), (0, 0)]
    assert rows[0].bytes > 100_000 and rows[1].bytes == 0
    assert rows[0].leader == strandline_cluster.leader(topic, 0) and len(rows[0].inSyncReplicas) == 3
    assert [moment.microsecond for moment in (rows[0].earliestTimestamp, rows[0].latestTimestamp)] == [
        0,
        999_000,
    ]

    reader = spark.read.format("strandline").option("bootstrap.servers", servers).option("subscribe", topic)
    assert reader.option("commitOffsetsToGroup", "spark-seen").load().count() == 1000
    split = reader.option("splitBytes", rows[0].bytes // 4 + 1)
    frame = split.option("metadataColumns", "true").load()
    assert frame.rdd.getNumPartitions() == 4
    facts = frame.select("leaderEpoch", "producerId", "producerEpoch", "servedBy", "highWatermark")
    ((epoch, producer_id, producer_epoch, served_by, high_watermark),) = facts.distinct().collect()
    assert (epoch, producer_epoch, served_by, high_watermark) == (
        rows[0].leaderEpoch,
        0,
        rows[0].leader,
        1000,
    )
    assert producer_id >= 0
    sequences = (
        frame.selectExpr("offset - (baseSequence + offset - batchBaseOffset) as gap").distinct().collect()
    )
    assert [row.gap for row in sequences] == [0], "one producer: its sequences are the offsets"
    (listed,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("spark-seen")]).values()
    assert {part.partition: part.offset for part in listed.result(30).topic_partitions} == {0: 1000}
