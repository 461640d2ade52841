"""What callers wait for: the receipt of one record, of each of many, of a list that was sent whole.

Of a whole list it is kept what each batch was told; a record's receipt is made when it is asked for.

A batch acknowledges a run of neighbouring records with one offset. So there is nothing to be done per record
until somebody wants to know where a certain one is.
Records are counted twice: as rows, in the caller's order, and in the order in which they were sent, where
those of one partition stand together (`order`; the same if there is none).
Left to others: which records run together (bulk.py), when a run is told (sender.py).
"""

import asyncio
import copy
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

from ..results import Receipt
from .partition_queues import Run

UNKNOWN = -1


class Acknowledged(NamedTuple):
    """A run in the log."""

    run: Run
    partition: int
    offset: int  # of its first record; -1: not told
    timestamp: int  # of the append; -1: those of the records are kept


class Refused(NamedTuple):
    """A run that was given up; the error's `uncertain` says whether it may be in the log all the same."""

    run: Run
    error: Exception


Outcome = Acknowledged | Refused


class Receipts(Sequence[Receipt]):
    """The receipts of a list, in its order. Equal to a list of the same receipts.

    If some records failed, an error was raised, which has these receipts as its `receipts`: to ask for one of
    those records raises its error; `failed` has them all.
    """

    def __init__(self, topic: str, parts: "Sequence[Outcomes]") -> None:
        self._topic = topic
        self._parts = parts
        self._starts = [0]
        for part in parts:
            self._starts.append(self._starts[-1] + part.count)

    @property
    def failed(self) -> list[tuple[list[int], Exception]]:
        """What failed together: the places of the records in the list, and why."""
        return [
            ([start + part.row(at) for at in range(one.run.first, one.run.first + one.run.count)], one.error)
            for start, part in zip(self._starts, self._parts, strict=False)
            for one in part.settled
            if isinstance(one, Refused)
        ]

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, index: int) -> Receipt: ...

    @overload
    def __getitem__(self, index: slice) -> list[Receipt]: ...

    def __getitem__(self, index: int | slice) -> Receipt | list[Receipt]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        at = index + len(self) if index < 0 else index
        if not 0 <= at < len(self):
            raise IndexError(f"receipt {index} of {len(self)}")
        nth = bisect_right(self._starts, at) - 1
        return self._parts[nth].receipt(self._topic, at - self._starts[nth])

    def __iter__(self) -> Iterator[Receipt]:
        for part in self._parts:
            for row in range(part.count):
                yield part.receipt(self._topic, row)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (list, Receipts)):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        if len(self) <= 4:
            return f"Receipts({list(self)!r})"
        return f"Receipts({self[0]!r}, … {len(self) - 2} more …, {self[-1]!r})"


class Outcomes:
    """Receives the outcome of runs, until all `count` records are told of; then `future` is done."""

    def __init__(
        self, count: int, times: Any, order: "array[int] | None", places: "array[int] | None"
    ) -> None:
        self.count = count
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.settled: list[Outcome] = []
        self._times = times  # of rows, if they have their own
        self._order = order  # the rows, as they are sent
        self._places = places  # where each row is in that order
        self._left = count
        self._starts: list[int] | None = None

    @property
    def error(self) -> Exception | None:
        """The first failure."""
        return next((one.error for one in self.settled if isinstance(one, Refused)), None)

    def run_acknowledged(self, run: Run, partition: int, offset: int, append_time: int) -> None:
        """A run is in the log, from `offset` on."""
        self._settle(Acknowledged(run, partition, offset, append_time))

    def run_refused(self, run: Run, error: Exception) -> None:
        """A run was given up."""
        self._settle(Refused(run, error))

    def row(self, at: int) -> int:
        """Which row was sent as number `at`."""
        return at if self._order is None else self._order[at]

    def receipt(self, topic: str, row: int) -> Receipt:
        """Where a row is; raises its error if it failed."""
        at = row if self._places is None else self._places[row]
        one = self._of(at)
        if isinstance(one, Refused):
            raise one.error
        offset = UNKNOWN if one.offset < 0 else one.offset + at - one.run.first
        timestamp = one.timestamp if one.timestamp >= 0 else one.run.timestamp
        if timestamp < 0:
            timestamp = int(self._times[row])
        return Receipt(topic, one.partition, offset, timestamp)

    def _of(self, at: int) -> Outcome:
        assert self._left == 0, "receipts are handed out when all are there"
        if self._starts is None:
            self.settled.sort(key=lambda one: one.run.first)
            self._starts = [one.run.first for one in self.settled]
        return self.settled[bisect_right(self._starts, at) - 1]

    def _settle(self, one: Outcome) -> None:
        self.settled.append(one)
        self._left -= one.run.count
        assert self._left >= 0, "each record is told of once"
        if not self._left and not self.future.done():
            self.future.set_result(None)


class One:
    """Receives the receipt or failure of one record, in a future."""

    __slots__ = ("future",)

    def __init__(self, future: "asyncio.Future[Receipt]") -> None:
        self.future = future

    def acknowledged(self, index: int, receipt: Receipt) -> None:
        """Set the receipt."""
        if not self.future.done():
            self.future.set_result(receipt)

    def refused(self, index: int, error: Exception) -> None:
        """Set the failure."""
        if not self.future.done():
            self.future.set_exception(error)


class Many:
    """Receives all receipts of one `send_many`, in one future; the first failure counts."""

    __slots__ = ("_closed", "_error", "_left", "_receipts", "future")

    def __init__(self, future: "asyncio.Future[list[Receipt]]") -> None:
        self.future = future
        self._receipts: list[Receipt | None] = []
        self._left = 0
        self._closed = False
        self._error: Exception | None = None

    def expect(self) -> int:
        """One more record; its index."""
        self._left += 1
        self._receipts.append(None)
        return len(self._receipts) - 1

    def close(self) -> None:
        """No more records will come."""
        self._closed = True
        self._settle()

    def acknowledged(self, index: int, receipt: Receipt) -> None:
        """Keep the receipt in its place."""
        self._receipts[index] = receipt
        self._left -= 1
        self._settle()

    def refused(self, index: int, error: Exception) -> None:
        """Keep the first failure."""
        self._error = self._error or error
        self._left -= 1
        self._settle()

    def _settle(self) -> None:
        if not self._closed or self._left or self.future.done():
            return
        if self._error is not None:
            self.future.set_exception(self._error)
        else:
            self.future.set_result([one for one in self._receipts if one is not None])


def never_sent(error: Exception) -> Exception:
    """The same error, for records that were not even queued; others may have been told of it, too."""
    told = copy.copy(error)
    told.uncertain = False  # type: ignore[attr-defined]
    return told


async def all_of(topic: str, parts: Sequence[Outcomes]) -> Receipts:
    """Wait for all; raises the first failure, with the receipts of all others."""
    for part in parts:
        await part.future
    receipts = Receipts(topic, parts)
    error = next((part.error for part in parts if part.error is not None), None)
    if error is None:
        return receipts
    told = copy.copy(error)  # others of the same batch are told, too, and have other receipts
    lost = sum(one.run.count for part in parts for one in part.settled if isinstance(one, Refused))
    told.add_note(
        f"{lost} of {len(receipts)} records of the list failed; `receipts` of this error tells which"
    )
    told.receipts = receipts  # type: ignore[attr-defined]
    told.uncertain = any(  # type: ignore[attr-defined]
        getattr(one.error, "uncertain", True)
        for part in parts
        for one in part.settled
        if isinstance(one, Refused)
    )
    raise told from error
