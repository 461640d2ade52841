"""All committed records of a partition, byte for byte: everything that a high watermark has ever covered.

A replica's high watermark commits the records below it. From then on every replica whose high watermark is as
high, and every replica that may lead, must hold the same bytes. Each replica is read once; it is compared
again only after its log was truncated or reopened. Records that all replicas have removed are kept here to
the end.
If a leader had to be elected without proof (`recovered`), records that it lacks are noted as lost; those it
has stay committed. Other replicas count again once they are in the ISR of that leader.
Left to others: when to look (`invariants.py`), what ZooKeeper says (`states.py`), reading a log
(`reading.py`).
Why: docs/decisions/0036-what-is-committed-is-kept-by-the-tester.md
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from ...base.types import TopicPartition
from ...broker.replicas.partition import Partition
from ...protocol.batches import headers
from ...protocol.records import iterate
from ..trace import Violation
from .reading import read


class _Compared:
    """How much of one replica has been compared with what is committed."""

    __slots__ = ("generation", "log", "to")

    def __init__(self, log: Any) -> None:
        self.log, self.generation, self.to = log, log.generation, log.start_offset


class CommittedRecords:
    """The true high watermark of one partition, and all records below it."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.first = 0  # records before it were removed before we read them
        self.end = 0
        self.told_end = 0  # the highest high watermark, even of a replica that cannot be read
        self.lost: dict[int, int] = {}  # offset -> number, of records that no leader has any more
        self.unproven: int | None = None  # a leader elected without proof whose log we have not read yet
        self.whole: set[int] | None = None  # brokers that count since then; None: all of them
        self._data = bytearray()
        self._offsets: list[int] = [0]  # where batches begin, and where the last one ends
        self._places: dict[int, int] = {0: 0}  # offset -> its position in the data
        self._compared: dict[int, _Compared] = {}

    @property
    def numbers(self) -> dict[int, int]:
        """All committed records, even those removed since: offset -> number."""
        return {record.offset: int(record.value or b"-1") for record in iterate(bytes(self._data))}

    def counts(self, id: int) -> bool:
        """Whether this broker's high watermark of the partition counts."""
        return self.unproven is None and (self.whole is None or id in self.whole)

    def note(self, id: int, partition: Partition) -> None:
        """Note a replica's high watermark."""
        if self.counts(id):
            self.told_end = max(self.told_end, partition.high_watermark)

    def look_at(self, id: int, partition: Partition) -> None:
        """Read a replica: records below its high watermark are committed, and must equal those known."""
        if not self.counts(id):
            return
        self.compare(id, partition, min(partition.high_watermark, self.end), "I5")
        if partition.high_watermark > self.end:
            self._extend(id, partition)

    def must_hold(self, id: int, partition: Partition, why: str) -> None:
        """A replica that leads or may lead must hold all committed records."""
        if not self.counts(id):
            return
        if partition.log.end_offset < self.told_end:
            raise Violation(
                f"{why}: the log of {self.tp} on b{id} ends at {partition.log.end_offset}, below "
                f"the committed offset {self.told_end}"
            )
        self.compare(id, partition, self.end, why)

    def compare(self, id: int, partition: Partition, end: int, why: str) -> None:
        """Compare the part below `end` that was not compared yet with what is committed."""
        done = self._compared.get(id)
        log = partition.log
        if done is None or done.log is not log or done.generation != log.generation:
            done = self._compared[id] = _Compared(log)
        done.to = max(done.to, log.start_offset, self.first)
        if end <= done.to:
            return
        start = self._offsets[bisect_right(self._offsets, done.to) - 1]  # a log may begin within a batch
        theirs = read(log, done.to, end)
        ours = self._data[self._places[start] : self._places.get(end, -1)]
        if end not in self._places or theirs != ours:
            raise Violation(
                f"{why}: {self.tp} on b{id} differs from the committed records in [{done.to}, {end})"
            )
        done.to = end

    def _extend(self, id: int, partition: Partition) -> None:
        log = partition.log
        if log.start_offset > self.end:  # removed before we read it
            self._forget_before(log.start_offset)
        data = read(log, self.end, partition.high_watermark)
        at, epoch = self.end, -1
        for position, header in headers(data):
            if header.base_offset != at or header.leader_epoch < epoch:
                raise Violation(
                    f"I9: {self.tp} on b{id}: a batch with offset {header.base_offset}, epoch "
                    f"{header.leader_epoch} follows offset {at}, epoch {epoch}"
                )
            at, epoch = header.next_offset, header.leader_epoch
            self._places[at] = len(self._data) + position + header.size
            self._offsets.append(at)
        if at != partition.high_watermark:
            raise Violation(
                f"I6: {self.tp} on b{id}: the high watermark {partition.high_watermark} is inside a batch"
            )
        self._data += data
        self.end = at
        done = self._compared.setdefault(id, _Compared(log))
        done.to = at

    def _forget_before(self, offset: int) -> None:
        self.first = self.end = offset
        self._data.clear()
        self._offsets, self._places = [offset], {offset: 0}

    # ------------------------------------------------------------ leaders without proof

    def recovered(self, leader: int) -> None:
        """ZooKeeper names a leader that was elected without proof. We do not know yet what it holds."""
        self.unproven, self.whole = leader, set()

    def joined(self, id: int) -> None:
        """A replica is in the ISR of such a leader."""
        if self.whole is not None and self.unproven is None:
            self.whole.add(id)

    def take(self, id: int, partition: Partition) -> dict[int, int]:
        """Read the log of a leader elected without proof: records up to where it agrees stay committed, the
        rest is lost. Returns the lost records: offset -> number.
        """
        log = partition.log
        start = max(log.start_offset, self.first)
        agreed, theirs = min(start, self.end), read(log, start, log.end_offset)
        for position, header in headers(theirs):
            place, after = self._places.get(header.base_offset), self._places.get(header.next_offset)
            batch = theirs[position : position + header.size]
            if place is None or after is None or batch != self._data[place:after]:
                break
            agreed = header.next_offset
        lost = {offset: number for offset, number in self.numbers.items() if offset >= agreed}
        self.lost |= lost
        del self._data[self._places[agreed] :]
        self._offsets = [offset for offset in self._offsets if offset <= agreed]
        self._places = {offset: place for offset, place in self._places.items() if offset <= agreed}
        self.end, self.told_end = agreed, agreed
        self._compared.clear()
        self.unproven, self.whole = None, {id}
        return lost


