"""Load from outside, the same for every system: librdkafka through confluent-kafka, and a raw-wire cannon.

The cannon sends one pre-encoded Produce request again and again over one connection, a fixed number in
flight, so that what it measures is the broker and not a client.
"""

import gc
import itertools
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from strandline.protocol.messages.header import RequestHeader
from strandline.protocol.messages.produce import ProduceRequest
from strandline.protocol.records import BatchBuilder
from strandline.protocol.schema import encode

PRODUCE_VERSION = 9
FILL_S = 2.0
SILENCE_MAX_S = 30.0


@dataclass
class Load:
    """What a driver did."""

    records: int
    seconds: float
    failed: int = 0
    longest_gap_s: float = 0.0

    @property
    def rate(self) -> float:
        return self.records / self.seconds


def create_topic(bootstrap: str, name: str, partitions: int, replicas: int) -> None:
    """Create a topic and wait until every partition has a leader."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, replicas)]).values():
        future.result(30)
    _until_led(
        admin, name, lambda found: len(found) == partitions and all(len(p.isrs) == replicas for p in found)
    )


def leader_of(bootstrap: str, topic: str, partition: int) -> int:
    """The id of the broker that leads a partition. Whom we ask may hear of the topic later than others."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = _until_led(admin, topic, lambda found: any(p.id == partition for p in found))
    return next(int(p.leader) for p in found if p.id == partition)


def _until_led(
    admin: AdminClient, topic: str, enough: Callable[[list[PartitionMetadata]], bool]
) -> list[PartitionMetadata]:
    """The partitions of a topic, as soon as there are enough and each has a leader."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        found = list(admin.list_topics(topic, timeout=5).topics[topic].partitions.values())
        if enough(found) and all(p.leader >= 0 for p in found):
            return found
        time.sleep(0.05)
    raise TimeoutError(f"{topic} did not get its leaders")


def produce(bootstrap: str, topic: str, *, value: bytes, seconds: float, **more: object) -> Load:
    """Send as fast as the client can for `seconds`; every record's delivery report is counted."""
    counts = {"ok": 0, "failed": 0}

    def reported(error: object, _message: object) -> None:
        counts["failed" if error else "ok"] += 1

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1 << 20,
            "on_delivery": reported,
            **more,
        }
    )
    gc.disable()
    began = time.perf_counter()
    send, poll = producer.produce, producer.poll
    while time.perf_counter() - began < seconds:
        try:
            for _ in range(500):
                send(topic, value)
        except BufferError:
            poll(0.01)
        poll(0)
    producer.flush(60)
    seconds = time.perf_counter() - began
    gc.enable()
    return Load(counts["ok"], seconds, counts["failed"])


@dataclass
class Transactions:
    """Transactions one after another, and how long each took from its begin to its acknowledged commit."""

    records: int
    seconds: float
    took_s: list[float]

    @property
    def rate(self) -> float:
        return len(self.took_s) / self.seconds

    def quantile_ms(self, share: float) -> float:
        """How long that share of them took at most."""
        return sorted(self.took_s)[min(int(share * len(self.took_s)), len(self.took_s) - 1)] * 1000


def transactions(
    bootstrap: str, topic: str, *, name: str, value: bytes, records: int, warm_up_s: float, seconds: float
) -> Transactions:
    """One producer commits transactions of so many records, one after another. Any failure ends the run."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "linger.ms": 0 if records == 1 else 5,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    producer.init_transactions(60)
    began = time.perf_counter()
    took_s = list[float]()
    warm = False
    while (now := time.perf_counter()) - began < (seconds if warm else warm_up_s) or not warm:
        if not warm and now - began >= warm_up_s:
            began, warm = now, True
            took_s.clear()
        producer.begin_transaction()
        for _ in range(records):
            producer.produce(topic, value)
        producer.commit_transaction(60)
        took_s.append(time.perf_counter() - now)
    return Transactions(records * len(took_s), time.perf_counter() - began, took_s)


def produce_at_least(
    bootstrap: str, topic: str, *, value: bytes, records: int, seconds: float = FILL_S, **more: object
) -> int:
    """Fill a topic, in turns of `seconds`; how many records were sent."""
    sent = 0
    while sent < records:
        load = produce(bootstrap, topic, value=value, seconds=seconds, **more)
        assert load.records and not load.failed, f"{load.failed} records failed"
        sent += load.records
    return sent


def consume(bootstrap: str, topic: str, *, partitions: int, records: int) -> Load:
    """Read `records` records from the beginning with one consumer; offsets must follow one another."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "-", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    expected, read = [0] * partitions, 0
    gc.disable()
    began = time.perf_counter()
    last_s = began
    while read < records:
        found = consumer.consume(10_000, timeout=1)
        assert found or time.perf_counter() < last_s + SILENCE_MAX_S, f"{read} of {records} were read"
        for message in found:
            partition = message.partition()
            assert message.offset() == expected[partition], message.error()
            expected[partition] += 1
        read += len(found)
        last_s = time.perf_counter() if found else last_s
    seconds = time.perf_counter() - began
    gc.enable()
    consumer.close()
    return Load(read, seconds)


