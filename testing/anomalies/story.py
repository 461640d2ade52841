"""A history made sense of: transactions with what became of them, and all sends and reads beside them.

Left to others: what must not be (checker.py), and everything that is no matter of transactions
(`History` and `judge` of `testing/history.py`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ...base.types import TopicPartition
from ..history import History, Outcome
from .operations import UNKNOWN, Action, Operation, Record, Type


class Fate(StrEnum):
    """What became of a transaction, as far as its client can know."""

    COMMITTED = "committed"
    ABORTED = "aborted"  # it was never asked to commit, or surely was not committed
    UNKNOWN = "unknown"


class Life(NamedTuple):
    """A life of a transactional producer: when it asked for its epoch, and when it had it."""

    process: str
    asked_ns: int
    begun_ns: int


class Lost(NamedTuple):
    """A reader was told that its position is out of range."""

    process: str
    partition: TopicPartition
    offset: int


@dataclass(slots=True)
class Transaction:
    """One transaction of one life of a producer."""

    producer: str
    process: str
    number: int
    values: list[int] = field(default_factory=list)
    read: set[int] = field(default_factory=set)
    asked_ns: int | None = None  # when it was asked to commit
    fate: Fate = Fate.ABORTED
    fenced_ns: int | None = None  # when a later life of its producer surely had begun

    def __str__(self) -> str:
        return f"transaction #{self.number} of {self.process} ({self.fate})"


def place(record: Record) -> TopicPartition:
    """The partition of a record."""
    return TopicPartition(record.topic, record.partition)


class Story:
    """What is known at the end. Operations must be in the order of time."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self.history = History()
        self.transactions: dict[tuple[str, int], Transaction] = {}
        self.of_value: dict[int, Transaction] = {}
        self.sources: dict[int, int] = {}  # copy -> value that it is a copy of
        self.first_read: dict[int, tuple[int, str]] = {}  # value -> when, by whom
        self.faults: list[Operation] = []
        self.offsets: list[Operation] = []  # of groups: what they committed, and what they were told
        self.out_of_range: list[Lost] = []
        self.polls = 0
        self._lives: dict[str, list[Life]] = {}  # by transactional id
        self._asked_life: dict[str, int] = {}
        self._asked_s: dict[str, float] = {}
        self._whole: dict[TopicPartition, list[tuple[int, int]]] = {}
        self._begins: dict[TopicPartition, int] = {}
        act = {
            Action.SEND: self._send,
            Action.COMMIT: self._commit,
            Action.ABORT: self._abort,
            Action.POLL: self._poll,
            Action.MOVED: self._moved,
            Action.INIT: self._init,
            Action.OFFSETS: self.offsets.append,
            Action.TOLD: self.offsets.append,
            Action.END: self._end,
            Action.WHOLE: self._read_whole,
            Action.EMPTY: self._read_whole,
            Action.DELETED: self._deleted,
            Action.FAULT: self.faults.append,
        }
        for operation in operations:
            if (known := act.get(operation.action)) is not None:
                known(operation)
        for partition, records in self._whole.items():
            self.history.read_whole(partition, records)
            self.history.begins_at(partition, self._begins.get(partition, 0))
        self._settle()

    def count(self, fate: Fate) -> int:
        """How many transactions met this fate."""
        return sum(each.fate is fate for each in self.transactions.values())

    # ------------------------------------------------------------ operations

    def _transaction(self, operation: Operation) -> Transaction:
        key = operation.process, operation.transaction
        found = self.transactions.get(key)
        if found is None:
            found = self.transactions[key] = Transaction(operation.producer, *key)
        return found

    def _send(self, operation: Operation) -> None:
        at_s = operation.time_ns / 1e9
        for record in operation.records:
            if operation.type is Type.INVOKE:
                self.history.sending(record.value, place(record), at_s, operation.process)
                if operation.is_transactional:
                    transaction = self._transaction(operation)
                    transaction.values.append(record.value)
                    self.of_value[record.value] = transaction
                if record.source != UNKNOWN:
                    self.sources[record.value] = record.source
            elif operation.type is Type.OK:
                self.history.acknowledged(record.value, record.offset, at_s)
            elif operation.type is Type.FAIL:
                self.history.refused(record.value, at_s)

    def _commit(self, operation: Operation) -> None:
        transaction = self._transaction(operation)
        if operation.type is Type.INVOKE:
            if transaction.asked_ns is None:
                transaction.asked_ns = operation.time_ns
            transaction.fate = Fate.UNKNOWN
        elif operation.type is Type.OK:
            transaction.fate = Fate.COMMITTED
        elif operation.type is Type.FAIL:
            transaction.fate = Fate.ABORTED

    def _abort(self, operation: Operation) -> None:
        transaction = self._transaction(operation)
        if operation.type is Type.OK and transaction.fate is not Fate.COMMITTED:
            transaction.fate = Fate.ABORTED

    def _init(self, operation: Operation) -> None:
        at_ns, process = operation.time_ns, operation.process
        if operation.type is Type.INVOKE:
            self._asked_life[process] = at_ns
        elif operation.type is Type.OK:
            life = Life(process, self._asked_life.get(process, at_ns), at_ns)
            self._lives.setdefault(operation.producer, []).append(life)

    def _poll(self, operation: Operation) -> None:
        if operation.type is Type.FAIL:
            lost = (Lost(operation.process, place(one), one.offset) for one in operation.records)
            self.out_of_range.extend(lost)
        if operation.type is not Type.OK:
            return
        self.polls += 1
        self._seen(operation)
        if operation.is_transactional:
            self._transaction(operation).read.update(record.value for record in operation.records)
        found = ((place(record), record.offset, record.value) for record in operation.records)
        self.history.polled(found, operation.process)

    def _seen(self, operation: Operation) -> None:
        for record in operation.records:
            self.first_read.setdefault(record.value, (operation.time_ns, operation.process))

    def _moved(self, operation: Operation) -> None:
        if operation.type is Type.OK:
            known = {place(one): one.offset for one in operation.records if one.offset != UNKNOWN}
            self.history.moved(operation.process, known)

    def _end(self, operation: Operation) -> None:
        if operation.type is Type.INVOKE:
            self._asked_s[operation.process] = operation.time_ns / 1e9
        elif operation.type is Type.OK and operation.process in self._asked_s:
            for record in operation.records:
                self.history.told_end(place(record), record.offset, self._asked_s[operation.process])

    def _read_whole(self, operation: Operation) -> None:
        if operation.type is not Type.OK:
            return
        for record in operation.records:
            found = self._whole.setdefault(place(record), [])
            if operation.action is Action.WHOLE:
                found.append((record.offset, record.value))
        if operation.action is Action.WHOLE:
            self._seen(operation)

    def _deleted(self, operation: Operation) -> None:
        """Asked to delete and without an answer: they may be deleted, too."""
        for record in operation.records if operation.type is not Type.FAIL else ():
            if record.offset == UNKNOWN:
                raise ValueError(
                    f"{operation.process} deleted {record}: say before which offset, as in {record}@7; what "
                    "stands from there on is looked for in the end"
                )
            before = self._begins.get(place(record), 0)
            self._begins[place(record)] = max(before, record.offset)

    # ------------------------------------------------------------ the end

    def _fenced_ns(self, transaction: Transaction) -> int | None:
        """When a life that was asked for after the transaction's own had begun had begun, too."""
        lives = self._lives.get(transaction.producer, [])
        own_ns = next((life.begun_ns for life in lives if life.process == transaction.process), None)
        if own_ns is None:
            return None
        others = (life for life in lives if life.process != transaction.process)
        return min((life.begun_ns for life in others if life.asked_ns > own_ns), default=None)

    def _settle(self) -> None:
        """A record of a transaction is acknowledged if its transaction is.

        What was asked to commit only after its producer was fenced is aborted, whatever its client knows.
        """
        for transaction in self.transactions.values():
            fenced_ns = transaction.fenced_ns = self._fenced_ns(transaction)
            asked_ns = transaction.asked_ns
            is_late = fenced_ns is not None and asked_ns is not None and asked_ns > fenced_ns
            if is_late and transaction.fate is Fate.UNKNOWN:
                transaction.fate = Fate.ABORTED
            for value in transaction.values:
                send = self.history.sends[value]
                if send.outcome is Outcome.REFUSED:
                    continue
                committed = transaction.fate is Fate.COMMITTED
                send.outcome = Outcome.ACKNOWLEDGED if committed else Outcome.OPEN
