"""Streams on three real brokers: what is killed, restarted, forgotten or made again; every record once."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from strandline.client.spark.admission import HAS_ADMISSION_CONTROL

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WAIT_S = 300

Place = tuple[int, int]


class Crash(RuntimeError):
    """The query is to end in the middle of a batch."""


class Story:
    """A topic, and a query on it with its checkpoint; what came is kept by batch."""

    def __init__(
        self, spark: SparkSession, cluster: Any, topic: str, checkpoint: Path, partitions: int = 2
    ) -> None:
        self.spark, self.cluster, self.topic, self.checkpoint = spark, cluster, topic, checkpoint
        self.admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        self.rows: dict[int, list[Place]] = {}
        self.values: list[bytes] = []
        self.create(2)

    def create(self, partitions: int) -> None:
        self._wait(self.admin.create_topics([NewTopic(self.topic, partitions, 3)]))

    def delete(self) -> None:
        self._wait(self.admin.delete_topics([self.topic]))

    def add_partitions(self, count: int) -> None:
        self._wait(self.admin.create_partitions([NewPartitions(self.topic, count)]))

    def forget(self, partition: int, before: int) -> None:
        """As retention does."""
        self._wait(self.admin.delete_records([At(self.topic, partition, before)]))

    def produce(self, partition: int, start: int, count: int, size: int = 0) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "linger.ms": 5})
        for number in range(start, start + count):
            producer.produce(self.topic, b"%d:%d" % (partition, number) + bytes(size), partition=partition)
            producer.poll(0)
        assert producer.flush(60) == 0

    def run(self, during: Callable[[int], None] = lambda batch: None, **options: Any) -> list[Place]:
        """Run the query until it has read what is there; `during` each batch may raise, or do harm."""
        reader = self.spark.readStream.format("strandline").option(
            "bootstrap.servers", self.cluster.bootstrap
        )
        frame = reader.options(**{"subscribe": self.topic, "startingOffsets": "earliest", **options}).load()

        def take(batch: DataFrame, number: int) -> None:
            rows = batch.select("partition", "offset", "value").collect()
            self.rows[number] = sorted((row.partition, row.offset) for row in rows)
            self.values += [bytes(row.value) for row in rows]
            during(number)

        before = set(self.rows)
        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self.checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_S)
        return [place for batch in sorted(set(self.rows) - before) for place in self.rows[batch]]

    def _wait(self, started: dict[Any, Any]) -> None:
        for each in started.values():
            each.result(60)


def places(partition: int, start: int, end: int) -> list[Place]:
    return [(partition, offset) for offset in range(start, end)]


@pytest.fixture
def story(
    spark: SparkSession, strandline_cluster: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> Story:
    topic = f"stream-{request.node.name.removeprefix('test_').replace('[', '-').replace(']', '')[:40]}"
    return Story(spark, strandline_cluster, topic, tmp_path / "checkpoint")


def test_a_new_partition_is_read_from_its_beginning_after_a_restart(story: Story) -> None:
    story.produce(0, 0, 50)
    assert story.run() == places(0, 0, 50)
    story.add_partitions(3)
    story.produce(0, 50, 5)
    story.produce(2, 0, 20)
    assert sorted(story.run()) == places(0, 50, 55) + places(2, 0, 20)
    assert story.run() == []


def test_a_crash_in_batch_0_loses_nothing_with_latest(story: Story) -> None:
    """Records that came after the query had begun, and before it began again."""
    story.produce(0, 0, 10)

    def crash(batch: int) -> None:
        raise Crash

    with pytest.raises(StreamingQueryException):
        story.run(crash, startingOffsets="latest")
    assert story.rows == {0: []}
    story.produce(0, 10, 7)
    found = story.run(startingOffsets="latest")
    found += story.run(startingOffsets="latest")  # before 4.2, a run that repeats a batch reads no other one
    assert found == places(0, 10, 17)


@pytest.mark.skipif(not HAS_ADMISSION_CONTROL, reason="one batch for all there is, before 4.2")
def test_a_batch_that_crashed_is_run_again_with_the_same_rows(story: Story) -> None:
    story.produce(0, 0, 40)
    story.produce(1, 0, 20)

    def crash(batch: int) -> None:
        if batch == 2:
            raise Crash

    with pytest.raises(StreamingQueryException):
        story.run(crash, maxOffsetsPerTrigger=30)
    crashed = story.rows.pop(2)
    assert len(crashed) == 30
    story.produce(0, 40, 5)
    story.run(maxOffsetsPerTrigger=30)
    assert story.rows[2] == crashed
    assert sorted(place for rows in story.rows.values() for place in rows) == places(0, 0, 45) + places(
        1, 0, 20
    )


def test_a_leader_killed_in_the_middle_of_a_batch_costs_no_record(story: Story) -> None:
    count = 15_000
    for partition in range(2):
        story.produce(partition, 0, count, size=100)
    leader = story.cluster.leader(story.topic, 0)
    killing = threading.Timer(0.3, story.cluster.brokers[leader].kill)

    def kill(batch: int) -> None:
        if batch == 0:
            killing.start()

    try:
        if not HAS_ADMISSION_CONTROL:  # all is in batch 0
            kill(0)
            kill = lambda batch: None  # noqa: E731
        found = story.run(kill, **{"kafka.max.partition.fetch.bytes": 4096})
    finally:
        killing.join()
        story.cluster.brokers[leader].start()
        story.cluster.wait_ready(3)
    assert sorted(found) == places(0, 0, count) + places(1, 0, count)
    assert len(set(story.values)) == 2 * count


def test_records_that_retention_took_are_loss_or_left_out(story: Story) -> None:
    story.produce(0, 0, 20)
    assert story.run() == places(0, 0, 20)
    story.produce(0, 20, 20)
    story.forget(0, 30)
    with pytest.raises(StreamingQueryException) as error:
        story.run()
    assert "-0: records [20, 30) are gone, the log has [30, 40)" in str(error.value)
    assert story.run(failOnDataLoss="false") == places(0, 30, 40)


def test_a_topic_made_again_is_loss_or_read_from_its_beginning(story: Story) -> None:
    """Though its new log is longer than what was read of the old one."""
    story.produce(0, 0, 20)
    assert story.run() == places(0, 0, 20)
    story.delete()
    story.create(2)
    story.produce(0, 100, 30)
    with pytest.raises(StreamingQueryException) as error:
        story.run()
    said = str(error.value).splitlines()[0]
    assert f"topic {story.topic} was deleted and created again; 20 was next" in said
    story.values.clear()
    assert story.run(failOnDataLoss="false") == places(0, 0, 30)
    assert sorted(story.values) == sorted(b"0:%d" % number for number in range(100, 130))
    assert story.run() == [], "and from then on it is the topic that is read"
