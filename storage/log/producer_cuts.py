"""AsOf: the state of producers as of an earlier end of the log, for a cut.

A cut mostly takes away the last moments of a log, while producers wait for it to be over (acks=all). Where
all that goes is of producers whose earlier batches are still remembered, those batches are simply taken back
(`ProducerStates.take_back`), and few batches are read. Transactions and markers are not taken back: then the
state is rebuilt, which may read a whole segment.
Left to others: the rebuilding (producer_snapshots.py), the cut (log.py).
Why: docs/decisions/0065-a-failover-waits-for-no-sync.md
"""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from ..disk import Disk
from ..segment.segment import CorruptBatch, Segment
from . import producer_snapshots
from .producer_state import OF_TRANSACTIONS, ProducerStates

BATCHES_MAX = 10_000  # that go: reading more takes as long as rebuilding


class AsOf(NamedTuple):
    """The producer state as of log end offset `end`. Where `producers` is None it is that of the log, with
    the batches of `concerned` from `end` on taken back.
    """

    end: int
    producers: ProducerStates | None
    concerned: Collection[int] = ()

    def instead_of(self, present: ProducerStates) -> ProducerStates:
        """The state that takes the place of the present one, when the log has been cut."""
        if self.producers is None:
            present.take_back(self.end, self.concerned)
            return present
        self.producers.unstable.take_ended(present.unstable, self.end)
        return self.producers


def as_of(
    disk: Disk, directory: str, segments: Sequence[Segment], place: int, present: ProducerStates, end: int
) -> AsOf:
    """The state as of `end`, a batch boundary in the segment at `place`. `present` is not changed.

    Blocking, for any thread. Raises OSError or CorruptBatch.
    """
    found = ProducerStates(present.producers_max)
    if len(present):  # else none has written lately, and there is nothing to rebuild
        going = _written_behind(segments[place:], end)
        if going is not None and present.remember_before(end, going):
            return AsOf(end, None, going)
        producer_snapshots.rebuild(disk, directory, found, segments, end, apart=True)
    return AsOf(end, found)


def _written_behind(segments: Iterable[Segment], end: int) -> frozenset[int] | None:
    """The producers of all batches from `end` on; None if their ids do not say enough, or if the batches are
    damaged: they go, so nothing but this needs them.
    """
    found = set[int]()
    read = 0
    for segment in segments:
        apart = segment.apart()
        try:
            at = apart.locate(max(end, apart.base_offset)) if apart.size else None
            for _, header in apart.headers(at[0]) if at is not None else ():
                read += 1
                if read > BATCHES_MAX or header.attributes & OF_TRANSACTIONS:
                    return None
                if header.producer_id >= 0:
                    found.add(header.producer_id)
        except CorruptBatch:
            return None
        finally:
            apart.close()
    return frozenset(found)
