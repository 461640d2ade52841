"""One client process: writes, copies or reads until SIGTERM, and notes every operation before it goes on.

`python -m tests.anomalies.worker KIND NAME LIFE BOOTSTRAP HISTORY SEED`. It ends by itself when its producer
is fenced or cannot go on; whoever started it begins its next life, with the same transactional id.
The clients with the bundled client are here. Left to others: those with librdkafka (stock.py).
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException

from strandline.base.types import TopicPartition as Place
from strandline.client.consumer.consumer import Consumer as OurConsumer
from strandline.client.producer.producer import Producer as OurProducer
from strandline.client.producer.transactions import TransactionAborted
from strandline.protocol.errors import ApiError, ErrorCode, OffsetOutOfRange, RequestTimedOut
from strandline.testing.anomalies import Action, Record, Type
from tests.anomalies.client import ABORTED_BY_CHOICE, STOP, TOPICS, TRANSACTION_MS, Client, bytes_of
from tests.anomalies.stock import (
    copier,
    plain_librdkafka,
    reader_librdkafka,
    subscriber,
    transactions_librdkafka,
)

LONG_BY_CHOICE = 0.01  # of the bundled client's transactions: they are open while leaders come and go
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


async def once_strandline(client: Client) -> None:
    """One attempt for each record, so that what is refused is refused."""
    async with OurProducer(client.bootstrap, retries=0, request_timeout_ms=5_000) as producer:
        while not STOP.is_set():
            await asyncio.sleep(0.05)
            (record,) = client.write("in", 1)
            client.notes.note(Type.INVOKE, Action.SEND, [record])
            try:
                receipt = await producer.send(record.topic, bytes_of(record), partition=record.partition)
            except (ApiError, OSError, TimeoutError) as error:
                code = error.code if isinstance(error, ApiError) else None
                known = Type.FAIL if code in DEFINITE else Type.INFO
                client.notes.note(known, Action.SEND, [record], error=repr(error))
            else:
                client.notes.note(Type.OK, Action.SEND, [record._replace(offset=receipt.offset)])


async def transactions_strandline(client: Client) -> None:
    options = {"transaction_timeout_ms": TRANSACTION_MS, "max_block_ms": 20_000}
    async with OurProducer(client.bootstrap, transactional_id=client.name, **options) as producer:
        client.notes.note(Type.INVOKE, Action.INIT)
        await producer.init_transactions()
        client.notes.note(Type.OK, Action.INIT)
        number = 0
        while not STOP.is_set():
            await asyncio.sleep(client.random.uniform(0.05, 0.2))
            number += 1
            await transact(client, producer, number)


async def transact(client: Client, producer: OurProducer, number: int) -> None:
    records = client.write("t", client.random.randint(1, 6))
    producer.begin()
    client.notes.note(Type.INVOKE, Action.SEND, records, transaction=number)
    sent = [producer.send(one.topic, bytes_of(one), partition=one.partition) for one in records]
    for record, receipt in zip(records, await asyncio.gather(*sent, return_exceptions=True), strict=True):
        if isinstance(receipt, BaseException):
            client.notes.note(Type.INFO, Action.SEND, [record], transaction=number, error=repr(receipt))
        else:
            found = record._replace(offset=receipt.offset)
            client.notes.note(Type.OK, Action.SEND, [found], transaction=number)
    if client.random.random() < LONG_BY_CHOICE:
        await asyncio.sleep(client.random.uniform(*LONG_S))
    if client.random.random() >= ABORTED_BY_CHOICE:
        client.notes.note(Type.INVOKE, Action.COMMIT, transaction=number)
        while True:
            try:
                await producer.commit()
                client.notes.note(Type.OK, Action.COMMIT, transaction=number)
                return
            except RequestTimedOut as error:
                if STOP.is_set():
                    raise
                client.notes.note(Type.INFO, Action.COMMIT, transaction=number, error=repr(error))
            except (ApiError, TransactionAborted) as error:
                client.notes.note(Type.INFO, Action.COMMIT, transaction=number, error=repr(error))
                break
    client.notes.note(Type.INVOKE, Action.ABORT, transaction=number)
    await producer.abort()
    client.notes.note(Type.OK, Action.ABORT, transaction=number)


async def reader_strandline(client: Client) -> None:
    options = {"auto_offset_reset": "none", "isolation_level": "read_committed"}
    places = [Place(topic, each) for topic, count in TOPICS.items() for each in range(count)]
    async with OurConsumer(client.bootstrap, **options) as consumer:
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
            found = [
                Record(one.topic, one.partition, one.offset, int.from_bytes(one.value[:8], "big"))
                for one in records
            ]
            if found:
                client.notes.note(Type.OK, Action.POLL, found)


KINDS: dict[str, Callable[[Client], Any]] = {
    "plain-librdkafka": plain_librdkafka,
    "plain-once": lambda client: asyncio.run(once_strandline(client)),
    "transactions-librdkafka": transactions_librdkafka,
    "transactions-strandline": lambda client: asyncio.run(transactions_strandline(client)),
    "copier-classic": lambda client: copier(client, "in", "out", session_timeout_ms=6000),
    "copier-consumer": lambda client: copier(client, "in8", "out8", group_protocol="consumer"),
    "reader-librdkafka": reader_librdkafka,
    "reader-strandline": lambda client: asyncio.run(reader_strandline(client)),
    "subscriber-classic": lambda client: subscriber(client, session_timeout_ms=6000),
    "subscriber-consumer": lambda client: subscriber(client, group_protocol="consumer"),
}


def main() -> None:
    kind, name, life, bootstrap, history, seed = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda *_: STOP.set())
    client = Client(name, int(life), bootstrap, Path(history), int(seed))
    try:
        KINDS[kind](client)
    except (KafkaException, ApiError, RuntimeError, OSError, SystemError) as error:
        # SystemError: so Producer.flush ends when librdkafka has been fenced meanwhile
        client.notes.note(Type.INFO, Action.CRASH, error=repr(error))
        print(f"{client.notes.process} ends: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)  # what it has begun is left as it is


if __name__ == "__main__":
    main()
