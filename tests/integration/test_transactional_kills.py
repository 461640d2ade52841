"""Transactions of real producers over brokers that are killed: all or nothing of each, exactly once."""

import random
import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from strandline.local.cluster import LocalCluster
from tests.integration.support import DURABLE, assert_no_traceback, create, revive
from tests.watermarks import watermarks

TOPIC = "exact"
PARTITIONS = 6
RECORDS = 4  # of each transaction
OUTAGES = 4
SETTINGS = {
    **DURABLE,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.state.log.num.partitions": "6",
}


@pytest.fixture(scope="module")
def cluster(start_cluster) -> LocalCluster:
    made: LocalCluster = start_cluster(3, SETTINGS)
    with create(made, TOPIC, [1, 2, 3, 1, 2, 3]):
        pass
    return made


@pytest.fixture(autouse=True)
def healthy(cluster: LocalCluster) -> Iterator[None]:
    """All brokers run before and after each story, and none has logged a traceback."""
    cluster.wait_ready()
    yield
    revive(cluster)
    assert_no_traceback(cluster)


def producer(cluster: LocalCluster, transactional_id: str, timeout_ms: int = 10_000) -> Producer:
    made = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "message.timeout.ms": timeout_ms - 1_000,
        }
    )
    made.init_transactions(30)
    return made


class Worker(threading.Thread):
    """Runs transactions, commits most of them, and remembers what became of each."""

    def __init__(self, cluster: LocalCluster, number: int, stop: threading.Event) -> None:
        super().__init__()
        self.cluster, self.number, self.stopped = cluster, number, stop
        self.random = random.Random(number)
        self.committed: set[str] = set()
        self.aborted: set[str] = set()

    def run(self) -> None:
        made: Producer | None = None
        count = 0
        while not self.stopped.is_set():
            count += 1
            name = f"{self.number}-{count}"
            try:
                made = made or producer(self.cluster, f"worker-{self.number}")
                self.transaction(made, name)
            except KafkaException as error:
                made = self.after(made, name, error)

    def transaction(self, made: Producer, name: str) -> None:
        made.begin_transaction()
        for place in range(RECORDS):
            made.produce(TOPIC, f"{name}:{place}", partition=self.random.randrange(PARTITIONS))
        if self.random.random() < 0.25:
            made.flush(10)
            made.abort_transaction(30)
            self.aborted.add(name)
        else:
            made.commit_transaction(30)
            self.committed.add(name)

    def after(self, made: Producer | None, name: str, error: KafkaException) -> Producer | None:
        """The producer that goes on: the same one if it could abort."""
        if made is None or not error.args[0].txn_requires_abort():
            return None
        try:
            made.abort_transaction(30)
        except KafkaException:
            return None
        self.aborted.add(name)
        return made


def read(cluster: LocalCluster) -> dict[str, list[int]]:
    """The records of every transaction, as a consumer with read_committed sees them up to the very end."""
    consumer, everything = (reader(cluster, level) for level in ("read_committed", "read_uncommitted"))
    places = [TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)]
    ends = {each.partition: watermarks(everything, each)[1] for each in places}
    everything.close()
    consumer.assign(places)
    found: dict[str, list[int]] = {}
    deadline = time.monotonic() + 60
    behind = {each for each, end in ends.items() if end}
    while behind:
        assert time.monotonic() < deadline, f"readers are held back in {sorted(behind)}"
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is None:
            name, _, place = (message.value() or b"").decode().partition(":")
            found.setdefault(name, []).append(int(place))
        elif message.error().code() == KafkaError._PARTITION_EOF:
            partition, offset = message.partition(), message.offset()
            assert partition is not None and offset is not None
            behind -= {partition} if offset >= ends[partition] else set()
    consumer.close()
    return found


def reader(cluster: LocalCluster, level: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": level,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )


def test_brokers_are_killed_while_producers_commit(cluster: LocalCluster) -> None:
    """Coordinators and leaders die in the middle of transactions; none is lost, doubled or half there."""
    stop = threading.Event()
    workers = [Worker(cluster, number, stop) for number in range(3)]
    for worker in workers:
        worker.start()
    chance = random.Random(11)
    for _ in range(OUTAGES):
        time.sleep(chance.uniform(1, 2))
        broker = cluster.brokers[chance.randint(1, 3)]
        broker.kill()
        time.sleep(chance.uniform(0.2, 2))
        broker.start()
        cluster.wait_ready()
    stop.set()
    for worker in workers:
        worker.join(120)
        assert not worker.is_alive()
    for worker in workers:
        producer(cluster, f"worker-{worker.number}")  # fences what is left of it
    found = read(cluster)
    assert sum(len(worker.committed) for worker in workers) > 50
    whole = list(range(RECORDS))
    for worker in workers:
        assert {name: sorted(found.get(name, [])) for name in worker.committed} == dict.fromkeys(
            worker.committed, whole
        )
        assert not worker.aborted & found.keys()
    assert all(sorted(places) == whole for places in found.values()), "of each all or nothing"


def test_a_producer_that_dies_holds_nobody_back_for_long(cluster: LocalCluster) -> None:
    """Its transaction times out, and the readers go on."""
    dead = producer(cluster, "dead", timeout_ms=2_000)
    dead.begin_transaction()
    dead.produce(TOPIC, "dead:0", partition=0)
    dead.flush(10)
    after = producer(cluster, "after")
    after.begin_transaction()
    for place in range(RECORDS):
        after.produce(TOPIC, f"after:{place}", partition=0)
    after.commit_transaction(30)
    found = read(cluster)
    assert sorted(found["after"]) == list(range(RECORDS)) and "dead" not in found
    with pytest.raises(KafkaException) as caught:
        dead.commit_transaction(10)
    assert caught.value.args[0].fatal() or caught.value.args[0].txn_requires_abort()
