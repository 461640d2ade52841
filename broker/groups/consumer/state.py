"""What a consumer group consists of: facts, each of which is one record of `__consumer_offsets`.

The group epoch counts changes of members and topics. The target assignment is computed for an epoch. Each
member approaches its target step by step: it first gives up what others shall have, and gets what others have
given up. A partition belongs to a member until the member says that it no longer owns it.
Left to others: how facts change (group.py, heartbeats.py), their records (records.py).
"""

from collections.abc import Callable, Collection
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from ....base.values import dataclass
from ....protocol.errors import ErrorCode

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
LEAVING_FOR_A_WHILE_EPOCH = -2  # a static member that will come back, under another member id
NOT_GIVEN = -1

Partitions: TypeAlias = frozenset[tuple[UUID, int]]  # topic ids with partition numbers
NO_PARTITIONS: Partitions = frozenset()


class ConsumerState(StrEnum):
    """The state of a consumer group. The values are the names that Kafka's tools print."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class MemberState(IntEnum):
    """How far a member has come towards its target. The values are Kafka's, as records have them."""

    STABLE = 0  # it has its whole target
    UNREVOKED = 1  # it has to give up partitions first
    UNRELEASED = 2  # it waits for partitions that others have not given up yet


@dataclass(frozen=True, slots=True)
class ClassicTerms:
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member says of itself."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = NOT_GIVEN
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    assignor: str | None = None
    classic: ClassicTerms | None = None  # None: it speaks the new protocol


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a member is on the way to its target."""

    epoch: int = JOINING_EPOCH
    previous_epoch: int = JOINING_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS

    @property
    def held(self) -> Partitions:
        """What nobody else may get."""
        return self.assigned | self.revoking


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """What an assignment depends on, of one topic."""

    id: UUID
    partitions: int


class Subject(IntEnum):
    """What a fact is about. The values are the versions of the records' keys."""

    EPOCH = 3
    TOPICS = 4
    SUBSCRIPTION = 5
    TARGET_EPOCH = 6
    TARGET = 7
    PROGRESS = 8


class Fact(NamedTuple):
    """One entry of a group's state. None deletes it; facts of the whole group have no member id."""

    subject: Subject
    member_id: str
    value: Any


Facts: TypeAlias = dict[tuple[Subject, str], Any]


@dataclass(frozen=True, slots=True)
class Beat:
    """A ConsumerGroupHeartbeat request, without its wire format. None and -1: as it was."""

    member_id: str
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = NOT_GIVEN
    topics: frozenset[str] | None = None
    regex: str | None = None
    assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_whole(self) -> bool:
        """It says everything, as a member does that has lost an answer; so it is told everything."""
        knows_topics = self.topics is not None or self.regex is not None
        said_all = self.rebalance_timeout_ms != NOT_GIVEN and knows_topics and self.owned is not None
        return self.epoch == JOINING_EPOCH or said_all


@dataclass(frozen=True, slots=True)
class Beaten:
    """The answer to a heartbeat. No assignment: as it was."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    member_id: str | None = None
    epoch: int = 0
    interval_ms: int = 0
    assignment: Partitions | None = None


BeatReply: TypeAlias = Callable[[Beaten], None]


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """What the configuration says of every group."""

    session_ms: int
    interval_ms: int
    members_max: int
    assignors: tuple[str, ...]  # the first is for groups whose members name none
    may_upgrade: bool
    may_downgrade: bool


class Topics:
    """The topics of the cluster, as groups need them. `is_whole`: what is not here does not exist."""

    def __init__(
        self,
        find: Callable[[str], TopicFacts | None],
        names: Collection[str],
        is_whole: bool = True,
    ) -> None:
        self.find = find
        self.names = names
        self.is_whole = is_whole
