"""What the conformance tests of storage write, to a broker of either kind, and what the fixtures hold.

Each function takes the address of one broker. Keys, values and timestamps are always the same.
"""

import time
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_peer import QUIET

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
START_MS = 1_700_000_000_000
SMALL_SEGMENTS = {"segment.bytes": "4096", "index.interval.bytes": "256", "segment.index.bytes": "480"}
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "codecs": (5, SMALL_SEGMENTS),
    "times": (1, SMALL_SEGMENTS),
    "epochs": (1, {}),
    "append-time": (1, {"message.timestamp.type": "LogAppendTime"}),
    "idempotent": (1, SMALL_SEGMENTS),
    "gone": (1, SMALL_SEGMENTS),
    "transactions": (1, {}),
    "settings": (1, {"preallocate": "true", "segment.jitter.ms": "9", "segment.index.bytes": "480"}),
    "compacted": (
        1,
        {
            **SMALL_SEGMENTS,
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "86400000",
            "segment.ms": "600000",
        },
    ),
}


def create_topics(bootstrap: str, *names: str) -> None:
    """Topics of these names (all, when none is said), with a replica on one broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    wanted = [NewTopic(name, TOPICS[name][0], 1, config=TOPICS[name][1]) for name in names or TOPICS]
    for future in admin.create_topics(wanted).values():
        future.result(30)


def produce(
    bootstrap: str,
    topic: str,
    rows: list[tuple[bytes | None, bytes | None]],
    partition: int = 0,
    times: list[int] | None = None,
    per_batch: int = 10,
    **options: Any,
) -> None:
    """Write records, so many a batch, each with a header or two."""
    dotted = {name.replace("_", "."): value for name, value in options.items()}
    producer = Producer({"bootstrap.servers": bootstrap, **QUIET, "linger.ms": 50, **dotted})
    for number, (key, value) in enumerate(rows):
        headers = [("number", str(number).encode()), ("null", None)][: number % 3]
        stamp = times[number] if times else START_MS + number
        producer.produce(topic, value, key, partition, timestamp=stamp, headers=headers)
        if number % per_batch == per_batch - 1:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0


def numbered(count: int, width: int = 40) -> list[tuple[bytes | None, bytes | None]]:
    """Records that compress, with null keys and null values among them."""
    return [
        (None if n % 7 == 3 else f"key-{n % 5}".encode(), None if n % 11 == 5 else f"{n:0{width}d}".encode())
        for n in range(count)
    ]


def write_codecs(bootstrap: str) -> None:
    """A partition for each codec, with several segments where nothing is compressed."""
    for partition, codec in enumerate(CODECS):
        produce(bootstrap, "codecs", numbered(120), partition, compression_type=codec)


def write_times(bootstrap: str) -> None:
    """Timestamps that go back and forth, over several segments; and a topic whose times the broker sets."""
    times = [START_MS + (number * 7919) % 5003 for number in range(150)]
    produce(bootstrap, "times", numbered(150), times=times, per_batch=7)
    produce(bootstrap, "append-time", numbered(12), per_batch=4, compression_type="lz4")


def write_compacted(bootstrap: str) -> None:
    """Keys that come again, and tombstones."""
    texts = [
        (f"only-{n}" if n % 7 == 2 else f"key-{n % 23}", None if n % 31 == 30 else f"{n:060d}")
        for n in range(300)
    ]
    rows = [(key.encode(), None if value is None else value.encode()) for key, value in texts]
    produce(bootstrap, "compacted", rows, compression_type="zstd", per_batch=6)
    produce(bootstrap, "compacted", rows[:100], per_batch=6)


def wait_cleaned(*dirs: Path) -> None:
    """Until the cleaner has gone over all of `compacted` that it can, and has said so in its checkpoint."""
    deadline = time.monotonic() + 60
    while True:
        logs = [path for directory in dirs for path in directory.glob("compacted-0/*.log")]
        said = [
            path.read_text() for directory in dirs for path in directory.glob("cleaner-offset-checkpoint")
        ]
        if any(f"compacted 0 {max(int(path.stem) for path in logs)}\n" in text for text in said):
            return
        assert time.monotonic() < deadline, (sorted(logs), said)
        time.sleep(0.1)


def write_idempotent(bootstrap: str, start_ms: int = START_MS) -> None:
    """Three producers with sequences. Kafka forgets those whose records are a day old when it starts."""
    for name in (b"a", b"b", b"c"):
        rows: list[tuple[bytes | None, bytes | None]] = [(name, f"{n:050d}".encode()) for n in range(40)]
        times = [start_ms + n for n in range(len(rows))]
        produce(bootstrap, "idempotent", rows, times=times, enable_idempotence=True, per_batch=4)


def write_transactions(bootstrap: str) -> None:
    """One that commits, one that aborts, one that commits again."""
    producer = Producer({"bootstrap.servers": bootstrap, **QUIET, "transactional.id": "fixture"})
    producer.init_transactions(30)
    for number, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        for n in range(3):
            producer.produce("transactions", f"{number}-{n}", b"key", timestamp=START_MS + n)
        if commits:
            producer.commit_transaction(30)
        else:
            producer.flush(30)
            producer.abort_transaction(30)
    produce(bootstrap, "transactions", [(b"key", b"outside")])


def write_group(bootstrap: str) -> None:
    """A group that reads and commits, and one that only commits."""
    options = {"bootstrap.servers": bootstrap, **QUIET, "auto.offset.reset": "earliest"}
    member = Consumer({**options, "group.id": "readers", "enable.auto.commit": False})
    member.subscribe(["codecs"])
    while not member.consume(10, 1):
        pass
    member.commit(asynchronous=False)
    member.close()
    alone = Consumer({**options, "group.id": "alone"})
    place = TopicPartition("times", 0, 77, metadata="seventy-seven", leader_epoch=0)
    alone.commit(offsets=[place], asynchronous=False)
    alone.commit(offsets=[TopicPartition("epochs", 0, 1)], asynchronous=False)
    alone.close()