def same_tails(tp: TopicPartition, replicas: dict[int, Partition]) -> None:
    """Above the high watermarks too, batches with the same offset and epoch are the same batch."""
    first = min(partition.high_watermark for partition in replicas.values())
    seen: dict[tuple[int, int], tuple[int, bytes]] = {}
    for id, partition in replicas.items():
        data = read(partition.log, max(first, partition.log.start_offset), partition.log.end_offset)
        for position, header in headers(data):
            batch = bytes(data[position : position + header.size])
            holder, known = seen.setdefault((header.base_offset, header.leader_epoch), (id, batch))
            if known != batch:
                raise Violation(
                    f"I5: {tp}@{header.base_offset} of epoch {header.leader_epoch} differs "
                    f"between b{holder} and b{id}"
                )


def epochs_match(id: int, partition: Partition) -> None:
    """A replica's leader epoch entries agree with its batches; a leader may also have its own new epoch.

    If the beginning of a log was removed, its first epoch starts at the log start offset.
    """
    log = partition.log
    told: list[tuple[int, int]] = []
    for _, header in headers(read(log, log.start_offset, log.end_offset)):
        if not told or header.leader_epoch > told[-1][0]:
            told.append((header.leader_epoch, max(header.base_offset, log.start_offset)))
    noted = [(int(epoch), int(start)) for epoch, start in log.epochs.entries]
    extra = [entry for entry in noted if entry not in told]
    if [entry for entry in told if entry not in noted] or any(start < log.end_offset for _, start in extra):
        raise Violation(
            f"I9: {partition.tp} on b{id} has the leader epochs {noted}, but its batches have {told}"
        )
