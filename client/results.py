"""The small values that callers hold: receipts, consumed records, offsets found or committed."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from ..base.types import NO_EPOCH, TopicPartition
from ..protocol.records import Header

__all__ = [
    "CommittedOffset",
    "ConsumerRecord",
    "Durability",
    "GroupMetadata",
    "Header",
    "Headers",
    "OffsetAndTimestamp",
    "ProducerRecord",
    "Receipt",
    "ReplicaCopy",
    "TimestampType",
    "TopicPartition",
]


Headers = Iterable[Header] | Mapping[str, bytes | None]  # as callers may give them


class TimestampType(IntEnum):
    """Who set a record's timestamp, with Kafka's numbers."""

    CREATE_TIME = 0  # the producer
    LOG_APPEND_TIME = 1  # the leader, when it appended the record


class ReplicaCopy(NamedTuple):
    """An in-sync replica that had a record when it was acknowledged.

    `after_us`: how many microseconds after the append on the leader it was known to have it; 0 for the
    leader, None if it had it already when it was sent again.
    """

    broker: int
    after_us: int | None

    def __str__(self) -> str:
        if self.after_us is None:
            return f"{self.broker} (before)"
        return f"{self.broker} (+{self.after_us / 1000:.1f} ms)" if self.after_us else str(self.broker)


class Durability(NamedTuple):
    """Who had a record when it was acknowledged (acks=all); the leader is the first of `copies`.

    `replicas` is how many the partition has, `min_isr` how many acks=all asks for at least. `is_flushed`: it
    was on the leader's disk; else in its page cache, which a crash of the process does not lose, but a power
    loss does.
    """

    copies: tuple[ReplicaCopy, ...]
    replicas: int
    min_isr: int
    is_flushed: bool

    @property
    def brokers(self) -> tuple[int, ...]:
        """The brokers that had it, the leader first."""
        return tuple(copy.broker for copy in self.copies)

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, for JSON."""
        return self._asdict() | {"copies": [copy._asdict() for copy in self.copies]}

    def __str__(self) -> str:
        """One line, e.g. `broker 1, 2 (+1.2 ms), 3 (+1.9 ms); 3 of 3 replicas, in page cache`."""
        holders = ", ".join(map(str, self.copies))
        where = "flushed" if self.is_flushed else "in page cache"
        alone = "; acks=all meant one replica" if len(self.copies) == 1 else ""
        return f"broker {holders}; {len(self.copies)} of {self.replicas} replicas, {where}{alone}"


class Receipt(NamedTuple):
    """Where an acknowledged record is. With acks=0, or a duplicate too old to be known, `offset` is -1."""

    topic: str
    partition: int
    offset: int
    timestamp: int

    @property
    def durability(self) -> Durability | None:
        """Who had the record; None unless the producer asks (`ask_durability`) and the broker tells."""
        return None


class DurableReceipt(Receipt):
    """A receipt that tells who had the record. Equal to one that does not, if the record is the same."""

    _durability: Durability | None

    @property
    def durability(self) -> Durability | None:
        """Who had the record."""
        return self._durability


def receipt_of(
    topic: str, partition: int, offset: int, timestamp: int, durability: Durability | None
) -> Receipt:
    """A receipt, with its durability if that is known."""
    if durability is None:
        return Receipt(topic, partition, offset, timestamp)
    receipt = DurableReceipt(topic, partition, offset, timestamp)
    receipt._durability = durability
    return receipt


class ProducerRecord(NamedTuple):
    """A record as it was given to `send`, before key and value are serialized."""

    topic: str
    value: Any
    key: Any
    partition: int | None
    headers: Headers | None
    timestamp_ms: int | None


class ConsumerRecord(NamedTuple):
    """A record as the consumer hands it out, key and value deserialized."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: tuple[Header, ...]
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    leader_epoch: int = NO_EPOCH  # of the leader that appended it


class OffsetAndTimestamp(NamedTuple):
    """The first offset whose record is not older than what was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


class GroupMetadata(NamedTuple):
    """A group, and which of its members commits; the default is none, which nobody checks."""

    group: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None

    @property
    def is_member(self) -> bool:
        """Whether the coordinator can check the membership."""
        return bool(self.member_id)


class CommittedOffset(NamedTuple):
    """What a group committed: the next offset to read, and a note."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
