"""What happens to the controller, and what it asks of its shell: values without behaviour.

An event goes into `planner.plan`; commands come out, to be carried out in their order.
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
    """The connection to this start of a broker broke and could not be made again."""

    broker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class BrokerCleared:
    """The suspected broker has answered."""

    broker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class ReachChanged:
    """Whether this start of a broker, which lives, can be reached from here."""

    broker: int
    incarnation: int
    is_reached: bool


@dataclass(frozen=True, slots=True)
class ReachDoubted:
    """Whether so few of the living are reached that this controller may be about to give its seat up."""

    doubts: bool


@dataclass(frozen=True, slots=True)
class QueueOverflowed:
    """So much waits for this broker that it was thrown away."""

    broker: int


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """Topics that are new, have grown or have other settings, and topics whose nodes are gone."""

    topics: Mapping[str, Topic]
    gone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class DefaultsChanged:
    """What holds for topics that do not say it themselves."""

    unclean: bool
    strategy: Strategy = Strategy.BALANCED
    min_isr: int = 1


@dataclass(frozen=True, slots=True)
class IsrsChanged:
    """Leaders have written new ISRs."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class StatesRead:
    """State nodes as they are now; None where there is none, `broken` where it cannot be understood."""

    states: Mapping[TopicPartition, PartitionState | None]
    broken: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class StatesWritten:
    """Writes that stand now, and writes that found another version than they expected."""

    written: Mapping[TopicPartition, PartitionState]
    moved: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class LogDirsChanged:
    """These brokers have other log directories offline or full than before."""

    brokers: frozenset[int]


@dataclass(frozen=True, slots=True)
class ReplicasAnswered:
    """A start of a broker answered a LeaderAndIsr: of `answered`, some are offline there, some are full. It
    knows that it leads `led`, in these leader epochs.
    """

    broker: int
    incarnation: int
    answered: frozenset[TopicPartition]
    offline: frozenset[TopicPartition] = frozenset()
    full: frozenset[TopicPartition] = frozenset()
    led: Mapping[TopicPartition, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShutdownWanted:
    """A broker wishes to stop."""

    broker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class DeletionsWanted:
    """Topics that stand in /admin/delete_topics."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ReplicasDeleted:
    """A broker answered a request to delete replicas; `failed` are those that it could not delete."""

    broker: int
    deleted: frozenset[TopicPartition]
    failed: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class EndsAnswered:
    """A start of a broker has answered, or has not: how far logs go, each with the leader epoch it knows."""

    broker: int
    incarnation: int
    asked: frozenset[TopicPartition]
    ends: Mapping[TopicPartition, tuple[int, LogEnd]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AskAgainDue:
    """It is a while ago that this start of a broker did not answer for these partitions."""

    broker: int
    incarnation: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class RecoveryTimeOver:
    """Whoever is not in the ISR of these partitions, at these leader epochs, is not waited for any longer."""

    partitions: Mapping[TopicPartition, int]


class ElectionKind(IntEnum):
    """What an operator may ask for, by Kafka's numbers."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectionWanted:
    """Somebody asks for a leader of his choice."""

    kind: ElectionKind
    partitions: frozenset[TopicPartition]
    number: int = 0  # of the request in this reign: whoever asks sees that it was heard


@dataclass(frozen=True, slots=True)
class RebalanceDue:
    """It is time to see whether a broker leads too few of the partitions that it is preferred for."""

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
    """A write that the table of moves does not have (state_machines.py): it is said, and not done."""

    partition: TopicPartition
    move: str


@dataclass(frozen=True, slots=True)
class AskEnds:
    """Ask a broker how far its logs of these partitions go. Every question has one `EndsAnswered`."""

    broker: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AskAgainLater:
    """Let an `AskAgainDue` follow after a while."""

    broker: int
    incarnation: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class AwaitReplicas:
    """Let a `RecoveryTimeOver` follow when replicas outside the ISR have had their time."""

    partitions: Mapping[TopicPartition, int]
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class ReportLoss:
    """This leader may lack records that were acknowledged: say so, whatever else happens."""

    partition: TopicPartition
    state: PartitionState
    isr_before: tuple[int, ...]
    ends: Mapping[int, LogEnd] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteAssignments:
    """In the node of a topic, for some partitions: what stands there now, and what shall stand there."""

    topic: str
    changes: Mapping[int, tuple[Assignment, Assignment]]


@dataclass(frozen=True, slots=True)
class RestorePartitions:
    """Somebody took these partitions out of the topic's node: say so, and put them back. Their number can
    only grow; without them in the node their replicas would be taken for strays."""

    topic: str
    topic_id: UUID
    assignments: Mapping[int, Assignment]


@dataclass(frozen=True, slots=True)
class Resign:
    """A newer controller has written: this one's reign is over."""

    because: str


@dataclass(frozen=True, slots=True)
class PartitionRole:
    """A partition as it is announced: its state, and where its replicas are."""

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
    """LeaderAndIsr for one broker: all partitions that concern it, or (`full`) all that it hosts."""

    broker: int
    roles: tuple[PartitionRole, ...]
    full: bool = False


@dataclass(frozen=True, slots=True)
class SendUpdateMetadata:
    """UpdateMetadata for some brokers; the live brokers always go along. `full`: this is all there is."""

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
