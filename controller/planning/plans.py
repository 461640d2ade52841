"""The controller's events, and the commands that it gives its shell: values without behaviour.

An event goes into `planner.plan`; commands come out, to be carried out in order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import IntEnum
from uuid import UUID

from ...base.types import TopicPartition
from ...base.values import dataclass
from .assignment import Assignment
from .state import Broker, LogEnd, PartitionState, Strategy, Topic

LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2


# --- events ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker has become controller and has read everything."""

    brokers: Mapping[int, Broker]
    topics: Mapping[str, Topic]
    partitions: Mapping[TopicPartition, PartitionState]
    broken: frozenset[TopicPartition] = frozenset()
    suspected: frozenset[tuple[int, int]] = frozenset()
    deleting: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class BrokersRead:
    """All brokers that are registered now."""

    brokers: Mapping[int, Broker]


@dataclass(frozen=True, slots=True)
class BrokerSuspected:
    """The connection to this incarnation of a broker broke and could not be made again."""

    broker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class BrokerCleared:
    """The suspected broker has answered."""

    broker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class ReachChanged:
    """Whether this incarnation of a broker, which is alive, can be reached from here."""

    broker: int
    incarnation: int
    is_reached: bool


@dataclass(frozen=True, slots=True)
class ReachDoubted:
    """Whether so few live brokers are reached that this controller may be about to resign."""

    doubts: bool


@dataclass(frozen=True, slots=True)
class QueueOverflowed:
    """This broker's queue was full and has been dropped."""

    broker: int


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """Topics that are new, have grown or have other settings, and topics whose nodes are gone."""

    topics: Mapping[str, Topic]
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DefaultsChanged:
    """The defaults for topics without their own setting."""

    unclean: bool
    strategy: Strategy = Strategy.BALANCED
    min_isr: int = 1


