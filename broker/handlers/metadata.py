"""Metadata 0-12: who is alive, which topics there are, who leads them, as this broker pictures it.

v0 an empty list means all topics, from v1 null does · v1 controller, racks · v2 cluster id · v4
auto-creation on request · v5 offline replicas · v7 leader epochs · v8-10 what may be done · v9 flexible ·
v10 topic ids · v12 by id Never waits: a topic that is being created, and a partition without a leader, are
answered with error 5.
Left to others: creating topics (forward.py, the controller).
"""

from typing import TYPE_CHECKING

from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode
from ...protocol.messages.control import UpdateMetadataPartitionState
from ...protocol.messages.metadata import (
    UNKNOWN_OPERATIONS,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ...protocol.primitives import NO_UUID
from ..exchange import Exchange, HandlerEntry
from ..metadata import NO_CONTROLLER, Picture, PicturedTopic
from ..topic_names import INTERNAL_TOPICS, OFFSETS_TOPIC, is_legal

if TYPE_CHECKING:
    from ..context import Broker

NO_LEADER = -1
AUTO_CREATION_ASKED_FROM = 4
TOPIC_OPERATIONS = sum(
    1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11)
)  # read … alter configs: nobody is kept out
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


def handle(broker: "Broker", exchange: Exchange, request: MetadataRequest) -> MetadataResponse:
    """The answer is drawn from one Picture, so that it agrees with itself."""
    picture, listener = broker.metadata, exchange.listener.name
    asked = request.topics
    if asked is None or (not asked and exchange.version == 0):
        topics = [describe(picture, listener, topic) for topic in picture.topics.values()]
    else:
        may_create = exchange.version < AUTO_CREATION_ASKED_FROM or request.allow_auto_topic_creation
        wanted = {(t.name, t.topic_id): t for t in asked}
        topics = [_look_up(broker, picture, listener, topic, may_create) for topic in wanted.values()]
    if request.include_topic_authorized_operations:
        topics = [_with_operations(topic) for topic in topics]
    cluster = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else UNKNOWN_OPERATIONS
    return MetadataResponse(
        brokers=live_brokers(picture, listener),
        cluster_id=broker.cluster_id,
        controller_id=picture.controller_id if picture.controller_id in picture.brokers else NO_CONTROLLER,
        topics=topics,
        cluster_authorized_operations=cluster,
    )


def refuse(request: MetadataRequest, error: ApiError) -> MetadataResponse:
    """Each topic with the same error."""
    return MetadataResponse(
        brokers=[],
        topics=[
            MetadataResponseTopic(error_code=error.code, name=t.name, topic_id=t.topic_id)
            for t in request.topics or ()
        ],
    )


def live_brokers(picture: Picture, listener: str) -> list[MetadataResponseBroker]:
    """Brokers that clients of this listener can reach."""
    return [
        MetadataResponseBroker(node_id=broker.id, host=address.host, port=address.port, rack=broker.rack)
        for broker in picture.brokers.values()
        if (address := broker.addresses.get(listener)) is not None
    ]


def describe(picture: Picture, listener: str, topic: PicturedTopic) -> MetadataResponseTopic:
    """A topic for clients of this listener; made once for each picture."""
    known = picture.described.get((listener, topic.name))
    if known is None:
        known = picture.described[listener, topic.name] = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=topic.name in INTERNAL_TOPICS,
            partitions=[
                _partition(picture, listener, topic.partitions[index]) for index in sorted(topic.partitions)
            ],
        )
    found: MetadataResponseTopic = known
    return found


def _partition(
    picture: Picture, listener: str, state: UpdateMetadataPartitionState
) -> MetadataResponsePartition:
    reachable = state.leader >= 0 and picture.address(state.leader, listener) is not None
    offline = {*state.offline_replicas, *(r for r in state.replicas if r not in picture.brokers)}
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if reachable else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=state.partition_index,
        leader_id=state.leader if reachable else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=state.replicas,
        isr_nodes=state.isr,
        offline_replicas=[r for r in state.replicas if r in offline],
    )


def _look_up(
    broker: "Broker", picture: Picture, listener: str, asked: MetadataRequestTopic, may_create: bool
) -> MetadataResponseTopic:
    name = asked.name
    if name is None:
        name = picture.names.get(asked.topic_id)
        if name is None:
            return MetadataResponseTopic(
                error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id
            )
    known = picture.topics.get(name)
    if known is not None:
        return describe(picture, listener, known)
    if not is_legal(name):
        return _error(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    if not (may_create and broker.config.auto_create_topics_enable):
        return _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    if name == OFFSETS_TOPIC:
        broker.groups.ensure_topic()
    elif name in INTERNAL_TOPICS:
        return _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    else:
        broker.forwarder.create_soon(name)
    return _error(ErrorCode.LEADER_NOT_AVAILABLE, name)


def _error(code: ErrorCode, name: str) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=code, name=name, topic_id=NO_UUID, is_internal=name in INTERNAL_TOPICS, partitions=[]
    )


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


HANDLERS = {Api.METADATA: HandlerEntry(handle, refuse)}
