"""confluent-kafka (librdkafka) behind the common vocabulary."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from driving import CODECS, Read, Row

EARLIEST = -2
KINDS = {
    "default": {"group.protocol": "classic"},
    "quick": {"group.protocol": "classic", "heartbeat.interval.ms": 500},
    "range": {"partition.assignment.strategy": "range"},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "consumer": {"group.protocol": "consumer"},
}


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
                timestamp=row.timestamp_ms or 0,
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
    def reader(
        self, topic: str, partitions: Iterable[int], level: str = "read_uncommitted"
    ) -> Iterator["ConfluentMember"]:
        with self._consumer(**{"isolation.level": level}) as consumer:
            consumer.assign([TopicPartition(topic, one, EARLIEST) for one in partitions])
            yield ConfluentMember(consumer)

    @contextmanager
    def member(self, topic: str, group: str, kind: str = "default") -> Iterator["ConfluentMember"]:
        with self._consumer(group, **KINDS[kind]) as consumer:
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
    def sender(self, topic: str, idempotent: bool = True) -> Iterator["ConfluentSender"]:
        options = {"acks": "all", "enable.idempotence": idempotent}
        yield ConfluentSender(topic, Producer(self.bootstrap | options))

    @contextmanager
    def transactional(self, name: str) -> Iterator["ConfluentTransactional"]:
        producer = Producer(self.bootstrap | {"transactional.id": name})
        producer.init_transactions(60)
        yield ConfluentTransactional(producer)

    def set_config(self, topic: str, name: str, value: str) -> None:
        change = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[change])
        self.admin.incremental_alter_configs([resource])[resource].result(30)

    def config(self, topic: str, name: str) -> str:
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        return str(self.admin.describe_configs([resource])[resource].result(30)[name].value)

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)

    @contextmanager
    def _consumer(self, group: str = "by-hand", **more: str) -> Iterator[Consumer]:
        consumer = Consumer(self.bootstrap | {"group.id": group, "auto.offset.reset": "earliest"} | more)
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


class ConfluentTransactional:
    """A producer with a transactional id. What librdkafka calls retriable is called again, as it asks."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.begin = producer.begin_transaction

    def send(self, topic: str, value: bytes) -> None:
        self.producer.produce(topic, value)
        self.producer.poll(0)

    def commit(self) -> None:
        _again(lambda: self.producer.commit_transaction(30))

    def abort(self) -> None:
        _again(lambda: self.producer.abort_transaction(30))


def _again(call: Callable[[], Any]) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


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
    return Read(message.partition(), message.offset(), row, message.timestamp()[1])
