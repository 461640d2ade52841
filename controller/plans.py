"""What happens to the controller, and what it asks of its shell: values without behaviour.

An event goes into `planner.plan`; commands come out, to be carried out in their order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from ..protocol.kinds import TopicPartition
from .state import Broker, PartitionState, Topic

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
class QueueOverflowed:
    """So much waits for this broker that it was thrown away."""

    broker: int


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """Topics that are new, have grown or have other settings, and topics whose nodes are gone."""

    topics: Mapping[str, Topic]
    gone: frozenset[str] = frozenset()


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


Event = (
    Elected
    | BrokersRead
    | BrokerSuspected
    | BrokerCleared
    | QueueOverflowed
    | TopicsRead
    | IsrsChanged
    | StatesRead
    | StatesWritten
    | ShutdownWanted
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
class Resign:
    """A newer controller has written: this one's reign is over."""

    because: str


@dataclass(frozen=True, slots=True)
class Role:
    """A partition as it is announced: its state, and where its replicas are."""

    partition: TopicPartition
    topic_id: UUID
    state: PartitionState
    replicas: tuple[int, ...]
    offline: tuple[int, ...] = ()
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Instruct:
    """LeaderAndIsr for one broker: all partitions that concern it, or (`full`) all that it hosts."""

    broker: int
    roles: tuple[Role, ...]
    full: bool = False


@dataclass(frozen=True, slots=True)
class Inform:
    """UpdateMetadata for some brokers; the live brokers always go along. `full`: this is all there is."""

    brokers: tuple[int, ...]
    roles: tuple[Role, ...]
    full: bool = False


@dataclass(frozen=True, slots=True)
class StopReplicas:
    """StopReplica for one broker: each partition with its leader epoch."""

    broker: int
    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    delete: bool = False


Command = WriteStates | CreateStates | ReadStates | RemoveTopic | Resign | Instruct | Inform | StopReplicas
