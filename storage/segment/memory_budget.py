"""MemoryBudget: how many bytes the tails of logs and the indexes of closed segments may take together.

A broker leads thousands of partitions and reads thousands of closed segments: a bound for each says nothing
about all of them. Who holds memory says how much whenever that changes, and marks itself when it is read.
When there is too much, whoever was not read since the last look lets go of all of its own, the longest known
first (a clock): it is read from files then. The indexes of segments that grow do not count, for appends need
them: 20 bytes for each log.index.interval.bytes of records.
It belongs to the broker's loop.
"""

from collections import OrderedDict
from typing import Protocol


class Keeper(Protocol):
    """What keeps memory for its readers: a tail, or a closed segment with its indexes."""

    was_read: bool

    def let_go(self) -> None:
        """Give all of it back; it has been taken off the budget already."""
        ...


class MemoryBudget:
    """At most `bytes_max`, whoever holds them. `nbytes` is what is held now."""

    __slots__ = ("_held", "bytes_max", "nbytes")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.nbytes = 0
        self._held: OrderedDict[Keeper, int] = OrderedDict()

    def holds(self, keeper: Keeper, nbytes: int) -> None:
        """`keeper` holds so many bytes now. Others may have to let go of theirs for that, or it itself."""
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
        """It has let go by itself."""
        self.nbytes -= self._held.pop(keeper, 0)