@dataclass(frozen=True, slots=True)
class IsrsChanged:
    """Leaders have written new ISRs."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class StatesRead:
    """State znodes as they are now: None where there is none, `broken` where one cannot be parsed."""

    states: Mapping[TopicPartition, PartitionState | None]
    broken: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class StatesWritten:
    """Writes that have landed, and writes (`moved`) that found another version than they expected."""

    written: Mapping[TopicPartition, PartitionState]
    moved: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class LogDirsChanged:
    """These brokers have reported a change of their offline or full log directories."""

    brokers: frozenset[int]


@dataclass(frozen=True, slots=True)
class ReplicasAnswered:
    """An incarnation of a broker answered a LeaderAndIsr: of `answered`, some are offline, some are full
    there. It knows that it leads `led`, in these leader epochs.
    """

    broker: int
    incarnation: int
    answered: frozenset[TopicPartition]
    offline: frozenset[TopicPartition] = frozenset()
    full: frozenset[TopicPartition] = frozenset()
    led: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RolesRefused:
    """An incarnation of a broker of Apache Kafka refuses these roles, in these leader epochs, for good."""

    broker: int
    incarnation: int
    roles: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class ShutdownWanted:
    """A broker asks for a controlled shutdown."""

    broker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class DeletionsWanted:
    """The topics below /admin/delete_topics."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ReplicasDeleted:
    """A broker answered a request to delete replicas; `failed` are those that it could not delete."""

    broker: int
    deleted: frozenset[TopicPartition]
    failed: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class EndsAnswered:
    """An incarnation of a broker has told where logs end, each with its leader epoch. Empty: no answer."""

    broker: int
    incarnation: int
    asked: frozenset[TopicPartition]
    ends: Mapping[TopicPartition, tuple[int, LogEnd]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskAgainDue:
    """Time to ask this incarnation of a broker again: it did not answer for these partitions."""

    broker: int
    incarnation: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class RecoveryTimeOver:
    """Replicas outside the ISR of these partitions, at these leader epochs, are waited for no longer."""

    partitions: Mapping[TopicPartition, int]


class ElectionKind(IntEnum):
    """The elections that an operator may ask for, with Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectionWanted:
    """An election was asked for."""

    kind: ElectionKind
    partitions: frozenset[TopicPartition]
    number: int = 0  # of the request in this term: by it the requester sees that it was handled


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """Time to check whether a broker leads too few of the partitions that it is preferred for."""

    percentage: int


Event = (
    Elected
    | BrokersRead
    | BrokerSuspected
    | BrokerCleared
    | ReachChanged
    | ReachDoubted
    | QueueOverflowed
    | TopicsRead
    | DefaultsChanged
    | IsrsChanged
    | StatesRead
    | StatesWritten
    | LogDirsChanged
    | ReplicasAnswered
    | RolesRefused
    | ShutdownWanted
    | EndsAnswered
    | AskAgainDue
    | RecoveryTimeOver
    | ElectionWanted
    | RebalanceDue
    | DeletionsWanted
    | ReplicasDeleted
)


# --- commands --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WriteStates:
    """One conditional write per partition, all sent before the first answer is awaited."""

    writes: Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class CreateStates:
    """State nodes for new partitions."""

    writes: Mapping[TopicPartition, PartitionState]


@dataclass(frozen=True, slots=True)
class ReadStates:
    """Read these state nodes and report."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class RemoveTopic:
    """No replica is left: remove the topic's nodes."""

    topic: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """A write that is not in the table of moves (state_machines.py): it is reported, not done."""

    partition: TopicPartition
    move: str


@dataclass(frozen=True, slots=True)
class AskEnds:
    """Ask a broker where its logs of these partitions end. Every question has one `EndsAnswered`."""

    broker: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AskAgainLater:
    """Post an `AskAgainDue` after a while."""

    broker: int
    incarnation: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class AwaitReplicas:
    """Post a `RecoveryTimeOver` when replicas outside the ISR have had their time."""

    partitions: Mapping[TopicPartition, int]
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class ReportLoss:
    """This leader may lack acknowledged records: report it, whatever else happens."""

    partition: TopicPartition
    state: PartitionState
    isr_before: tuple[int, ...]
    ends: Mapping[int, LogEnd] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """Change a topic's znode: for some partitions, the assignment there now and the one to write."""

    topic: str
    changes: Mapping[int, tuple[Assignment, Assignment]]


@dataclass(frozen=True, slots=True)
class RestorePartitions:
    """These partitions are missing from the topic's znode: report it, and put them back. The number of
    partitions can only grow; without them in the znode their replicas would be taken for strays."""

    topic: str
    topic_id: UUID
    assignments: Mapping[int, Assignment]


@dataclass(frozen=True, slots=True)
class Resign:
    """A newer controller has written: this one's term is over."""

    because: str


@dataclass(frozen=True, slots=True)
class PartitionRole:
    """A partition as it is announced: its state and its replicas."""

    partition: TopicPartition
    topic_id: UUID
    state: PartitionState
    replicas: tuple[int, ...]
    offline: tuple[int, ...] = ()
    is_new: bool = False
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class SendLeaderAndIsr:
    """LeaderAndIsr for one broker: some of its partitions, or (`full`) all that it hosts."""

    broker: int
    roles: tuple[PartitionRole, ...]
    full: bool = False


@dataclass(frozen=True, slots=True)
class SendUpdateMetadata:
    """UpdateMetadata for some brokers; it always lists the brokers. `full`: these are all partitions."""

    brokers: tuple[int, ...]
    roles: tuple[PartitionRole, ...]
    full: bool = False


@dataclass(frozen=True, slots=True)
class SendStopReplica:
    """StopReplica for one broker: each partition with its leader epoch."""

    broker: int
    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    delete: bool = False


Command = (
    WriteStates
    | CreateStates
    | ReadStates
    | RemoveTopic
    | AskEnds
    | AskAgainLater
    | AwaitReplicas
    | ReportLoss
    | Refuse
    | Resign
    | WriteAssignments
    | RestorePartitions
    | SendLeaderAndIsr
    | SendUpdateMetadata
    | SendStopReplica
)
