"""One client process: writes, copies or reads until SIGTERM, and notes every operation before it goes on.

`python -m tests.anomalies.worker KIND NAME LIFE BOOTSTRAP HISTORY SEED`. It ends by itself when its producer
is fenced or cannot go on; whoever started it begins its next life, with the same transactional id.
"""

import asyncio
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from strandline.base.types import TopicPartition as Place
from strandline.client.consumer.consumer import Consumer as OurConsumer
from strandline.client.producer.producer import Producer as OurProducer
from strandline.client.producer.transactions import TransactionAborted
from strandline.protocol.errors import ApiError, ErrorCode, RequestTimedOut
from strandline.testing.anomalies import UNKNOWN, Action, HistoryWriter, Notes, Record, Type
from tests.anomalies.enough import OVERDUE

TOPICS = {"t": 6, "in": 3, "out": 3, "in8": 3, "out8": 3}
"""`in` is copied to `out` by a classic group, `in8` to `out8` by one of KIP-848; `t` has transactions."""
VALUES_OF_A_LIFE = 10_000_000
TRANSACTION_MS = 10_000
AGAIN_S = 20.0
CALL_S = 30.0  # what calls of librdkafka are given
OVERDUE_S = 40.0  # and when they surely have forgotten it
ABORTED_BY_CHOICE = 0.25
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
STOP = threading.Event()


class Client:
    """What all of them have: a name for this life, notes, chance, and fresh values."""

    def __init__(self, name: str, life: int, bootstrap: str, history: Path, seed: int) -> None:
        self.name, self.bootstrap = name, bootstrap
        process = name if life % 1000 == 1 else f"{name}/{life % 1000}"
        self.notes = Notes(HistoryWriter(history, {"client": name, "seed": seed}), process, name)
        self.random = random.Random(f"{seed} {name} {life}")
        self.next = life * VALUES_OF_A_LIFE

    def value(self) -> int:
        self.next += 1
        return self.next

    def write(self, topic: str, count: int) -> list[Record]:
        return [Record(topic, self.random.randrange(TOPICS[topic]), value=self.value()) for _ in range(count)]


def bytes_of(record: Record) -> bytes:
    return record.value.to_bytes(8, "big")


# ------------------------------------------------------------ librdkafka


def delivered(client: Client, record: Record, transaction: int) -> Callable[[Any, Message], None]:
    def told(error: KafkaError | None, message: Message) -> None:
        if error is None:
            found = record._replace(offset=message.offset())
            client.notes.note(Type.OK, Action.SEND, [found], transaction=transaction)
        else:
            client.notes.note(Type.INFO, Action.SEND, [record], transaction=transaction, error=str(error))

    return told


