"""Clients with librdkafka: they write, copy and read, and note every operation before they go on.

Left to others: what they share with others (client.py), what a call that never returns has waited for
(stuck.py).
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ...anomalies import UNKNOWN, Action, Record, Type
from .client import ABORTED_BY_CHOICE, STOP, Client, bytes_of, copiers, value_in
from .stuck import OVERDUE

Message: TypeAlias = Any  # its types know no difference between a record that was read and an error
AGAIN_S = 20.0
WRITE_EVERY_S = 0.05
CALL_S = 30.0  # what calls of librdkafka are given
OVERDUE_S = 40.0  # and when they surely have forgotten it
COMMIT_EVERY_S = 1.0
GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION, KafkaError.OFFSET_OUT_OF_RANGE)


def delivered(client: Client, record: Record, transaction: int) -> Callable[[Any, Message], None]:
    def told(error: KafkaError | None, message: Message) -> None:
        if error is None:
            at = message.offset()  # None if only that it is stored is known, and not where
            found = record._replace(offset=UNKNOWN if at is None else at)
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
            "log_level": 7 if "debug" in options else 0,
            **{name.replace("_", "."): value for name, value in options.items()},
        }
    )


def stock_consumer(client: Client, **options: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": client.bootstrap,
            "group.id": client.job.prefix + client.name,
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
    sys.stderr.write(f"the client ends: {call} {OVERDUE} {OVERDUE_S:g} s\n")
    sys.stderr.flush()
    os._exit(1)  # the next life fences this one


def writer(client: Client) -> None:
    producer = stock_producer(client)
    while not STOP.wait(WRITE_EVERY_S):
        for record in (client.write(1, topic)[0] for topic in client.topics):
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
        producer.flush(client.job.transaction_ms / 1000)
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
    """What it asks and is answered is printed (stuck.py)."""
    producer = stock_producer(
        client, transactional_id=client.transactional_id, transaction_timeout_ms=client.job.transaction_ms,
        message_timeout_ms=client.job.transaction_ms * 9 // 10, debug="eos,broker,protocol",
    )  # fmt: skip
    client.notes.note(Type.INVOKE, Action.INIT)
    again(producer.init_transactions, CALL_S)
    client.notes.note(Type.OK, Action.INIT)
    return producer


def transactions(client: Client) -> None:
    """Sends and polls in each transaction, on the same topics."""
    producer = transactional_producer(client)
    reading = Reading(client, stock_consumer(client, auto_offset_reset="error"))
    reading.assign([TopicPartition(*place, 0) for place in client.places()])
    number = 0
    while not STOP.wait(client.random.uniform(0.05, 0.2)):
        number += 1
        producer.begin_transaction()
        send(client, producer, client.write(client.random.randint(1, 6)), number)
        if client.random.random() < 0.3:
            producer.flush(5)
            reading.poll(number)
            send(client, producer, client.write(2), number)
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

    def assign(self, places: list[TopicPartition]) -> None:
        """Read on from these offsets."""
        self.consumer.assign(places)
        self.moved_to(places)

    def moved(self, *_: Any) -> None:
        """Moved, nobody knows to where."""
        self.moved_to([])

    def moved_to(self, places: list[TopicPartition]) -> None:
        """What was handed out before belongs to the time before."""
        self.note(UNKNOWN)
        to = [Record(place.topic, place.partition, place.offset) for place in places]
        self.client.notes.note(Type.OK, Action.MOVED, to)

    def note(self, transaction: int) -> None:
        if self.found:
            self.client.notes.note(Type.OK, Action.POLL, self.found, transaction=transaction)
        self.found = []

    def poll(self, transaction: int = UNKNOWN, most: int = 200, wait_s: float = 0.1) -> list[Message]:
        self.messages = []
        while len(self.messages) < most:
            message: Message = self.consumer.poll(wait_s if not self.messages else 0)
            if message is None:
                break
            if (trouble := message.error()) is not None:
                self.refuse(message, trouble)
            else:
                value = value_in(message.value())
                self.found.append(Record(message.topic(), message.partition(), message.offset(), value))
                self.messages.append(message)
        self.note(transaction)
        return self.messages

    def refuse(self, message: Message, trouble: KafkaError) -> None:
        """An error in place of a record: nobody may be told that there is no log where it reads."""
        text = trouble.str().lower()
        if trouble.code() in GONE and ("out of range" in text or "truncation" in text):
            self.note(UNKNOWN)
            at = message.offset()
            lost = Record(message.topic(), message.partition(), UNKNOWN if at is None else max(UNKNOWN, at))
            self.client.notes.note(Type.FAIL, Action.POLL, [lost], error=str(trouble))
            raise KafkaException(trouble)


def reader(client: Client) -> None:
    reading = Reading(client, stock_consumer(client, auto_offset_reset="error"))
    reading.assign([TopicPartition(*place, 0) for place in client.places()])
    while not STOP.is_set():
        reading.poll()
    reading.consumer.close()


class Member(Reading):
    """Of a group: begins where the group is, and commits what it has noted. Each step is noted, too."""

    def __init__(self, client: Client, **options: Any) -> None:
        self.group = client.group
        self.is_incremental = options.get("group_protocol") == "consumer"
        self.read_to: dict[tuple[str, int], int] = {}
        group = client.job.prefix + client.group
        super().__init__(
            client, stock_consumer(client, group_id=group, auto_offset_reset="earliest", **options)
        )
        self.consumer.subscribe(
            client.topics, on_assign=self.assigned, on_revoke=self.moved, on_lost=self.moved
        )

    def moved_to(self, places: list[TopicPartition]) -> None:
        self.read_to.clear()
        super().moved_to(places)

    def assigned(self, _: Consumer, places: list[TopicPartition]) -> None:
        """Ask where to begin. Who is not told leaves it to librdkafka."""
        self.moved()
        self.tell(Type.INVOKE, Action.TOLD, [])
        try:
            told = self.consumer.committed(places, 10)
        except KafkaException as trouble:
            return self.tell(Type.INFO, Action.TOLD, [], str(trouble))
        if any(place.error for place in told):
            return self.tell(Type.INFO, Action.TOLD, [], str([place.error for place in told]))
        self.tell(Type.OK, Action.TOLD, told)
        begins = [TopicPartition(one.topic, one.partition, max(0, one.offset)) for one in told]
        (self.consumer.incremental_assign if self.is_incremental else self.consumer.assign)(begins)
        return self.moved_to(begins)

    def tell(self, type: Type, action: Action, places: list[TopicPartition], error: str = "") -> None:
        offsets = [Record(one.topic, one.partition, max(UNKNOWN, one.offset)) for one in places]
        self.client.notes.note(type, action, offsets, group=self.group, error=error)

    def note(self, transaction: int) -> None:
        for one in self.found:
            self.read_to[one.topic, one.partition] = one.offset + 1
        super().note(transaction)

    def commit(self) -> None:
        places = [TopicPartition(*where, offset) for where, offset in self.read_to.items()]
        self.read_to.clear()
        if not places:
            return
        self.tell(Type.INVOKE, Action.OFFSETS, places)
        try:
            done = self.consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as trouble:  # the group has moved on, or the coordinator has
            self.tell(Type.INFO, Action.OFFSETS, places, str(trouble))
            return
        self.tell(Type.OK, Action.OFFSETS, [one for one in done if one.error is None])


def membership(client: Client) -> dict[str, Any]:
    """What a member of a group is told of its protocol."""
    if client.job.protocol == "consumer":
        return {"group_protocol": "consumer"}
    return {"session_timeout_ms": 6000}


def subscriber(client: Client) -> None:
    member = Member(client, **membership(client))
    committed_s = time.monotonic()
    while not STOP.is_set():
        member.poll()
        if time.monotonic() - committed_s >= COMMIT_EVERY_S:
            member.commit()
            committed_s = time.monotonic()
    member.consumer.close()


def copier(client: Client) -> None:
    (source,), target = client.topics, client.job.to
    assert target is not None, "the scenario has been checked"
    producer = transactional_producer(client)
    options = {"group_id": copiers(client.job.prefix, source), "auto_offset_reset": "earliest"}
    reading = Reading(client, stock_consumer(client, **options, **membership(client)))
    reading.subscribe([source])
    number = 0
    while not STOP.is_set():
        messages = reading.poll(most=50)
        if not messages:
            continue
        number += 1
        producer.begin_transaction()
        copies = [
            Record(target, one.partition(), value=client.value(), source=value_in(one.value()))
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
        rewind(reading)
    reading.consumer.close()


def rewind(reading: Reading) -> None:
    """Back to what the group has committed."""
    consumer = reading.consumer
    while not STOP.is_set():
        try:
            told = consumer.committed(consumer.assignment(), 30)
            begins = [TopicPartition(one.topic, one.partition, max(0, one.offset)) for one in told]
            for place in begins:
                consumer.seek(place)
        except KafkaException:  # the coordinator moves, or the assignment has changed
            continue
        reading.moved_to(begins)
        return


KINDS: dict[str, Callable[[Client], None]] = {
    "writer": writer,
    "transactions": transactions,
    "copier": copier,
    "reader": reader,
    "subscriber": subscriber,
}
