"""kafka-python behind the common vocabulary."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from driving import CODECS, Read, Row
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, NewTopic
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "quick": {"heartbeat_interval_ms": 500},
    "range": {"partition_assignment_strategy": [RangePartitionAssignor]},
    "cooperative": {"partition_assignment_strategy": [CooperativeStickyAssignor]},
}


class KafkaPython:
    """kafka-python."""

    name = "kafka-python"
    codecs = CODECS
    can = frozenset({"admin"})

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap.split(",")

    @contextmanager
    def admin(self) -> Iterator[Any]:
        with closing(KafkaAdminClient(bootstrap_servers=self.bootstrap)) as admin:
            yield admin

    def create_topic(self, topic: str, partitions: int) -> None:
        with self.admin() as admin:
            admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=3)])

    def topics(self) -> dict[str, int]:
        with self.admin() as admin:
            return {one["name"]: len(one["partitions"]) for one in admin.describe_topics()}

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        asked = {TopicPartition(topic, partition): offset for partition, offset in before.items()}
        with self.admin() as admin:
            told = admin.delete_records(asked)
        return {where.partition: one["low_watermark"] for where, one in told.items()}

    def produce(self, topic: str, rows: Iterable[Row], codec: str, idempotent: bool) -> None:
        options = {
            "compression_type": None if codec == "none" else codec,
            "enable_idempotence": idempotent,
        }
        with closing(KafkaProducer(bootstrap_servers=self.bootstrap, **options)) as producer:
            sent = [
                producer.send(topic, row.value, row.key, list(row.headers), timestamp_ms=row.timestamp_ms)
                for row in rows
            ]
            producer.flush(60)
            for one in sent:
                one.get(30)

    def read(self, topic: str, partitions: Iterable[int], count: int) -> list[Read]:
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, one) for one in partitions])
            consumer.seek_to_beginning()
            found: list[Read] = []
            deadline = time.monotonic() + 30
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
                found += _polled(consumer)
            return found

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        where = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            return consumer.beginning_offsets([where])[where], consumer.end_offsets([where])[where]

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        where = TopicPartition(topic, partition)
        with self._consumer() as consumer:
            found = consumer.offsets_for_times({where: timestamp_ms})[where]
            return -1 if found is None else int(found.offset)

    @contextmanager
    def reader(
        self, topic: str, partitions: Iterable[int], level: str = "read_uncommitted"
    ) -> Iterator["KafkaPythonMember"]:
        with self._consumer(isolation_level=level) as consumer:
            consumer.assign([TopicPartition(topic, one) for one in partitions])
            yield KafkaPythonMember(consumer)

    @contextmanager
    def member(self, topic: str, group: str, kind: str = "default") -> Iterator["KafkaPythonMember"]:
        with self._consumer(group, **KINDS[kind]) as consumer:
            consumer.subscribe([topic])
            yield KafkaPythonMember(consumer)

    def committed(self, topic: str, group: str, partition: int) -> int:
        with self.admin() as admin:
            found = admin.list_group_offsets({group: [TopicPartition(topic, partition)]})
            return int(found[group][TopicPartition(topic, partition)].offset)

    def groups(self) -> set[str]:
        with self.admin() as admin:
            return {one["group_id"] for one in admin.list_groups()}

    def group_state(self, group: str) -> str:
        with self.admin() as admin:
            return str(admin.describe_groups([group])[group]["group_state"]).lower()

    @contextmanager
    def sender(self, topic: str, idempotent: bool = True) -> Iterator["KafkaPythonSender"]:
        options = {"acks": "all", "enable_idempotence": idempotent}
        with closing(KafkaProducer(bootstrap_servers=self.bootstrap, **options)) as producer:
            yield KafkaPythonSender(topic, producer)

    @contextmanager
    def transactional(self, name: str) -> Iterator["KafkaPythonTransactional"]:
        with closing(KafkaProducer(bootstrap_servers=self.bootstrap, transactional_id=name)) as producer:
            producer.init_transactions()
            yield KafkaPythonTransactional(producer)

    def set_config(self, topic: str, name: str, value: str) -> None:
        with self.admin() as admin:
            admin.alter_configs([ConfigResource("TOPIC", topic, {name: value})])

    def config(self, topic: str, name: str) -> str:
        with self.admin() as admin:
            told = admin.describe_configs([ConfigResource("TOPIC", topic)], config_filter="all")
            return str(told["topic"][topic][name]["value"])

    def delete_topic(self, topic: str) -> None:
        with self.admin() as admin:
            admin.delete_topics([topic])

    @contextmanager
    def _consumer(self, group: str | None = None, **more: Any) -> Iterator[Any]:
        options = {"group_id": group, "auto_offset_reset": "earliest", **more}
        with closing(KafkaConsumer(bootstrap_servers=self.bootstrap, **options)) as consumer:
            yield consumer


class KafkaPythonMember:
    """A consumer in a group."""

    def __init__(self, consumer: Any) -> None:
        self.consumer = consumer

    def poll(self) -> list[Read]:
        return _polled(self.consumer)

    def assignment(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit()


class KafkaPythonSender:
    """A producer with acks=all."""

    def __init__(self, topic: str, producer: Any) -> None:
        self.topic, self.producer = topic, producer

    def send(self, value: bytes, acknowledged: Callable[[], None]) -> None:
        self.producer.send(self.topic, value).add_callback(lambda _: acknowledged())

    def flush(self) -> None:
        self.producer.flush(60)


class KafkaPythonTransactional:
    """A producer with a transactional id."""

    def __init__(self, producer: Any) -> None:
        self.producer = producer
        self.begin, self.commit = producer.begin_transaction, producer.commit_transaction
        self.abort = producer.abort_transaction

    def send(self, topic: str, value: bytes) -> None:
        self.producer.send(topic, value)


def _polled(consumer: Any) -> list[Read]:
    batches = consumer.poll(timeout_ms=1000).values()  # its joins and commits must fit into a poll
    return [
        Read(one.partition, one.offset, Row(one.key, one.value, tuple(one.headers)), one.timestamp)
        for batch in batches
        for one in batch
    ]
