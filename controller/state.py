"""What the controller knows: brokers, topics, partitions. Immutable, replaced whole by the planner.

Only facts stand here; what follows from them is decided in `elections.py` and `planner.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from ..protocol.kinds import TopicPartition
from .documents import Endpoint, StateDocument

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker: where it is reached, and since which start its data has been whole."""

    id: int
    incarnation: int
    intact_since: int
    intact_since_of: Mapping[str, int] = field(default_factory=dict)
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None

    def intact_for(self, partition: TopicPartition) -> int:
        """Data that this broker held of the partition in this start or later has not been lost."""
        return max(self.intact_since, self.intact_since_of.get(str(partition), -1))


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's assignment: for each partition its replicas, the preferred leader first."""

    name: str
    id: UUID
    replicas: Mapping[int, tuple[int, ...]]
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def unclean(self) -> bool:
        """Whether a replica outside the ISR may lead, at the price of lost records."""
        return self.configs.get("unclean.leader.election.enable", "false").lower() == "true"

    @property
    def partitions(self) -> list[TopicPartition]:
        """Its partitions, in order."""
        return [TopicPartition(self.name, number) for number in sorted(self.replicas)]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The state znode of a partition, and its version there."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    isr_epochs: Mapping[int, int]
    controller_epoch: int
    recovering: bool = False
    version: int = 0

    @classmethod
    def of(cls, document: StateDocument, version: int) -> PartitionState:
        """As read."""
        return cls(
            leader=document.leader,
            leader_epoch=document.leader_epoch,
            isr=tuple(document.isr),
            isr_epochs=dict(document.isr_epochs),
            controller_epoch=document.controller_epoch,
            recovering=document.leader_recovery_state != 0,
            version=version,
        )

    def document(self) -> StateDocument:
        """As written."""
        return StateDocument(
            leader=self.leader,
            leader_epoch=self.leader_epoch,
            isr=list(self.isr),
            controller_epoch=self.controller_epoch,
            isr_epochs=dict(self.isr_epochs),
            leader_recovery_state=int(self.recovering),
        )


@dataclass(frozen=True, slots=True)
class Queued:
    """A topic to be deleted once all brokers with a replica are there."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """Its replicas are being deleted; `waiting` have not said so yet."""

    waiting: frozenset[tuple[int, TopicPartition]]


@dataclass(frozen=True, slots=True)
class Removing:
    """No replica is left; its nodes are being removed."""


Deletion = Queued | Stopping | Removing


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything that a plan is made from.

    `suspected` and `leaving` name a start of a broker (id, incarnation), so a restart clears them.
    `partitions` holds what ZooKeeper is known to hold; `in_flight` what has been asked of it since.
    """

    controller_epoch: int
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    suspected: frozenset[tuple[int, int]] = frozenset()
    leaving: frozenset[tuple[int, int]] = frozenset()
    topics: Mapping[str, Topic] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    in_flight: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    deletions: Mapping[str, Deletion] = field(default_factory=dict)
    broken: frozenset[TopicPartition] = frozenset()  # their node cannot be understood: left alone

    def is_suspected(self, broker: int) -> bool:
        """Its connection broke and it has not come back."""
        return broker in self.brokers and (broker, self.brokers[broker].incarnation) in self.suspected

    def is_leaving(self, broker: int) -> bool:
        """It has asked to be shut down."""
        return broker in self.brokers and (broker, self.brokers[broker].incarnation) in self.leaving

    def is_live(self, broker: int) -> bool:
        """Registered, and not suspected: it can be told things."""
        return broker in self.brokers and not self.is_suspected(broker)

    @property
    def live(self) -> list[int]:
        """The live brokers, in order."""
        return [broker for broker in sorted(self.brokers) if self.is_live(broker)]

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """The assignment of a partition, empty if it is not known."""
        topic = self.topics.get(partition.topic)
        return () if topic is None else topic.replicas.get(partition.partition, ())

    def all_partitions(self) -> Iterator[TopicPartition]:
        """Every assigned partition, topics by name."""
        for name in sorted(self.topics):
            yield from self.topics[name].partitions

    def hosted_by(self, broker: int) -> list[TopicPartition]:
        """The partitions with a replica on this broker."""
        return [p for p in self.all_partitions() if broker in self.replicas(p)]

    def with_partitions(self, known: Mapping[TopicPartition, PartitionState]) -> ClusterState:
        """The same, knowing more of ZooKeeper."""
        return replace(self, partitions={**self.partitions, **known})
