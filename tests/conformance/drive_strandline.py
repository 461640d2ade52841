"""The bundled client behind the common vocabulary."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from driving import CODECS, Read, Row

from strandline.base.types import TopicPartition
from strandline.client.admin.configs import ConfigChange
from strandline.client.sync import Admin, Consumer, Producer

EARLIEST, LATEST = -2, -1
BYTES = {"serializer": "bytes", "key_serializer": "bytes"}
KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "quick": {"heartbeat_interval_ms": 500},
    "range": {"partition_assignment_strategy": ("range",)},
    "cooperative": {"partition_assignment_strategy": ("cooperative-sticky",)},
}


class Strandline:
    """strandline.client."""

    name = "strandline"
    codecs = CODECS
    can = frozenset({"admin"})

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        with Admin(self.bootstrap) as admin:
            admin.create_topic(topic, partitions, 3)

    def topics(self) -> dict[str, int]:
        with Admin(self.bootstrap) as admin:
            return {one.name: len(one.partitions) for one in admin.describe_topics()}

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        with Admin(self.bootstrap) as admin:
            low = admin.delete_records({TopicPartition(topic, one): offset for one, offset in before.items()})
        return {where.partition: offset for where, offset in low.items()}

    def produce(self, topic: str, rows: Iterable[Row], codec: str, idempotent: bool) -> None:
        options = {"compression_type": codec, "enable_idempotence": idempotent, **BYTES}
        with Producer(self.bootstrap, **options) as producer:
            sent = [producer.send(topic, **sendable(row)) for row in rows]
            for one in sent:
                one.result(60)

    def read(self, topic: str, partitions: Iterable[int], count: int) -> list[Read]:
        with Consumer(self.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, one) for one in partitions])
            found: list[Read] = []
            deadline = time.monotonic() + 30
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
                found += reads_of(consumer.poll(200))
            return found

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        where = TopicPartition(topic, partition)
        with Admin(self.bootstrap) as admin:
            return tuple(admin.list_offsets({where: at})[where].offset for at in (EARLIEST, LATEST))

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        where = TopicPartition(topic, partition)
        with Admin(self.bootstrap) as admin:
            return admin.list_offsets({where: timestamp_ms})[where].offset

    @contextmanager
    def reader(
        self, topic: str, partitions: Iterable[int], level: str = "read_uncommitted"
    ) -> Iterator["StrandlineMember"]:
        with Consumer(self.bootstrap, auto_offset_reset="earliest", isolation_level=level) as consumer:
            consumer.assign([TopicPartition(topic, one) for one in partitions])
            yield StrandlineMember(consumer)

    @contextmanager
    def member(
        self, topic: str, group: str, kind: str = "default", **options: Any
    ) -> Iterator["StrandlineMember"]:
        options |= {"topics": [topic], "group": group, "auto_offset_reset": "earliest"} | KINDS[kind]
        with Consumer(self.bootstrap, **options) as consumer:
            yield StrandlineMember(consumer)

    def committed(self, topic: str, group: str, partition: int) -> int:
        where = TopicPartition(topic, partition)
        with Admin(self.bootstrap) as admin:
            return admin.list_group_offsets(group, [where])[where].offset

    def groups(self) -> set[str]:
        with Admin(self.bootstrap) as admin:
            return {one.group for one in admin.list_groups()}

    def group_state(self, group: str) -> str:
        with Admin(self.bootstrap) as admin:
            return admin.describe_groups([group])[0].state.lower()

    @contextmanager
    def sender(self, topic: str, idempotent: bool = True) -> Iterator["StrandlineSender"]:
        with Producer(self.bootstrap, enable_idempotence=idempotent, **BYTES) as producer:
            yield StrandlineSender(topic, producer)

    @contextmanager
    def transactional(self, name: str) -> Iterator["StrandlineTransactional"]:
        with Producer(self.bootstrap, transactional_id=name, **BYTES) as producer:
            producer.init_transactions()
            yield StrandlineTransactional(producer)

    def set_config(self, topic: str, name: str, value: str) -> None:
        with Admin(self.bootstrap) as admin:
            admin.incremental_alter_configs([ConfigChange(name, value)], topic=topic)

    def config(self, topic: str, name: str) -> str:
        with Admin(self.bootstrap) as admin:
            (value,) = (one.value for one in admin.describe_configs(topic=topic) if one.name == name)
            return str(value)

    def delete_topic(self, topic: str) -> None:
        with Admin(self.bootstrap) as admin:
            admin.delete_topics([topic])


class StrandlineMember:
    """A consumer in a group."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def poll(self) -> list[Read]:
        return reads_of(self.consumer.poll(200))

    def assignment(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit()


class StrandlineSender:
    """A producer with acks=all."""

    def __init__(self, topic: str, producer: Producer) -> None:
        self.topic, self.producer = topic, producer

    def send(self, value: bytes, acknowledged: Callable[[], None], partition: int | None = None) -> None:
        self.producer.send(self.topic, value, partition=partition).add_done_callback(
            lambda sent: None if sent.exception() else acknowledged()
        )

    def flush(self) -> None:
        self.producer.flush()


class StrandlineTransactional:
    """A producer with a transactional id."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.begin, self.commit, self.abort = producer.begin, producer.commit, producer.abort

    def send(self, topic: str, value: bytes) -> None:
        self.producer.send(topic, value)


def sendable(row: Row) -> dict[str, Any]:
    """A record as `send` takes it."""
    return {"value": row.value, "key": row.key, "headers": row.headers, "timestamp_ms": row.timestamp_ms}


def reads_of(records: Iterable[Any]) -> list[Read]:
    """Records as they came."""
    return [
        Read(one.partition, one.offset, Row(one.key, one.value, tuple(one.headers)), one.timestamp)
        for one in records
    ]
