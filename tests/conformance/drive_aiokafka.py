"""aiokafka behind the common vocabulary: each object lives on a loop in a thread of its own."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError
from driving import CODECS, Read, Row

from strandline.client.loop_thread import LoopThread

KINDS: dict[str, dict[str, Any]] = {
    "default": {},
    "quick": {"heartbeat_interval_ms": 500},
    "range": {"partition_assignment_strategy": (RangePartitionAssignor,)},
}


class AioKafka:
    """aiokafka."""

    name = "aiokafka"
    codecs = CODECS
    can = frozenset({"admin"})

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap

    def create_topic(self, topic: str, partitions: int) -> None:
        async def work(admin: Any) -> None:
            answer = await admin.create_topics([NewTopic(topic, partitions, 3)])
            assert [error[1] for error in answer.topic_errors] == [0], answer

        asyncio.run(self._with_admin(work))

    def topics(self) -> dict[str, int]:
        async def work(admin: Any) -> dict[str, int]:
            return {one["topic"]: len(one["partitions"]) for one in await admin.describe_topics()}

        found: dict[str, int] = asyncio.run(self._with_admin(work))
        return found

    def delete_records(self, topic: str, before: dict[int, int]) -> dict[int, int]:
        asked = {
            TopicPartition(topic, partition): RecordsToDelete(before_offset=offset)
            for partition, offset in before.items()
        }

        async def work(admin: Any) -> dict[int, int]:
            told = await admin.delete_records(asked)
            return {where.partition: low for where, low in told.items()}

        found: dict[int, int] = asyncio.run(self._with_admin(work))
        return found

    def produce(self, topic: str, rows: Iterable[Row], codec: str, idempotent: bool) -> None:
        async def work() -> None:
            producer = AIOKafkaProducer(
                bootstrap_servers=self.bootstrap,
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic, row.value, row.key, timestamp_ms=row.timestamp_ms, headers=list(row.headers)
                    )
                    for row in rows
                ]
                await asyncio.wait_for(asyncio.gather(*sent), 60)
            finally:
                await producer.stop()

        asyncio.run(work())

    def read(self, topic: str, partitions: Iterable[int], count: int) -> list[Read]:
        async def work(consumer: Any) -> list[Read]:
            consumer.assign([TopicPartition(topic, one) for one in partitions])
            await consumer.seek_to_beginning()
            found: list[Read] = []
            async with asyncio.timeout(30):
                while len(found) < count:
                    found += _reads(await consumer.getmany(timeout_ms=200))
            return found

        found: list[Read] = asyncio.run(self._with_consumer(work))
        return found

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        where = TopicPartition(topic, partition)

        async def work(consumer: Any) -> tuple[int, int]:
            first, last = await consumer.beginning_offsets([where]), await consumer.end_offsets([where])
            return first[where], last[where]

        found: tuple[int, int] = asyncio.run(self._with_consumer(work))
        return found

    def offset_at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        where = TopicPartition(topic, partition)

        async def work(consumer: Any) -> int:
            found = (await consumer.offsets_for_times({where: timestamp_ms}))[where]
            return -1 if found is None else int(found.offset)

        return int(asyncio.run(self._with_consumer(work)))

    @contextmanager
    def reader(
        self, topic: str, partitions: Iterable[int], level: str = "read_uncommitted"
    ) -> Iterator["AioKafkaMember"]:
        thread = LoopThread("aiokafka reader")
        consumer = thread.call(lambda: self._consumer(isolation_level=level))
        try:
            thread.run(consumer.start)
            thread.call(lambda: consumer.assign([TopicPartition(topic, one) for one in partitions]))
            yield AioKafkaMember(thread, consumer)
        finally:
            thread.run(consumer.stop)
            thread.close()

    @contextmanager
    def member(self, topic: str, group: str, kind: str = "default") -> Iterator["AioKafkaMember"]:
        thread = LoopThread("aiokafka member")
        consumer = thread.call(lambda: self._consumer(topic, group=group, **KINDS[kind]))
        try:
            thread.run(consumer.start)
            yield AioKafkaMember(thread, consumer)
        finally:
            thread.run(lambda: _leave(consumer))
            thread.close()

    def committed(self, topic: str, group: str, partition: int) -> int:
        where = TopicPartition(topic, partition)

        async def work(admin: Any) -> int:
            found = await admin.list_consumer_group_offsets(group, partitions=[where])
            return int(found[where].offset)

        return int(asyncio.run(self._with_admin(work)))

    def groups(self) -> set[str]:
        async def work(admin: Any) -> set[str]:
            return {name for name, _ in await admin.list_consumer_groups()}

        found: set[str] = asyncio.run(self._with_admin(work))
        return found

    def group_state(self, group: str) -> str:
        async def work(admin: Any) -> str:
            (answer,) = await admin.describe_consumer_groups([group])
            return str(answer.groups[0][2]).lower()

        return str(asyncio.run(self._with_admin(work)))

    @contextmanager
    def sender(self, topic: str, idempotent: bool = True) -> Iterator["AioKafkaSender"]:
        with self._producer(acks="all", enable_idempotence=idempotent) as (thread, producer):
            yield AioKafkaSender(topic, thread, producer)

    @contextmanager
    def transactional(self, name: str) -> Iterator["AioKafkaTransactional"]:
        with self._producer(transactional_id=name) as (thread, producer):
            yield AioKafkaTransactional(thread, producer)

    def set_config(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, {name: value})

        async def work(admin: Any) -> None:
            for answer in await admin.alter_configs([resource]):
                assert [told[0] for told in answer.resources] == [0], answer

        asyncio.run(self._with_admin(work))

    def config(self, topic: str, name: str) -> str:
        async def work(admin: Any) -> str:
            (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
            ((error, _, _, _, entries),) = answer.resources
            assert error == 0, answer
            return next(str(entry[1]) for entry in entries if entry[0] == name)

        return str(asyncio.run(self._with_admin(work)))

    def delete_topic(self, topic: str) -> None:
        async def work(admin: Any) -> None:
            answer = await admin.delete_topics([topic])
            assert [told[1] for told in answer.topic_error_codes] == [0], answer

        asyncio.run(self._with_admin(work))

    @contextmanager
    def _producer(self, **options: Any) -> Iterator[tuple[LoopThread, Any]]:
        thread = LoopThread("aiokafka producer")
        producer = thread.call(lambda: AIOKafkaProducer(bootstrap_servers=self.bootstrap, **options))
        try:
            thread.run(producer.start)
            yield thread, producer
        finally:
            thread.run(producer.stop)
            thread.close()

    def _consumer(self, *topics: str, group: str | None = None, **more: Any) -> Any:
        options = {"group_id": group, "auto_offset_reset": "earliest", **more}
        return AIOKafkaConsumer(*topics, bootstrap_servers=self.bootstrap, **options)

    async def _with_admin(self, work: Callable[[Any], Any]) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.bootstrap)
        await admin.start()
        try:
            return await work(admin)
        finally:
            await admin.close()

    async def _with_consumer(self, work: Callable[[Any], Any]) -> Any:
        consumer = self._consumer()
        await consumer.start()
        try:
            return await work(consumer)
        finally:
            await consumer.stop()


class AioKafkaMember:
    """A consumer in a group."""

    def __init__(self, thread: LoopThread, consumer: Any) -> None:
        self.thread, self.consumer = thread, consumer

    def poll(self) -> list[Read]:
        return _reads(self.thread.run(lambda: self.consumer.getmany(timeout_ms=200)))

    def assignment(self) -> set[int]:
        return {one.partition for one in self.thread.call(self.consumer.assignment)}

    def commit(self) -> None:
        self.thread.run(self.consumer.commit)


class AioKafkaSender:
    """A producer with acks=all."""

    def __init__(self, topic: str, thread: LoopThread, producer: Any) -> None:
        self.topic, self.thread, self.producer = topic, thread, producer

    def send(self, value: bytes, acknowledged: Callable[[], None]) -> None:
        def done(sent: "asyncio.Future[Any]") -> None:
            if sent.exception() is None:
                acknowledged()

        async def work() -> None:
            (await self.producer.send(self.topic, value)).add_done_callback(done)

        self.thread.run(work)

    def flush(self) -> None:
        self.thread.run(lambda: asyncio.wait_for(self.producer.flush(), 60))


class AioKafkaTransactional:
    """A producer with a transactional id."""

    def __init__(self, thread: LoopThread, producer: Any) -> None:
        self.thread, self.producer = thread, producer

    def begin(self) -> None:
        self.thread.run(self.producer.begin_transaction)

    def send(self, topic: str, value: bytes) -> None:
        async def work() -> None:
            (await self.producer.send(topic, value)).add_done_callback(lambda sent: sent.exception())

        self.thread.run(work)

    def commit(self) -> None:
        self.thread.run(lambda: asyncio.wait_for(self.producer.commit_transaction(), 60))

    def abort(self) -> None:
        self.thread.run(lambda: asyncio.wait_for(self.producer.abort_transaction(), 60))


def _reads(batches: dict[TopicPartition, list[Any]]) -> list[Read]:
    return [
        Read(one.partition, one.offset, Row(one.key, one.value, tuple(one.headers)), one.timestamp)
        for batch in batches.values()
        for one in batch
    ]


async def _leave(consumer: Any) -> None:
    """Commit first: one that closes no longer looks for its coordinator, and commits to nobody for ever."""
    with suppress(KafkaError):
        await asyncio.wait_for(consumer.commit(), 30)
    # `Fetcher.close` of 0.14.0 awaits fetches that it has cancelled, and one that waits to try again ends so.
    # The member has left by then.
    with suppress(asyncio.CancelledError):
        await asyncio.wait_for(consumer.stop(), 30)
