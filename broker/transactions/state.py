"""The states of a transactional id, and the events, answers and effects of its rules.

`transaction.py` decides and returns these values; `coordinator.py` carries them out. A `Reply` takes the
answer later (it holds a parked exchange); the rules only pass it along.
Left to others: which state may follow which (machine.py).
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from ...base.types import TopicPartition
from ...base.values import dataclass
from ...protocol.errors import ErrorCode

NO_START = -1
EPOCH_MAX = (1 << 15) - 1
EPOCH_GIVEN_MAX = EPOCH_MAX - 1  # the last is kept back, so that every producer can still be fenced


class TransactionState(StrEnum):
    """The state of a transactional id. The values are the names that Kafka's tools print."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


STATE_IDS = {state: number for number, state in enumerate(TransactionState)}  # as they are stored
"""The last two are never stored: Kafka has them in memory only, here each is a write under way."""

PREPARED = frozenset({TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT})
AT_REST = frozenset(
    {TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT}
)

COMPLETES = {
    TransactionState.PREPARE_COMMIT: TransactionState.COMPLETE_COMMIT,
    TransactionState.PREPARE_ABORT: TransactionState.COMPLETE_ABORT,
}


class ProducerIdentity(NamedTuple):
    """Whoever has the highest epoch of a producer id may write with it."""

    id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        """Whether the id has no further epoch to give."""
        return self.epoch >= EPOCH_GIVEN_MAX


NOBODY = ProducerIdentity(-1, -1)


@dataclass(frozen=True, slots=True)
class Standing:
    """How a transactional id stands: what its record says, and `replaced`, which is in memory only."""

    producer: ProducerIdentity
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    started_ms: int
    updated_ms: int
    replaced: ProducerIdentity | None = None
    """What the producer was before it asked for another epoch: so a repeated question gets the same answer.
    """


@dataclass(frozen=True, slots=True)
class InitAsked:
    """An InitProducerId request. `claimed`: the identity that the producer has, if it has one (KIP-360)."""

    timeout_ms: int
    claimed: ProducerIdentity | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer; `producer` is for InitProducerId."""

    error: ErrorCode
    producer: ProducerIdentity = NOBODY


Reply: TypeAlias = Callable[[Answer], None]


@dataclass(slots=True, eq=False)
class Marking:
    """The end of one transaction, on its way to every partition that has not been marked yet.

    Compared by identity, so a late answer to an earlier sending cannot complete a later transaction.
    """

    producer: ProducerIdentity
    committed: bool
    waiting: set[TopicPartition]
    is_over: bool = False  # nothing of it needs to be sent any more


@dataclass(frozen=True, slots=True)
class Respond:
    """Effect: give this answer."""

    reply: Reply
    answer: Answer


@dataclass(frozen=True, slots=True)
class Persist:
    """Effect: write this (None: a tombstone), then report under `token` what became of it."""

    token: int
    standing: Standing | None
    is_time_out: bool = False  # it aborts a transaction that was open for too long


@dataclass(frozen=True, slots=True)
class SendMarkers:
    """Effect: tell every waiting partition how the transaction ended; report each that has been told."""

    marking: Marking


@dataclass(frozen=True, slots=True)
class TryAgain:
    """Effect: call `retry` in a moment."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Effect: this transactional id exists no more."""


Effect: TypeAlias = Respond | Persist | SendMarkers | TryAgain | Forget
Effects: TypeAlias = list[Effect]
