"""Kafka's system tests of upgrades and downgrades (upgrade_test.py and downgrade_test.py of
tests/kafkatest), rebuilt: from a version of Kafka to ours, and on to Kafka again, while clients go on.

As there: three brokers, a topic with three partitions and replicas and min.insync.replicas=2; a producer
writes with each codec, members of a group read, static ones or not. Brokers are rolled one by one, the next
one when every ISR is full. A first roll keeps `inter.broker.protocol.version` at the old version, a second
one raises it. After each roll everything that was acknowledged has been read by the group; the ids of cluster
and topic stay; no broker has met a version or a message that it did not know. Left out: SASL_SSL, which ours
do not speak, and versions before 2.8, whose topics have no ids.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from strandline.client.sync import Admin
from strandline.protocol.errors import UnknownTopicOrPartition
from strandline.testing.history import judge
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.waiting import until
from strandline.testing.workload import Workload, number_in
from tests.mixed.test_earlier_kafka import jars as earlier
from tests.mixed.test_mixed_cluster import jars as latest

TOPIC, GROUP = "test_topic", "readers"
CONFIGS = {"min.insync.replicas": "2"}
SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}
WHOLE_S = 60.0
SPOKEN, WRITTEN = "inter.broker.protocol.version", "log.message.format.version"
UNKNOWN = ("SchemaException", "Invalid version", "UnsupportedVersionException", "Traceback")
LATEST = "3.9.1"


class Member:
    """A member of the group, in a thread of its own: the numbers that it was handed."""

    def __init__(self, bootstrap: str, number: int, is_static: bool) -> None:
        options = {"group.instance.id": f"member-{number}"} if is_static else {}
        self.read: set[int] = set()
        self.assigned = 0
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": GROUP, "auto.offset.reset": "earliest",
                "session.timeout.ms": 30_000, "log_level": 0, **options,
            }
        )  # fmt: skip
        self._consumer.subscribe([TOPIC], on_assign=self._assign)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._poll, name=f"member-{number}")
        self._thread.start()

    def _assign(self, *_: object) -> None:
        self.assigned += 1

    def _poll(self) -> None:
        while not self._stop.is_set():
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    self.read.add(number_in(message.value() or b""))

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._consumer.close()


@contextmanager
def members(bootstrap: str, is_static: bool) -> Iterator[list[Member]]:
    found = [Member(bootstrap, number, is_static) for number in (1, 2)]
    try:
        yield found
    finally:
        for one in found:
            one.close()


class Story:
    """A cluster under load, rolled again and again."""

    def __init__(self, cluster: KafkaPlace, load: Workload, readers: Sequence[Member]) -> None:
        self.cluster, self.load, self.readers = cluster, load, readers
        self.ids = self._ids()
        assert len(self.ids[0]) == 22, self.ids

    def _ids(self) -> tuple[str, object]:
        """Of the cluster and of the topic."""
        with Admin(self.cluster.bootstrap) as admin:
            (topic,) = admin.describe_topics([TOPIC])
            return admin.describe_cluster().cluster_id or "", topic.topic_id

    def roll(self, change: Callable[[int], object]) -> None:
        """Each broker in turn stops, is changed and comes back; then all that is acknowledged is read."""
        for id in self.cluster.ids:
            self.cluster.stop(id)
            change(id)
            self.cluster.launch(id)
            until(self._is_whole, WHOLE_S, f"every ISR is full with broker {id}", every_s=0.2)
        self.load.wait_acknowledged_everywhere()
        acknowledged = self.load.numbers_acknowledged()
        until(
            lambda: acknowledged <= set[int]().union(*(one.read.copy() for one in self.readers)),
            WHOLE_S, "the group has read what was acknowledged", every_s=0.2,
        )  # fmt: skip
        assert self._ids() == self.ids

    def _is_whole(self) -> bool:
        """A broker of Kafka that has just started may not know any topic yet."""
        with suppress(UnknownTopicOrPartition), Admin(self.cluster.bootstrap) as admin:
            (topic,) = admin.describe_topics([TOPIC])
            return len(admin.describe_cluster().brokers) == 3 and all(
                len(one.isr) == 3 for one in topic.partitions
            )
        return False

    def to_ours(self, version: str) -> Callable[[int], object]:
        """Ours, with a file that says what Kafka's brokers speak."""

        def change(id: int) -> None:
            self.cluster.turn(id)
            self.cluster.of_ours[id].settings |= {SPOKEN: version, WRITTEN: version}

        return change

    def to_kafka(self, libs: Path, version: str | None = None) -> Callable[[int], object]:
        """Kafka's, which keep to what this version speaks, or speak what they can."""

        def change(id: int) -> None:
            self.cluster.turn(id)
            self.cluster.of_kafka[id].libs = libs
            self.cluster.of_kafka[id].settings |= {SPOKEN: version} if version else {}

        return change

    def raised(self, id: int) -> None:
        """It may speak what it can."""
        for process in (self.cluster.of_ours[id], self.cluster.of_kafka[id]):
            process.settings.pop(SPOKEN, None)
            process.settings.pop(WRITTEN, None)


@contextmanager
def story(folder: Path, version: str, codec: str, is_static: bool = False) -> Iterator[Story]:
    """Three brokers of this version of Kafka; in the end the verdict on everything."""
    cluster = KafkaPlace(folder, 3, SETTINGS, home(version))
    try:
        cluster.start()
        with Admin(cluster.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=3, replication_factor=3, configs=CONFIGS)
        with (
            members(cluster.bootstrap, is_static) as readers,
            Workload(cluster.bootstrap, TOPIC, 3, compression_type=codec) as load,
        ):
            load.wait_acknowledged_everywhere()
            yield Story(cluster, load, readers)
        verdict = judge(load.finish())
        assert verdict.good, verdict
        for id, broker in cluster.cluster.brokers.items():
            text = broker.log.read_text(errors="replace")
            assert not [word for word in UNKNOWN if word in text], f"see the log of broker {id}"
    finally:
        cluster.close()


def home(version: str) -> Path:
    return latest() if version == LATEST else earlier(version)


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "codec", "is_static"),
    [
        ("2.8.2", "none", True), ("2.8.2", "snappy", False), ("3.2.3", "lz4", False), ("3.5.2", "none", True),
        ("3.8.1", "gzip", False), (LATEST, "zstd", False),
    ],
)  # fmt: skip
def test_upgrade_and_downgrade(version: str, codec: str, is_static: bool, tmp_path: Path) -> None:
    """Kafka's of a version become ours, whose protocol is raised, and Kafka's of that version again."""
    with story(tmp_path, version, codec, is_static) as cluster:
        cluster.roll(cluster.to_ours(version))
        cluster.roll(cluster.raised)
        cluster.roll(cluster.to_kafka(home(version)))


@pytest.mark.long
@pytest.mark.parametrize(("version", "codec"), [("2.8.2", "zstd"), ("3.5.2", "snappy")])
def test_upgrade_by_way_of_ours(version: str, codec: str, tmp_path: Path) -> None:
    """From a version of Kafka to ours, on to Kafka 3.9 with the old protocol, raised in a last roll."""
    with story(tmp_path, version, codec) as cluster:
        cluster.roll(cluster.to_ours(version))
        cluster.roll(cluster.to_kafka(latest(), version))
        cluster.roll(cluster.raised)
