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
from typing import Any, NamedTuple, Protocol, overload

from ..results import Durability, Receipt, receipt_of
from .partition_queues import Run

UNKNOWN = -1


class Acknowledged(NamedTuple):
    """A run in the log."""

    run: Run
    partition: int
    offset: int  # of its first record; -1: not told
    timestamp: int  # of the append; -1: those of the records are kept
    durability: Durability | None = None


class Refused(NamedTuple):
    """A run that was given up; the error's `uncertain` says whether it may be in the log all the same."""

    run: Run
    error: Exception


Outcome = Acknowledged | Refused


class Part(Protocol):
    """Some of a list's records, all of whose outcomes are told when `future` is done."""

    future: "asyncio.Future[None]"

    @property
    def count(self) -> int:
        """So many records."""

    @property
    def error(self) -> Exception | None:
        """The first failure."""

    @property
    def failed(self) -> list[tuple[list[int], Exception]]:
        """What failed together: rows, and why."""

    def receipt(self, topic: str, row: int) -> Receipt:
        """Where a row is; raises its error if it failed."""


class Receipts(Sequence[Receipt]):
    """The receipts of a list, in its order. Equal to a list of the same receipts.

    If some records failed, an error was raised, which has these receipts as its `receipts`: to ask for one of
    those records raises its error; `failed` has them all.
    """

    def __init__(self, topic: str, parts: Sequence[Part]) -> None:
        self._topic = topic
        self._parts = parts
        self._starts = [0]
        for part in parts:
            self._starts.append(self._starts[-1] + part.count)

    @property
    def failed(self) -> list[tuple[list[int], Exception]]:
        """What failed together: the places of the records in the list, and why."""
        return [
            ([start + row for row in rows], error)
            for start, part in zip(self._starts, self._parts, strict=False)
            for rows, error in part.failed
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
        if failed := sum(len(rows) for rows, _ in self.failed):
            return f"Receipts({failed} of {len(self)} failed)"
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

    @property
    def failed(self) -> list[tuple[list[int], Exception]]:
        """What failed together: rows, and why."""
        return [
            ([self.row(at) for at in range(one.run.first, one.run.first + one.run.count)], one.error)
            for one in self.settled
            if isinstance(one, Refused)
        ]

    def run_acknowledged(
        self, run: Run, partition: int, offset: int, append_time: int, durability: Durability | None
    ) -> None:
        """A run is in the log, from `offset` on."""
        self._settle(Acknowledged(run, partition, offset, append_time, durability))

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
        return receipt_of(topic, one.partition, offset, timestamp, one.durability)

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


class ToldAnyway(One):
    """Of one record of a transaction: commit and abort tell its failure, too, so asyncio does not complain of
    a future that nobody has awaited."""

    __slots__ = ()

    def refused(self, index: int, error: Exception) -> None:
        """Set the failure."""
        super().refused(index, error)
        if not self.future.cancelled():
            self.future.exception()


class Many:
    """Receives the receipts of a list that is sent record by record; closed when all are on their way."""

    def __init__(self) -> None:
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._told: list[Receipt | Exception | None] = []
        self._left = 0
        self._closed = False
        self.error: Exception | None = None

    @property
    def count(self) -> int:
        """So many records were queued."""
        return len(self._told)

    @property
    def failed(self) -> list[tuple[list[int], Exception]]:
        """What failed together: rows, and why."""
        found: dict[int, tuple[list[int], Exception]] = {}
        for row, one in enumerate(self._told):
            if isinstance(one, Exception):
                found.setdefault(id(one), ([], one))[0].append(row)
        return list(found.values())

    def receipt(self, topic: str, row: int) -> Receipt:
        """Where a record is; raises its error if it failed."""
        one = self._told[row]
        assert one is not None, "receipts are handed out when all are there"
        if isinstance(one, Exception):
            raise one
        return one

    def expect(self) -> int:
        """One more record; its index."""
        self._left += 1
        self._told.append(None)
        return len(self._told) - 1

    def take_back(self) -> None:
        """The record that was expected last could not be queued."""
        self._left -= 1
        self._told.pop()

    def close(self) -> None:
        """No more records will come."""
        self._closed = True
        self._settle()

    def acknowledged(self, index: int, receipt: Receipt) -> None:
        """Keep the receipt in its place."""
        self._told[index] = receipt
        self._left -= 1
        self._settle()

    def refused(self, index: int, error: Exception) -> None:
        """Keep the failure in its place."""
        self.error = self.error or error
        self._told[index] = error
        self._left -= 1
        self._settle()

    def _settle(self) -> None:
        if self._closed and not self._left and not self.future.done():
            self.future.set_result(None)


def never_sent(error: Exception) -> Exception:
    """The same error, for records that were not even queued; others may have been told of it, too."""
    told = copy.copy(error)
    told.uncertain = False  # type: ignore[attr-defined]
    return told


async def attach(topic: str, parts: Sequence[Part], trouble: BaseException) -> None:
    """The rest of a list cannot be sent: let the error tell what has become of the records before.

    It may be any error, of the caller's iterator or serializer, too; but whoever cancels does not wait.
    """
    if not isinstance(trouble, Exception):
        return
    for part in parts:
        await part.future
    receipts = Receipts(topic, parts)
    trouble.receipts = receipts  # type: ignore[attr-defined]
    trouble.uncertain = _is_uncertain(receipts)  # type: ignore[attr-defined]


def _is_uncertain(receipts: Receipts) -> bool:
    return any(getattr(error, "uncertain", True) for _, error in receipts.failed)


async def all_of(topic: str, parts: Sequence[Part]) -> Receipts:
    """Wait for all; raises the first failure, with the receipts of all others."""
    for part in parts:
        await part.future
    receipts = Receipts(topic, parts)
    error = next((part.error for part in parts if part.error is not None), None)
    if error is None:
        return receipts
    told = copy.copy(error)  # others of the same batch are told, too, and have other receipts
    lost = sum(len(rows) for rows, _ in receipts.failed)
    told.add_note(
        f"{lost} of {len(receipts)} records of the list failed; `receipts` of this error tells which"
    )
    told.receipts = receipts  # type: ignore[attr-defined]
    told.uncertain = _is_uncertain(receipts)  # type: ignore[attr-defined]
    raise told from error
