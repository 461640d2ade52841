"""Clients with the bundled client: they write, copy and read, and note every operation before they go on.

Left to others: what they share with others (client.py), members of groups (bundled_groups.py), who changes
topics (bundled_admin.py).
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from ....base.types import TopicPartition as Place
from ....client.consumer.consumer import Consumer
from ....client.producer.producer import Producer
from ....client.results import Receipt
from ....protocol.errors import ApiError, ErrorCode, OffsetOutOfRange
from ...anomalies import Action, Record, Type
from .bundled_admin import administrator
from .bundled_groups import copier, subscriber
from .client import ABORTED_BY_CHOICE, STOP, Client, bytes_of, value_in
from .outcomes import end, initialized, settled

WRITE_EVERY_S = 0.05
LONG_BY_CHOICE = 0.01  # of the transactions: they are open while leaders come and go
LONG_S = (1.0, 5.0)
DEFINITE = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
)


async def writer(client: Client) -> None:
    """A record to each topic every WRITE_EVERY_S, as many at once as the brokers let wait."""
    async with Producer(client.bootstrap) as producer:
        while not STOP.is_set():
            await asyncio.sleep(WRITE_EVERY_S)
            for topic in client.topics:
                (record,) = client.write(1, topic)
                await producer.room()
                client.notes.note(Type.INVOKE, Action.SEND, [record])
                sent = producer.send(topic, bytes_of(record), partition=record.partition)
                sent.add_done_callback(lambda done, record=record: told(client, record, done))  # type: ignore[misc]
        await producer.flush()


def told(client: Client, record: Record, sent: "asyncio.Future[Receipt]") -> None:
    """Note how it ended; with retries, what failed may have been written by an earlier attempt."""
    error = None if sent.cancelled() else sent.exception()
    if sent.cancelled() or error is not None:
        client.notes.note(Type.INFO, Action.SEND, [record], error=repr(error))
    else:
        client.notes.note(Type.OK, Action.SEND, [record._replace(offset=sent.result().offset)])


async def once(client: Client) -> None:
    """One attempt for each record, so that what is refused is refused."""
    async with Producer(client.bootstrap, retries=0, request_timeout_ms=5_000) as producer:
        while not STOP.is_set():
            await asyncio.sleep(WRITE_EVERY_S)
            (record,) = client.write(1)
            client.notes.note(Type.INVOKE, Action.SEND, [record])
            try:
                receipt = await producer.send(record.topic, bytes_of(record), partition=record.partition)
            except (ApiError, OSError, TimeoutError) as error:
                code = error.code if isinstance(error, ApiError) else None
                known = Type.FAIL if code in DEFINITE else Type.INFO
                client.notes.note(known, Action.SEND, [record], error=repr(error))
            else:
                client.notes.note(Type.OK, Action.SEND, [record._replace(offset=receipt.offset)])


async def transactions(client: Client) -> None:
    """Writes in transactions."""
    options: dict[str, Any] = {"transaction_timeout_ms": client.job.transaction_ms, "max_block_ms": 20_000}
    async with Producer(client.bootstrap, transactional_id=client.transactional_id, **options) as producer:
        await initialized(client, producer)
        number = 0
        while not STOP.is_set():
            await asyncio.sleep(client.random.uniform(0.05, 0.2))
            number += 1
            await transact(client, producer, number)


async def transact(client: Client, producer: Producer, number: int) -> None:
    """One transaction, to its end."""
    records = client.write(client.random.randint(1, 6))
    producer.begin()
    client.notes.note(Type.INVOKE, Action.SEND, records, transaction=number)
    sent = [producer.send(one.topic, bytes_of(one), partition=one.partition) for one in records]
    await settled(client, records, sent, number)
    if client.random.random() < LONG_BY_CHOICE:
        await asyncio.sleep(client.random.uniform(*LONG_S))
    await end(client, producer, number, client.random.random() >= ABORTED_BY_CHOICE)


async def reader(client: Client) -> None:
    """Reads committed records of all partitions from the first on."""
    options: dict[str, Any] = {"auto_offset_reset": "none", "isolation_level": "read_committed"}
    places = [Place(*each) for each in client.places()]
    async with Consumer(client.bootstrap, **options) as consumer:
        consumer.assign(places)
        for place in places:
            consumer.seek(place, 0)
        client.notes.note(Type.OK, Action.MOVED, [Record(*place, offset=0) for place in places])
        while not STOP.is_set():
            try:
                records = await consumer.poll(200)
            except OffsetOutOfRange as error:
                lost = [Record(*place) for place in places if f"{place}:" in str(error)]
                client.notes.note(Type.FAIL, Action.POLL, lost, error=str(error))
                raise
            found = [Record(one.topic, one.partition, one.offset, value_in(one.value)) for one in records]
            if found:
                client.notes.note(Type.OK, Action.POLL, found)


def run(what: Callable[[Client], Coroutine[Any, Any, None]]) -> Callable[[Client], None]:
    """On a loop of its own."""
    return lambda client: asyncio.run(what(client))


KINDS: dict[str, Callable[[Client], None]] = {
    "writer": run(writer),
    "once": run(once),
    "transactions": run(transactions),
    "copier": run(copier),
    "reader": run(reader),
    "subscriber": run(subscriber),
    "administrator": run(administrator),
}
