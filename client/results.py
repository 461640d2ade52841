"""The small values that callers hold: receipts, consumed records, offsets found or committed."""

from typing import Any, NamedTuple

from ..base.types import TopicPartition
from ..protocol.records import Header

__all__ = ["CommittedOffset", "ConsumerRecord", "Header", "OffsetAndTimestamp", "Receipt", "TopicPartition"]


class Receipt(NamedTuple):
    """Where an acknowledged record is. With acks=0, or a duplicate too old to be known, `offset` is -1."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class ConsumerRecord(NamedTuple):
    """A record as the consumer hands it out, key and value deserialized."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: Any
    value: Any
    headers: tuple[Header, ...]


class OffsetAndTimestamp(NamedTuple):
    """The first offset whose record is not older than what was asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


class CommittedOffset(NamedTuple):
    """What a group committed: the next offset to read, and a note."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
