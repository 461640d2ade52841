"""Exactly once, by any client: copiers commit what they have read with what they write of it.

Some of their transactions are aborted; a copier is killed in the middle (or ends, where a group would miss it
late) and comes back; the brokers that coordinate group and transactions are killed, too. A reader of
committed records finds each record once.
"""

import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from driving import Row, until
from probing import Absent, java

from strandline.broker.coordinator_partitions import partition_of
from strandline.client import TopicPartition as Place
from strandline.client.sync import Admin
from strandline.testing import LocalCluster

HERE = Path(__file__).parent / "probes"
PARTITIONS = 3
RECORDS = 600
BOTH, ALONE = ("a", "b"), ("a",)
COPIERS = [  # client, group protocol, names; those that are long are in `make test` with the other protocol
    ("strandline", "classic", BOTH),
    pytest.param("librdkafka", "classic", BOTH, marks=pytest.mark.long),
    ("librdkafka", "consumer", BOTH),
    pytest.param("java", "classic", BOTH, marks=pytest.mark.long),
    ("java", "consumer", BOTH),
    ("aiokafka", "classic", ALONE),  # it does not say for which member it commits
]


def copier_of(client: str) -> list[str]:
    if client != "java":
        return [sys.executable, "-W", "ignore", str(HERE / "copier.py"), client]
    try:
        return java(HERE / "Copier.java")
    except Absent as absent:
        pytest.skip(str(absent))


class Copying:
    """Copiers of one group, each with a transactional id of its own."""

    def __init__(
        self, client: str, protocol: str, cluster: LocalCluster, topics: tuple[str, str], folder: Path
    ) -> None:
        self.command, self.cluster, self.topics = copier_of(client), cluster, topics
        self.protocol = protocol
        self.group = f"copiers-{topics[0]}"
        self.errors = folder / "copiers.err"
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        identity = self.group, f"{self.group}-{name}", self.protocol
        line = [*self.command, self.cluster.bootstrap, *self.topics, *identity]
        with self.errors.open("ab") as errors:
            self.running[name] = subprocess.Popen(
                line, stdin=subprocess.PIPE, stderr=errors, start_new_session=True
            )

    def kill(self, name: str) -> None:
        process = self.running.pop(name)
        process.kill()
        process.communicate()

    def end(self, name: str) -> None:
        """It ends by itself, and leaves the group."""
        process = self.running.pop(name)
        process.communicate(timeout=60)

    def told(self) -> str:
        """What the copiers have said, and how the cluster sees them."""
        ids = [f"{self.group}-{name}" for name in self.running]
        places = [Place(topic, number) for topic in self.topics for number in range(PARTITIONS)]
        with Admin(self.cluster.bootstrap) as admin:
            found = (
                self.errors.read_text(errors="replace")[-3000:],
                *admin.describe_groups([self.group]),
                *admin.list_group_offsets(self.group).items(),
                *(one for one in admin.list_transactions() if one.transactional_id in ids),
                *admin.describe_producers(places).items(),
                *admin.describe_topics(list(self.topics)),
            )
        return "\n".join(map(str, found))


@contextmanager
def read_from(cluster: LocalCluster, topic: str, level: str) -> Iterator[Callable[[], Counter[bytes]]]:
    """All values of a topic so far, with how often they were there."""
    options = {"bootstrap.servers": cluster.bootstrap, "group.id": "by-hand", "isolation.level": level}
    found: Counter[bytes] = Counter()
    consumer = Consumer(options)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

    def read() -> Counter[bytes]:
        found.update(one.value() for one in consumer.consume(500, 0.1) if one.error() is None)
        return found

    try:
        yield read
    finally:
        consumer.close()


@pytest.fixture
def healed(running: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster; whatever was killed runs again afterwards."""
    yield running
    heal(running)


def heal(cluster: LocalCluster) -> None:
    for broker in cluster.brokers.values():
        if not broker.alive:
            broker.start()
    cluster.wait_ready()


def kill_coordinator(cluster: LocalCluster, topic: str, name: str) -> None:
    """The coordinator of this group or transactional id dies, another takes over, and it comes back."""
    partition = partition_of(name, 50)
    victim = cluster.leader(topic, partition)
    cluster.brokers[victim].kill()
    until(lambda: cluster.leader(topic, partition) not in (victim, -1), "another broker coordinates")
    heal(cluster)


@pytest.mark.parametrize(("client", "protocol", "names"), COPIERS)
def test_each_record_is_copied_once_whoever_dies(
    client: str, protocol: str, names: tuple[str, ...], healed: LocalCluster, ours: Any, tmp_path: Path
) -> None:
    topics = f"in-{uuid.uuid4().hex[:12]}", f"out-{uuid.uuid4().hex[:12]}"
    for topic in topics:
        ours.create_topic(topic, PARTITIONS)
    copying = Copying(client, protocol, healed, topics, tmp_path)
    values = [f"{number}".encode() for number in range(RECORDS)]
    third = RECORDS // 3
    with read_from(healed, topics[1], "read_committed") as copied:

        def copies(count: int) -> None:
            deadline = time.monotonic() + 90
            while len(copied()) < count:
                dead = [name for name, each in copying.running.items() if each.poll() is not None]
                assert not dead, f"{dead}: {copying.told()}"
                assert time.monotonic() < deadline, f"{len(copied())} of {count}: {copying.told()}"

        try:
            for name in names:
                copying.start(name)
            ours.produce(topics[0], [Row(value, value) for value in values[:third]], "none", True)
            copies(third // 2)
            if protocol == "classic":
                copying.kill("a")
            else:
                copying.end("a")  # who is killed is missed after 45 s only
            copying.start("a")
            copies(third)
            ours.produce(topics[0], [Row(value, value) for value in values[third : 2 * third]], "none", True)
            kill_coordinator(healed, "__consumer_offsets", copying.group)
            copies(2 * third)
            ours.produce(topics[0], [Row(value, value) for value in values[2 * third :]], "none", True)
            kill_coordinator(healed, "__transaction_state", f"{copying.group}-a")
            copies(RECORDS)
        finally:
            for name in list(copying.running):
                copying.kill(name)
        assert copied() == Counter(values), copying.told()
    with read_from(healed, topics[1], "read_uncommitted") as written:
        until(lambda: sum(written().values()) > RECORDS, "aborted records are in the log, too", 20)
