"""Copies a topic into another, each batch with its offsets in one transaction.

`copier.py librdkafka|aiokafka|strandline <bootstrap> <in> <out> <group> <transactional id> <group protocol>`.
Every fourth transaction is aborted by choice, and its records are read again. It runs until its standard
input ends, and ends by itself when it is fenced.
"""

import asyncio
import os
import sys
import threading
from typing import Any

CHOSEN = 4  # every so many transactions are aborted
BATCH = 20
HANGS_S = 20.0
ENDED = threading.Event()


def is_ended() -> bool:
    return ENDED.is_set()


def again(call: Any, *arguments: Any) -> None:
    """Until it is done, or the transaction has to be aborted, or the producer is fenced."""
    from confluent_kafka import KafkaException

    while True:
        try:
            return call(*arguments)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            print(f"{call.__name__}, again: {error}", file=sys.stderr, flush=True)


def hand_over(name: str, producer: Any, consumer: Any) -> None:
    """librdkafka waits for a group coordinator that has gone from the metadata until its connection to some
    broker changes, whatever the time-out (its issue 5511, open in 2.16). Another life helps.
    """

    def begin_anew() -> None:
        print(f"{name}: begins anew", file=sys.stderr, flush=True)
        consumer.close()
        os.execv(sys.executable, sys.orig_argv)

    places = [one for one in consumer.position(consumer.assignment()) if one.offset >= 0]
    impatience = threading.Timer(HANGS_S, begin_anew)
    impatience.daemon = True
    impatience.start()
    try:
        again(producer.send_offsets_to_transaction, places, consumer.consumer_group_metadata(), 30)
    finally:
        impatience.cancel()


def librdkafka(bootstrap: str, source: str, target: str, group: str, name: str, protocol: str) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    options = {"bootstrap.servers": bootstrap}
    reading = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    reading |= {"group.protocol": "consumer"} if protocol == "consumer" else {"session.timeout.ms": 6000}
    consumer = Consumer(options | reading | {"isolation.level": "read_committed"})
    producer = Producer(options | {"transactional.id": name})

    def rewind() -> None:
        while True:
            try:
                for place in consumer.committed(consumer.assignment(), 30):
                    at = place.offset if place.offset >= 0 else 0
                    consumer.seek(TopicPartition(place.topic, place.partition, at))
                return
            except KafkaException as error:  # the coordinator moves, or the assignment has changed
                print(f"{name}: {error}", file=sys.stderr)

    again(producer.init_transactions, 30)  # ends what an earlier life has left open
    print(f"{name}: has begun", file=sys.stderr, flush=True)
    consumer.subscribe([source])
    count = 0
    while not is_ended():
        messages = [one for one in consumer.consume(BATCH, 0.1) if one.error() is None]
        if not messages:
            continue
        count += 1
        producer.begin_transaction()
        try:
            for one in messages:
                producer.produce(target, one.value())
            hand_over(name, producer, consumer)
            if count % CHOSEN:
                again(producer.commit_transaction, 30)
                continue
        except KafkaException as error:
            print(f"{name}: {error}", file=sys.stderr)
            if not error.args[0].txn_requires_abort():
                raise
        again(producer.abort_transaction, 30)
        rewind()
    consumer.close()


async def aiokafka(bootstrap: str, source: str, target: str, group: str, name: str, _: str) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.errors import KafkaError, ProducerFenced

    consumer = AIOKafkaConsumer(
        source, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest",
        enable_auto_commit=False, isolation_level="read_committed", session_timeout_ms=6000,
    )  # fmt: skip
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    await producer.start()  # ends what an earlier life has left open
    await consumer.start()

    async def rewind() -> None:
        for place in consumer.assignment():
            consumer.seek(place, await consumer.committed(place) or 0)

    count = 0
    while not is_ended():
        batches = await consumer.getmany(timeout_ms=100, max_records=BATCH)
        messages = [one for batch in batches.values() for one in batch]
        if not messages:
            continue
        count += 1
        try:
            await producer.begin_transaction()
            for one in messages:
                await producer.send(target, one.value)
            offsets = {place: batch[-1].offset + 1 for place, batch in batches.items()}
            await producer.send_offsets_to_transaction(offsets, group)
            if count % CHOSEN:
                await producer.commit_transaction()
                continue
        except ProducerFenced:
            raise
        except KafkaError as error:
            print(f"{name}: {error!r}", file=sys.stderr)
        await producer.abort_transaction()
        await rewind()
    await consumer.stop()
    await producer.stop()


class Chosen(Exception):
    """This transaction is to be aborted."""


async def strandline(bootstrap: str, source: str, target: str, group: str, name: str, _: str) -> None:
    from strandline.client import ApiError, Consumer, Producer, ProducerFenced, TopicPartition

    reading: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}
    reading |= {"enable_auto_commit": False, "session_timeout_ms": 6000, "topics": [source], "group": group}

    async def rewind(consumer: Consumer) -> None:
        while True:
            try:
                for place, mark in (await consumer.committed(*consumer.assignment())).items():
                    consumer.seek(place, mark.offset if mark else 0)
                return
            except (ApiError, ValueError) as error:  # the coordinator moves, or the assignment has changed
                print(f"{name}: {error}", file=sys.stderr)

    async with (
        Producer(bootstrap, transactional_id=name) as producer,
        Consumer(bootstrap, **reading) as consumer,
    ):
        await producer.init_transactions()  # ends what an earlier life has left open
        count = 0
        while not is_ended():
            records = await consumer.poll(100, max_records=BATCH)
            if not records:
                continue
            count += 1
            try:
                async with producer.transaction():
                    for one in records:
                        producer.send(target, one.value)
                    offsets = {TopicPartition(one.topic, one.partition): one.offset + 1 for one in records}
                    await producer.send_offsets(offsets, consumer.group_metadata(offsets))
                    if count % CHOSEN == 0:
                        raise Chosen
            except ProducerFenced:
                raise
            except (Chosen, ApiError) as error:
                print(f"{name}: {error!r}", file=sys.stderr)
                await rewind(consumer)


def main() -> None:
    client, *arguments = sys.argv[1:]
    threading.Thread(target=lambda: (sys.stdin.read(), ENDED.set()), daemon=True).start()
    if client == "librdkafka":
        librdkafka(*arguments)
    else:
        asyncio.run({"aiokafka": aiokafka, "strandline": strandline}[client](*arguments))


if __name__ == "__main__":
    main()
