"""What a group has committed.

An offset counts once its record is committed, even if its client was told before that it took too long. One
of a transaction is pending until the transaction's marker is committed too. The record later in the log wins,
whatever order acknowledgements and markers come in, and whether it is an offset or a tombstone: compaction
keeps no other.
Left to others: who may commit (group.py), the records (offset_records.py), writing them (coordinator.py,
transactional_commits.py), when offsets are removed (forgetting.py).
Sources: GroupMetadata of Kafka 3.9; for tombstones and retention of what is pending, OffsetMetadataManager.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping

from ...base.types import TopicPartition
from ...base.values import dataclass

NO_EXPIRY = -1


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """One committed offset, as its record has it."""

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
    """Offsets in one batch that is not committed yet, each with the offset of its record. They are committed
    when all before `end_offset` is.
    """

    offsets: dict[TopicPartition, _Entry]
    end_offset: int


class CommittedOffsets:
    """The offsets of one group, by partition."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, _Entry]] = {}
        self._size = 0
        self._flights: list[Flight] = []
        self._late: list[Flight] = []  # of these: what a commit is awaited of, and all that is behind it
        self._pending: dict[int, dict[TopicPartition, _Entry]] = {}  # by producer id

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[TopicPartition]:
        return (TopicPartition(topic, each) for topic, entries in self._topics.items() for each in entries)

    @property
    def in_flight(self) -> set[TopicPartition]:
        """Partitions with a commit that is written but not committed yet. The group is in use: a tombstone
        written now would come after that commit and delete it.
        """
        return {partition for flight in self._flights for partition in flight.offsets}

    @property
    def pending(self) -> set[TopicPartition]:
        """Partitions for which a transaction has committed an offset and has not ended."""
        return {partition for entries in self._pending.values() for partition in entries}

    def is_pending(self, partition: TopicPartition) -> bool:
        return any(partition in entries for entries in self._pending.values())

    @property
    def unsettled(self) -> set[TopicPartition]:
        """Partitions whose offset may soon be another without any further request."""
        return self.in_flight | self.pending

    @property
    def producers(self) -> Iterable[int]:
        """Who has offsets pending in a transaction."""
        return self._pending.keys()

    @property
    def are_in_use(self) -> bool:
        """Whether anything would be lost if they were thrown away."""
        return bool(self._size or self._flights or self._pending)

    def get(self, partition: TopicPartition) -> GroupOffset | None:
        entry = self._entry(partition)
        return entry.committed if entry is not None else None

    def take_off(self, offsets: Mapping[TopicPartition, GroupOffset], base_offset: int) -> Flight:
        """These are about to be written, as one batch at `base_offset`. The caller must `land` the flight in
        the end.
        """
        entries = enumerate(offsets.items(), base_offset)
        flight = Flight(
            {tp: _Entry(committed, offset) for offset, (tp, committed) in entries}, base_offset + len(offsets)
        )
        self._flights.append(flight)
        return flight

    def land(self, flight: Flight, *, committed: bool) -> None:
        """The batch is committed; or it was refused, or this broker will not learn what becomes of it."""
        self._flights.remove(flight)
        if committed:
            for partition, entry in flight.offsets.items():
                self.put(partition, entry.committed, entry.record_offset)

    def put_off(self, flight: Flight) -> Flight | None:
        """Nobody waits for this batch any more. Returns it if the caller must call `land_late` when it is
        committed. Else another one is awaited already, and it is kept with what is behind that one, of each
        partition the later record: while nothing can be committed, clients try again and again.
        """
        if len(self._late) < 2:
            self._late.append(flight)
            return flight if len(self._late) == 1 else None
        behind = self._late[1]
        self._flights.remove(flight)
        for partition, entry in flight.offsets.items():
            known = behind.offsets.get(partition)
            if known is None or known.record_offset < entry.record_offset:
                behind.offsets[partition] = entry
        behind.end_offset = max(behind.end_offset, flight.end_offset)
        return None

    def land_late(self, *, committed: bool) -> Flight | None:
        """What was awaited is committed, or this broker will not learn what becomes of it, nor of the rest.
        Returns what is to be awaited next.
        """
        awaited, *behind = self._late
        self._late = behind if committed else []
        self.land(awaited, committed=committed)
        for flight in () if committed else behind:
            self.land(flight, committed=False)
        return behind[0] if behind and committed else None

    def put(self, partition: TopicPartition, committed: GroupOffset, record_offset: int) -> None:
        """Keep the offset of this record, unless a later record is known."""
        assert record_offset >= 0, "an offset counts once its record is in the log"
        entry = self._entry(partition)
        if entry is None:
            self._size += 1
        if entry is None or entry.record_offset < record_offset:
            entries = self._topics.setdefault(partition.topic, {})
            entries[partition.partition] = _Entry(committed, record_offset)

    def pend(
        self, producer_id: int, partition: TopicPartition, committed: GroupOffset, record_offset: int
    ) -> None:
        """This record is in the log, and is part of the producer's open transaction: its coordinator lets no
        other begin before the markers of the last are committed.
        """
        assert record_offset >= 0, "an offset is pending once its record is in the log"
        self._pending.setdefault(producer_id, {})[partition] = _Entry(committed, record_offset)

    def transaction_ended(self, producer_id: int, committed: bool, marker_offset: int) -> None:
        """The marker of the producer's transaction is committed. What is pending behind the marker belongs to
        the producer's next transaction.
        """
        entries = self._pending.pop(producer_id, {})
        if later := {tp: entry for tp, entry in entries.items() if entry.record_offset > marker_offset}:
            self._pending[producer_id] = later
        for partition, entry in entries.items():
            if committed and partition not in later:
                self.put(partition, entry.committed, entry.record_offset)

    def drop(self, partitions: Iterable[TopicPartition], record_offset: int) -> None:
        """Apply tombstones written at `record_offset` or after it."""
        for partition in partitions:
            entry = self._entry(partition)
            if entry is not None and entry.record_offset < record_offset:
                self._remove(partition)
            for flight in self._flights:
                if partition in flight.offsets and flight.offsets[partition].record_offset < record_offset:
                    del flight.offsets[partition]
            self._unpend(partition, record_offset)

    def forget(self, gone: Mapping[str, Collection[int]]) -> list[TopicPartition]:
        """Partitions (by topic) were deleted: their offsets are void at once, those in flight too. Returns
        the partitions that had any; their tombstones must be written.
        """
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
        if self._pending:
            for partition in sorted(tp for tp in self.pending if tp.partition in gone.get(tp.topic, ())):
                self._unpend(partition)
                found[partition] = None
        return list(found)

    def by_topic(self) -> dict[str, list[tuple[int, GroupOffset]]]:
        """All offsets, sorted by topic and partition."""
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
        """Offsets past their retention. It counts from when the group became empty; for a group that never
        had members, or still has some, from the commit. Offsets of `subscribed` topics stay.
        """
        found = []
        unsettled = self.unsettled
        for topic, commits in self.by_topic().items():
            if topic in subscribed:
                continue
            for number, committed in commits:
                if committed.expire_ms != NO_EXPIRY:
                    until = committed.expire_ms
                else:
                    until = max(committed.commit_ms, empty_since_ms or 0) + retention_ms
                partition = TopicPartition(topic, number)
                if until <= now_ms and partition not in unsettled:
                    found.append(partition)
        return found

    def _entry(self, partition: TopicPartition) -> _Entry | None:
        entries = self._topics.get(partition.topic)
        return None if entries is None else entries.get(partition.partition)

    def _unpend(self, partition: TopicPartition, before: int | None = None) -> None:
        """Forget what is pending for this partition, from records before this one or any."""
        for producer_id, entries in list(self._pending.items()):
            entry = entries.get(partition)
            if entry is not None and (before is None or entry.record_offset < before):
                del entries[partition]
                if not entries:
                    del self._pending[producer_id]

    def _remove(self, partition: TopicPartition) -> None:
        entries = self._topics[partition.topic]
        del entries[partition.partition]
        self._size -= 1
        assert self._size >= 0
        if not entries:
            del self._topics[partition.topic]
