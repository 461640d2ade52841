"""The drill of the documentation, on a real engine: the leader's container is killed under load.

A killed container leaves no host to refuse a connection, so its death is proved by the reconnection that
does not succeed (docs/replication.md).
"""

import asyncio
import time

import docker
import pytest
from pyspark.sql import SparkSession

from strandline.base.types import TopicPartition
from strandline.client import Admin, Consumer, Producer
from strandline.local.processes import machine_is_slower
from strandline.protocol.errors import ApiError

BOOTSTRAP = "localhost:9092,localhost:9093,localhost:9094"
TOPIC, PARTITIONS = "drill", 3
GAP_MAX_S = 2.0
RATE_PAUSE_S = 0.002
BEFORE_S, AFTER_S = 2.0, 5.0

pytestmark = pytest.mark.docker


async def until(what: str, holds: object, within_s: float = 60) -> None:
    """Wait until `await holds()` is true; longer where the machine is slower."""
    began, limit_s = time.monotonic(), within_s
    while True:
        try:
            if await holds():  # type: ignore[operator]
                return
        except (ApiError, OSError):
            pass
        if time.monotonic() > began + limit_s:
            limit_s = within_s * machine_is_slower()
        assert time.monotonic() < began + limit_s, f"not within {limit_s} s: {what}"
        await asyncio.sleep(0.1)


def healthy(engine: docker.DockerClient) -> bool:
    names = [f"strandline-broker-{id}" for id in (1, 2, 3)]
    return all(engine.containers.get(name).attrs["State"]["Health"]["Status"] == "healthy" for name in names)


class Load:
    """A producer that sends numbers with acks=all, and writes down when each was acknowledged."""

    def __init__(self) -> None:
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.times: list[float] = []
        self.failed: list[str] = []
        self.stop = asyncio.Event()

    async def run(self) -> None:
        async with Producer(BOOTSTRAP, linger_ms=1) as producer:
            number = 0
            while not self.stop.is_set():
                sent = producer.send(TOPIC, b"%d" % number, partition=number % PARTITIONS)
                sent.add_done_callback(lambda done, number=number: self._settled(number, done))  # type: ignore[misc]
                number += 1
                await asyncio.sleep(RATE_PAUSE_S)
            await producer.flush()

    def _settled(self, number: int, sent: "asyncio.Future[object]") -> None:
        if sent.exception() is not None:
            self.failed.append(f"{number}: {sent.exception()}")
            return
        receipt = sent.result()
        self.acknowledged[receipt.partition, receipt.offset] = number  # type: ignore[attr-defined]
        self.times.append(time.perf_counter())

    @property
    def longest_gap_s(self) -> float:
        return max(after - before for before, after in zip(self.times, self.times[1:], strict=False))


async def drill(engine: docker.DockerClient) -> Load:
    """Create, load, kill the leader of partition 0, go on, start it again, wait for full ISRs."""
    async with Admin(BOOTSTRAP) as admin:

        async def created() -> bool:
            await admin.create_topic(TOPIC, PARTITIONS, 3, configs={"min.insync.replicas": "2"})
            return True

        async def full() -> bool:
            (topic,) = await admin.describe_topics([TOPIC])
            return all(len(one.isr) == 3 for one in topic.partitions)

        await until("the topic is created", created)
        await until("every ISR is full", full)
        (topic,) = await admin.describe_topics([TOPIC])
        leader = next(one.leader for one in topic.partitions if one.partition == 0)
        load = Load()
        async with asyncio.TaskGroup() as group:
            group.create_task(load.run())
            await asyncio.sleep(BEFORE_S)
            await asyncio.to_thread(engine.containers.get(f"strandline-broker-{leader}").kill)
            await asyncio.sleep(AFTER_S)
            load.stop.set()
        await asyncio.to_thread(engine.containers.get(f"strandline-broker-{leader}").start)
        await until("the killed broker is in every ISR again", full)
    return load


def test_a_killed_container_costs_nothing_but_time(compose: docker.DockerClient) -> None:
    asyncio.run(until("all brokers are healthy", lambda: asyncio.to_thread(healthy, compose)))
    load = asyncio.run(drill(compose))
    print(f"{len(load.acknowledged)} acknowledged, longest gap {load.longest_gap_s:.2f} s")
    assert not load.failed
    assert load.longest_gap_s < GAP_MAX_S * machine_is_slower()
    assert asyncio.run(read_everything()) == load.acknowledged


async def read_everything() -> dict[tuple[int, int], int]:
    """What a consumer on the host finds, by place."""
    found: dict[tuple[int, int], int] = {}
    async with Consumer(BOOTSTRAP, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        ends = await consumer.end_offsets(partitions)
        consumer.assign(partitions)
        while len(found) < sum(ends.values()):
            for record in await consumer.poll(1000):
                found[record.partition, record.offset] = int(record.value)
    return found


def test_spark_reads_the_containers(compose: docker.DockerClient, spark: SparkSession) -> None:
    """After the drill: every record once, as the consumer sees them."""
    frame = (
        spark.read.format("strandline")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", TOPIC)
        .load()
        .selectExpr("partition", "offset", "CAST(CAST(value AS STRING) AS INT) AS number")
    )
    rows = {(row.partition, row.offset): row.number for row in frame.collect()}
    assert rows == asyncio.run(read_everything()) and rows
