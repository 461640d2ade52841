"""What the replication rules ask their shell to do: values, not calls.

A rule takes an event and returns a tuple of effects, mostly the shared empty one. The shell performs them in
order and reports how they went as further events.
Left to others: everything that touches a file, a socket or ZooKeeper.
"""

from typing import TypeAlias

from ..base.types import BrokerId, Epoch, Incarnation, Offset
from ..base.values import dataclass

Seconds: TypeAlias = float  # of a monotonic clock; where it starts means nothing


@dataclass(frozen=True, slots=True)
class HighWatermarkMoved:
    """Every replica that counts has all records before `to`: waiting produces and consumers may look."""

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
    """The ISR in ZooKeeper is now this one, by our own write: tell the controller later."""

    isr: tuple[BrokerId, ...]
    joined: tuple[BrokerId, ...]
    left: tuple[BrokerId, ...]


@dataclass(frozen=True, slots=True)
class StepDown:
    """ZooKeeper names another leader or epoch: stop leading, and wait to be told whom to follow."""

    leader: BrokerId
    epoch: Epoch


@dataclass(frozen=True, slots=True)
class CheckBatch:
    """A follower keeps asking for the batch at `offset`: what it is sent may be corrupt."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class Truncate:
    """Truncate the log and its epochs to `to`. If `settled`, the rest is known to match the leader's log."""

    to: Offset
    settled: bool


@dataclass(frozen=True, slots=True)
class RestartAt:
    """The leader has nothing so old any more: drop the complete log and begin at `offset`."""

    offset: Offset


@dataclass(frozen=True, slots=True)
class FailReplica:
    """This replica has seen something impossible: take it offline and say why."""

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
