"""What is committed, as nobody in the world knows it: all that a watermark has ever covered, byte for byte.

A high watermark commits what lies below it on the replica that holds it; from then on every replica that
knows as much, and every replica that may lead, holds the very same bytes. Each replica is read once: what has
been compared is compared again only after its log was cut or opened anew. What all replicas have let go is
kept here to the end.
When a leader had to be elected without proof (`recovered`), what it has not got is lost and named; what it
has is committed as before. Others count again as soon as they are in the ISR of such a leader.
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
from .reading import read


class Violation(Exception):
    """Something that must hold did not."""


class _Compared:
    """How much of one replica has been held against what is committed."""

    __slots__ = ("generation", "log", "to")

    def __init__(self, log: Any) -> None:
        self.log, self.generation, self.to = log, log.generation, log.start_offset


class CommittedRecords:
    """The true high watermark of one partition, and all before it."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.first = 0  # what came before it was let go before it was looked at
        self.end = 0
        self.told_end = 0  # the highest watermark, also one of a replica that cannot be read
        self.lost: dict[int, int] = {}  # offset -> number, of what no leader has any more
        self.unproven: int | None = None  # who was elected so, as long as its log has not been looked at
        self.whole: set[int] | None = None  # who counts since then; None: everybody
        self._data = bytearray()
        self._offsets: list[int] = [0]  # where batches begin, and where the last one ends
        self._places: dict[int, int] = {0: 0}  # offset -> where it begins in the data
        self._compared: dict[int, _Compared] = {}

    @property
    def numbers(self) -> dict[int, int]:
        """All that is committed, let go or not: offset -> number."""
        return {record.offset: int(record.value or b"-1") for record in iterate(bytes(self._data))}

    def counts(self, id: int) -> bool:
        """Whether what this broker says of the partition can be believed."""
        return self.unproven is None and (self.whole is None or id in self.whole)

    def note(self, id: int, partition: Partition) -> None:
        """A watermark as it is told."""
        if self.counts(id):
            self.told_end = max(self.told_end, partition.high_watermark)

    def look_at(self, id: int, partition: Partition) -> None:
        """A replica as it is: what its watermark covers is committed, and equal to what was before."""
        if not self.counts(id):
            return
        self.compare(id, partition, min(partition.high_watermark, self.end), "I5")
        if partition.high_watermark > self.end:
            self._extend(id, partition)

    def must_hold(self, id: int, partition: Partition, why: str) -> None:
        """A replica that leads or may lead holds all that is committed."""
        if not self.counts(id):
            return
        if partition.log.end_offset < self.told_end:
            raise Violation(
                f"{why}: {self.tp} on b{id} ends at {partition.log.end_offset}, {self.told_end} are committed"
            )
        self.compare(id, partition, self.end, why)

    def compare(self, id: int, partition: Partition, end: int, why: str) -> None:
        """Hold what is new below `end` against what is committed."""
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
            raise Violation(f"{why}: {self.tp} on b{id} differs from what is committed in [{done.to}, {end})")
        done.to = end

    def _extend(self, id: int, partition: Partition) -> None:
        log = partition.log
        if log.start_offset > self.end:  # nobody looked before it was let go
            self._forget_before(log.start_offset)
        data = read(log, self.end, partition.high_watermark)
        at, epoch = self.end, -1
        for position, header in headers(data):
            if header.base_offset != at or header.leader_epoch < epoch:
                raise Violation(
                    f"I9: {self.tp} on b{id}: offset {header.base_offset}, epoch {header.leader_epoch} "
                    f"after {at}, {epoch}"
                )
            at, epoch = header.next_offset, header.leader_epoch
            self._places[at] = len(self._data) + position + header.size
            self._offsets.append(at)
        if at != partition.high_watermark:
            raise Violation(f"I6: {self.tp} on b{id}: the watermark {partition.high_watermark} cuts a batch")
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
        """ZooKeeper names a leader that gave no proof of its data. What it holds is to be seen."""
        self.unproven, self.whole = leader, set()

    def joined(self, id: int) -> None:
        """ZooKeeper counts a replica as in sync with such a leader."""
        if self.whole is not None and self.unproven is None:
            self.whole.add(id)

    def take(self, id: int, partition: Partition) -> dict[int, int]:
        """The log of the leader without proof: up to where it agrees all is committed; the rest is lost.

        Returns what is lost, offset -> number.
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
    """Beyond the watermarks too, what bears the same offset and epoch is the same batch."""
    first = min(partition.high_watermark for partition in replicas.values())
    seen: dict[tuple[int, int], tuple[int, bytes]] = {}
    for id, partition in replicas.items():
        data = read(partition.log, max(first, partition.log.start_offset), partition.log.end_offset)
        for position, header in headers(data):
            batch = bytes(data[position : position + header.size])
            holder, known = seen.setdefault((header.base_offset, header.leader_epoch), (id, batch))
            if known != batch:
                raise Violation(
                    f"I5: {tp}@{header.base_offset} of epoch {header.leader_epoch} is one batch on "
                    f"b{holder}, another on b{id}"
                )


def epochs_match(id: int, partition: Partition) -> None:
    """What a replica notes about its epochs is what its batches say, and where its leadership began.

    The first epoch of a log whose beginning was let go is noted where the log begins.
    """
    log = partition.log
    told: list[tuple[int, int]] = []
    for _, header in headers(read(log, log.start_offset, log.end_offset)):
        if not told or header.leader_epoch > told[-1][0]:
            told.append((header.leader_epoch, max(header.base_offset, log.start_offset)))
    noted = [(int(epoch), int(start)) for epoch, start in log.epochs.entries]
    extra = [entry for entry in noted if entry not in told]
    if [entry for entry in told if entry not in noted] or any(start < log.end_offset for _, start in extra):
        raise Violation(f"I9: {partition.tp} on b{id} notes the epochs {noted}, its batches say {told}")
