"""What befalls real brokers in the middle of a batch read: each row comes once, or it is said what is gone.

The read is held after its first rows, when most of them are still with the brokers, until the harm is done.
That they are is shown by what fails: a read that had all of its rows would not.
"""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from strandline.base.types import TopicPartition
from strandline.client.admin.admin import NewTopic
from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from tests.integration.support import View, revive, until

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]

RECORDS = 32_000  # of two kilobytes: more than twice what sockets hold between Spark and its Python workers
BATCHED = (
    "spark.sql.execution.arrow.maxRecordsPerBatch",
    "200",
)  # else Spark collects 10,000 before one passes
WAIT_S = 90.0
EACH_ONCE = (RECORDS, RECORDS, RECORDS, RECORDS * (RECORDS - 1) // 2)


class Stage:
    """A topic of one partition, and a read of it that waits in the middle."""

    def __init__(self, spark: SparkSession, cluster: LocalCluster, topic: str, place: Path) -> None:
        self.spark, self.cluster, self.topic = spark, cluster, topic
        self.partition = TopicPartition(topic, 0)
        self._reading, self._go = place / "reading", place / "go"

    def create(self, *replicas: int, **configs: str) -> None:
        with Admin(self.cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(self.topic, assignments={0: list(replicas)}, configs=configs)])
        self.wait_led(replicas[0], *replicas)

    def fill(self, first: int, count: int) -> None:
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "linger.ms": 20})
        for number in range(first, first + count):
            producer.produce(self.topic, b"%02000d" % number, partition=0)
            producer.poll(0)
        assert producer.flush(60) == 0

    def wait_led(self, leader: int, *isr: int) -> None:
        with View(self.cluster, self.topic) as view:
            view.wait_led_by(leader, isr, WAIT_S)

    def move(self, *replicas: int) -> None:
        """Let the first of them lead, while all live."""
        with Admin(self.cluster.bootstrap) as admin:
            admin.alter_partition_reassignments({self.partition: replicas})
            admin.elect_leaders(partitions=[self.partition])
        self.wait_led(replicas[0], *replicas)

    def read(self, **options: str) -> "Future[tuple[int, ...]]":
        """Begin to read all that is there; it goes on after `release`."""
        reader = self.spark.read.format("strandline").option("bootstrap.servers", self.cluster.bootstrap)
        small = {"kafka.max.partition.fetch.bytes": "65536"}
        frame = reader.options(**{"subscribe": self.topic, **small, **options}).load()
        number = "cast(string(value) as long)"
        sums = ("count(1)", "count(distinct offset)", f"count(distinct {number})", f"sum({number})")
        pool = ThreadPoolExecutor(1)
        outcome = pool.submit(lambda: tuple(self._held(frame).selectExpr(*sums).first() or ()))
        pool.shutdown(wait=False)
        until(lambda: self._reading.exists() or outcome.done(), WAIT_S, "the first rows")
        return outcome

    def release(self) -> None:
        self._go.touch()

    def _held(self, frame: DataFrame) -> DataFrame:
        reading, go, wait_s = str(self._reading), str(self._go), WAIT_S

        def through(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            from pathlib import Path
            from time import monotonic, sleep

            yield next(batches)
            Path(reading).touch()
            deadline = monotonic() + wait_s
            while not Path(go).exists():
                assert monotonic() < deadline, "nobody lets it go on"
                sleep(0.02)
            yield from batches

        return frame.mapInArrow(through, frame.schema)


@pytest.fixture
def stage(
    spark: SparkSession, strandline_cluster: Any, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Stage]:
    made = Stage(spark, strandline_cluster, re.sub(r"[^a-z]+", "-", request.node.name), tmp_path)
    name, value = BATCHED
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    yield made
    spark.conf.set(name, before)
    made.release()
    revive(strandline_cluster)
    with Admin(strandline_cluster.bootstrap) as admin:
        admin.delete_topics([made.topic])


def a_kill(stage: Stage, is_read: Callable[[], bool]) -> None:
    stage.cluster.brokers[1].kill()


def a_controlled_shutdown(stage: Stage, is_read: Callable[[], bool]) -> None:
    stage.cluster.brokers[1].stop()


def a_move(stage: Stage, is_read: Callable[[], bool]) -> None:
    stage.move(2, 3, 1)


def a_leader_that_changes_all_the_time(stage: Stage, is_read: Callable[[], bool]) -> None:
    stage.move(2, 3, 1)
    stage.release()
    for replicas in cycle([(3, 1, 2), (1, 2, 3), (2, 3, 1)]):
        if is_read():
            break
        stage.move(*replicas)


def an_outage(stage: Stage, is_read: Callable[[], bool]) -> None:
    for broker in stage.cluster.brokers.values():
        broker.kill()
    stage.release()
    for broker in stage.cluster.brokers.values():
        broker.start()


@pytest.mark.parametrize(
    "harm",
    [a_kill, a_controlled_shutdown, a_move, a_leader_that_changes_all_the_time, an_outage],
    ids=lambda harm: harm.__name__.replace("_", " "),
)
def test_every_row_comes_once(stage: Stage, harm: Callable[[Stage, Callable[[], bool]], None]) -> None:
    stage.create(1, 2, 3)
    stage.fill(0, RECORDS)
    outcome = stage.read()
    harm(stage, outcome.done)
    stage.release()
    assert outcome.result(WAIT_S) == EACH_ONCE


def test_an_outage_that_is_too_long_fails_the_task_in_time(stage: Stage) -> None:
    stage.create(1, 2, 3)
    stage.fill(0, RECORDS)
    outcome = stage.read(**{"kafkaConsumer.pollTimeoutMs": "2000"})
    for broker in stage.cluster.brokers.values():
        broker.kill()
    stage.release()
    with pytest.raises(Exception, match=f"{stage.topic}-0: no progress at offset .* for 2 s"):
        outcome.result(WAIT_S)


@pytest.mark.parametrize("fails", ["true", "false"])
def test_records_that_an_unclean_election_took_are_loss(stage: Stage, fails: str) -> None:
    """Others have their offsets by then: none of them is read for those that were planned."""
    kept, lost = RECORDS // 2, RECORDS // 2
    stage.create(1, 2, **{"unclean.leader.election.enable": "true", "min.insync.replicas": "1"})
    stage.fill(0, kept)
    stage.cluster.brokers[2].kill()
    stage.wait_led(1, 1)
    stage.fill(kept, lost)
    outcome = stage.read(failOnDataLoss=fails)
    stage.cluster.brokers[1].kill()
    stage.cluster.brokers[2].start()
    stage.wait_led(2, 2)
    stage.fill(0, lost)
    stage.release()
    gone = rf"{stage.topic}-0: .*records \[(\d+), {RECORDS}\) were truncated and rewritten"
    with pytest.raises(Exception, match=gone) as loss:
        outcome.result(WAIT_S)
    (begin,) = re.findall(gone, str(loss.value))
    assert kept <= int(begin) < RECORDS, "what the task had not read of them"
