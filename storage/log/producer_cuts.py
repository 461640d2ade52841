"""Which producers have written what a cut takes away. So few batches are read, instead of a whole segment.

A cut mostly takes away the last moments of a log, while producers wait for it to be over (acks=all). Where
all that goes is of producers whose earlier batches are still remembered, those batches are simply taken back
(`ProducerStates.take_back`). Transactions and markers are not: then the state is rebuilt.
Left to others: the rebuilding (producer_snapshots.py).
"""

from collections.abc import Iterable

from ..segment.segment import Segment
from .producer_state import OF_TRANSACTIONS

BATCHES_MAX = 10_000  # that go: reading more takes as long as rebuilding


def written_behind(segments: Iterable[Segment], end: int) -> frozenset[int] | None:
    """The producers of all batches from `end` on, a batch boundary; None if their ids do not say enough.

    Blocking, for any thread. Raises OSError or CorruptBatch.
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
        finally:
            apart.close()
    return frozenset(found)
