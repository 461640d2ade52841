"""What the controller knows: brokers, topics, partitions. Immutable; the planner makes a new one.

It holds only facts. What follows from them is decided in `elections.py` and `planner.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from ...base.types import KAFKAS, NO_LEADER, TopicPartition, broker_epoch
from ...base.values import dataclass
from ...zookeeper.documents import Endpoint, StateDocument
from .assignment import Assignment

UNCLEAN = "unclean.leader.election.enable"
MIN_ISR = "min.insync.replicas"
DIGITS_MAX = 19  # of a number that a tool may have written: int() refuses thousands
STRATEGY = "unclean.recovery.strategy"


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker: where it is reached, and since which incarnation it has lost no data."""

    id: int
    incarnation: int
    intact_since: int
    intact_since_of: Mapping[str, int] = field(default_factory=dict)
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    leaving: bool = False  # it has said in its registration that it is shutting down
    has_failed_dirs: bool = (
        False  # it has reported unusable log directories; which replicas are there, it says later
    )
    born: int = 0  # the czxid of its registration

    @property
    def is_kafkas(self) -> bool:
        """Whether it is one of Apache Kafka, which proves nothing of its data."""
        return self.incarnation >= KAFKAS

    @property
    def epoch(self) -> int:
        """The broker epoch that it is told, and tells."""
        return broker_epoch(self.incarnation)

    def intact_for(self, partition: TopicPartition) -> int:
        """The incarnation since which this broker has lost no data of the partition."""
        if not self.intact_since_of:
            return self.intact_since
        return max(self.intact_since, self.intact_since_of.get(str(partition), -1))


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's assignment: for each partition its replicas, the preferred leader first."""

    name: str
    id: UUID
    replicas: Mapping[int, tuple[int, ...]]
    configs: Mapping[str, str] = field(default_factory=dict)
    configs_at: tuple[int, int] = (-1, -1)  # which edition of the configs this is
    moves: Mapping[int, Assignment] = field(default_factory=dict)  # of the partitions that are being moved
    version: int = -1  # of its znode

    def joined(self, later: Topic) -> Topic:
        """The topic as `later` has it, plus the partitions that only this one has."""
        return replace(
            later,
            replicas={**self.replicas, **later.replicas},
            moves={**self._left_out(later), **later.moves},
        )

    def _left_out(self, later: Topic) -> dict[int, Assignment]:
        return {number: one for number, one in self.moves.items() if number not in later.replicas}

    def assignment(self, number: int) -> Assignment:
        """A partition's replicas, now and after a reassignment."""
        return self.moves.get(number) or Assignment(self.replicas.get(number, ()))

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
    born: int = field(default=0, compare=False)  # the czxid of the znode, 0 while it was not read

    @classmethod
    def of(cls, document: StateDocument, version: int, born: int = 0) -> PartitionState:
        """As read."""
        return cls(
            leader=document.leader,
            leader_epoch=document.leader_epoch,
            isr=tuple(document.isr),
            isr_epochs=dict(document.isr_epochs),
            controller_epoch=document.controller_epoch,
            recovering=document.leader_recovery_state != 0,
            version=version,
            born=born,
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
class Departure:
    """Replicas that leave a partition: the assignment now (`begun_at`), and what it will become (`then`).

    Once `is_written`, the state znode names none of them any more. They are told to delete, and no longer
    count as replicas here, although the topic's znode still lists them.
    """

    gone: frozenset[int]
    begun_at: Assignment
    then: Assignment
    is_written: bool = False

    def __post_init__(self) -> None:
        assert self.gone.isdisjoint(self.then.replicas), "who leaves is not assigned afterwards"


@dataclass(frozen=True, slots=True)
class Queued:
    """A topic to be deleted once all brokers with a replica are live."""


@dataclass(frozen=True, slots=True)
class Stopping:
    """The topic's replicas are being deleted; `waiting` have not been confirmed yet."""

    waiting: frozenset[tuple[int, TopicPartition]]


@dataclass(frozen=True, slots=True)
class Removing:
    """No replica is left; the topic's znodes are being removed."""


Deletion = Queued | Stopping | Removing

Start = tuple[int, int]  # a broker's id and incarnation


class Strategy(Enum):
    """Who may lead when no member of an ISR can prove that it still has its data."""

    BALANCED = "balanced"  # the longest log of all replicas, once all have been asked
    MANUAL = "manual"  # nobody, until an operator says so
    AGGRESSIVE = "aggressive"  # the first one that is there, at once


class LogEnd(NamedTuple):
    """Where a replica's log ends: the epoch of its last record, and the offset after it."""

    epoch: int
    offset: int


@dataclass(frozen=True, slots=True)
class UncleanRecovery:
    """The search for the longest log of a partition that nobody may lead; it belongs to one leader epoch.

    `asked` and `ends` name incarnations, so a broker that restarts is asked again. `is_over`: replicas
    outside the ISR are waited for no longer. `is_forced`: an operator wants to wait for nobody.
    """

    epoch: int
    asked: frozenset[Start] = frozenset()
    ends: Mapping[Start, LogEnd] = field(default_factory=dict)
    is_timed: bool = False
    is_over: bool = False
    is_forced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterState:
    """Everything that a plan is made from.

    These name one incarnation of a broker (id, incarnation), so a restart clears them: `suspected`,
    `unreached`, `leaving`; `offline` and `full`: replicas in a log directory that has failed or has no room;
    `unheard`: replicas of a broker with failed directories that has not said yet whether they lie in one;
    `undeleted`: replicas that have moved away from the broker and could not be deleted there.
    `untold`: leader epochs that this controller has begun, and whose leader has not confirmed that it knows.
    `refused`: leader epochs in which a broker of Kafka does not take its role.
    `unshown`: partitions with news that brokers are not told yet, because they are being written.
    `partitions` is what ZooKeeper is known to hold; `in_flight` is what has been written since, unconfirmed.
    """

    controller_epoch: int
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    suspected: frozenset[tuple[int, int]] = frozenset()
    unreached: frozenset[tuple[int, int]] = frozenset()  # alive, but out of this controller's reach
    doubts_reach: bool = False  # so many are unreached that another broker may soon be controller
    leaving: frozenset[tuple[int, int]] = frozenset()
    topics: Mapping[str, Topic] = field(default_factory=dict)
    partitions: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    in_flight: Mapping[TopicPartition, PartitionState] = field(default_factory=dict)
    deletions: Mapping[str, Deletion] = field(default_factory=dict)
    offline: Mapping[tuple[int, int], frozenset[TopicPartition]] = field(default_factory=dict)
    full: Mapping[tuple[int, int], frozenset[TopicPartition]] = field(default_factory=dict)
    unheard: Mapping[tuple[int, int], frozenset[TopicPartition]] = field(default_factory=dict)
    undeleted: Mapping[tuple[int, int], frozenset[TopicPartition]] = field(default_factory=dict)
    untold: Mapping[TopicPartition, int] = field(default_factory=dict)
    refused: Mapping[TopicPartition, int] = field(default_factory=dict)
    unshown: frozenset[TopicPartition] = frozenset()
    departures: Mapping[TopicPartition, Departure] = field(default_factory=dict)
    unannounced: frozenset[TopicPartition] = frozenset()  # their leaders do not know their replicas yet
    min_isr: int = 1  # default of min.insync.replicas
    broken: frozenset[TopicPartition] = frozenset()  # their znode cannot be parsed: left alone
    unclean: bool = False  # default of unclean.leader.election.enable
    strategy: Strategy = Strategy.BALANCED  # default of unclean.recovery.strategy
    recoveries: Mapping[TopicPartition, UncleanRecovery] = field(default_factory=dict)
    elections_heard: int = 0  # number of the last request for an election that was handled
    preferring: frozenset[TopicPartition] = frozenset()  # to be led by their first replica, if that may lead
    isr_order: bool = False  # the first in the ISR leads, as in Kafka 0.8, not the first in the assignment

    def allows_unclean(self, topic: str) -> bool:
        """Whether a replica outside the ISR may lead, at the price of lost records."""
        said = self.topics[topic].configs.get(UNCLEAN)
        allowed = self.unclean if said is None else said.lower() == "true"
        return allowed or self.strategy_of(topic) is Strategy.AGGRESSIVE

    def strategy_of(self, topic: str) -> Strategy:
        """How a partition of the topic is recovered. An unknown value counts as not set."""
        said = self.topics[topic].configs.get(STRATEGY, "").lower()
        return next((each for each in Strategy if each.value == said), self.strategy)

    def min_isr_of(self, topic: str) -> int:
        """How many must hold a record of this topic before acks=all is answered."""
        said = self.topics[topic].configs.get(MIN_ISR, "")
        is_number = said.isascii() and said.isdigit() and len(said) <= DIGITS_MAX
        return int(said) if is_number else self.min_isr

    def is_suspected(self, broker: int) -> bool:
        """Whether its connection broke and it has not come back."""
        return broker in self.brokers and (broker, self.brokers[broker].incarnation) in self.suspected

    def is_reached(self, broker: int) -> bool:
        """Whether it would hear at once that it leads, as far as is known.

        While this controller doubts itself its own reach proves nothing: its successor will reach others.
        """
        return self.doubts_reach or not self.unreached or self.start_of(broker) not in self.unreached

    def is_untold(self, partition: TopicPartition, known: PartitionState) -> bool:
        """Whether its leader may not know that it leads."""
        return bool(self.untold) and self.untold.get(partition) == known.leader_epoch

    def is_leaving(self, broker: int) -> bool:
        """Whether it has asked for a controlled shutdown, or its registration says that it shuts down."""
        known = self.brokers.get(broker)
        return known is not None and (known.leaving or (broker, known.incarnation) in self.leaving)

    def is_offline(self, broker: int, partition: TopicPartition) -> bool:
        """Whether it has said that the replica is in a log directory that it cannot use."""
        return bool(self.offline) and partition in self.offline.get(self.start_of(broker), ())

    def is_unheard(self, broker: int, partition: TopicPartition) -> bool:
        """Whether a log directory of it has failed and it has not said yet whether the replica is there."""
        return bool(self.unheard) and partition in self.unheard.get(self.start_of(broker), ())

    def is_full(self, broker: int, partition: TopicPartition) -> bool:
        """Whether it has said that the replica can take no more records for now."""
        return bool(self.full) and partition in self.full.get(self.start_of(broker), ())

    def joined(self, members: Iterable[int]) -> dict[int, int]:
        """What a state says of these registered brokers if they join the ISR now; of Kafka's, nothing."""
        return {m: self.brokers[m].incarnation for m in members if not self.brokers[m].is_kafkas}

    def still_joined(self, joined: Mapping[int, int], members: Iterable[int]) -> dict[int, int]:
        """What a state may go on saying of when these members joined: of one that is Kafka's by now it tells
        nothing. Else a leader that has changed kinds would look restarted for ever.
        """
        kafkas = {broker for broker, there in self.brokers.items() if there.is_kafkas}
        return {member: joined[member] for member in members if member in joined and member not in kafkas}

    def start_of(self, broker: int) -> Start:
        """The broker's id and current incarnation, -1 if it is not registered."""
        known = self.brokers.get(broker)
        return broker, -1 if known is None else known.incarnation

    def is_live(self, broker: int) -> bool:
        """Whether it is registered and not suspected: requests are sent to it."""
        return broker in self.brokers and not self.is_suspected(broker)

    @property
    def live(self) -> list[int]:
        """The live brokers, in order."""
        return [broker for broker in sorted(self.brokers) if self.is_live(broker)]

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        """The replicas of a partition, empty if it is not known."""
        topic = self.topics.get(partition.topic)
        held = () if topic is None else topic.replicas.get(partition.partition, ())
        departure = self.departures.get(partition) if self.departures else None
        if departure is None or not departure.is_written:
            return held
        return tuple(r for r in held if r not in departure.gone)

    def assignment(self, partition: TopicPartition) -> Assignment:
        """The assignment of a partition as ZooKeeper has it."""
        topic = self.topics.get(partition.topic)
        return Assignment(()) if topic is None else topic.assignment(partition.partition)

    def moving(self) -> list[TopicPartition]:
        """The partitions that are being moved."""
        return [
            TopicPartition(name, number)
            for name, topic in sorted(self.topics.items())
            for number in sorted(topic.moves)
        ]

    def is_ending(self, topic: str) -> bool:
        """Whether it is being deleted. While it is queued and partitions are moving, they are moved first."""
        deletion = self.deletions.get(topic) if self.deletions else None
        if deletion is None:
            return False
        known = self.topics.get(topic)
        return not (isinstance(deletion, Queued) and known is not None and known.moves)

    def all_partitions(self) -> Iterator[TopicPartition]:
        """Every assigned partition, topics by name."""
        for name in sorted(self.topics):
            yield from self.topics[name].partitions

    def hosted_by(self, broker: int) -> list[TopicPartition]:
        """The partitions with a replica on this broker."""
        return [p for p in self.all_partitions() if broker in self.replicas(p)]

    def leaderless_on(self, brokers: Iterable[int]) -> list[TopicPartition]:
        """The leaderless partitions that these brokers host: no ISR change will tell that they are back."""
        hosts = frozenset(brokers)
        return [
            p
            for p, known in sorted(self.partitions.items())
            if known.leader == NO_LEADER and not self.is_ending(p.topic) and hosts & {*self.replicas(p)}
        ]

    def with_partitions(self, known: Mapping[TopicPartition, PartitionState]) -> ClusterState:
        """The same, with these partition states, which ZooKeeper is known to hold."""
        return replace(self, partitions={**self.partitions, **known})
