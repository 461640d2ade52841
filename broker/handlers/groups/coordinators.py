"""FindCoordinator 0-4: who coordinates a group.

v1 key type and error message · v3 flexible · v4 several keys, each with its own error
The coordinator of a group is the leader of its partition of `__consumer_offsets`. While that topic is being
created, or the partition has no leader, the answer is COORDINATOR_NOT_AVAILABLE: every client then asks
again. If better news is expected, the answer waits for it a moment (metadata/held_answers.py).
Left to others: creating the topic (internal_topics/topic.py). Transactions have no coordinator here.
"""

from collections.abc import Sequence

from ....base.types import TopicPartition
from ....protocol.apis import Api
from ....protocol.errors import ApiError, CoordinatorNotAvailable, InvalidRequest
from ....protocol.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ...context import BrokerContext
from ...coordinator_partitions import partition_of
from ...metadata.cache import Picture
from ...metadata.doubts import Doubts
from ...metadata.held_answers import Until
from ...network.exchange import Exchange, HandlerEntry
from ...topic_names import OFFSETS_TOPIC

SEVERAL_KEYS_SINCE = 4
GROUP_KEY = 0


def find(
    broker: BrokerContext, exchange: Exchange, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | None:
    """The broker that coordinates each group, with its address on the listener of the request."""
    response = _found(broker, exchange, request)
    until = _until(broker, _groups(exchange, request))
    if broker.held.hold(exchange, until, lambda: _found(broker, exchange, request)):
        return None
    return response


def _groups(exchange: Exchange, request: FindCoordinatorRequest) -> Sequence[str]:
    if request.key_type != GROUP_KEY:
        return ()
    return request.coordinator_keys if exchange.version >= SEVERAL_KEYS_SINCE else (request.key,)


def _until(broker: BrokerContext, groups: Sequence[str]) -> Until:
    def until(doubts: Doubts, picture: Picture, now: float) -> float:
        count = broker.groups.partition_count()
        places = {TopicPartition(OFFSETS_TOPIC, partition_of(group, count)) for group in groups}
        return max((doubts.until_of_partition(picture, place, now) for place in places), default=now)

    return until


def _found(
    broker: BrokerContext, exchange: Exchange, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    listener = exchange.listener.name
    if exchange.version >= SEVERAL_KEYS_SINCE:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[_coordinator(broker, listener, key, request.key_type) for key in keys]
        )
    found = _coordinator(broker, listener, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(broker: BrokerContext, listener: str, key: str, key_type: int) -> Coordinator:
    try:
        if key_type != GROUP_KEY:
            raise InvalidRequest("only groups have a coordinator: transactions are not supported")
        return _leader(broker, listener, key)
    except ApiError as error:
        return _nobody(key, error)


def _leader(broker: BrokerContext, listener: str, group_id: str) -> Coordinator:
    picture = broker.metadata
    if OFFSETS_TOPIC not in picture.topics:
        if reason := broker.groups.ensure_topic():
            raise CoordinatorNotAvailable(reason)
        broker.held.creating(OFFSETS_TOPIC)
        raise CoordinatorNotAvailable("__consumer_offsets is being created")
    state = picture.partition(OFFSETS_TOPIC, partition_of(group_id, broker.groups.partition_count()))
    address = picture.address(state.leader, listener) if state is not None else None
    if state is None or address is None:
        raise CoordinatorNotAvailable("the group's partition of __consumer_offsets has no leader")
    return Coordinator(key=group_id, node_id=state.leader, host=address.host, port=address.port)


def _nobody(key: str, error: ApiError) -> Coordinator:
    return Coordinator(
        key=key, node_id=-1, host="", port=-1, error_code=error.code, error_message=error.message
    )


def refuse(request: FindCoordinatorRequest, error: ApiError) -> FindCoordinatorResponse:
    """Fills both forms, single and by key: only the one of the version goes on the wire."""
    return FindCoordinatorResponse(
        error_code=error.code,
        error_message=error.message,
        coordinators=[_nobody(key, error) for key in request.coordinator_keys],
    )


HANDLERS: dict[Api, HandlerEntry[BrokerContext]] = {Api.FIND_COORDINATOR: HandlerEntry(find, refuse)}
