"""What the doctor saw, as plain values: the only thing that its checks know. Pure.

Times are milliseconds since 1970 where they end in `_ms`, else seconds. None stands for what could not be
seen: an absent fact is no finding.
Left to others: how facts are collected (the files ask_*.py), what follows from them (checks_*.py).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ...base.types import NO_LEADER, TopicPartition
from ...broker.why_answers import Evidence


class Reach(Enum):
    """What became of a client's attempt to reach an address from here."""

    ANSWERS = "answers"
    UNRESOLVED = "the name does not resolve here"
    REFUSED = "the connection is refused"
    TIMEOUT = "nothing answers the connection attempt"
    UNREACHABLE = "the connection fails"
    SILENT = "the connection is accepted, but no request is answered"
    FOREIGN = "what answers there does not speak Kafka's protocol"


@dataclass(frozen=True, slots=True)
class Dial:
    """An attempt to reach one address, and who answered."""

    address: str
    reach: Reach
    detail: str = ""
    ips: tuple[str, ...] = ()  # that the name resolves to
    broker: int | None = None  # the id of who answers, if it can be told
    cluster_id: str | None = None
    took_s: float = 0.0

    @property
    def answers(self) -> bool:
        return self.reach is Reach.ANSWERS


@dataclass(frozen=True, slots=True)
class Clock:
    """How far a broker's clock is ahead of the one here, within `plus_minus_ms`: half of the round trip."""

    ahead_ms: float
    plus_minus_ms: float
    how: str


@dataclass(frozen=True, slots=True)
class Directory:
    """A log directory; bytes are -1 if the broker does not tell them."""

    path: str
    offline: bool
    full: bool = False
    total_bytes: int = -1
    usable_bytes: int = -1


@dataclass(frozen=True, slots=True)
class Opinion:
    """The cluster as one broker sees it: brokers, controller, and leaders with their epochs."""

    controller: int
    brokers: frozenset[int]
    leaders: Mapping[TopicPartition, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """One broker: who reaches it, and what it says of itself."""

    id: int
    dial: Dial
    opinion: Opinion | None = None
    apis: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)
    directories: tuple[Directory, ...] | None = None
    process: Mapping[str, Any] | None = None  # broker/process_facts.py; None of an Apache Kafka broker
    clock: Clock | None = None
    is_strandline: bool = False
    failed: Mapping[str, str] = field(default_factory=dict)  # what it did not answer, and why
    listeners: Mapping[str, Dial] = field(default_factory=dict)  # further ones, from its registration

    @property
    def answers(self) -> bool:
        return self.dial.answers


@dataclass(frozen=True, slots=True)
class PartitionFacts:
    """A partition as metadata tells it."""

    leader: int
    epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def offline(self) -> bool:
        return self.leader == NO_LEADER

    @property
    def missing(self) -> tuple[int, ...]:
        """The replicas out of sync."""
        return tuple(each for each in self.replicas if each not in self.isr)


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """A topic, its partitions by number, and its own settings as far as they were asked for."""

    name: str
    internal: bool
    partitions: Mapping[int, PartitionFacts]
    configs: Mapping[str, str | None] = field(default_factory=dict)

    @property
    def min_isr(self) -> int | None:
        text = self.configs.get("min.insync.replicas")
        return int(text) if text else None

    @property
    def replication_factor(self) -> int:
        """The smallest of its partitions'."""
        return min((len(each.replicas) for each in self.partitions.values()), default=0)


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a partition begins and ends for readers."""

    start: int
    high_watermark: int
    last_stable: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What groups had committed, and where their partitions ended, at one moment (seconds, any origin)."""

    at_s: float
    states: Mapping[str, str]
    committed: Mapping[str, Mapping[TopicPartition, int]]
    ends: Mapping[TopicPartition, Ends]


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group."""

    id: str
    client_id: str
    host: str
    instance_id: str | None = None
    assignment: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group; what it commits is in the samples."""

    name: str
    coordinator: int
    kind: str = "classic"
    members: tuple[Member, ...] = ()
    failed: str | None = None


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A producer's open transaction in a partition; without an id no coordinator knows it."""

    partition: TopicPartition
    producer_id: int
    start_offset: int
    idle_ms: int  # since its last record
    transactional_id: str | None = None
    state: str | None = None


@dataclass(frozen=True, slots=True)
class ZkServer:
    """One ZooKeeper server, by its four-letter words; `words` is False if they are not allowed."""

    address: str
    reach: Reach
    detail: str = ""
    words: bool | None = None
    version: str | None = None
    mode: str | None = None
    outstanding: int | None = None
    latency_max_ms: float | None = None


@dataclass(frozen=True, slots=True)
class ZkFacts:
    """ZooKeeper as the brokers name it, and what is in it."""

    connect: str
    servers: tuple[ZkServer, ...] = ()
    session: str | None = None  # why there is none; None if there is one
    session_s: float | None = None
    cluster_id: str | None = None
    controller: int | None = None
    registered: Mapping[int, tuple[str, ...]] | None = None  # listeners of each broker
    unreadable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LocalProcess:
    """A broker that `strandline up` started on this machine."""

    id: int
    address: str
    runs: bool
    paused: bool
    last_line: str
    options: str = ""  # what a command needs behind it to mean its cluster


@dataclass(frozen=True, slots=True)
class Facts:
    """All that was seen."""

    bootstrap: tuple[Dial, ...]
    brokers: Mapping[int, BrokerFacts] = field(default_factory=dict)
    topics: Mapping[str, TopicFacts] = field(default_factory=dict)
    moving: frozenset[TopicPartition] = frozenset()
    evidence: Mapping[TopicPartition, Evidence] = field(default_factory=dict)
    groups: Mapping[str, GroupFacts] = field(default_factory=dict)
    samples: tuple[Sample, ...] = ()
    transactions: tuple[OpenTransaction, ...] = ()
    zookeeper: ZkFacts | None = None
    local: Mapping[int, LocalProcess] = field(default_factory=dict)
    not_seen: tuple[str, ...] = ()  # what could not be looked at, and why

    @property
    def live(self) -> dict[int, BrokerFacts]:
        """The brokers that answered."""
        return {id: broker for id, broker in self.brokers.items() if broker.answers}

    @property
    def has_quorum_controller(self) -> bool:
        """Whether this is a Kafka cluster without ZooKeeper (KRaft)."""
        return any(broker.configs.get("process.roles") for broker in self.brokers.values())

    @property
    def registered(self) -> frozenset[int]:
        """The brokers that belong to the cluster now: those in ZooKeeper, else those that metadata has."""
        if self.zookeeper is not None and self.zookeeper.registered is not None:
            return frozenset(self.zookeeper.registered)
        views = [broker.opinion.brokers for broker in self.brokers.values() if broker.opinion]
        return frozenset().union(*views) if views else frozenset()

    def partitions(self) -> dict[TopicPartition, PartitionFacts]:
        """All partitions of all topics."""
        return {
            TopicPartition(topic.name, number): partition
            for topic in self.topics.values()
            for number, partition in topic.partitions.items()
        }
