"""What a client knows of the cluster: brokers, topics, leaders and their epochs. Pure.

Brokers answer Metadata from their own caches, and some lag behind. An answer with an older leader epoch than
the one known here is ignored, unless the topic was created again.
Left to others: when to ask, whom to ask (cluster.py).
"""

from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from ...base.types import NO_LEADER, TopicPartition
from ...protocol.errors import ErrorCode
from ...protocol.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

Address = tuple[str, int]


class BrokerView(NamedTuple):
    """A broker that the cluster calls alive."""

    node_id: int
    host: str
    port: int
    rack: str | None

    @property
    def address(self) -> Address:
        """Where to connect."""
        return self.host, self.port


class PartitionView(NamedTuple):
    """A partition's leader and replicas."""

    leader: int
    leader_epoch: int
    error: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(slots=True)
class TopicView:
    """A topic, or the error that brokers return for it."""

    name: str
    topic_id: UUID
    error: int
    is_internal: bool = False
    partitions: dict[int, PartitionView] = field(default_factory=dict)

    @property
    def is_gone(self) -> bool:
        """Whether it was deleted, or does not exist yet. Its partitions are those it had."""
        return self.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    @property
    def led(self) -> list[int]:
        """Partitions that have a leader."""
        return [index for index, one in self.partitions.items() if one.leader != NO_LEADER]


class ClusterView:
    """Brokers and topics as last told."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.brokers: dict[int, BrokerView] = {}
        self.topics: dict[str, TopicView] = {}

    def leader(self, partition: TopicPartition) -> PartitionView | None:
        """The partition if it has a leader that is alive."""
        topic = self.topics.get(partition.topic)
        found = topic.partitions.get(partition.partition) if topic else None
        return found if found is not None and found.leader in self.brokers else None

    def epoch(self, partition: TopicPartition) -> int:
        """The highest leader epoch seen, -1 if none."""
        topic = self.topics.get(partition.topic)
        found = topic.partitions.get(partition.partition) if topic else None
        return found.leader_epoch if found else -1

    def absorb(self, answer: MetadataResponse, *, everything: bool = False) -> bool:
        """Adopt what `answer` says; True when a leader, a topic or a broker changed."""
        brokers = {
            one.node_id: BrokerView(one.node_id, one.host, one.port, one.rack) for one in answer.brokers
        }
        changed = brokers != self.brokers
        self.brokers = brokers
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.controller_id = answer.controller_id
        told = set()
        for topic in answer.topics:
            name = topic.name or ""
            told.add(name)
            fresh = _topic(name, topic, self.topics.get(name))
            changed |= fresh != self.topics.get(name)
            self.topics[name] = fresh
        if everything:
            gone = [name for name in self.topics if name not in told]
            changed |= bool(gone)
            for name in gone:
                del self.topics[name]
        return changed

    def moved(self, partition: TopicPartition, leader: int, epoch: int, address: Address | None) -> bool:
        """A broker's answer also tells who leads now (KIP-951). Believed if newer and reachable."""
        topic = self.topics.get(partition.topic)
        known = topic.partitions.get(partition.partition) if topic else None
        if topic is None or known is None or epoch <= known.leader_epoch:
            return False
        if leader not in self.brokers:
            if address is None:
                return False
            self.brokers[leader] = BrokerView(leader, *address, None)
        topic.partitions[partition.partition] = known._replace(leader=leader, leader_epoch=epoch, error=0)
        return True


def _topic(name: str, told: MetadataResponseTopic, known: TopicView | None) -> TopicView:
    if told.error_code and not told.partitions and known is not None and known.partitions:
        return TopicView(name, known.topic_id, told.error_code, known.is_internal, known.partitions)
    same = known is not None and known.topic_id == told.topic_id
    partitions = {}
    for one in sorted(told.partitions, key=lambda each: each.partition_index):
        before = known.partitions.get(one.partition_index) if known is not None and same else None
        partitions[one.partition_index] = _partition(one, before)
    return TopicView(name, told.topic_id, told.error_code, told.is_internal, partitions)


def _partition(told: MetadataResponsePartition, known: PartitionView | None) -> PartitionView:
    if known is not None and -1 < told.leader_epoch < known.leader_epoch:
        return known
    replicas, isr = tuple(told.replica_nodes), tuple(told.isr_nodes)
    return PartitionView(told.leader_id, told.leader_epoch, told.error_code, replicas, isr)
