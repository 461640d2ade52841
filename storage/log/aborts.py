"""Aborts: which transactions of a log were aborted, over all of its segments.

A reader of committed records asks for those that overlap what it was given. Only segments that have aborts
are looked at, and among those only what can overlap: a log without aborts answers at once. An index that
cannot be its segment's is made anew from the log before anyone is answered.
Left to others: one segment's index (segment/transaction_index.py), which transactions are open
(producer_state.py).
"""

from bisect import bisect_left
from collections.abc import Sequence
from operator import attrgetter

import structlog

from ..disk import Disk
from ..segment.segment import Segment
from ..segment.transaction_index import Aborted, DamagedIndex
from . import producer_snapshots
from .flush import FlushState
from .producer_state import Ended, ProducerStates
from .segments import Segments
from .unstable import NEVER

PRODUCERS_MAX = 10_000  # open transactions are never forgotten

logger = structlog.get_logger(__name__)

_base_offset = attrgetter("base_offset")


class Aborts:
    """The aborted transactions of one log."""

    __slots__ = ("_among", "_chain", "_flush_state", "_of")

    def __init__(self, chain: Segments, flush_state: FlushState) -> None:
        self._chain = chain
        self._flush_state = flush_state
        self._among: list[Segment] = []  # the segments that have, or may have, aborts
        self._of: list[Segment] | None = None  # the log's segments when `_among` was made
        self.mend(chain.active)  # now: after an append nothing may fail

    def note(self, ended: Ended) -> None:
        """The marker of a transaction has been appended."""
        if not ended.committed:
            index = self._chain.active.transactions
            if index.is_empty:
                self._of = None
            index.append(aborted(ended))
            self._flush_state.written(index.name)

    def overlapping(self, start: int, end: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions with records in [start, end)."""
        among = self._segments()
        chain, found = self._chain, list[tuple[int, int]]()
        if not among:
            return found
        begin = chain.segments[chain.place_of(start)].base_offset
        with chain.guarded():
            for segment in among[bisect_left(among, begin, key=_base_offset) :]:
                self.mend(segment)
                here, complete = segment.transactions.overlapping(start, end)
                found += here
                chain.was_read(segment)
                if complete:
                    break
        return found

    def entries(self, end: int) -> list[Aborted]:
        """The index entries of the segments that begin before `end`. Raises DiskError."""
        found: list[Aborted] = []
        with self._chain.guarded():
            for segment in self._segments():
                if segment.base_offset < end:
                    self.mend(segment)
                    found += segment.transactions.entries()
                    self._chain.was_read(segment)
        return found

    def upper_bound(self, offset: int, nbytes: int, end_offset: int) -> int:
        """An offset at or behind the end of the batches that a read of `nbytes` from `offset` returns."""
        chain = self._chain
        if not self._segments():
            return end_offset
        for place in range(chain.place_of(offset), len(chain.segments) - 1):
            segment = chain.segments[place]
            bound = segment.upper_bound(offset, nbytes)
            if bound:
                return bound
            if segment.size and segment.base_offset >= offset:
                return chain.segments[place + 1].base_offset
            # else compaction may have left nothing from `offset` on, and the next segment was read
        return chain.active.upper_bound(offset, nbytes) or end_offset

    def take_snapshot(self, producers: ProducerStates, end: int) -> None:
        """Write the producers' state as of `end`, with the size of each index. Raises DiskError."""
        counts = [(each.base_offset, each.transactions.count) for each in self._segments()]
        with self._chain.guarded():
            producer_snapshots.take(
                self._chain.disk,
                self._chain.directory,
                producers,
                end,
                [each for each in counts if each[1] > 0],
            )

    def _segments(self) -> list[Segment]:
        if self._of is not self._chain.segments:  # segments that go make it another list
            self._among = [each for each in self._chain.segments if not each.transactions.is_empty]
            self._of = self._chain.segments
        return self._among

    def mend(self, segment: Segment) -> None:
        """Load a segment's index; if the file cannot be its index, make it anew. Blocking: reads up to a
        segment.
        """
        try:
            segment.transactions.load()
        except DamagedIndex as damage:
            logger.warning("index_mismatch", path=segment.transactions.path, reason=str(damage))
            segment.transactions.take(self._made_again(segment))
            segment.transactions.save(sync=True)

    def _made_again(self, segment: Segment) -> list[Aborted]:
        chain = self._chain
        end = next(
            (each.base_offset for each in chain.segments if each.base_offset > segment.base_offset), NEVER
        )
        return made_again(chain.disk, chain.directory, chain.segments, segment.base_offset, end)


def made_again(
    disk: Disk, directory: str, segments: Sequence[Segment], base: int, end: int, *, apart: bool = False
) -> list[Aborted]:
    """The index of the segment in [base, end), from the log. With `apart` it opens its own files. Blocking.
    Raises OSError or CorruptBatch.
    """
    producers = ProducerStates(PRODUCERS_MAX)
    ended = producer_snapshots.rebuild(disk, directory, producers, segments, end, before=base, apart=apart)
    return [aborted(each) for each in ended if not each.committed and each.last_offset >= base]


def aborted(ended: Ended) -> Aborted:
    """The index's entry of a transaction that was aborted."""
    return Aborted(ended.producer_id, ended.first_offset, ended.last_offset, ended.last_stable_offset)
