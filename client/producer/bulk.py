"""Lists that were handed over whole enter the accumulator: a batch at a time, not record by record.

Records of one partition keep their order, and stand behind what was sent there before. They join the growing
batch as single records do, linger with it, are numbered, sent, repeated, split and given up with it; only
that one token stands for all of them.
Keys share the turns: a batch for one partition, then one for the next, so that all leaders have work. Between
the turns the sender sends, and room in buffer memory is waited for.
Left to others: bytes (record_lists.py, record_columns.py), the accumulator's rules (accumulator.py), receipts
(receipts.py).
Why: docs/decisions/0056-lists-are-handed-over-whole.md
"""

from array import array
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from ...base.types import TopicPartition
from ...protocol.errors import ApiError, InvalidPartitions
from ...protocol.kernel import REFUSED, Encoder
from ...protocol.records import BatchBuilder
from .accumulator import Accumulator, Encoded
from .partition_queues import Run
from .partitioner import Sticky
from .receipts import Outcomes, never_sent
from .sender import Token

STICKY = -1
TURN_BYTES_MAX = 1 << 18  # encoded before the event loop goes on
CHOICES_MAX = 256  # of partitions for records without a key, then all over again
BOUNDLESS = 1 << 40  # room for a record that is larger than a batch may be


class Rows(Protocol):
    """Records that the encoder takes: `RecordLists` or `RecordColumns`."""

    count: int
    times: Any

    @property
    def highest(self) -> int:
        """The highest partition that a record itself asks for, -1 if none does."""

    def placed(self, partitions: int) -> Any:
        """The partition of each record, -1 for any; None if that is so for all."""

    def measured(self, *rest: Any) -> int:
        """How many records there is room for."""

    def written(self, *rest: Any) -> int:
        """Write them."""


class Topic(Protocol):
    """What is known of a topic now."""

    @property
    def partitions(self) -> Collection[int]:
        """All of them."""

    @property
    def led(self) -> Sequence[int]:
        """Those that have a leader."""


@dataclass(slots=True)
class Group:
    """Records for one partition, or without a key, that are still to be encoded: `at` up to `stop`."""

    partition: int
    at: int
    stop: int


class Fit(NamedTuple):
    """The next records of a group that fit together into a batch."""

    records: int
    size: int
    base: int
    latest: int
    lacking: int  # bytes of the next record, if there is no room for it in buffer memory


class Gate(NamedTuple):
    """What a producer lets lists through."""

    accumulator: Accumulator[Token]
    sticky: Sticky
    batch_size: int
    now: Callable[[], float]
    wall_ms: Callable[[], int]
    want: Callable[[TopicPartition], None]  # of a transaction; raises if none is open
    free: Callable[[], int]  # bytes of buffer memory; much, if nothing else is there


