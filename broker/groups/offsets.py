"""What a group has committed, and which partition of `__consumer_offsets` keeps it.

An offset counts once its record is committed; the later record wins, in whatever order their acknowledgements
arrive. Left to others: who may commit (group.py), the records (offset_records.py), writing them (groups.py).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...protocol.kinds import TopicPartition

NO_EXPIRY = -1
_INT32 = 1 << 32
_INT32_MIN = -(1 << 31)


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, in 32 bits with sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    result = 0
    for place in range(0, len(units), 2):
        result = (31 * result + (units[place] << 8 | units[place + 1])) % _INT32
    return result - _INT32 if result >= _INT32 // 2 else result


def partition_of(group_id: str, partition_count: int) -> int:
    """Where a group lives. Kafka takes the absolute value, and 0 for the one number that has none."""
    number = java_hash(group_id)
    return 0 if number == _INT32_MIN else abs(number) % partition_count


@dataclass(frozen=True, slots=True)
class Committed:
    """One committed offset, as its record tells it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY


@dataclass(slots=True)
class _Entry:
    committed: Committed
    record_offset: int


class CommittedOffsets:
    """The offsets of one group, by partition."""

    def __init__(self) -> None:
        self._entries: dict[TopicPartition, _Entry] = {}
        self.in_flight = 0  # commits written and not yet committed: the group is in use

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._entries)

    def get(self, partition: TopicPartition) -> Committed | None:
        entry = self._entries.get(partition)
        return entry.committed if entry is not None else None

    def put(self, partition: TopicPartition, committed: Committed, record_offset: int) -> None:
        """Take over a record, unless a later one is known."""
        entry = self._entries.get(partition)
        if entry is None or entry.record_offset < record_offset:
            self._entries[partition] = _Entry(committed, record_offset)

    def drop(self, partitions: Iterable[TopicPartition], record_offset: int) -> None:
        """Take over tombstones that stand at `record_offset` or behind it."""
        for partition in partitions:
            entry = self._entries.get(partition)
            if entry is not None and entry.record_offset < record_offset:
                del self._entries[partition]

    def by_topic(self) -> dict[str, list[tuple[int, Committed]]]:
        """Everything, in an order that does not depend on who committed first."""
        found: dict[str, list[tuple[int, Committed]]] = {}
        for partition in sorted(self._entries):
            entry = self._entries[partition]
            found.setdefault(partition.topic, []).append((partition.partition, entry.committed))
        return found

    def expired(self, now_ms: int, retention_ms: int, empty_since_ms: int | None) -> list[TopicPartition]:
        """What has outlived its retention, counted from when the group was left, or from the commit itself
        for a group that never had members."""
        found = []
        for partition, entry in sorted(self._entries.items(), key=lambda item: item[0]):
            committed = entry.committed
            if committed.expire_ms != NO_EXPIRY:
                until = committed.expire_ms
            else:
                until = max(committed.commit_ms, empty_since_ms or 0) + retention_ms
            if until <= now_ms:
                found.append(partition)
        return found
