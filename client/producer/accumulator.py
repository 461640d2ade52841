"""Gathers records into batches, per partition, until a batch is full, due, or wanted by a flush.

Pure: time is an argument, tokens are opaque. It counts the bytes it holds, so that its owner can push back.
Left to others: order and numbering on the way to the leader (partition_queues.py), sockets (sender.py).
"""

from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from ...base.types import TopicPartition
from ...protocol.compression import Codec
from ...protocol.primitives import Buffer
from ...protocol.records import BatchBuilder, Header
from ..config import ProducerConfig
from .partition_queues import PartitionQueue, ProducerBatch

T = TypeVar("T")

RETRIES_MAX = (1 << 31) - 1
RECORD_OVERHEAD_BYTES = 24  # varints of a record, and its share of bookkeeping


class Limits(NamedTuple):
    """How large batches grow, and how many of a partition are in flight."""

    batch_size: int
    linger: float
    delivery_timeout: float
    in_flight_max: int
    idempotent: bool
    transactional: bool
    retries: int
    codec: int
    level: int | None


class Encoded(NamedTuple):
    """Records as `BatchBuilder.extend` takes them."""

    section: Buffer
    records: int
    base_timestamp: int
    max_timestamp: int


def limits_of(config: ProducerConfig) -> Limits:
    """As the caller wants them."""
    return Limits(
        batch_size=config.batch_size,
        linger=config.linger_ms / 1000,
        delivery_timeout=config.delivery_timeout_ms / 1000,
        in_flight_max=config.max_in_flight,
        idempotent=config.enable_idempotence,
        transactional=config.transactional_id is not None,
        retries=RETRIES_MAX if config.retries is None else config.retries,
        codec=Codec[config.compression_type.upper()],
        level=config.level,
    )


def record_bytes(key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
    """What a record counts for in buffer memory and towards a full batch."""
    size = RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name) + len(content or b"") + 2
    return size