class Bulk:
    """One list on its way into the accumulator."""

    def __init__(
        self, encoder: Encoder, gate: Gate, topic: str, rows: Rows, given: int | None, known: Topic
    ) -> None:
        """`given` is the partition that the caller wants for all of them, if any."""
        self._gate = gate
        self._topic = topic
        self._rows = rows
        self._order: array[int] | None = None
        places: array[int] | None = None
        count = len(known.partitions)
        placed = rows.placed(count) if given is None else None
        if placed is None:
            self._groups = [Group(STICKY if given is None else given, 0, rows.count)]
        else:
            self._place_others(encoder, placed, known)
            first = array("q", bytes(8 * (max(count, rows.highest + 1) + 2)))
            self._order, places = array("q", bytes(8 * rows.count)), array("q", bytes(8 * rows.count))
            assert encoder.grouped(placed, first, self._order) == rows.count, "places were checked"
            encoder.inverted(self._order, places)
            bounds = enumerate(pairwise(first), STICKY)
            self._groups = [Group(place, at, stop) for place, (at, stop) in bounds if at < stop]
        self.outcomes = Outcomes(rows.count, rows.times, self._order, places)
        self.trouble: Exception | None = None  # why some did not even come into the accumulator

    @property
    def is_done(self) -> bool:
        """Whether all records are in the accumulator."""
        return not self._groups

    def turn(self, known: Topic) -> int:
        """Encode records, as long as there is room and it is not too long. The bytes that lack room, or 0."""
        encoded = 0
        while self._groups and encoded < TURN_BYTES_MAX:
            group = self._groups[0]
            try:
                size, lacks = self._enter(group, known)
            except ApiError as trouble:
                self._give_up(group, trouble)
                size, lacks = 0, 0
            if lacks and not size:
                return lacks
            encoded += size
            if lacks:
                continue  # it joins this batch again, as soon as there is room
            self._groups.pop(0)
            if group.at < group.stop:
                self._groups.append(group)
        return 0

    def give_up(self, trouble: Exception) -> None:
        """What is not in the accumulator yet will never be sent."""
        for group in self._groups:
            self._give_up(group, trouble)
        self._groups = []

    def _place_others(self, encoder: Encoder, placed: Any, known: Topic) -> None:
        """Choose the partitions of records without a key that stand among others.

        They are chosen before any is sent, for the order in a partition is that of the list. So about as many
        go to one partition as fill a batch.
        """
        gate, found = self._gate, array("q", (0, 0))
        others = encoder.spread(placed, array("q"), 1)
        if others == 0:
            return
        block = max(self._rows.measured(None, 0, self._rows.count, 0, 0, gate.batch_size, found), 1)
        choices = array("q")
        for _ in range(min(-(-others // block), CHOICES_MAX)):
            choices.append(gate.sticky.choose(self._topic, known.led, len(known.partitions)))
            gate.sticky.move_on(self._topic, known.led, choices[-1])
        encoder.spread(placed, choices, block)

    def _give_up(self, group: Group, trouble: Exception) -> None:
        at, group.at = group.at, group.stop
        self.trouble = self.trouble or trouble
        self.outcomes.run_refused(Run(self.outcomes, at, group.stop - at, -1), never_sent(trouble))

    def _enter(self, group: Group, known: Topic) -> tuple[int, int]:
        """Fill one batch from a group, or what there is room for: the bytes that were encoded, and those that
        the next record lacks."""
        gate, count = self._gate, len(known.partitions)
        sticky = group.partition == STICKY
        partition = gate.sticky.choose(self._topic, known.led, count) if sticky else group.partition
        if partition not in known.partitions:
            raise no_partition(self._topic, partition, count)
        name = TopicPartition(self._topic, partition)
        timestamp = gate.wall_ms()
        fit = self._fit(group, gate.accumulator.growing(name), timestamp)
        if fit.records == 0:
            if not fit.lacking:
                self._full(name, known, sticky)
            return 0, fit.lacking
        section = bytearray(fit.size)
        builder = gate.accumulator.growing(name)
        delta = 0 if builder is None else builder.count
        elapsed = -fit.base if self._rows.times is not None else timestamp - fit.base
        stop = group.at + fit.records
        written = self._rows.written(self._order, group.at, stop, delta, elapsed, section)
        assert written == fit.size, "what was measured is written"
        gate.want(name)
        run = Run(self.outcomes, group.at, fit.records, -1 if self._rows.times is not None else timestamp)
        records = Encoded(section, fit.records, fit.base, fit.latest)
        gate.accumulator.extend(name, records, run, gate.now())
        group.at = stop
        if group.at < group.stop and not fit.lacking:
            self._full(name, known, sticky)
        return fit.size, fit.lacking

    def _fit(self, group: Group, builder: BatchBuilder | None, timestamp: int) -> Fit:
        """The next records that fit into the growing batch and into buffer memory; into a new batch, one at
        least."""
        rows, found = self._rows, array("q", (0, 0))
        delta = 0 if builder is None else builder.count
        if builder is not None:
            base = builder.base_timestamp
        elif rows.times is None:
            base = timestamp
        else:
            base = int(rows.times[group.at if self._order is None else self._order[group.at]])
        elapsed = timestamp - base if rows.times is None else -base
        taken = builder.size if builder is not None else BatchBuilder().size
        in_batch, in_memory = max(self._gate.batch_size - taken, 0), self._gate.free()
        room, lacking = min(in_batch, in_memory), 0
        count = rows.measured(self._order, group.at, group.stop, delta, elapsed, room, found)
        size, latest = found[0] if count else 0, base + found[1]
        assert count != REFUSED, "rows were checked"
        at = group.at + count
        if at < group.stop and (count == 0 or in_memory < in_batch):
            alone = rows.measured(self._order, at, at + 1, delta + count, elapsed, BOUNDLESS, found)
            assert alone == 1, "rows were checked"
            fits = found[0] <= in_batch - size or (count == 0 and builder is None)
            if fits and count == 0 and found[0] <= in_memory:
                count, size, latest = 1, found[0], base + found[1]  # larger than a batch may be
            elif fits:
                lacking = found[0]
        return Fit(count, size, base, latest, lacking)

    def _full(self, name: TopicPartition, known: Topic, sticky: bool) -> None:
        self._gate.accumulator.close(name)
        if sticky:
            self._gate.sticky.move_on(self._topic, known.led, name.partition)


def no_partition(topic: str, partition: int, count: int) -> InvalidPartitions:
    """The error for a partition that a topic does not have."""
    have = f"it has {count}" if count else "it has none"
    return InvalidPartitions(f"{topic} has no partition {partition}: {have}, counted from 0")
