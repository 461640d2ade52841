"""confluent-kafka (librdkafka) behind the common vocabulary."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from driving import CODECS, Read, Row

EARLIEST = -2


class Confluent:
    """confluent-kafka."""

    name = "confluent-kafka"
    codecs = CODECS
    can = frozenset({"admin"})

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = {"bootstrap.servers": bootstrap}
        self._admin: AdminClient | None = None

    @property
    def admin(self) -> AdminClient:
        self._admin = self._admin or AdminClient(self.bootstrap)
        return self._admin

    def create_topic(self, topic: str, partitions: int) -> None:
        self.admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(30)

    def topics(self) -> dict[str, int]:
        found = self.admin.list_topics(timeout=30).topics
        return {name: len(one.partitions) for name, one in found.items()}

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        asked = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        futures = self.admin.delete_records(asked)
        return {one.partition: int(future.result(30).low_watermark) for one, future in futures.items()}

    def produce(self, topic: str, rows: Iterable[Row], codec: str, idempotent: bool) -> None:
        options = {"compression.type": codec, "enable.idempotence": idempotent}
        producer, troubles = Producer(self.bootstrap | options), list[Any]()
        for row in rows:
            producer.produce(
                topic,
                row.value,
                row.key,
                headers=list(row.headers),
                on_delivery=lambda error, _: error and troubles.append(error),
            )
        assert producer.flush(60) == 0
        assert not troubles, troubles

    def read(self, topic: str, partitions: Iterable[int], count: int) -> list[Read]:
        with self._consumer() as consumer:
            consumer.assign([TopicPartition(topic, one, EARLIEST) for one in partitions])
            return _collect(consumer, count)

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        with self._consumer() as consumer:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            return low, high

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        with self._consumer() as consumer:
            (found,) = consumer.offsets_for_times([TopicPartition(topic, partition, timestamp_ms)], 30)
            return int(found.offset)

    @contextmanager
    def member(self, topic: str, group: str, protocol: str = "classic") -> Iterator["ConfluentMember"]:
        with self._consumer(group, protocol) as consumer:
            consumer.subscribe([topic])
            yield ConfluentMember(consumer)

    def committed(self, topic: str, group: str, partition: int) -> int:
        request = ConsumerGroupTopicPartitions(group, [TopicPartition(topic, partition)])
        found = self.admin.list_consumer_group_offsets([request])[group].result(30)
        return int(found.topic_partitions[0].offset)

    def groups(self) -> set[str]:
        return {one.group_id for one in self.admin.list_consumer_groups().result(30).valid}

    def group_state(self, group: str) -> str:
        found = self.admin.describe_consumer_groups([group])[group].result(30)
        return str(found.state.name).lower()

    @contextmanager
    def sender(self, topic: str) -> Iterator["ConfluentSender"]:
        yield ConfluentSender(topic, Producer(self.bootstrap | {"acks": "all", "enable.idempotence": True}))

    @contextmanager
    def _consumer(self, group: str = "by-hand", protocol: str = "classic") -> Iterator[Consumer]:
        options = {"group.id": group, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = Consumer(self.bootstrap | options)
        try:
            yield consumer
        finally:
            consumer.close()


class ConfluentMember:
    """A consumer in a group."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer

    def poll(self) -> list[Read]:
        first = self.consumer.poll(0.2)  # consume() would wait for a full batch
        messages = [first, *self.consumer.consume(500, 0)] if first is not None else []
        return [_read(message) for message in messages if message.error() is None]

    def assignment(self) -> set[int]:
        return {one.partition for one in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)


class ConfluentSender:
    """A producer with acks=all."""

    def __init__(self, topic: str, producer: Producer) -> None:
        self.topic, self.producer = topic, producer

    def send(self, value: bytes, acknowledged: Callable[[], None]) -> None:
        self.producer.produce(
            self.topic, value, on_delivery=lambda error, _: None if error else acknowledged()
        )
        self.producer.poll(0)

    def flush(self) -> None:
        assert self.producer.flush(60) == 0


def _collect(consumer: Consumer, count: int) -> list[Read]:
    found: list[Read] = []
    deadline = time.monotonic() + 30
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records came"
        for message in consumer.consume(count - len(found), 0.2):
            assert message.error() is None, message.error()
            found.append(_read(message))
    return found


def _read(message: Any) -> Read:
    row = Row(message.key(), message.value(), tuple(message.headers() or ()))
    return Read(message.partition(), message.offset(), row)
