"""Three brokers as these tests see them, ours or Apache Kafka's: who leads what; killing and starting them.

Topics are made, written and read with librdkafka, which knows no difference.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec, ResourceType

from bench.system import System
from strandline.broker.coordinator_partitions import partition_of
from strandline.testing import LocalCluster
from tests.watermarks import MOVING, watermarks

COORDINATING = 50  # partitions of __consumer_offsets, and of __transaction_state
QUIET = {"log_level": 0}
WAIT_S = 60.0


@dataclass
class Brokers:
    """A cluster, whoever wrote its brokers."""

    bootstrap: str
    kill: Callable[[int], None]
    start: Callable[[int], None]

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})

    def create(self, topic: str, partitions: int, **config: str) -> None:
        """A topic with three replicas; `cleanup_policy` stands for `cleanup.policy`."""
        told = {name.replace("_", "."): value for name, value in config.items()}
        made = self.admin.create_topics([NewTopic(topic, partitions, 3, config=told)])
        made[topic].result(WAIT_S)
        every = range(partitions)
        self._until(lambda: all(self.leader(topic, each) >= 0 for each in every), f"{topic} is led")

    def topics(self) -> dict[str, int]:
        """How many partitions each topic has."""
        listed = self.admin.list_topics(timeout=WAIT_S).topics
        return {name: len(topic.partitions) for name, topic in listed.items()}

    def config(self, topic: str) -> dict[str, str]:
        """All settings of a topic."""
        resource = ConfigResource(ResourceType.TOPIC, topic)
        described = self.admin.describe_configs([resource])[resource].result(WAIT_S)
        return {name: entry.value for name, entry in described.items()}

    def leader(self, topic: str, partition: int) -> int:
        found = self.admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions.get(partition)
        return -1 if found is None else int(found.leader)

    def coordinator(self, topic: str, name: str) -> int:
        """Who coordinates this group or transactional id: the leader of its partition of `topic`."""
        return self.leader(topic, partition_of(name, COORDINATING))

    def isr_is_whole(self) -> bool:
        """Whether every replica of every partition is in sync."""
        topics = self.admin.list_topics(timeout=WAIT_S).topics.values()
        return all(len(each.isrs) == len(each.replicas) for one in topics for each in one.partitions.values())

    def open_partitions(self, topic: str, partitions: int) -> set[int]:
        """Those with a transaction that is not decided yet: committed records end before all records do. None
        is seen while a leader moves.
        """
        places = [TopicPartition(topic, each) for each in range(partitions)]
        ends = []
        for level in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
            asked = self.admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()), isolation_level=level)
            try:
                ends.append([asked[place].result(WAIT_S).offset for place in places])
            except KafkaException as error:
                if error.args[0].code() not in MOVING:
                    raise
                return set()
        return {number for number, (stable, end) in enumerate(zip(*ends, strict=True)) if stable < end}

    def restart(self, broker: int) -> None:
        """Start a broker that was killed, and wait until its replicas have caught up."""
        self.start(broker)
        self._until(self.isr_is_whole, f"broker {broker} is in sync again")

    def _until(self, true: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not true():
            assert time.monotonic() < deadline, f"after {WAIT_S} s still not: {what}"
            time.sleep(0.05)

    def write(self, topic: str, records: Iterable[tuple[str, str | None, int]]) -> None:
        """Key, value and time of each record; all are acknowledged by the end."""
        producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, **QUIET})
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                errors.append(error)

        for key, value, at_ms in records:
            producer.produce(topic, value, key, timestamp=at_ms, on_delivery=delivered)
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0 and not errors, errors


class Reading:
    """A topic from its beginning on: all committed records that were read, or all at all, by partitions."""

    def __init__(self, brokers: Brokers, topic: str, partitions: int, level: str = "read_committed") -> None:
        self._places = [TopicPartition(topic, each, 0) for each in range(partitions)]
        options = {"bootstrap.servers": brokers.bootstrap, "group.id": "by-hand", **QUIET}
        isolated = {"isolation.level": level, "enable.partition.eof": True}
        self._options = {**options, **isolated, "auto.offset.reset": "earliest"}
        self._begin()

    def _begin(self) -> None:
        self.records: list[list[Message]] = [[] for _ in self._places]
        self._ended: set[int] = set()
        self._consumer = Consumer(self._options)
        self._consumer.assign(self._places)

    def __len__(self) -> int:
        return sum(map(len, self.records))

    def __iter__(self) -> Iterator[Message]:
        for each in self.records:
            yield from each

    def more(self) -> "Reading":
        """Read what has come."""
        for message in self._consumer.consume(1000, 0.1):
            if message.error() is None:
                self._ended.discard(message.partition())
                self.records[message.partition()].append(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                self._ended.add(message.partition())
        return self

    def whole(self) -> "Reading":
        """Read all of it again, to the end of every partition: an end is told once, and may be long ago."""
        self.close()
        self._begin()
        deadline = time.monotonic() + WAIT_S
        while len(self._ended) < len(self.records):
            assert time.monotonic() < deadline, f"{self._ended} of {len(self.records)} partitions ended"
            self.more()
        return self

    def bounds(self) -> list[tuple[int, int]]:
        """Log start and end of each partition."""
        return [watermarks(self._consumer, each, WAIT_S) for each in self._places]

    def close(self) -> None:
        self._consumer.close()


def ours(cluster: LocalCluster) -> Brokers:
    """Strandline's."""
    return Brokers(
        cluster.bootstrap, lambda id: cluster.brokers[id].kill(), lambda id: cluster.brokers[id].start()
    )


def measured(system: System) -> Brokers:
    """Those of a system that the benchmarks measure, Apache Kafka 3.9 among them."""
    return Brokers(
        system.bootstrap, lambda id: system.processes[id].kill(), lambda id: system.processes[id].start()
    )


def all_written(brokers: Brokers, topic: str, partitions: int) -> int:
    """How many records a topic has, those of aborted transactions among them."""
    written = Reading(brokers, topic, partitions, "read_uncommitted")
    try:
        return len(written.whole())
    finally:
        written.close()
