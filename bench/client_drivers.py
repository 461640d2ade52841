"""One client at work, in a process of its own: `python -m bench.client_drivers JSON` prints what it came to.

Each way to produce or to consume is a small function of the client's most usual code. All are told the same:
acks=all, idempotence, batches of up to 1 MB, 5 ms for a batch to fill; the asyncio clients run on uvloop, and
the blocking ones as they are. What was read is touched: the length of each value is added up.
Left to others: the cluster, the topics, rounds and tables (clients.py).
"""

import gc
import json
import resource
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

SILENCE_MAX_S = 30
LINGER_MS, BATCH_BYTES, BUFFER_BYTES = 5, 1_000_000, 64 << 20
ROUND_RECORDS = 10_000  # given to a client at once, where it takes many


class Job:
    """What one run has to do, and what it has done since its clock began."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, size: int, seconds: float) -> None:
        self.bootstrap, self.topic, self.partitions = bootstrap, topic, partitions
        self.size, self.seconds, self.records, self.bytes = size, seconds, 0, 0
        self.value = b"v" * size
        self.began = self.cpu = self.took = self.used = 0.0
        self.most = 1 << 62

    def begin(self) -> None:
        """From now on it counts."""
        gc.collect()
        self.records = self.bytes = 0
        self.cpu, self.began = cpu_s(), time.perf_counter()

    @property
    def goes_on(self) -> bool:
        """Whether there is time, and something left to read."""
        if self.records < self.most and time.perf_counter() < self.began + self.seconds:
            return True
        self.end()
        return False

    def end(self) -> None:
        """What comes after this does not count."""
        self.took, self.used = time.perf_counter() - self.began, cpu_s() - self.cpu

    def told(self) -> dict[str, float]:
        """What it came to."""
        assert self.records, "nothing was done"
        return {"records": self.records, "seconds": self.took, "cpu": self.used}


def cpu_s() -> float:
    """What this process has used with all its threads."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


# -- the bundled client


def bundled_options(job: Job) -> dict[str, Any]:
    return {
        "bootstrap_servers": job.bootstrap, "linger_ms": LINGER_MS, "batch_size": BATCH_BYTES,
        "buffer_memory": BUFFER_BYTES, "max_request_size": 2 << 20,
    }  # fmt: skip


async def bundled_send(job: Job) -> None:
    from strandline.client import Producer

    async with Producer(**bundled_options(job)) as producer:
        await producer.send(job.topic, job.value)
        job.begin()
        while job.goes_on:
            await producer.room(job.topic)
            for _ in range(500):
                producer.send(job.topic, job.value)
            job.records += 500
        await producer.flush()
        job.end()


async def bundled_send_many(job: Job) -> None:
    from strandline.client import Producer

    async with Producer(**bundled_options(job)) as producer:
        values = [job.value] * ROUND_RECORDS
        await producer.send_many(job.topic, values)
        job.begin()
        while job.goes_on:
            await producer.send_many(job.topic, values)
            job.records += len(values)
        job.end()


async def bundled_send_arrow(job: Job) -> None:
    import pyarrow as pa

    from strandline.client import Producer

    async with Producer(**bundled_options(job)) as producer:
        table = pa.table({"value": pa.array([job.value] * ROUND_RECORDS, pa.binary())})
        await producer.send_arrow(job.topic, table)
        job.begin()
        while job.goes_on:
            await producer.send_arrow(job.topic, table)
            job.records += ROUND_RECORDS
        job.end()


def bundled_send_many_blocking(job: Job) -> None:
    from strandline.client.sync import Producer

    with Producer(**bundled_options(job)) as producer:
        values = [job.value] * ROUND_RECORDS
        producer.send_many(job.topic, values)
        job.begin()
        while job.goes_on:
            producer.send_many(job.topic, values)
            job.records += len(values)
        job.end()


def bundled_reader(job: Job) -> dict[str, Any]:
    return {"bootstrap_servers": job.bootstrap, "topics": [job.topic], "auto_offset_reset": "earliest"}


async def bundled_for(job: Job) -> None:
    from strandline.client import Consumer

    async with Consumer(**bundled_reader(job)) as consumer:
        await anext(consumer)
        job.begin()
        async for record in consumer:
            job.bytes += len(record.value)
            job.records += 1
            if not job.records % 1000 and not job.goes_on:
                return


