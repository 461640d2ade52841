"""How transactions ended, as far as a cleaning must know: aborted records go, markers stay while needed.

A batch of a transaction is judged by the next marker of its producer. What was aborted before the dirty part
went in an earlier cleaning, and a marker that was there then may be gone: so nothing before it is asked. The
marker of a dirty batch may stand behind what is cleaned, in the segment that grows too: markers are learnt up
to the end of what is committed. A transaction that has none there is undecided: it may still be aborted, so
none of its records may displace another, and a cleaning ends before it (as Kafka's does before its last
stable offset).
Left to others: the delete horizon of a marker (rewrite.py), which segments are read (clean.py).
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from ...protocol.batches import BatchHeader
from .reading import ABORT, COMMIT, Placed, control_type


class Undecided(NamedTuple):
    """The earliest transaction whose end is not known."""

    offset: int  # of its first batch
    producer_id: int


class Fates:
    """The markers in [first_dirty, committed), and which transactions from before `upper` have none."""

    def __init__(self, first_dirty: int, upper: int, committed: int) -> None:
        self._from = first_dirty
        self._upper = upper
        self._committed = committed
        self._offsets: dict[int, list[int]] = {}
        self._aborts: dict[int, list[bool]] = {}
        self._open: dict[int, int] = {}  # first offset of each producer's open transaction

    def learn(self, blocks: Iterable[tuple[memoryview, list[Placed]]]) -> None:
        """Take note of the markers among these batches, which follow those seen before."""
        for data, batches in blocks:
            for at, header in batches:
                if header.base_offset >= self._committed:
                    return  # what is not committed may be cut: a marker there decides nothing
                if header.base_offset < self._from:
                    continue
                if header.is_control:
                    self._marker(header, control_type(data, at, header))
                elif header.is_transactional and header.record_count and header.base_offset < self._upper:
                    self._open.setdefault(header.producer_id, header.base_offset)

    def _marker(self, header: BatchHeader, kind: int | None) -> None:
        if kind in (ABORT, COMMIT):
            self._offsets.setdefault(header.producer_id, []).append(header.base_offset)
            self._aborts.setdefault(header.producer_id, []).append(kind == ABORT)
            self._open.pop(header.producer_id, None)

    @property
    def undecided(self) -> Undecided | None:
        """The earliest transaction without an end, as far as markers have been learnt."""
        found = ((offset, producer_id) for producer_id, offset in self._open.items())
        return Undecided(*min(found)) if self._open else None

    def aborted(self, header: BatchHeader) -> bool:
        """Whether the transaction of a data batch was aborted; of an undecided one nobody may ask."""
        if not header.is_transactional or header.base_offset < self._from:
            return False
        offsets = self._offsets.get(header.producer_id, [])
        place = bisect_left(offsets, header.base_offset)
        return place < len(offsets) and self._aborts[header.producer_id][place]


class Open:
    """Producers of whose transaction something is still in the log, while it is read from its start."""

    def __init__(self) -> None:
        self._producers: set[int] = set()

    def data(self, header: BatchHeader) -> None:
        """A data batch came by."""
        if header.is_transactional:
            self._producers.add(header.producer_id)

    def marker_is_idle(self, header: BatchHeader, kind: int | None) -> bool:
        """Whether a control batch that came by ends a transaction of which nothing is left."""
        if kind is None:
            return True
        if kind not in (ABORT, COMMIT):
            return False
        had_data = header.producer_id in self._producers
        self._producers.discard(header.producer_id)
        return not had_data
