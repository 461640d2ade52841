"""What copiers were told of their transactions, and what a reader of committed records saw of them.

A copier reads numbers from one partition and writes them to another topic, and its progress with them, in
one transaction. So every number must come to be there once, whatever dies on the way: neither the records of
an aborted transaction nor a part of one are ever seen.
Left to others: copying (`clients/copiers.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from ...base.types import TopicPartition
from ..trace import Violation

COPIES = "copies"


class Outcome(Enum):
    """What a copier knows of one of its transactions."""

    OPEN = "open"
    ASKED = "asked to commit"  # no answer yet, or none any more
    COMMITTED = "committed"
    ABORTED = "aborted"  # it was never asked to commit


@dataclass(slots=True)
class Transaction:
    """One transaction: the numbers that it copies, in the order of the source."""

    id: int
    copier: str
    numbers: list[int] = field(default_factory=list)
    outcome: Outcome = Outcome.OPEN

    def __str__(self) -> str:
        return f"transaction {self.id} of {self.copier} ({self.outcome.value})"


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy as it was read."""

    place: TopicPartition
    offset: int
    transaction: int


class Copies:
    """All transactions of a world, and what was read of them."""

    def __init__(self) -> None:
        self.transactions: list[Transaction] = []
        self.seen: dict[int, Copy] = {}  # number -> where its copy is

    def begin(self, copier: str) -> Transaction:
        """A copier begins a transaction. If it dies before it asks to commit, this must count for nothing."""
        transaction = Transaction(len(self.transactions), copier)
        self.transactions.append(transaction)
        return transaction

    def of_value(self, value: bytes) -> tuple[int, Transaction]:
        """The number and the transaction that a copy names."""
        number, _, transaction = value.partition(b":")
        return int(number), self.transactions[int(transaction)]

    def read(self, place: TopicPartition, offset: int, value: bytes) -> None:
        """A reader of committed records is handed this copy. Raises Violation."""
        number, transaction = self.of_value(value)
        where = f"{number} at {place}@{offset}"
        if transaction.outcome in (Outcome.OPEN, Outcome.ABORTED):
            raise Violation(f"I23: {where} was read, but it is of {transaction}")
        if number not in transaction.numbers:
            raise Violation(f"I23: {where} was read, but {transaction} did not copy it")
        before = self.seen.setdefault(number, Copy(place, offset, transaction.id))
        if before.offset != offset or before.place != place:
            raise Violation(f"I23: {where} was read; its first copy is {before}")

    def judge(
        self, sources: Mapping[TopicPartition, Mapping[int, int]], starts: Mapping[TopicPartition, int]
    ) -> None:
        """At the end: every number of the sources is copied once, in order, and no transaction in part.

        `starts`: retention may have removed what lies before, perhaps before it was copied.
        """
        for transaction in self.transactions:
            found = [number for number in transaction.numbers if self._is_of(number, transaction)]
            wanted = found if transaction.outcome is Outcome.ASKED and not found else transaction.numbers
            if transaction.outcome is Outcome.ABORTED or transaction.outcome is Outcome.OPEN:
                wanted = []
            if found != wanted:
                raise Violation(
                    f"I23: {transaction} copied {transaction.numbers}, of which {found} are there"
                )
        for source, numbers in sources.items():
            self._judge_source(source, numbers, starts.get(source, 0))

    def _is_of(self, number: int, transaction: Transaction) -> bool:
        copy = self.seen.get(number)
        return copy is not None and copy.transaction == transaction.id

    def _judge_source(self, source: TopicPartition, numbers: Mapping[int, int], start: int) -> None:
        last: dict[TopicPartition, int] = {}
        for offset, number in sorted(numbers.items()):
            copy = self.seen.get(number)
            if copy is None:
                if offset >= start:
                    raise Violation(f"I23: {number}, {source}@{offset}, was never copied")
                continue
            if copy.offset <= last.get(copy.place, -1):
                raise Violation(f"I23: {number}, {source}@{offset}, was copied out of order: {copy}")
            last[copy.place] = copy.offset
