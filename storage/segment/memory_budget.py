"""MemoryBudget: how many bytes the tails of logs and the indexes of closed segments may take together.

A broker leads thousands of partitions and reads thousands of closed segments, so a limit for each one does
not limit their sum. A keeper reports its bytes whenever they change, and marks itself when it is read. Over
the limit, keepers that were not read since the last look give up all of theirs, the oldest first (the clock
algorithm); their data is then read from files. The indexes of active segments do not count, because appends
need them: 20 bytes for each log.index.interval.bytes of records.
For the event loop only.
"""

from collections import OrderedDict
from typing import Protocol


class Keeper(Protocol):
    """Holds memory for its readers: a tail, or a closed segment with its indexes."""

    was_read: bool

    def let_go(self) -> None:
        """Free all of it; the budget has already subtracted it."""
        ...


class MemoryBudget:
    """At most `bytes_max` over all keepers. `nbytes` is what they hold now."""

    __slots__ = ("_held", "bytes_max", "nbytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.nbytes = 0
        self._held: OrderedDict[Keeper, int] = OrderedDict()

    def holds(self, keeper: Keeper, nbytes: int) -> None:
        """`keeper` holds so many bytes now. That may make others, or itself, give up theirs."""
        assert nbytes >= 0, "nobody holds less than nothing"
        held = self._held
        self.nbytes += nbytes - held.get(keeper, 0)
        held[keeper] = nbytes
        while self.nbytes > self.bytes_max:
            oldest, size = held.popitem(last=False)
            if oldest.was_read and len(held):
                oldest.was_read = False
                held[oldest] = size
            else:
                self.nbytes -= size
                oldest.let_go()

    def forget(self, keeper: Keeper) -> None:
        """`keeper` has freed its memory itself."""
        self.nbytes -= self._held.pop(keeper, 0)
        assert self.nbytes >= 0, "what is given up was reported"
