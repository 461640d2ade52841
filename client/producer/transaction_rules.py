"""The rules of a transactional producer: its states, where errors lead, which partitions may be sent. Pure.

As Kafka's TransactionManager has them. An error that concerns this transaction alone is abortable: what waits
to be sent is given up, and the producer goes on after an abort. If a batch has failed, numbers are missing;
so the abort also asks for a new epoch (KIP-360), under which they begin again. So it does if a request was
given up that may yet take effect: under the old epoch it cannot count for the next transaction. It comes
after EndTxn, since the marker that ends this one has the old epoch. An error is fatal if another
producer has the transactional id now, or if the broker is too old to give a new epoch.
Left to others: requests and waiting (transactions.py), batches and their numbers (partition_queues.py).
"""

from enum import Enum
from typing import NamedTuple

from ...base.types import TopicPartition
from ...protocol.errors import (
    ApiError,
    ErrorCode,
    InvalidProducerIdMapping,
    ProducerFenced,
    UnsupportedVersion,
)
from .partition_queues import Identity


class State(Enum):
    """Where a transactional producer is."""

    UNINITIALIZED = "not initialized"
    INITIALIZING = "being initialized"
    READY = "outside of a transaction"
    IN_TRANSACTION = "in a transaction"
    COMMITTING = "committing"
    ABORTING = "aborting"
    ABORTABLE_ERROR = "in a transaction that failed"
    FATAL_ERROR = "at its end"


TRANSITIONS: dict[State, frozenset[State]] = {
    State.UNINITIALIZED: frozenset({State.INITIALIZING}),
    State.INITIALIZING: frozenset({State.READY, State.UNINITIALIZED}),
    State.READY: frozenset({State.IN_TRANSACTION}),
    State.IN_TRANSACTION: frozenset({State.COMMITTING, State.ABORTING, State.ABORTABLE_ERROR}),
    State.COMMITTING: frozenset({State.READY, State.ABORTABLE_ERROR}),
    State.ABORTING: frozenset({State.READY, State.ABORTABLE_ERROR}),
    State.ABORTABLE_ERROR: frozenset({State.ABORTING}),
    State.FATAL_ERROR: frozenset(),
}
"""A fatal error may also come at any time."""

FIRST: dict[State, str] = {
    State.UNINITIALIZED: "call init_transactions() first",
    State.READY: "call begin() first",
    State.IN_TRANSACTION: "commit() or abort() it first",
    State.ABORTABLE_ERROR: "abort() it first",
}
"""What a caller should have done."""


class Step(Enum):
    """The requests of a transaction."""

    INIT = "InitProducerId"
    ADD_PARTITIONS = "AddPartitionsToTxn"
    ADD_OFFSETS = "AddOffsetsToTxn"
    COMMIT_OFFSETS = "TxnOffsetCommit"
    END = "EndTxn"


class Verdict(Enum):
    """Where an answer leads. The later, the more it counts when partitions differ."""

    DONE = 0
    ABORT = 1
    ABORT_AND_BUMP = 2  # the coordinator has another id or none: ask it for a new epoch
    RETRY = 3
    LOOK_UP = 4  # the coordinator, then retry
    FATAL = 5


_EVERYWHERE: dict[ErrorCode, Verdict] = {
    ErrorCode.NONE: Verdict.DONE,
    ErrorCode.NOT_COORDINATOR: Verdict.LOOK_UP,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Verdict.LOOK_UP,
    ErrorCode.NETWORK_EXCEPTION: Verdict.LOOK_UP,
    ErrorCode.TRANSACTION_ABORTABLE: Verdict.ABORT,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Verdict.ABORT,
    ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.ABORT_AND_BUMP,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.ABORT_AND_BUMP,
    ErrorCode.PRODUCER_FENCED: Verdict.FATAL,
    ErrorCode.INVALID_PRODUCER_EPOCH: Verdict.FATAL,
    ErrorCode.INVALID_TXN_STATE: Verdict.FATAL,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Verdict.FATAL,
    ErrorCode.UNSUPPORTED_VERSION: Verdict.FATAL,
}
_AT: dict[Step, dict[ErrorCode, Verdict]] = {
    Step.INIT: {
        ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.FATAL,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.FATAL,
    },
    Step.COMMIT_OFFSETS: {
        ErrorCode.UNKNOWN_PRODUCER_ID: Verdict.FATAL,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: Verdict.FATAL,
        ErrorCode.REQUEST_TIMED_OUT: Verdict.LOOK_UP,
        ErrorCode.FENCED_INSTANCE_ID: Verdict.ABORT,
        ErrorCode.UNKNOWN_MEMBER_ID: Verdict.ABORT,
        ErrorCode.ILLEGAL_GENERATION: Verdict.ABORT,
    },
}
_OTHERWISE: dict[Step, Verdict] = {
    Step.ADD_PARTITIONS: Verdict.ABORT
}  # a partition is refused, nobody is fenced

FATAL_FOR_BATCHES = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


def judge(step: Step, code: ErrorCode) -> Verdict:
    """Where this answer to this request leads."""
    known = _AT.get(step, {}).get(code) or _EVERYWHERE.get(code)
    if known is not None:
        return known
    return Verdict.RETRY if code.retriable else _OTHERWISE.get(step, Verdict.FATAL)


WITHIN = frozenset({Step.ADD_PARTITIONS, Step.ADD_OFFSETS, Step.COMMIT_OFFSETS})
"""They belong to the transaction that is open: they are repeated for no longer than it may be committed."""

UNDECIDED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT})
"""Answers of a coordinator that may have begun to do what was asked."""