async def bundled_poll(job: Job) -> None:
    from strandline.client import Consumer

    async with Consumer(**bundled_reader(job)) as consumer:
        await anext(consumer)
        job.begin()
        while job.goes_on:
            for record in await consumer.poll():
                job.bytes += len(record.value)
                job.records += 1


def bundled_for_blocking(job: Job) -> None:
    from strandline.client.sync import Consumer

    with Consumer(**bundled_reader(job)) as consumer:
        next(consumer)
        job.begin()
        for record in consumer:
            job.bytes += len(record.value)
            job.records += 1
            if not job.records % 1000 and not job.goes_on:
                return


def bundled_poll_blocking(job: Job) -> None:
    from strandline.client.sync import Consumer

    with Consumer(**bundled_reader(job)) as consumer:
        next(consumer)
        job.begin()
        while job.goes_on:
            for record in consumer.poll():
                job.bytes += len(record.value)
                job.records += 1


async def bundled_values(job: Job) -> None:
    from strandline.client import Consumer

    async with Consumer(**bundled_reader(job)) as consumer:
        await consumer.poll_batch(30_000)
        job.begin()
        while job.goes_on:
            for batch in await consumer.poll_batch():
                values = batch.values()
                job.bytes += sum(map(len, values))  # type: ignore[arg-type]
                job.records += len(values)


async def bundled_arrow(job: Job) -> None:
    from strandline.client import Consumer

    async with Consumer(**bundled_reader(job)) as consumer:
        (first, *_) = await consumer.poll_batch(30_000)
        first.to_arrow()
        job.begin()
        while job.goes_on:
            for batch in await consumer.poll_batch():
                table = batch.to_arrow()
                job.bytes += table.column("value").nbytes
                job.records += table.num_rows


async def bundled_views(job: Job) -> None:
    import numpy as np

    from strandline.client import Consumer

    async with Consumer(**bundled_reader(job)) as consumer:
        (first, *_) = await consumer.poll_batch(30_000)
        first.to_arrow(views=True)
        job.begin()
        while job.goes_on:
            for batch in await consumer.poll_batch():
                values = batch.to_arrow(views=True).column("value")
                job.bytes += int(np.frombuffer(values.buffers()[1], np.int32)[::4].sum())  # lengths
                job.records += len(values)


# -- aiokafka


async def aiokafka_send(job: Job) -> None:
    from aiokafka import AIOKafkaProducer

    async with AIOKafkaProducer(
        bootstrap_servers=job.bootstrap, acks="all", enable_idempotence=True, linger_ms=LINGER_MS,
        max_batch_size=BATCH_BYTES, max_request_size=2 << 20,
    ) as producer:  # fmt: skip
        await producer.send_and_wait(job.topic, job.value)
        job.begin()
        while job.goes_on:
            for _ in range(500):
                await producer.send(job.topic, job.value)
            job.records += 500
        await producer.flush()
        job.end()


async def aiokafka_reader(job: Job) -> Any:
    from aiokafka import AIOKafkaConsumer

    return AIOKafkaConsumer(job.topic, bootstrap_servers=job.bootstrap, auto_offset_reset="earliest")


async def aiokafka_for(job: Job) -> None:
    async with await aiokafka_reader(job) as consumer:
        await consumer.getone()
        job.begin()
        async for record in consumer:
            job.bytes += len(record.value)
            job.records += 1
            if not job.records % 1000 and not job.goes_on:
                return


async def aiokafka_getmany(job: Job) -> None:
    async with await aiokafka_reader(job) as consumer:
        await consumer.getone()
        job.begin()
        while job.goes_on:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                for record in records:
                    job.bytes += len(record.value)
                    job.records += 1


# -- confluent-kafka


def confluent_producer(job: Job, reported: Callable[[Any, Any], None]) -> Any:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": BUFFER_BYTES >> 10,
            "on_delivery": reported,
        }
    )


