"""What a group has committed, and which partition of `__consumer_offsets` keeps it.

An offset counts once its record is committed; the later record wins, in whatever order their acknowledgements
arrive. Left to others: who may commit (group.py), the records (offset_records.py), writing them
(coordinator.py), when offsets are forgotten (forgetting.py).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from ...base.types import TopicPartition
from ...base.values import dataclass

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
class GroupOffset:
    """One committed offset, as its record tells it."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = NO_EXPIRY


@dataclass(slots=True)
class _Entry:
    committed: GroupOffset
    record_offset: int


@dataclass(slots=True, eq=False)
class Flight:
    """Offsets written in one batch whose records are not acknowledged yet, with their places in it."""

    offsets: dict[TopicPartition, tuple[int, GroupOffset]]


class CommittedOffsets:
    """The offsets of one group, by partition."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, _Entry]] = {}
        self._size = 0
        self._flights: list[Flight] = []

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[TopicPartition]:
        return (TopicPartition(topic, each) for topic, entries in self._topics.items() for each in entries)

    @property
    def in_flight(self) -> set[TopicPartition]:
        """Partitions with a commit that is written and not acknowledged: the group is in use, and a
        tombstone written now would stand behind that commit and delete it."""
        return {partition for flight in self._flights for partition in flight.offsets}

    def get(self, partition: TopicPartition) -> GroupOffset | None:
        entry = self._entry(partition)
        return entry.committed if entry is not None else None

    def take_off(self, offsets: Mapping[TopicPartition, GroupOffset]) -> Flight:
        """These are about to be written. Every flight is landed."""
        flight = Flight({tp: (place, committed) for place, (tp, committed) in enumerate(offsets.items())})
        self._flights.append(flight)
        return flight

    def land(self, flight: Flight, base_offset: int | None) -> None:
        """The batch is committed at `base_offset`, or was refused (None)."""
        self._flights.remove(flight)
        if base_offset is not None:
            for partition, (place, committed) in flight.offsets.items():
                self.put(partition, committed, base_offset + place)

    def put(self, partition: TopicPartition, committed: GroupOffset, record_offset: int) -> None:
        """Take over a record, unless a later one is known."""
        entry = self._entry(partition)
        if entry is None:
            self._size += 1
        if entry is None or entry.record_offset < record_offset:
            entries = self._topics.setdefault(partition.topic, {})
            entries[partition.partition] = _Entry(committed, record_offset)

    def drop(self, partitions: Iterable[TopicPartition], record_offset: int) -> None:
        """Take over tombstones that stand at `record_offset` or behind it."""
        for partition in partitions:
            entry = self._entry(partition)
            if entry is not None and entry.record_offset < record_offset:
                self._remove(partition)

    def forget(self, gone: Mapping[str, Collection[int]]) -> list[TopicPartition]:
        """Partitions (by topic) were deleted: what was committed for them is void at once, also what is
        in flight. Returns those of which there was any; their tombstones are to be written."""
        found: dict[TopicPartition, None] = {}
        for topic in gone.keys() & self._topics.keys():
            for number in sorted(self._topics[topic].keys() & gone[topic]):
                found[TopicPartition(topic, number)] = None
        for partition in found:
            self._remove(partition)
        for flight in self._flights:
            for partition in [tp for tp in flight.offsets if tp.partition in gone.get(tp.topic, ())]:
                del flight.offsets[partition]
                found[partition] = None
        return list(found)

    def by_topic(self) -> dict[str, list[tuple[int, GroupOffset]]]:
        """Everything, in an order that does not depend on who committed first."""
        return {
            topic: [(each, entries[each].committed) for each in sorted(entries)]
            for topic, entries in sorted(self._topics.items())
        }

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        empty_since_ms: int | None,
        subscribed: Collection[str] = frozenset(),
    ) -> list[TopicPartition]:
        """What has outlived its retention, counted from when the group was left, or from the commit itself
        for a group that never had members or still has some. Topics that are subscribed to keep theirs."""
        found = []
        in_flight = self.in_flight
        for topic, commits in self.by_topic().items():
            if topic in subscribed:
                continue
            for number, committed in commits:
                if committed.expire_ms != NO_EXPIRY:
                    until = committed.expire_ms
                else:
                    until = max(committed.commit_ms, empty_since_ms or 0) + retention_ms
                partition = TopicPartition(topic, number)
                if until <= now_ms and partition not in in_flight:
                    found.append(partition)
        return found

    def _entry(self, partition: TopicPartition) -> _Entry | None:
        entries = self._topics.get(partition.topic)
        return None if entries is None else entries.get(partition.partition)

    def _remove(self, partition: TopicPartition) -> None:
        entries = self._topics[partition.topic]
        del entries[partition.partition]
        self._size -= 1
        if not entries:
            del self._topics[partition.topic]
