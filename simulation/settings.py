"""The settings of a world: those that all share, and those that the seed draws.

Left to others: what each family adds, and how often (`families.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .cluster import SESSION_S
from .families import TWO_DIRS, Family

SETTINGS = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "num.partitions=2",
    "offsets.topic.num.partitions=2",
    "offsets.topic.replication.factor=3",
    "transaction.state.log.num.partitions=2",
    "transaction.state.log.replication.factor=3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms=500",
    "group.initial.rebalance.delay.ms=0",
    "replica.lag.time.max.ms=1500",
    f"zookeeper.session.timeout.ms={int(SESSION_S * 1000)}",
    "listener.security.protocol.map=CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name=INTERNAL",
    "zookeeper.connect=zookeeper:2181",
    "log.dirs=/data",
    "log.flush.offset.checkpoint.interval.ms=1000",
    "replica.high.watermark.checkpoint.interval.ms=1000",
    "log.retention.check.interval.ms=1000",
    "log.segment.delete.delay.ms=1000",
    "log.cleaner.backoff.ms=500",
    "log.cleaner.min.cleanable.ratio=0.01",
    "log.cleaner.dedupe.buffer.size=65536",
)
SMALL = 0.9
"""The share of worlds with small segments; in the others a log hardly ever has a second one."""
SEGMENT_BYTES = (1024, 2048, 4096)
KEPT_SEGMENTS = 5
"""How many segments' worth retention by size keeps, in worlds that have it."""


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """What differs between worlds before anything has happened."""

    broker: tuple[str, ...]
    topic: dict[str, str]  # of the judged topic
    patience_ms: int  # the producer's request timeout
    interleaves: bool  # threads pause at each call to a file


def drawn(family: Family, random: Random) -> WorldSettings:
    """Draw the settings of one world."""
    broker: list[str] = []
    topic = {"min.insync.replicas": "2"}
    if random.random() < SMALL:
        size = random.choice(SEGMENT_BYTES)
        broker += [
            f"log.segment.bytes={size}",
            "offsets.topic.segment.bytes=1024",
            "transaction.state.log.segment.bytes=1024",
        ]
        broker.append("log.index.interval.bytes=100")
        if random.random() < 0.5:
            topic["retention.bytes"] = str(KEPT_SEGMENTS * size)
    if random.random() < 0.5:
        broker += TWO_DIRS
    if family.sometimes and random.random() < 0.5:
        broker += family.sometimes
    return WorldSettings(
        (*SETTINGS, *broker, *family.settings),
        topic,
        random.choice(family.patience_ms),
        random.random() < family.interleaves,
    )
