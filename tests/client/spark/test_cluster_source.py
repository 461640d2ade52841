"""Spark, three real brokers, and a leader that is killed while its partition is read."""

import threading
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

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