def stock_producer(client: Client, **options: Any) -> Producer:
    return Producer(
        {
            "bootstrap.servers": client.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "reconnect.backoff.max.ms": 500,
            "topic.metadata.refresh.interval.ms": 2000,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )


def stock_consumer(client: Client, **options: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": client.bootstrap,
            "group.id": client.name,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 500,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )


def again(call: Callable[..., Any], *arguments: Any) -> Any:
    """Until it is done, or trying again is of no use."""
    deadline = time.monotonic() + AGAIN_S
    while True:
        overdue = threading.Timer(OVERDUE_S, end_overdue, [getattr(call, "__name__", str(call))])
        overdue.daemon = True
        overdue.start()
        try:
            return call(*arguments)
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise
        finally:
            overdue.cancel()


def end_overdue(call: str) -> None:
    """Librdkafka's send_offsets_to_transaction may wait for ever (its issues 5456 and 5511)."""
    line = f"{' '.join(sys.argv[2:4])} ends: {call} {OVERDUE} {OVERDUE_S:g} s"
    print(line, file=sys.stderr, flush=True)
    os._exit(1)  # the next life fences this one


def plain_librdkafka(client: Client) -> None:
    producer = stock_producer(client)
    while not STOP.wait(0.05):
        for record in client.write("in", 1) + client.write("in8", 1):
            client.notes.note(Type.INVOKE, Action.SEND, [record])
            told = delivered(client, record, UNKNOWN)
            producer.produce(record.topic, bytes_of(record), partition=record.partition, on_delivery=told)
        producer.poll(0)
    producer.flush(60)


def send(client: Client, producer: Producer, records: list[Record], number: int) -> None:
    client.notes.note(Type.INVOKE, Action.SEND, records, transaction=number)
    for record in records:
        told = delivered(client, record, number)
        producer.produce(record.topic, bytes_of(record), partition=record.partition, on_delivery=told)


def end(client: Client, producer: Producer, number: int, commit: bool) -> bool:
    """Commit or abort; True if it was committed. Raises KafkaException if the producer is at its end."""
    try:
        producer.flush(TRANSACTION_MS / 1000)
        if commit:
            client.notes.note(Type.INVOKE, Action.COMMIT, transaction=number)
            again(producer.commit_transaction, CALL_S)
            client.notes.note(Type.OK, Action.COMMIT, transaction=number)
            return True
    except KafkaException as error:
        client.notes.note(Type.INFO, Action.COMMIT, transaction=number, error=str(error))
        if not error.args[0].txn_requires_abort():
            raise
    abort(client, producer, number)
    return False


def abort(client: Client, producer: Producer, number: int) -> None:
    client.notes.note(Type.INVOKE, Action.ABORT, transaction=number)
    again(producer.abort_transaction, CALL_S)
    client.notes.note(Type.OK, Action.ABORT, transaction=number)


def transactional_producer(client: Client) -> Producer:
    options = {"transactional_id": client.name, "transaction_timeout_ms": TRANSACTION_MS}
    producer = stock_producer(client, **options, message_timeout_ms=TRANSACTION_MS - 1000)
    again(producer.init_transactions, CALL_S)
    return producer


def transactions_librdkafka(client: Client) -> None:
    """Sends and polls in each transaction, on the same topic."""
    producer = transactional_producer(client)
    reading = Reading(client, stock_consumer(client))
    reading.consumer.assign([TopicPartition("t", each, 0) for each in range(TOPICS["t"])])
    number = 0
    while not STOP.wait(client.random.uniform(0.05, 0.2)):
        number += 1
        producer.begin_transaction()
        send(client, producer, client.write("t", client.random.randint(1, 6)), number)
        if client.random.random() < 0.3:
            producer.flush(5)
            reading.poll(number)
            send(client, producer, client.write("t", 2), number)
        end(client, producer, number, client.random.random() >= ABORTED_BY_CHOICE)
    reading.consumer.close()


class Reading:
    """Reads what is committed, one record after the other, and notes when it was moved."""

    def __init__(self, client: Client, consumer: Consumer) -> None:
        self.client, self.consumer = client, consumer
        self.found: list[Record] = []
        self.messages: list[Message] = []

    def subscribe(self, topics: list[str]) -> None:
        self.consumer.subscribe(topics, on_assign=self.moved, on_revoke=self.moved, on_lost=self.moved)

    def moved(self, *_: Any) -> None:
        """What was handed out before belongs to the time before."""
        self.note(UNKNOWN)
        self.client.notes.note(Type.OK, Action.MOVED)

    def note(self, transaction: int) -> None:
        if self.found:
            self.client.notes.note(Type.OK, Action.POLL, self.found, transaction=transaction)
        self.found = []

    def poll(self, transaction: int = UNKNOWN, most: int = 200, wait_s: float = 0.1) -> list[Message]:
        self.messages = []
        while len(self.messages) < most:
            message = self.consumer.poll(wait_s if not self.messages else 0)
            if message is None:
                break
            if message.error() is None:
                value = int.from_bytes(message.value()[:8], "big")
                self.found.append(Record(message.topic(), message.partition(), message.offset(), value))
                self.messages.append(message)
        self.note(transaction)
        return self.messages


def reader_librdkafka(client: Client) -> None:
    reading = Reading(client, stock_consumer(client, auto_offset_reset="error"))
    places = [TopicPartition(topic, each, 0) for topic, count in TOPICS.items() for each in range(count)]
    reading.consumer.assign(places)
    while not STOP.is_set():
        reading.poll()
    reading.consumer.close()


def subscriber(client: Client, **options: Any) -> None:
    group = client.name.rpartition("-")[0]
    consumer = stock_consumer(
        client, group_id=group, auto_offset_reset="earliest", enable_auto_commit=True,
        auto_commit_interval_ms=1000, **options,
    )  # fmt: skip
    reading = Reading(client, consumer)
    reading.subscribe(["t", "out", "out8"])
    while not STOP.is_set():
        reading.poll()
    reading.consumer.close()


def copier(client: Client, source: str, target: str, **options: Any) -> None:
    producer = transactional_producer(client)
    group = f"copiers-{source}"
    reading = Reading(client, stock_consumer(client, group_id=group, auto_offset_reset="earliest", **options))
    reading.subscribe([source])
    number = 0
    while not STOP.is_set():
        messages = reading.poll(most=50)
        if not messages:
            continue
        number += 1
        producer.begin_transaction()
        copies = [
            Record(
                target, one.partition(), value=client.value(), source=int.from_bytes(one.value()[:8], "big")
            )
            for one in messages
        ]
        offsets = {one.partition(): one.offset() + 1 for one in messages}
        places = [TopicPartition(source, partition, offset) for partition, offset in offsets.items()]
        try:
            send(client, producer, copies, number)
            metadata = reading.consumer.consumer_group_metadata()
            again(producer.send_offsets_to_transaction, places, metadata, CALL_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            abort(client, producer, number)
        else:
            if end(client, producer, number, client.random.random() >= ABORTED_BY_CHOICE):
                continue
        rewind(client, reading.consumer)
    reading.consumer.close()


def rewind(client: Client, consumer: Consumer) -> None:
    """Back to what the group has committed."""
    while not STOP.is_set():
        try:
            for place in consumer.committed(consumer.assignment(), 30):
                at = place.offset if place.offset >= 0 else 0
                consumer.seek(TopicPartition(place.topic, place.partition, at))
        except KafkaException:  # the coordinator moves, or the assignment has changed
            continue
        client.notes.note(Type.OK, Action.MOVED)
        return


# ------------------------------------------------------------ the bundled client


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
        await producer.init_transactions()
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
        while not STOP.is_set():
            found = [
                Record(one.topic, one.partition, one.offset, int.from_bytes(one.value[:8], "big"))
                for one in await consumer.poll(200)
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
    except (KafkaException, ApiError, RuntimeError, OSError) as error:
        client.notes.note(Type.INFO, Action.CRASH, error=repr(error))
        print(f"{client.notes.process} ends: {error!r}", file=sys.stderr, flush=True)
        os._exit(1)  # what it has begun is left as it is


if __name__ == "__main__":
    main()
