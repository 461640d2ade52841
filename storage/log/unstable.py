"""Unstable: the transactions of a log that hold back readers of committed records.

Those are the open ones, and those whose marker is not below the high watermark yet: until then it may be
truncated. The earliest record of any of them is the last stable offset (Kafka's ProducerStateManager).
Left to others: what a producer may append (producer_state.py), how a transaction ended
(segment/transaction_index.py).
"""

from collections import OrderedDict, deque
from collections.abc import Iterator

NEVER = (1 << 63) - 1  # as an offset: nothing is unstable
ENDED_MAX = 1000  # transactions that wait for their marker to be committed; beyond it they are counted as one


class Unstable:
    """First offsets of open transactions by producer, and (first offset, marker's offset) of ended ones.

    Transactions begin in the order of offsets, so the first open one is the earliest. Of the ended ones only
    those are kept that can decide: a later marker with an earlier first offset covers those before it. So
    both offsets rise, and each question costs the same, however many transactions there are.
    """

    __slots__ = ("_ended", "_open")

    def __init__(self) -> None:
        self._open: OrderedDict[int, int] = OrderedDict()
        self._ended: deque[tuple[int, int]] = deque()

    def __bool__(self) -> bool:
        """Whether anything may be unstable."""
        return bool(self._open or self._ended)

    def clear(self) -> None:
        self._open.clear()
        self._ended.clear()

    def open(self) -> Iterator[tuple[int, int]]:
        """(producer id, first offset) of the open transactions, the earliest first."""
        return iter(self._open.items())

    @property
    def open_count(self) -> int:
        """How many transactions are open."""
        return len(self._open)

    @property
    def first_open(self) -> int:
        """The first offset of the earliest open transaction; NEVER without one."""
        return next(iter(self._open.values())) if self._open else NEVER

    @property
    def last_open(self) -> int:
        """The first offset of the latest open transaction; -1 without one."""
        return next(reversed(self._open.values()), -1)

    def begin(self, producer_id: int, offset: int) -> None:
        """A transaction begins, later than those that are known."""
        assert producer_id not in self._open, "a producer has one transaction at a time"
        assert offset > self.last_open, "transactions begin in the order of offsets"
        self._open[producer_id] = offset

    def end(self, producer_id: int, marker: int) -> int:
        """The producer's open transaction ends with the marker at that offset; returns its first offset."""
        first = self._open.pop(producer_id)
        ended = self._ended
        while ended and ended[-1][0] >= first:
            ended.pop()
        ended.append((first, marker))
        if len(ended) > ENDED_MAX:  # nobody has told the watermark for long: too low does no harm
            earliest = ended.popleft()[0]
            ended.appendleft((earliest, ended.popleft()[1]))
        return first

    def first(self, high_watermark: int) -> int:
        """The first offset that is not stable with that watermark, which has never been higher."""
        ended = self._ended
        while ended and ended[0][1] < high_watermark:
            ended.popleft()
        first = next(iter(self._open.values())) if self._open else NEVER
        return min(first, ended[0][0]) if ended else first

    def last_stable(self, high_watermark: int, start_offset: int) -> int:
        """The offset where readers of committed records stop."""
        return min(high_watermark, max(self.first(high_watermark), start_offset))

    def take_ended(self, earlier: "Unstable", end: int) -> None:
        """The log was cut at `end`, and this was built anew: what had ended before has ended still.

        A snapshot does not say which markers were not committed yet, the state before the cut does.
        """
        self._ended = deque((first, min(marker, end - 1)) for first, marker in earlier._ended if first < end)
