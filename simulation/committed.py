"""What is committed, as nobody in the world knows it: all that a watermark has ever covered, byte for byte.

A high watermark commits what lies below it on the replica that holds it; from then on every replica that
knows as much, and every replica that may lead, holds the very same bytes. Each replica is read once: what has
been compared is compared again only after its log was cut or opened anew.
Left to others: when to look (`checks.py`), what ZooKeeper says (`states.py`).
"""

from __future__ import annotations

from typing import Any

from ..broker.partition import Partition
from ..protocol.batches import headers
from ..protocol.kinds import TopicPartition

READ_BYTES_MAX = 1 << 30


class Violation(Exception):
    """Something that must hold did not."""


class _Compared:
    """How much of one replica has been held against what is committed."""

    __slots__ = ("generation", "log", "to")

    def __init__(self, log: Any) -> None:
        self.log, self.generation, self.to = log, log.generation, log.start_offset


class Committed:
    """The true high watermark of one partition, and all before it."""

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.end = 0
        self.told_end = 0  # the highest watermark, also one of a replica that cannot be read
        self.forgiven = False  # a leader was elected uncleanly: what was committed may be gone
        self._data = bytearray()
        self._places: dict[int, int] = {0: 0}  # offset -> where it begins in the data
        self._compared: dict[int, _Compared] = {}

    def note(self, partition: Partition) -> None:
        """A watermark as it is told."""
        self.told_end = max(self.told_end, partition.high_watermark)

    def look_at(self, id: int, partition: Partition) -> None:
        """A replica as it is: what its watermark covers is committed, and equal to what was before."""
        if self.forgiven:
            return
        self.compare(id, partition, min(partition.high_watermark, self.end), "I5")
        if partition.high_watermark > self.end:
            self._extend(id, partition)

    def must_hold(self, id: int, partition: Partition, why: str) -> None:
        """A replica that leads or may lead holds all that is committed."""
        if self.forgiven:
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
        if end <= done.to:
            return
        theirs = _read(partition, done.to, end)
        ours = self._data[self._places.get(done.to, -1) : self._places.get(end, -1)]
        if done.to not in self._places or end not in self._places or theirs != ours:
            raise Violation(f"{why}: {self.tp} on b{id} differs from what is committed in [{done.to}, {end})")
        done.to = end

    def _extend(self, id: int, partition: Partition) -> None:
        data = _read(partition, self.end, partition.high_watermark)
        at, epoch = self.end, -1
        for position, header in headers(data):
            if header.base_offset != at or header.leader_epoch < epoch:
                raise Violation(
                    f"I9: {self.tp} on b{id}: offset {header.base_offset}, epoch {header.leader_epoch} "
                    f"after {at}, {epoch}"
                )
            self._places[at] = len(self._data) + position
            at, epoch = header.next_offset, header.leader_epoch
        if at != partition.high_watermark:
            raise Violation(f"I6: {self.tp} on b{id}: the watermark {partition.high_watermark} cuts a batch")
        self._data += data
        self._places[at] = len(self._data)
        self.end = at
        self._compared[id].to = at


def same_tails(tp: TopicPartition, replicas: dict[int, Partition]) -> None:
    """Beyond the watermarks too, what bears the same offset and epoch is the same batch."""
    first = min(partition.high_watermark for partition in replicas.values())
    seen: dict[tuple[int, int], tuple[int, bytes]] = {}
    for id, partition in replicas.items():
        data = _read(partition, first, partition.log.end_offset)
        for position, header in headers(data):
            batch = bytes(data[position : position + header.size])
            holder, known = seen.setdefault((header.base_offset, header.leader_epoch), (id, batch))
            if known != batch:
                raise Violation(
                    f"I5: {tp}@{header.base_offset} of epoch {header.leader_epoch} is one batch on "
                    f"b{holder}, another on b{id}"
                )


def epochs_match(id: int, partition: Partition) -> None:
    """What a replica notes about its epochs is what its batches say, and where its leadership began."""
    log = partition.log
    told: list[tuple[int, int]] = []
    for _, header in headers(_read(partition, log.start_offset, log.end_offset)):
        if not told or header.leader_epoch > told[-1][0]:
            told.append((header.leader_epoch, header.base_offset))
    noted = [(int(epoch), int(start)) for epoch, start in log.epochs.entries]
    extra = [entry for entry in noted if entry not in told]
    if [entry for entry in told if entry not in noted] or any(start < log.end_offset for _, start in extra):
        raise Violation(f"I9: {partition.tp} on b{id} notes the epochs {noted}, its batches say {told}")


def _read(partition: Partition, start: int, end: int) -> bytes:
    if start >= end:
        return b""
    return b"".join(bytes(part) for part in partition.log.read(start, READ_BYTES_MAX, end).parts)