def confluent_produce(job: Job) -> None:
    failed = [0]

    def reported(error: Any, _: Any) -> None:
        failed[0] += error is not None

    producer = confluent_producer(job, reported)
    producer.produce(job.topic, job.value)
    producer.flush(60)
    job.begin()
    send, poll = producer.produce, producer.poll
    while job.goes_on:
        done = 0
        try:
            for _ in range(500):
                send(job.topic, job.value)
                done += 1
        except BufferError:
            poll(0.01)
        poll(0)
        job.records += done
    assert not producer.flush(60) and not failed[0], f"{failed[0]} records failed"
    job.end()


def confluent_produce_batch(job: Job) -> None:
    failed = [0]

    def reported(error: Any, _: Any) -> None:
        failed[0] += error is not None

    producer = confluent_producer(job, reported)
    producer.produce(job.topic, job.value)
    producer.flush(60)
    job.begin()
    while job.goes_on:
        given = [{"value": job.value} for _ in range(1000)]
        taken = producer.produce_batch(job.topic, given)
        producer.poll(0 if taken == len(given) else 0.01)
        job.records += taken
    assert not producer.flush(60) and not failed[0], f"{failed[0]} records failed"
    job.end()


def confluent_reader(job: Job, **tuned: Any) -> Any:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": job.bootstrap, "group.id": "-", "enable.auto.commit": False}
    consumer = Consumer(settings | tuned)
    consumer.assign([TopicPartition(job.topic, number, 0) for number in range(job.partitions)])
    assert consumer.poll(SILENCE_MAX_S) is not None, "nothing came"
    job.begin()
    return consumer


def confluent_poll(job: Job) -> None:
    consumer = confluent_reader(job)
    while job.goes_on:
        for _ in range(1000):
            message = consumer.poll(1)
            if message is None:
                break
            job.bytes += len(message.value())
            job.records += 1
    consumer.close()


def confluent_consume(job: Job) -> None:
    count_consumed(job, confluent_reader(job))


def count_consumed(job: Job, consumer: Any) -> None:
    while job.goes_on:
        for message in consumer.consume(ROUND_RECORDS, timeout=1):
            job.bytes += len(message.value())
            job.records += 1
    consumer.close()


def confluent_consume_without_pauses(job: Job) -> None:
    # At its defaults librdkafka asks no more for up to a second whenever it holds 100,000 records.
    never_full = {"fetch.queue.backoff.ms": 1, "queued.min.messages": 1_000_000}
    count_consumed(job, confluent_reader(job, **never_full))


def confluent_values(job: Job) -> None:
    consumer = confluent_reader(job)
    while job.goes_on:
        values = [message.value() for message in consumer.consume(ROUND_RECORDS, timeout=1)]
        job.bytes += sum(map(len, values))
        job.records += len(values)
    consumer.close()


Way = Callable[[Job], Awaitable[None] | None]
PRODUCE: dict[str, Way] = {
    "bundled: send": bundled_send,
    "bundled: send_many": bundled_send_many,
    "bundled: send_arrow": bundled_send_arrow,
    "bundled, blocking: send_many": bundled_send_many_blocking,
    "aiokafka: send": aiokafka_send,
    "confluent-kafka: produce": confluent_produce,
    "confluent-kafka: produce_batch": confluent_produce_batch,
}
CONSUME: dict[str, Way] = {
    "bundled: async for": bundled_for,
    "bundled: poll": bundled_poll,
    "bundled, blocking: for": bundled_for_blocking,
    "bundled, blocking: poll": bundled_poll_blocking,
    "bundled: poll_batch, values()": bundled_values,
    "bundled: poll_batch, to_arrow()": bundled_arrow,
    "bundled: poll_batch, to_arrow(views=True)": bundled_views,
    "aiokafka: async for": aiokafka_for,
    "aiokafka: getmany": aiokafka_getmany,
    "confluent-kafka: poll": confluent_poll,
    "confluent-kafka: consume": confluent_consume,
    "confluent-kafka: consume, never pausing": confluent_consume_without_pauses,
    "confluent-kafka: consume, list of values": confluent_values,
}


def main(given: str) -> int:
    """One run of one way."""
    asked = json.loads(given)
    way = {**PRODUCE, **CONSUME}[asked.pop("way")]
    most = asked.pop("most", 1 << 62)
    job = Job(**asked)
    job.most = most
    running = way(job)
    if running is not None:
        import uvloop

        async def run() -> None:
            await running

        uvloop.run(run())
    sys.stdout.write(json.dumps(job.told()) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
