"""The bundled client behind the common vocabulary."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from driving import CODECS, Read, Row

from strandline.base.types import TopicPartition
from strandline.client.sync import Admin, Consumer, Producer

EARLIEST, LATEST = -2, -1
BYTES = {"serializer": "bytes", "key_serializer": "bytes"}


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
            sent = [producer.send(topic, row.value, key=row.key, headers=row.headers) for row in rows]
            for one in sent:
                one.result(60)

    def read(self, topic: str, partitions: Iterable[int], count: int) -> list[Read]:
        with Consumer(self.bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, one) for one in partitions])
            found: list[Read] = []
            deadline = time.monotonic() + 30
            while len(found) < count:
                assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
                found += _reads(consumer.poll(200))
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
    def member(self, topic: str, group: str, **options: Any) -> Iterator["StrandlineMember"]:
        options |= {"topics": [topic], "group": group, "auto_offset_reset": "earliest"}
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
    def sender(self, topic: str) -> Iterator["StrandlineSender"]:
        with Producer(self.bootstrap, **BYTES) as producer:
            yield StrandlineSender(topic, producer)


class StrandlineMember:
    """A consumer in a group."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def poll(self) -> list[Read]:
        return _reads(self.consumer.poll(200))

    def assignment(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit()


class StrandlineSender:
    """A producer with acks=all."""

    def __init__(self, topic: str, producer: Producer) -> None:
        self.topic, self.producer = topic, producer

    def send(self, value: bytes, acknowledged: Callable[[], None]) -> None:
        self.producer.send(self.topic, value).add_done_callback(
            lambda sent: None if sent.exception() else acknowledged()
        )

    def flush(self) -> None:
        self.producer.flush()


def _reads(records: list[Any]) -> list[Read]:
    return [Read(one.partition, one.offset, Row(one.key, one.value, tuple(one.headers))) for one in records]
