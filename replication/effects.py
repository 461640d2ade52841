"""What the rules of replication ask of their shell: values, no calls.

A rule takes an event and returns a tuple of these, mostly the shared empty one. The shell performs them
in order and reports how they went as further events. Left to others: everything that touches a file, a
socket or ZooKeeper.
"""

from typing import TypeAlias

from ..base.types import BrokerId, Epoch, Incarnation, Offset
from ..base.values import dataclass

Seconds: TypeAlias = float  # of a monotonic clock; where it starts means nothing


@dataclass(frozen=True, slots=True)
class HighWatermarkMoved:
    """All before `to` is on every replica that counts: produce waiters and consumers may look."""

    to: Offset


@dataclass(frozen=True, slots=True)
class WriteIsr:
    """Write this ISR to the state znode, if it still has `expected_version`.

    The answer is one of `isr_landed`, `isr_refused`, `isr_unknown` or `state_read`.
    """

    expected_version: int
    isr: tuple[BrokerId, ...]
    joining: BrokerId | None
    incarnation: Incarnation  # of `joining`: its registration must still be this one


@dataclass(frozen=True, slots=True)
class ReadState:
    """Read the state znode again; answer with `state_read` or `isr_unknown`."""


@dataclass(frozen=True, slots=True)
class IsrChanged:
    """The ISR in ZooKeeper is now this one, by our own write: tell the controller, by and by."""

    isr: tuple[BrokerId, ...]
    joined: tuple[BrokerId, ...]
    left: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class StepDown:
    """ZooKeeper names another leader or epoch: lead no longer, and wait to be told whom to follow."""

    leader: BrokerId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class CheckBatch:
    """A follower asks for the batch at `offset` again and again: what it is sent may not be good."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Truncate:
    """Cut the log to `to`, and its epochs too; `settled` says that the rest is known to be the leader's."""

    to: Offset
    settled: bool


@dataclass(frozen=True, slots=True)
class RestartAt:
    """The leader has nothing so old: drop the whole log and begin at `offset`."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class FailReplica:
    """This replica has seen what cannot be: take it offline and say why."""

    reason: str


Effect: TypeAlias = (
    HighWatermarkMoved
    | WriteIsr
    | ReadState
    | IsrChanged
    | StepDown
    | CheckBatch
    | Truncate
    | RestartAt
    | FailReplica
)
Effects: TypeAlias = tuple[Effect, ...]

NOTHING: Effects = ()
