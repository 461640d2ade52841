"""Replicas, topics, logs and disks: one pass over the replicas of a broker, in steps.

What is gathered changes meanwhile, so totals may be of slightly different moments than single series.
Left to others: when to pause (exposition.py).
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ....base.types import NO_LEADER, TopicPartition
from ...replicas.shared import Traffic
from ...replication_metrics import LATE_BY_MS, has_late_transaction, of_cleaning
from . import declared as m
from .page import Page, escaped, labels_text

if TYPE_CHECKING:
    from ...context import BrokerContext
    from ...replicas.partition import Partition

STEP = 50  # replicas between two pauses
REPLICA = "Replica"  # Kafka's name for the client of all fetchers


class _Topic:
    """What is summed up over the partitions of a topic."""

    __slots__ = ("size", "traffic", "under_replicated")

    def __init__(self) -> None:
        self.traffic = Traffic()
        self.size = self.under_replicated = 0


class _Sums:
    """What is summed up over all replicas."""

    def __init__(self) -> None:
        self.topics: dict[str, _Topic] = {}
        self.lags: dict[int, int] = {}
        self.segments = self.size = self.offline = 0
        self.leaders = self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.moving = self.late = 0


def replicas(broker: "BrokerContext", page: Page, each_max: int) -> Iterator[None]:
    """All that is known of the replicas of this broker."""
    hosted = list(broker.replicas.partitions.items())
    singly = len(hosted) <= each_max
    late_from = broker.clock.wall_ms() - broker.config.transactions.timeout_ms_max - LATE_BY_MS
    sums = _Sums()
    for number, (tp, partition) in enumerate(hosted, 1):
        topic = sums.topics.get(tp.topic)
        if topic is None:
            topic = sums.topics[tp.topic] = _Topic()
        size, segments = partition.log.size, len(partition.log.segments)
        topic.traffic.add(partition.traffic)
        topic.size += size
        sums.size += size
        sums.segments += segments
        sums.offline += partition.offline is not None
        _add_role(sums, topic, partition, late_from)
        if singly:
            _put_one(page, tp, partition, size, segments)
        if number % STEP == 0:
            yield
    page.put(m.LEFT_OUT, int(not singly), scope=m.Scope.PARTITION)
    _put_sums(broker, page, sums, len(hosted))
    yield
    yield from _put_topics(broker, page, sums.topics, each_max)


def _add_role(sums: _Sums, topic: _Topic, partition: "Partition", late_from: int) -> None:
    leader, follower = partition.leading, partition.following
    if leader is not None:
        sums.leaders += 1
        is_under = leader.under_replicated
        sums.under_replicated += is_under
        topic.under_replicated += is_under
        sums.under_min_isr += leader.under_min_isr
        sums.at_min_isr += len(leader.isr.members) == leader.min_isr
        sums.moving += leader.is_moving
        sums.late += has_late_transaction(partition, late_from)
    elif follower is not None and follower.leader != NO_LEADER:
        sums.lags[follower.leader] = max(sums.lags.get(follower.leader, 0), partition.missing)


def _put_one(page: Page, tp: TopicPartition, partition: "Partition", size: int, segments: int) -> None:
    """The series of one replica. Written directly: there may be thousands."""
    log, leader, follower = partition.log, partition.leading, partition.following
    labels = f'{{topic="{escaped(tp.topic)}",partition="{tp.partition}"}}'
    values = [
        (m.LOG_SIZE, size),
        (m.LOG_SEGMENTS, segments),
        (m.LOG_START, log.start_offset),
        (m.LOG_END, log.end_offset),
    ]
    if leader is not None:
        watermark = leader.high_watermark
        values += [
            (m.P_UNDER_REPLICATED, int(leader.under_replicated)),
            (m.P_UNDER_MIN_ISR, int(leader.under_min_isr)),
            (m.P_IN_SYNC, len(leader.isr.members)),
            (m.P_REPLICAS, len(leader.replicas)),
            (m.P_STABLE_LAG, watermark - log.last_stable_offset(watermark)),
            (m.P_CURRENT, watermark),
            (m.P_EPOCH, leader.epoch),
        ]
    elif follower is not None and follower.leader != NO_LEADER:
        client = f"ReplicaFetcherThread-0-{follower.leader}"
        page.put(m.P_LAG, partition.missing, clientId=client, topic=tp.topic, partition=tp.partition)
    for metric, value in values:
        page.of(metric).append(f"{metric.name}{labels} {value}")


def _put_sums(broker: "BrokerContext", page: Page, sums: _Sums, hosted: int) -> None:
    isr, shared = broker.isr, broker.shared
    page.put(m.PARTITIONS, hosted)
    page.put(m.LEADERS, sums.leaders)
    page.put(m.UNDER_REPLICATED, sums.under_replicated)
    page.put(m.UNDER_MIN_ISR, sums.under_min_isr)
    page.put(m.AT_MIN_ISR, sums.at_min_isr)
    page.put(m.OFFLINE_REPLICAS, sums.offline)
    page.put(m.REASSIGNING, sums.moving)
    page.put(m.LATE_TRANSACTIONS, sums.late)
    page.put(m.ISR_SHRINKS, isr.shrinks)
    page.put(m.ISR_EXPANDS, isr.expands)
    page.put(m.ISR_FAILED, isr.notes.failed)
    page.put(m.MAX_LAG, max(sums.lags.values(), default=0), clientId=REPLICA)
    for leader, lag in sorted(sums.lags.items()):
        page.put(m.LAG_OF, lag, leader=leader)
    page.put(m.TRUNCATED, shared.truncated_below_watermark)
    page.put(m.REPLICATION_IN, shared.replication_bytes_in)
    page.put(m.REPLICATION_OUT, shared.replication_bytes_out)
    _put_throttles(broker, page)
    page.put(m.SEGMENTS, sums.segments)
    page.put(m.SIZE, sums.size)


def _put_throttles(broker: "BrokerContext", page: Page) -> None:
    leader, follower, now = broker.leader_throttle, broker.fetchers.throttle, broker.shared.loop.time()
    page.put(m.LEADER_RATE, round(leader.byte_rate(now), 1))
    page.put(m.FOLLOWER_RATE, round(follower.byte_rate(now), 1))
    page.put(m.THROTTLED, leader.nbytes, side="leader")
    page.put(m.THROTTLED, follower.nbytes, side="follower")


def _put_topics(
    broker: "BrokerContext", page: Page, topics: Mapping[str, _Topic], each_max: int
) -> Iterator[None]:
    everything = Traffic()
    everything.add(broker.shared.gone_traffic)
    singly = len(topics) <= each_max
    for number, (name, topic) in enumerate(sorted(topics.items()), 1):
        everything.add(topic.traffic)
        if singly:
            _put_traffic(page, topic.traffic, labels_text({"topic": name}))
            page.put(m.TOPIC_SIZE, topic.size, topic=name)
            page.put(m.TOPIC_UNDER_REPLICATED, topic.under_replicated, topic=name)
        if number % STEP == 0:
            yield
    _put_traffic(page, everything, "")
    page.put(m.LEFT_OUT, int(not singly), scope=m.Scope.TOPIC)


def _put_traffic(page: Page, traffic: Traffic, labels: str) -> None:
    for metric, value in (
        (m.MESSAGES_IN, traffic.messages_in),
        (m.BYTES_IN, traffic.bytes_in),
        (m.BYTES_OUT, traffic.bytes_out),
        (m.PRODUCES, traffic.batches_in),
    ):
        page.of(metric).append(f"{metric.name}{labels} {value}")


def disks(broker: "BrokerContext", page: Page, volumes: Mapping[str, tuple[int, int]]) -> Iterator[None]:
    """Log directories and compaction. `volumes`: size and free bytes of each directory, -1 if unknown."""
    places = broker.logs.places
    page.put(m.OFFLINE_DIRS, len(places.offline))
    for directory in places.configured:
        page.put(m.DIR_OFFLINE, int(directory in places.offline), logDirectory=directory)
        page.put(m.DIR_FULL, int(directory in places.full), logDirectory=directory)
        total, free = volumes.get(directory, (-1, -1))
        if total >= 0:
            page.put(m.DIR_FREE, free, logDirectory=directory)
            page.put(m.DIR_SIZE, total, logDirectory=directory)
    cleaning = of_cleaning(broker.cleaning)
    page.put(m.UNCLEANABLE, cleaning["uncleanable-partitions-count"])
    page.put(m.CLEANINGS, cleaning["Cleanings"])
    page.put(m.CLEANINGS_GIVEN_UP, cleaning["CleaningsGivenUp"])
    page.put(m.CLEANING_FAILURES, cleaning["CleaningFailures"])
    page.put(m.CLEANED_BYTES, cleaning["BytesFreed"])
    yield
