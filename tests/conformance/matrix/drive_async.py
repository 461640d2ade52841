"""The bundled client as asyncio has it, each object on a loop in a thread of its own."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from drive_strandline import BYTES, KINDS, Strandline, reads_of, sendable
from driving import Read, Row

from strandline.client import Admin, Consumer, Producer, TopicPartition
from strandline.client.admin.configs import ConfigChange
from strandline.client.loop_thread import LoopThread

T = TypeVar("T")


class StrandlineAsync(Strandline):
    """strandline.client; what it is asked only once in a test is asked as the blocking one asks it."""

    name = "strandline-async"

    def admin(self, work: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
        async def asked() -> T:
            async with Admin(self.bootstrap) as admin:
                return await work(admin)

        return asyncio.run(asked())

    def create_topic(self, topic: str, partitions: int) -> None:
        self.admin(lambda admin: admin.create_topic(topic, partitions, 3))

    def delete_topic(self, topic: str) -> None:
        self.admin(lambda admin: admin.delete_topics([topic]))

    def set_config(self, topic: str, name: str, value: str) -> None:
        self.admin(lambda admin: admin.incremental_alter_configs([ConfigChange(name, value)], topic=topic))

    def config(self, topic: str, name: str) -> str:
        told = self.admin(lambda admin: admin.describe_configs(topic=topic))
        return next(str(one.value) for one in told if one.name == name)

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        return self.offset_at(topic, partition, -2), self.offset_at(topic, partition, -1)

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        where = TopicPartition(topic, partition)
        return self.admin(lambda admin: admin.list_offsets({where: timestamp_ms}))[where].offset

    def produce(self, topic: str, rows: Iterable[Row], codec: str, idempotent: bool) -> None:
        options: dict[str, Any] = {"compression_type": codec, "enable_idempotence": idempotent}

        async def work() -> None:
            async with Producer(self.bootstrap, **options, **BYTES) as producer:
                await asyncio.gather(*(producer.send(topic, **sendable(row)) for row in rows))

        asyncio.run(work())

    def read(self, topic: str, partitions: Iterable[int], count: int) -> list[Read]:
        found: list[Read] = []

        async def work() -> None:
            async with Consumer(self.bootstrap, auto_offset_reset="earliest") as consumer:
                consumer.assign([TopicPartition(topic, one) for one in partitions])
                async with asyncio.timeout(30):
                    async for record in consumer:
                        found.extend(reads_of([record]))
                        if len(found) == count:
                            return

        if count:
            asyncio.run(work())
        return found

    @contextmanager
    def reader(
        self, topic: str, partitions: Iterable[int], level: str = "read_uncommitted"
    ) -> Iterator["AsyncMember"]:
        with _open(Consumer, self.bootstrap, auto_offset_reset="earliest", isolation_level=level) as found:
            thread, consumer = found
            thread.call(lambda: consumer.assign([TopicPartition(topic, one) for one in partitions]))
            yield AsyncMember(thread, consumer)

    @contextmanager
    def member(
        self, topic: str, group: str, kind: str = "default", **options: Any
    ) -> Iterator["AsyncMember"]:
        options |= {"topics": [topic], "group": group, "auto_offset_reset": "earliest"} | KINDS[kind]
        with _open(Consumer, self.bootstrap, **options) as (thread, consumer):
            yield AsyncMember(thread, consumer)

    @contextmanager
    def sender(self, topic: str, idempotent: bool = True) -> Iterator["AsyncSender"]:
        with _open(Producer, self.bootstrap, enable_idempotence=idempotent, **BYTES) as (thread, producer):
            yield AsyncSender(topic, thread, producer)

    @contextmanager
    def transactional(self, name: str) -> Iterator["AsyncTransactional"]:
        with _open(Producer, self.bootstrap, transactional_id=name, **BYTES) as (thread, producer):
            thread.run(producer.init_transactions)
            yield AsyncTransactional(thread, producer)


@contextmanager
def _open(kind: Any, *given: Any, **options: Any) -> Iterator[tuple[LoopThread, Any]]:
    thread = LoopThread("strandline-async")
    try:
        inner = thread.call(lambda: kind(*given, **options))
        thread.run(inner.start)
        try:
            yield thread, inner
        finally:
            thread.run(inner.close)
    finally:
        thread.close()


class AsyncMember:
    """A consumer."""

    def __init__(self, thread: LoopThread, consumer: Consumer) -> None:
        self.thread, self.consumer = thread, consumer

    def poll(self) -> list[Read]:
        return reads_of(self.thread.run(lambda: self.consumer.poll(200)))

    def assignment(self) -> set[int]:
        return {one.partition for one in self.thread.call(self.consumer.assignment)}

    def commit(self) -> None:
        self.thread.run(self.consumer.commit)


class AsyncSender:
    """A producer with acks=all."""

    def __init__(self, topic: str, thread: LoopThread, producer: Producer) -> None:
        self.topic, self.thread, self.producer = topic, thread, producer

    def send(self, value: bytes, acknowledged: Callable[[], None]) -> None:
        def done(sent: "asyncio.Future[Any]") -> None:
            if sent.exception() is None:
                acknowledged()

        async def work() -> None:
            await self.producer.room(self.topic)
            self.producer.send(self.topic, value).add_done_callback(done)

        self.thread.run(work)

    def flush(self) -> None:
        self.thread.run(self.producer.flush)


class AsyncTransactional:
    """A producer with a transactional id."""

    def __init__(self, thread: LoopThread, producer: Producer) -> None:
        self.thread, self.producer = thread, producer

    def begin(self) -> None:
        self.thread.call(self.producer.begin)

    def send(self, topic: str, value: bytes) -> None:
        self.thread.call(
            lambda: self.producer.send(topic, value).add_done_callback(lambda one: one.exception())
        )

    def commit(self) -> None:
        self.thread.run(self.producer.commit)

    def abort(self) -> None:
        self.thread.run(self.producer.abort)