def steady(bootstrap: str, topic: str, *, rate: float, seconds: float, at_s: float, event: object) -> Load:
    """One record every 1/`rate` seconds to partition 0, `event()` at `at_s`; the longest gap between acks."""
    acks: list[float] = []
    failed = [0]

    def reported(error: object, _message: object) -> None:
        if error:
            failed[0] += 1
        else:
            acks.append(time.perf_counter())

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 0,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    began = time.perf_counter()
    sent, done = 0, False
    while (now := time.perf_counter()) - began < seconds:
        if not done and now - began >= at_s:
            event()  # type: ignore[operator]
            done = True
        if sent < (now - began) * rate:
            producer.produce(topic, b"x" * 100, partition=0, on_delivery=reported)
            sent += 1
        producer.poll(0 if sent < (now - began) * rate else 0.0005)
    producer.flush(60)
    gaps = [b - a for a, b in itertools.pairwise(acks)]
    return Load(len(acks), time.perf_counter() - began, failed[0], max(gaps, default=0.0))


def cannon(
    address: tuple[str, int], topic: str, *, batch: bytes, acks: int, window: int, seconds: float
) -> Load:
    """The same Produce request over and over, `window` in flight; every answer is checked for an error."""
    request = _request(topic, batch, acks)
    sent = received = 0
    with socket.create_connection(address) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        buffer, began = bytearray(), time.perf_counter()
        stop_at = began + seconds
        while True:
            room = window - (sent - received)
            if time.perf_counter() < stop_at and room > 0:
                sock.sendall(request * room if len(request) < 65536 else b"".join([request] * room))
                sent += room
            if sent == received:
                break
            buffer += sock.recv(1 << 16)
            received += _answers(buffer)
        return Load(received, time.perf_counter() - began)


def _answers(buffer: bytearray) -> int:
    """Take whole answers off the buffer; how many. An error in one is an error of the run."""
    count = at = 0
    while len(buffer) - at >= 4:
        (size,) = struct.unpack_from(">i", buffer, at)
        if len(buffer) - at < 4 + size:
            break
        # header (correlation, tags), topics (1), name, partitions (1), index: then the error code
        name = buffer[at + 4 + 6] - 1
        (error,) = struct.unpack_from(">h", buffer, at + 4 + 7 + name + 1 + 4)
        assert error == 0, f"the broker answered error {error}"
        at += 4 + size
        count += 1
    del buffer[:at]
    return count


def _request(topic: str, batch: bytes, acks: int) -> bytes:
    body = ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=30_000,
        topic_data=[_topic(topic, batch)],
    )
    header = RequestHeader(
        request_api_key=0, request_api_version=PRODUCE_VERSION, correlation_id=1, client_id="cannon"
    )
    parts = [*encode(header, 2), *encode(body, PRODUCE_VERSION)]
    data = b"".join(parts)
    return struct.pack(">i", len(data)) + data


def _topic(topic: str, batch: bytes) -> object:
    from strandline.protocol.messages.produce import PartitionProduceData, TopicProduceData

    return TopicProduceData(
        name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))]
    )


def batch_of(records: int, size: int) -> bytes:
    """A batch of `records` records with values of `size` bytes, of no producer (repeats are legal)."""
    builder = BatchBuilder()
    for _ in range(records):
        builder.append(1_700_000_000_000, None, b"x" * size, ())
    return builder.build()
