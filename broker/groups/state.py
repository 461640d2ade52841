"""The states of a group (Empty, PreparingRebalance, CompletingRebalance, Stable, Dead) and their transitions.

Also the requests, answers and effects of its rules: `group.py` decides and returns these values;
`coordinator.py` carries them out. A `JoinReply` or `SyncReply` takes the answer later (it holds a parked
exchange); the rules only pass it along.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeAlias

from ...base.values import dataclass
from ...protocol.errors import ErrorCode

NO_GENERATION = -1
NO_MEMBER = ""


class GroupState(StrEnum):
    """The state of a group. The values are the names that Kafka's tools print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class GroupType(StrEnum):
    """By which protocol a group lives. The values are the names that Kafka's tools print and filter by."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


TRANSITIONS: dict[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.PREPARING_REBALANCE: frozenset(
        {GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}
    ),
    GroupState.COMPLETING_REBALANCE: frozenset(
        {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
    ),
    GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}


@dataclass(frozen=True, slots=True)
class JoinAsked:
    """A JoinGroup request, without its wire format."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    must_know_id: bool  # from v4: a newcomer gets its member id first, and joins again with it
    may_skip_assignment: bool  # from v9


@dataclass(frozen=True, slots=True)
class Terms:
    """What a member says of itself in a join, and may say differently in the next."""

    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class SyncAsked:
    """A SyncGroup request; only the leader fills `assignments`."""

    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol: str | None
    assignments: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Listed:
    """One member, as the leader gets it in its join answer."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True)
class Joined:
    """The answer to a join."""

    error: ErrorCode
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = NO_MEMBER
    members: tuple[Listed, ...] = ()
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True)
class Synced:
    """The answer to a sync."""

    error: ErrorCode
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


JoinReply: TypeAlias = Callable[[Joined], None]
SyncReply: TypeAlias = Callable[[Synced], None]


@dataclass(frozen=True, slots=True)
class AnswerJoin:
    """Effect: give this answer to a parked (or present) join."""

    reply: JoinReply
    answer: Joined


@dataclass(frozen=True, slots=True)
class AnswerSync:
    """Effect: give this answer to a parked (or present) sync."""

    reply: SyncReply
    answer: Synced


@dataclass(frozen=True, slots=True)
class Persist:
    """Effect: write the group's record with these assignments, then call `persisted` with `token`."""

    token: int
    assignments: dict[str, bytes]


Effect: TypeAlias = AnswerJoin | AnswerSync | Persist
Effects: TypeAlias = list[Effect]


@dataclass(frozen=True, slots=True)
class Collecting:
    """A rebalance that ends when every member has joined, or at `until` without the absent."""

    until: float


@dataclass(frozen=True, slots=True)
class Lingering:
    """The first rebalance of an empty group, which waits for more newcomers.

    At `until` it waits again if it `grew`, for at most `left` seconds more in all.
    """

    until: float
    left: float
    grew: bool


Rebalance: TypeAlias = Collecting | Lingering
