"""The topics of the matrix, each of them a case of its own, with records that follow from their offsets."""

import time
from random import Random

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

BEGAN_MS = 1_767_225_600_000  # 2026-01-01
STEP_MS = 1000  # from record to record
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
COMPACT_S_MAX = 60
KEYS, UPDATES, ONCE_IN = 10, 600, 25

SIZES = {
    "plain": (10, 20, 30),  # batches of five, each in another codec
    "skewed": (1, 10, 200),
    "half": (5, 0),
    "empty": (0, 0),
    "appended": (20,),  # LogAppendTime
    "deleted": (40, 40),  # the first DELETED of partition 0 are gone
    "compacted": (UPDATES,),  # most are gone
    "name.a": (5,),
    "name.ab": (5,),
    "sur.name.a": (5,),
}
"""Records ever produced, by partition."""

CONFIGS = {
    "appended": {"message.timestamp.type": "LogAppendTime"},
    "compacted": {
        "cleanup.policy": "compact",
        "segment.bytes": "16384",
        "min.cleanable.dirty.ratio": "0.01",
    },
}
DELETED = 15
PER_BATCH = 5


def fill(bootstrap: str) -> None:
    """Make all topics; returns when nothing about them changes any more."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    made = admin.create_topics(
        [NewTopic(name, len(sizes), 3, config=CONFIGS.get(name, {})) for name, sizes in SIZES.items()]
    )
    for each in made.values():
        each.result(60)
    for name, sizes in SIZES.items():
        for partition, size in enumerate(sizes):
            produce(bootstrap, name, partition, 0, size)
    for each in admin.delete_records([TopicPartition("deleted", 0, DELETED)]).values():
        each.result(60)
    _wait_compacted(bootstrap)


def produce(bootstrap: str, topic: str, partition: int, start: int, count: int) -> None:
    """Records from `start` on, in batches of five, or of fifty where it is compaction that counts."""
    per_batch = 10 * PER_BATCH if topic in CONFIGS or count > 100 else PER_BATCH
    producers = [
        Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 60_000})
        for codec in CODECS
    ]
    for first in range(start, start + count, per_batch):
        producer = producers[first // per_batch % len(CODECS)]
        for number in range(first, min(first + per_batch, start + count)):
            producer.produce(
                topic,
                value(topic, number),
                key(topic, number),
                partition,
                timestamp=BEGAN_MS + number * STEP_MS,
                headers=headers(number),
            )
        assert producer.flush(60) == 0


def key(topic: str, number: int) -> bytes | None:
    """None, empty, and text that is not ASCII; a few of them again and again where they must be keys."""
    if topic == "compacted":
        return b"once %d" % number if number % ONCE_IN == 0 else b"key %d" % (number * 7 % KEYS)
    return (None, b"", b"key %d" % number, "Schlüssel".encode())[number % 4]


def value(topic: str, number: int) -> bytes | None:
    """None, empty, bytes that are no text, and long ones; of one size where segments are to be filled."""
    if topic == "compacted":
        return Random(number).randbytes(100)
    return (None, b"", b"\xff\x00", b"value %d" % number, b"x" * 2000)[number % 5]


def headers(number: int) -> list[tuple[str, bytes | None]]:
    """None at all, or two of one name, a null and an empty one."""
    return [("a", b"%d" % number), ("a", None), ("ü", b"")] if number % 3 == 0 else []


def _wait_compacted(bootstrap: str) -> None:
    """Until only the last record of each key is left of the closed segments, twice in a row."""
    deadline, before = time.monotonic() + COMPACT_S_MAX, -1
    while True:
        found = _records(bootstrap, "compacted")
        if found == before and found < UPDATES / 2:
            return
        assert time.monotonic() < deadline, f"compaction has left {found} records"
        before = found
        time.sleep(0.5)


def _records(bootstrap: str, topic: str) -> int:
    options = {"bootstrap.servers": bootstrap, "group.id": "-", "enable.auto.commit": False}
    consumer = Consumer({**options, "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found = 0
    while (message := consumer.poll(30)) is not None and message.error() is None:
        found += 1
    consumer.close()
    assert message is not None, "the partition has no end"
    return found