class Answer(NamedTuple):
    """One result of a request: its code, of what, and whether the request may take effect later."""

    code: ErrorCode
    about: str
    is_pending: bool = False


def weightiest(step: Step, answers: list[Answer]) -> tuple[Verdict, Answer]:
    """The answer that decides. Where some partitions were not tried, the reason is another one's."""

    def weight(answer: Answer) -> tuple[int, bool]:
        return judge(step, answer.code).value, answer.code != ErrorCode.OPERATION_NOT_ATTEMPTED

    decisive = max(answers, key=weight)
    return judge(step, decisive.code), decisive


class TransactionRules:
    """One producer's transactions, one after the other."""

    def __init__(self) -> None:
        self.state = State.UNINITIALIZED
        self.error: Exception | None = None
        self.identity: Identity | None = None
        self.can_bump = False  # the coordinator gives a new epoch to who names its old one (KIP-360)
        self.bump_required = False
        self.is_known = False  # the coordinator has partitions or a group of this transaction
        self.begun = 0  # so many transactions: the number of the one that is open
        self.wanted: dict[TopicPartition, None] = {}
        self.added: set[TopicPartition] = set()

    def require(self, action: str, *allowed: State) -> None:
        """Raise what stands against `action`: the error of the transaction, or that it is not its time."""
        if self.state in allowed:
            return
        if self.error is not None:
            raise self.error
        first = f": {FIRST[self.state]}" if self.state in FIRST else ""
        raise RuntimeError(f"cannot {action} while the producer is {self.state.value}{first}")

    def go(self, to: State) -> None:
        """Change the state."""
        assert to is State.FATAL_ERROR or to in TRANSITIONS[self.state], f"{self.state} is not left for {to}"
        self.state = to

    # -- ids

    def initialized(self, identity: Identity, can_bump: bool) -> None:
        """The coordinator has given an id and an epoch: numbers begin again."""
        self.identity, self.can_bump = identity, can_bump
        self.bump_required = False

    def begin(self) -> None:
        """Another transaction, with the next number."""
        self.require("begin", State.READY)
        self.go(State.IN_TRANSACTION)
        self.begun += 1

    # -- partitions

    def want(self, partition: TopicPartition) -> bool:
        """A record goes to this partition. True if the coordinator has to be told."""
        if partition in self.added or partition in self.wanted:
            return False
        self.wanted[partition] = None
        return True

    def may_send(self, partition: TopicPartition) -> bool:
        """Whether the coordinator knows that the transaction writes there. Otherwise no marker would come."""
        return partition in self.added and self.state is not State.FATAL_ERROR

    def were_added(self, partitions: list[TopicPartition]) -> None:
        """The coordinator knows these now."""
        self.added.update(partitions)
        for one in partitions:
            self.wanted.pop(one, None)
        self.is_known = True

    # -- the end

    def ending(self, committed: bool) -> None:
        """The caller wants to commit or to abort."""
        if committed:
            self.require("commit", State.IN_TRANSACTION)
        else:
            self.require("abort", State.IN_TRANSACTION, State.ABORTABLE_ERROR)
            self.wanted.clear()
        self.go(State.COMMITTING if committed else State.ABORTING)

    @property
    def needs_end_request(self) -> bool:
        """Whether the coordinator has anything to end, and would know whose it is."""
        return self.is_known and not isinstance(self.error, InvalidProducerIdMapping)

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that may still be committed."""
        return self.state in (State.IN_TRANSACTION, State.COMMITTING)

    def left_pending(self) -> None:
        """A request of this transaction was given up, and may take effect later: the next transaction gets
        another epoch, so that it cannot count there."""
        self.bump_required = True
        if not self.can_bump:
            told = "a request was not answered, and the coordinator gives no new epoch: close the producer"
            self._fail(UnsupportedVersion(told), True)

    def ended(self) -> None:
        """The outcome is decided."""
        assert not self.bump_required, "a new epoch comes before the next transaction"
        self.go(State.READY)
        self.error, self.is_known = None, False
        self.added.clear()
        self.wanted.clear()

    # -- errors

    def failed(self, verdict: Verdict, error: Exception) -> None:
        """A request was refused for good."""
        self.bump_required |= verdict is Verdict.ABORT_AND_BUMP
        is_fatal = verdict is Verdict.FATAL or (self.bump_required and not self.can_bump)
        self._fail(error, is_fatal)

    def batch_failed(self, error: Exception) -> None:
        """A batch was given up, so that numbers may be missing."""
        if self.state in (State.UNINITIALIZED, State.INITIALIZING, State.READY):
            return  # of a transaction that is over: its callers gave up waiting
        self.bump_required = True
        code = error.code if isinstance(error, ApiError) else None
        is_fatal = code in FATAL_FOR_BATCHES or not self.can_bump
        if self.state is not State.ABORTING or is_fatal:
            self._fail(error, is_fatal)

    def _fail(self, error: Exception, is_fatal: bool) -> None:
        if self.state is State.FATAL_ERROR:
            return
        if is_fatal:
            self.error = _fenced(error)
            self.go(State.FATAL_ERROR)
        elif self.state is State.INITIALIZING:
            self.go(State.UNINITIALIZED)
        elif self.state is not State.ABORTABLE_ERROR:
            self.error = error
            self.go(State.ABORTABLE_ERROR)
        if self.state is not State.INITIALIZING:
            self.wanted.clear()


def _fenced(error: Exception) -> Exception:
    """Old coordinators have no name of its own for a producer that another one has replaced."""
    if isinstance(error, ApiError) and error.code == ErrorCode.INVALID_PRODUCER_EPOCH:
        return ProducerFenced(error.message)
    return error
