"""How transactions ended, as far as a cleaning needs it: aborted records go, markers stay while needed.

The next marker of its producer decides about a transactional batch. Records aborted before the dirty part
went in an earlier cleaning, and their markers may be gone, so nothing before the dirty part is judged. The
marker of a dirty batch may come after the cleaned part, even in the active segment, so markers are read up to
the high watermark. A transaction without one there is undecided: it may still be aborted, so none of its
records may displace another, and the cleaning ends before it (as Kafka's does before the last stable offset).
Left to others: the delete horizon of a marker (rewrite.py), which segments are read (clean.py).
"""

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

from ...protocol.batches import BatchHeader
from ..segment.batch_walk import Placed
from .reading import ABORT, COMMIT, control_type


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
        """Read the markers of these batches, which follow those seen before."""
        for data, batches in blocks:
            for at, header in batches:
                if header.base_offset >= self._committed:
                    return  # uncommitted batches may be truncated: a marker there decides nothing
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
        """The earliest transaction without an end, as far as markers were read."""
        found = ((offset, producer_id) for producer_id, offset in self._open.items())
        return Undecided(*min(found)) if self._open else None

    def aborted(self, header: BatchHeader) -> bool:
        """Whether the transaction of a data batch was aborted. Not to be called for an undecided one."""
        if not header.is_transactional or header.base_offset < self._from:
            return False
        offsets = self._offsets.get(header.producer_id, [])
        place = bisect_left(offsets, header.base_offset)
        return place < len(offsets) and self._aborts[header.producer_id][place]


class Open:
    """Producers with records of a transaction still in the log, while it is read from its start."""

    def __init__(self) -> None:
        self._producers: set[int] = set()

    def data(self, header: BatchHeader) -> None:
        """Note a data batch."""
        if header.is_transactional:
            self._producers.add(header.producer_id)

    def marker_is_idle(self, header: BatchHeader, kind: int | None) -> bool:
        """Whether a control batch ends a transaction that has no records left."""
        if kind is None:
            return True
        if kind not in (ABORT, COMMIT):
            return False
        had_data = header.producer_id in self._producers
        self._producers.discard(header.producer_id)
        return not had_data
