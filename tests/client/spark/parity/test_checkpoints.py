"""A stream moves from one source to the other, with its checkpoint: nothing is lost, nothing comes twice."""

import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from strandline.local.cluster import LocalCluster
from tests.client.spark.parity.reading import STREAM_S_MAX, refusal
from tests.client.spark.parity.sets import FEW_RETRIES
from tests.client.spark.parity.topics import produce

Place = tuple[int, int]

BOTH_WAYS = pytest.mark.parametrize(("first", "second"), [("kafka", "strandline"), ("strandline", "kafka")])


class Crash(RuntimeError):
    """The query is to end in the middle of a batch."""


def crash(batch: int) -> None:
    """Whatever was read, it is not done."""
    raise Crash


class Job:
    """A streaming job with its checkpoint, that can be run with either source."""

    def __init__(self, spark: SparkSession, bootstrap: str, topic: str, checkpoint: Path) -> None:
        self.spark, self.bootstrap, self.topic, self.checkpoint = spark, bootstrap, topic, checkpoint
        admin = AdminClient({"bootstrap.servers": bootstrap})
        (made,) = admin.create_topics([NewTopic(topic, 2, 3)]).values()
        made.result(60)
        self.rows: dict[int, list[Place]] = {}
        self.sent = [0, 0]

    def produce(self, partition: int, count: int) -> None:
        produce(self.bootstrap, self.topic, partition, self.sent[partition], count)
        self.sent[partition] += count

    def run(
        self, source: str, during: Callable[[int], None] = lambda batch: None, **options: Any
    ) -> list[Place]:
        """Run it until it has read what is there; the places of the records that came, in order."""
        reader = self.spark.readStream.format(source).option("kafka.bootstrap.servers", self.bootstrap)
        frame = reader.options(**{"subscribe": self.topic, "startingOffsets": "earliest", **options}).load()
        came: list[int] = []

        def take(batch: DataFrame, number: int) -> None:
            self.rows[number] = sorted((row.partition, row.offset) for row in batch.collect())
            during(number)
            came.append(number)

        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self.checkpoint))
        assert writer.trigger(availableNow=True).start().awaitTermination(STREAM_S_MAX)
        return sorted(place for batch in came for place in self.rows[batch])

    def last_offset(self) -> dict[str, Any]:
        """As Spark keeps it."""
        batches = (
            int(path.name) for path in (self.checkpoint / "offsets").iterdir() if path.name.isdecimal()
        )
        found: dict[str, Any] = json.loads(
            (self.checkpoint / "offsets" / str(max(batches))).read_text().splitlines()[-1]
        )
        return found


def places(partition: int, start: int, end: int) -> list[Place]:
    return [(partition, offset) for offset in range(start, end)]


@pytest.fixture
def job(both: SparkSession, brokers: LocalCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Job:
    topic = request.node.name.removeprefix("test_").translate(str.maketrans("[", "-", "]"))
    return Job(both, brokers.bootstrap, topic, tmp_path / "checkpoint")


@BOTH_WAYS
def test_a_checkpoint_moves_there_and_back(job: Job, first: str, second: str) -> None:
    job.produce(0, 10)
    assert job.run(first) == places(0, 0, 10)
    job.produce(0, 5)
    job.produce(1, 7)
    assert job.run(second) == places(0, 10, 15) + places(1, 0, 7)
    job.produce(1, 3)
    assert job.run(first) == places(1, 7, 10)
    assert job.run(second) == [] and job.run(first) == []
    assert job.last_offset()[job.topic] == {"0": 15, "1": 10}


@pytest.mark.matrix
@BOTH_WAYS
def test_a_batch_that_crashed_is_run_again_by_the_other_source(job: Job, first: str, second: str) -> None:
    """With the same rows, whatever has come since: its end stands in the checkpoint."""
    job.produce(0, 12)
    assert job.run(first) == places(0, 0, 12)
    job.produce(0, 8)
    job.produce(1, 6)
    with pytest.raises(StreamingQueryException):
        job.run(first, crash)
    crashed = max(job.rows)
    rows = job.rows.pop(crashed)
    assert rows == places(0, 12, 20) + places(1, 0, 6)
    job.produce(0, 4)
    found = job.run(second)
    assert job.rows[crashed] == rows
    found += job.run(second)  # before 4.2, a run that repeats a batch reads no other one
    assert sorted(found) == places(0, 12, 24) + places(1, 0, 6)


@pytest.mark.matrix
@pytest.mark.parametrize("source", ["kafka", "strandline"])
def test_a_stream_is_not_begun_again_without_a_topic_that_it_names(job: Job, source: str) -> None:
    """Not even if loss is no matter: a topic that is not there may be a slip of the pen."""
    admin, gone = AdminClient({"bootstrap.servers": job.bootstrap}), f"{job.topic}-gone"
    (made,) = admin.create_topics([NewTopic(gone, 1, 3)]).values()
    made.result(60)
    options = {"subscribe": f"{job.topic},{gone}", "failOnDataLoss": "false", **FEW_RETRIES}
    job.produce(0, 10)
    assert job.run(source, **options) == places(0, 0, 10)
    (deleted,) = admin.delete_topics([gone]).values()
    deleted.result(60)
    deadline = time.monotonic() + STREAM_S_MAX
    while gone in admin.list_topics(timeout=60).topics:
        assert time.monotonic() < deadline, f"{gone} is still there"
        time.sleep(0.05)
    said = refusal(lambda: job.run(source, **options))
    assert re.search(f"UnknownTopicOrPartition|no such topic or partition: {gone}", said), said[:1000]


@pytest.mark.matrix
def test_what_our_offsets_say_beyond_sparks_is_lost_on_the_way(job: Job) -> None:
    """Topic ids and leader epochs are known again after our first batch."""
    job.produce(0, 10)
    job.run("strandline")
    assert len(job.last_offset()) == 2
    job.produce(0, 1)
    job.run("kafka")
    assert list(job.last_offset()) == [job.topic]
    job.produce(0, 1)
    assert job.run("strandline") == places(0, 11, 12)
    assert len(job.last_offset()) == 2
