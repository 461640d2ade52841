"""Metadata 0-12: live brokers, topics and their leaders, as this broker last heard from the controller.

v0 an empty list means all topics, from v1 null does · v1 controller, racks · v2 cluster id · v4
auto-creation on request · v5 offline replicas · v7 leader epochs · v8-10 what may be done · v9 flexible ·
v10 topic ids · v12 by id
A topic that is being created, and a partition without a leader, get error 5. While this broker has reason to
expect better news, the answer waits for the controller's next update (metadata/held_answers.py).
Left to others: creating topics (forward.py, the controller).
"""

from typing import TYPE_CHECKING

from ...base.types import NO_LEADER
from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode, InvalidRequest
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
from ..metadata.cache import NO_CONTROLLER, Picture, PicturedTopic
from ..metadata.doubts import Doubts
from ..metadata.held_answers import Until
from ..network.exchange import Exchange, HandlerEntry
from ..topic_names import INTERNAL_TOPICS, OFFSETS_TOPIC, is_legal

if TYPE_CHECKING:
    from ..context import BrokerContext

AUTO_CREATION_ASKED_FROM = 4
IDS_IN_REQUESTS_FROM, IDS_SERVED_FROM = 10, 12  # before 12 an answer cannot have a null topic name
TOPIC_OPERATIONS = sum(
    1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11)
)  # read … alter configs: there are no ACLs
COLLAPSED = "names of topics with '_' for '.'"  # in what is derived from a picture
CLUSTER_OPERATIONS = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))


def handle(broker: "BrokerContext", exchange: Exchange, request: MetadataRequest) -> MetadataResponse | None:
    """Answer now or, if the picture is in doubt, a moment later."""
    if IDS_IN_REQUESTS_FROM <= exchange.version < IDS_SERVED_FROM:
        _refuse_ids(request)
    _create_missing(broker, exchange, request)
    if broker.held.hold(exchange, _until(exchange, request), lambda: _answer(broker, exchange, request)):
        return None
    return _answer(broker, exchange, request)


def _refuse_ids(request: MetadataRequest) -> None:
    for topic in request.topics or ():
        if topic.name is None or topic.topic_id != NO_UUID:
            raise InvalidRequest("a topic id needs version 12 or newer")


def _until(exchange: Exchange, request: MetadataRequest) -> Until:
    asked = request.topics
    if _asks_for_all(exchange, request):
        return Doubts.until_of_all
    if not asked:
        return Doubts.until_of_cluster

    def until(doubts: Doubts, picture: Picture, now: float) -> float:
        names = (_name_of(picture, topic) or "" for topic in asked)
        return doubts.until(picture, names, now)

    return until


def _name_of(picture: Picture, asked: MetadataRequestTopic) -> str | None:
    """An id counts more than a name: Java's client sends an empty name with it. None: the id is unknown."""
    by_id = asked.topic_id != NO_UUID or asked.name is None
    return picture.names.get(asked.topic_id) if by_id else asked.name


def _asks_for_all(exchange: Exchange, request: MetadataRequest) -> bool:
    return request.topics is None or (not request.topics and exchange.version == 0)


def _may_create(broker: "BrokerContext", exchange: Exchange, request: MetadataRequest) -> bool:
    wished = exchange.version < AUTO_CREATION_ASKED_FROM or request.allow_auto_topic_creation
    return wished and broker.config.auto_create_topics_enable


def _create_missing(broker: "BrokerContext", exchange: Exchange, request: MetadataRequest) -> None:
    """Auto-create topics that do not exist, if the request names them and allows it."""
    if not request.topics or not _may_create(broker, exchange, request):
        return
    for name in {t.name for t in request.topics if t.name is not None and t.topic_id == NO_UUID}:
        if name in broker.metadata.topics or not is_legal(name) or _collides(broker.metadata, name):
            continue
        if name == OFFSETS_TOPIC:
            if broker.groups.ensure_topic() is None:
                broker.held.creating(OFFSETS_TOPIC)
        elif name not in INTERNAL_TOPICS:
            broker.forwarder.create_soon(name)


def _answer(broker: "BrokerContext", exchange: Exchange, request: MetadataRequest) -> MetadataResponse:
    """Made from one Picture, so that it is consistent."""
    picture, listener = broker.metadata, exchange.listener.name
    if _asks_for_all(exchange, request):
        topics = [describe(picture, listener, topic) for topic in picture.topics.values()]
    else:
        is_made = _may_create(broker, exchange, request)
        wanted = {(t.name, t.topic_id): t for t in request.topics or ()}
        topics = [_look_up(picture, listener, topic, is_made) for topic in wanted.values()]
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
            MetadataResponseTopic(error_code=error.code, name=t.name or "", topic_id=t.topic_id)
            for t in request.topics or ()
        ],
    )


def live_brokers(picture: Picture, listener: str) -> list[MetadataResponseBroker]:
    """Brokers that clients of this listener can reach. Who may be dead is among them until its session ends:
    librdkafka 2.16 does not come back to a coordinator that left the list for a moment (its issue 5511).
    """
    return [
        MetadataResponseBroker(node_id=broker.id, host=address.host, port=address.port, rack=broker.rack)
        for broker in picture.brokers.values()
        if (address := broker.addresses.get(listener)) is not None
    ]


def describe(picture: Picture, listener: str, topic: PicturedTopic) -> MetadataResponseTopic:
    """A topic for clients of this listener; cached in the picture."""
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
    picture: Picture, listener: str, asked: MetadataRequestTopic, is_made: bool
) -> MetadataResponseTopic:
    """`is_made`: a topic that does not exist is being created."""
    name = _name_of(picture, asked)
    if name is None:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=asked.topic_id
        )
    known = picture.topics.get(name)
    if known is not None:
        return describe(picture, listener, known)
    if not is_legal(name):
        return _error(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    if not is_made or name in INTERNAL_TOPICS - {OFFSETS_TOPIC}:
        return _error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
    if _collides(picture, name):
        return _error(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    return _error(ErrorCode.LEADER_NOT_AVAILABLE, name)


def _collides(picture: Picture, name: str) -> bool:
    """Whether the controller would not create a topic of this name, because another one's differs only in '.'
    and '_'. A client that was told to come again would wait in vain.
    """
    if "." not in name and "_" not in name:
        return False
    known: frozenset[str] | None = picture.described.get(COLLAPSED)
    if known is None:
        known = picture.described[COLLAPSED] = frozenset(each.replace(".", "_") for each in picture.topics)
    return name not in picture.topics and name.replace(".", "_") in known


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
