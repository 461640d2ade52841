"""This broker's picture of the cluster: which brokers are registered, which partitions exist, who leads them.

Each UpdateMetadata makes a new Picture; a Picture never changes, so code may keep one across an await.
An update names all registered brokers, suspected or not, but only the partitions that changed.
Left to others: which updates are accepted (handlers/between_brokers/control.py), what clients see of it
(handlers/metadata.py).
"""

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from typing import Any
from uuid import UUID

from ...base.types import BrokerId, TopicPartition
from ...base.values import dataclass
from ...protocol.messages.control import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ...protocol.primitives import NO_UUID

LEADER_IS_DELETED = -2
NO_CONTROLLER = -1
FULL_UPDATE = 2  # names all topics that exist: any other topic was deleted without our notice


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a broker on one listener."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A broker that is alive, with its address on each of its listeners."""

    id: int
    addresses: Mapping[str, Address]
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PicturedTopic:
    """A topic: its id, and its partitions by number, as the controller announced them."""

    name: str
    id: UUID
    partitions: Mapping[int, UpdateMetadataPartitionState]


@dataclass(frozen=True, slots=True)
class Picture:
    """The cluster as the controller last announced it."""

    brokers: Mapping[int, LiveBroker] = field(default_factory=dict)
    topics: Mapping[str, PicturedTopic] = field(default_factory=dict)
    names: Mapping[UUID, str] = field(default_factory=dict)
    controller_id: int = NO_CONTROLLER
    controller_epoch: int = -1
    is_whole: bool = False
    """An update has named all topics that exist, so a topic that is not here does not exist. One of our
    controllers says so; those of Apache Kafka do not, but the first time that they tell a broker of topics
    they tell it of all, and later of every change. Only one that is elected while this broker knows nothing
    yet tells it in a second update of partitions whose replicas are all away.
    """
    is_said_whole: bool = False
    """The present controller, one of ours, has said so. Nothing may be given up for good because of what is
    only assumed, nor because of what an earlier controller said: others may have been told of topics since.
    """
    described: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    """A cache of what was derived from this picture, for any code that derives; it goes with the picture."""

    def updated(self, request: UpdateMetadataRequest, by_kafkas: bool = False) -> "Picture":
        """The picture after this update of the controller, which may be one of Apache Kafka."""
        topics, names = self.topics, self.names
        if request.type == FULL_UPDATE:
            topics, names = {}, {}
        if request.topic_states:
            topics, names = dict(topics), dict(names)
            for state in request.topic_states:
                _apply(state, topics, names)
        is_said = self.is_said_whole and request.controller_epoch == self.controller_epoch
        return Picture(
            {broker.id: _live(broker) for broker in request.live_brokers},
            topics,
            names,
            request.controller_id,
            request.controller_epoch,
            self.is_whole or request.type == FULL_UPDATE or (by_kafkas and bool(request.topic_states)),
            is_said or request.type == FULL_UPDATE,
        )

    def doubted(self) -> "Picture":
        """The same, but there may be topics that this broker has not been told of."""
        return replace(self, is_said_whole=False)

    def lacks(self, tp: TopicPartition) -> bool:
        """Whether this partition surely does not exist. False until a controller of ours has named all."""
        return self.is_said_whole and self.partition(*tp) is None

    def gone_since(self, before: "Picture", request: UpdateMetadataRequest) -> list[TopicPartition]:
        """The partitions of `before` that this update deleted. A topic created again, with the same name and
        a new id, has lost all its old partitions.
        """
        if request.type == FULL_UPDATE:
            names: Iterable[str] = before.topics
        else:
            names = {state.topic_name for state in request.topic_states} & before.topics.keys()
        gone: list[TopicPartition] = []
        for name in names:
            old, new = before.topics[name], self.topics.get(name)
            stays = new.partitions if new is not None and new.id == old.id else {}
            if stays is not old.partitions:
                gone += [TopicPartition(name, each) for each in old.partitions if each not in stays]
        return gone

    def is_elsewhere(self, broker: int, tp: TopicPartition, topic_id: UUID) -> bool:
        """Whether this topic does not exist, or `broker` has no replica of this partition."""
        if topic_id not in self.names:
            return True
        known = self.partition(self.names[topic_id], tp.partition)
        return known is not None and broker not in known.replicas

    def is_in_sync_elsewhere(self, broker: int, tp: TopicPartition) -> bool:
        """Whether the last ISR the controller announced has a live member other than `broker`."""
        state = self.partition(tp.topic, tp.partition)
        return state is not None and any(other != broker and other in self.brokers for other in state.isr)

    def address(self, broker: int, listener: str) -> Address | None:
        """Where a live broker is reached on a listener."""
        known = self.brokers.get(broker)
        return None if known is None else known.addresses.get(listener)

    def partition(self, topic: str, partition: int) -> UpdateMetadataPartitionState | None:
        """What is known of one partition."""
        known = self.topics.get(topic)
        return None if known is None else known.partitions.get(partition)


class MetadataCache:
    """Holds the newest picture, for parts that outlive a picture."""

    __slots__ = ("_me", "picture")

    def __init__(self, me: BrokerId) -> None:
        self._me = me
        self.picture = Picture()

    def current(self) -> Picture:
        """The newest picture."""
        return self.picture

    def doubt(self) -> None:
        """The controller may not have been able to tell us of topics."""
        self.picture = self.picture.doubted()

    def has(self, tp: TopicPartition) -> bool:
        """Whether the cluster has such a partition."""
        return self.picture.partition(tp.topic, tp.partition) is not None

    def is_elsewhere(self, tp: TopicPartition, topic_id: UUID, controller_epoch: int) -> bool:
        """Whether the controller of this epoch says that this broker has no replica of the partition."""
        picture = self.picture
        return picture.controller_epoch == controller_epoch and picture.is_elsewhere(self._me, tp, topic_id)


def _live(broker: UpdateMetadataBroker) -> LiveBroker:
    return LiveBroker(broker.id, {e.listener: Address(e.host, e.port) for e in broker.endpoints}, broker.rack)


def _apply(state: UpdateMetadataTopicState, topics: dict[str, PicturedTopic], names: dict[UUID, str]) -> None:
    old = topics.get(state.topic_name)
    if old is not None and old.id != state.topic_id:
        names.pop(old.id, None)  # deleted and created again: nothing of the old one remains
        old = None
    partitions = dict(old.partitions) if old is not None else {}
    for partition in state.partition_states:
        if partition.leader == LEADER_IS_DELETED:
            partitions.pop(partition.partition_index, None)
        else:
            partitions[partition.partition_index] = partition
    if not partitions:
        topics.pop(state.topic_name, None)
        names.pop(state.topic_id, None)
        return
    topics[state.topic_name] = PicturedTopic(state.topic_name, state.topic_id, partitions)
    if state.topic_id != NO_UUID:
        names[state.topic_id] = state.topic_name
