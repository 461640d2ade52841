"""The small values that callers hold: receipts, consumed records, offsets found or committed."""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from ..base.types import NO_EPOCH, TopicPartition
from ..protocol.records import Header

__all__ = [
    "CommittedOffset",
    "ConsumerRecord",
    "GroupMetadata",
    "Header",
    "Headers",
    "OffsetAndTimestamp",
    "ProducerRecord",
    "Receipt",
    "TimestampType",
    "TopicPartition",
    "as_offset",
]


Headers = Iterable[Header] | Mapping[str, bytes | None]  # as callers may give them


class TimestampType(IntEnum):
    """Who set a record's timestamp, with Kafka's numbers."""

    CREATE_TIME = 0  # the producer
    LOG_APPEND_TIME = 1  # the leader, when it appended the record


class Receipt(NamedTuple):
    """Where an acknowledged record is. With acks=0, or a duplicate too old to be known, `offset` is -1."""

    topic: str
    partition: int
    offset: int
    timestamp: int


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


def as_offset(given: int | CommittedOffset) -> CommittedOffset:
    """An offset as callers may give it."""
    return given if isinstance(given, CommittedOffset) else CommittedOffset(given)
