"""How the transactions of a range ended, by their markers. `.txnindex` says less: no open ones.

The next marker of its producer decides about a transactional batch. A transaction without a marker is
undecided: readers of committed transactions end before the first one, at the last stable offset.

What cannot be read may have had a marker of any producer. A transaction that was open before it is undecided
for good, for the next marker may be that of a later one: its batches are left out. Those behind are decided
by the markers behind.
"""

from typing import NamedTuple

from ...protocol.batches import headers
from ..cleaning.job import DamagedSegment
from ..cleaning.reading import ABORT, COMMIT, control_type
from ..segment_files import Damaged
from .replica_log import Run

ANYONE = -1  # for a producer id


class LeftOut(NamedTuple):
    """Transactional batches of a producer, or of ANYONE, that are not committed, or not known to be."""

    producer_id: int
    first_offset: int
    last_offset: int


class Outcomes(NamedTuple):
    """What the markers before `end` say."""

    last_stable: int
    left_out: tuple[LeftOut, ...]


class Markers:
    """The transactions of runs, in order. `doubts`: markers that say nothing; they count as aborts."""

    def __init__(self) -> None:
        self._undecided: dict[int, int] = {}
        self._left_out: list[LeftOut] = []
        self.doubts: list[Damaged] = []

    def see(self, run: Run) -> None:
        """Good batches."""
        for at, header in headers(run.records):
            producer = header.producer_id
            if not header.is_control:
                if header.is_transactional:
                    self._undecided.setdefault(producer, header.base_offset)
                continue
            try:
                kind = control_type(run.records, at, header)
            except DamagedSegment as trouble:
                self.doubts.append(Damaged(run.path, run.position + at, str(trouble)))
                kind = ABORT
            if kind in (ABORT, COMMIT):
                first = self._undecided.pop(producer, None)
                if kind == ABORT and first is not None:
                    self._left_out.append(LeftOut(producer, first, header.last_offset))

    def lose(self, start: int, end: int) -> int:
        """[start, end) cannot be read. How many transactions will never be decided because of it."""
        opened = [LeftOut(producer, first, end - 1) for producer, first in self._undecided.items()]
        self._left_out += (*opened, LeftOut(ANYONE, start, end - 1))
        self._undecided.clear()
        return len(opened)

    def outcomes(self, end: int) -> Outcomes:
        """What was seen, as of a range that ends at `end`."""
        return Outcomes(min(self._undecided.values(), default=end), tuple(self._left_out))