class Accumulator(Generic[T]):
    """All lanes of a producer. A lane is looked at only while it holds something."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lanes: dict[TopicPartition, PartitionQueue[T]] = {}
        self._busy: dict[TopicPartition, PartitionQueue[T]] = {}
        self._births = 0
        self.used = 0  # bytes held
        self.rush = False  # a flush: no batch lingers

    @property
    def busy(self) -> list[PartitionQueue[T]]:
        """Lanes that hold something."""
        return list(self._busy.values())

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is in flight."""
        return not self._busy

    @property
    def topics(self) -> set[str]:
        """Those to which something is to be sent, or is in flight."""
        return {partition.topic for partition in self._busy}

    def lane(self, partition: TopicPartition) -> PartitionQueue[T]:
        """The queue of a partition that has been appended to."""
        return self._lanes[partition]

    def close_all(self) -> int:
        """Close all growing batches. Returns the order of the youngest batch held."""
        for lane in self._busy.values():
            lane.close_growing()
        return self._births

    def oldest(self) -> int | None:
        """The order of the oldest batch held, None when nothing is."""
        orders = [one.order for lane in self._busy.values() for one in lane.held()]
        return min(orders, default=None)

    def append(
        self,
        partition: TopicPartition,
        record: tuple[int, bytes | None, bytes | None, Sequence[Header]],
        token: T,
        now: float,
        size: int,
    ) -> bool:
        """Add a record; True if that closed a batch, so that records without key may change partition."""
        lane = self._busy.get(partition) or self._lane_for(partition)
        batch, closed = lane.growing, False
        if batch is not None and batch.builder.size + size > self._limits.batch_size:
            lane.close_growing()
            batch, closed = None, True
        if batch is None:
            batch = self._open(partition, now)
        batch.builder.append(*record)
        if batch is not lane.growing:  # not earlier: a record that cannot be added opens no batch
            lane.growing, self._busy[partition] = batch, lane
        batch.tokens.append(token)
        batch.reserved += size
        self.used += size
        return closed

    def growing(self, partition: TopicPartition) -> BatchBuilder | None:
        """The batch that the next records of a partition would join."""
        lane = self._busy.get(partition)
        return None if lane is None or lane.growing is None else lane.growing.builder

    def close(self, partition: TopicPartition) -> None:
        """The growing batch is full: the next records go into another one."""
        self._lanes[partition].close_growing()

    def extend(self, partition: TopicPartition, records: Encoded, token: T, now: float) -> None:
        """Add records that were encoded for the growing batch, or for a new one, with one token for all."""
        lane = self._busy.get(partition) or self._lane_for(partition)
        batch = lane.growing or self._open(partition, now)
        batch.builder.extend(*records)
        lane.growing, self._busy[partition] = batch, lane
        batch.tokens.append(token)
        batch.reserved += len(records.section)
        self.used += len(records.section)

    def is_due(self, lane: PartitionQueue[T], now: float) -> bool:
        """Whether a batch of the queue should leave, as far as lingering, backoff and order are concerned."""
        if not lane.may_send or lane.head is None or now < lane.not_before:
            return False
        if lane.again or lane.closed or self.rush:
            return True
        growing = lane.growing
        return growing is not None and (
            growing.builder.size >= self._limits.batch_size or now >= growing.opened_at + self._limits.linger
        )

    def wake_at(self) -> float:
        """The next time at which something may become due or late."""
        soonest = float("inf")
        for lane in self._busy.values():
            head = lane.head
            if head is not None and lane.may_send:
                due = head.opened_at + self._limits.linger if head is lane.growing and not self.rush else 0.0
                soonest = min(soonest, max(due, lane.not_before))
            for batch in (head, *lane.in_flight):
                if batch is not None and not batch.is_expired:
                    soonest = min(soonest, batch.deadline)
        return soonest

    def expire(self, now: float) -> list[ProducerBatch[T]]:
        """Batches that have timed out, so their callers must be told. Their memory is released."""
        late = [batch for lane in self.busy for batch in lane.expire(now)]
        for batch in late:
            self.release(batch)
        return late

    def release(self, batch: ProducerBatch[T]) -> None:
        """The batch's callers know the outcome: release its memory; an empty queue is no longer busy."""
        self.used -= batch.reserved
        batch.reserved = 0
        lane = self._lanes[batch.partition]
        if lane.is_idle:
            self._busy.pop(batch.partition, None)

    def split(self, batch: ProducerBatch[T]) -> bool:
        """Split a batch that is too large for the broker into halves. False if it cannot be split."""
        if not self._lanes[batch.partition].split(batch):
            return False
        batch.reserved, batch.tokens = 0, []  # the halves have them now
        return True

    def hasten(self) -> None:
        """Leaders may have changed: end all backoffs."""
        for lane in self._busy.values():
            lane.not_before = 0.0

    def abandon(self) -> list[ProducerBatch[T]]:
        """Give up and return all batches whose callers still wait: the producer closes, or cannot send."""
        held = [batch for lane in self.busy for batch in lane.abandon()]
        for batch in held:
            self.release(batch)
        return held

    def abandon_unsent(self) -> list[ProducerBatch[T]]:
        """Give up and return what was never sent, and what cannot be sent any more."""
        held = [batch for lane in self.busy for batch in lane.abandon_unsent()]
        for batch in held:
            self.release(batch)
        return held

    def number_anew(self) -> None:
        """The producer has another identity: every partition's numbers begin again."""
        assert self.is_empty, "a batch on its way would keep its old number"
        for lane in self._lanes.values():
            lane.identity = lane.retired = None

    def _lane_for(self, partition: TopicPartition) -> PartitionQueue[T]:
        lane = self._lanes.get(partition)
        if lane is None:
            limits = self._limits
            lane = PartitionQueue(
                partition, limits.in_flight_max, limits.idempotent, limits.retries, limits.transactional
            )
            self._lanes[partition] = lane
        return lane

    def _open(self, partition: TopicPartition, now: float) -> ProducerBatch[T]:
        self._births += 1
        limits = self._limits
        builder = BatchBuilder(limits.codec, transactional=limits.transactional, level=limits.level)
        return ProducerBatch(partition, self._births, builder, now, now + self._limits.delivery_timeout)
