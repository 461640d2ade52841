"""FindCoordinator 0-6: who coordinates a group, or a transactional id.

v1 key type and error message · v3 flexible · v4 several keys, each with its own error · v5 may answer
TRANSACTION_ABORTABLE · v6 share groups, which have no coordinator here The coordinator of a key is the leader
of its partition of `__consumer_offsets` or `__transaction_state`. While that topic is being created, or the
partition has no leader, the answer is COORDINATOR_NOT_AVAILABLE: every client then asks again. If better news
is expected, the answer waits for it a moment (metadata/held_answers.py).
Left to others: creating the topic (internal_topics/topic.py).
"""

from collections.abc import Sequence

from ....base.types import TopicPartition
from ....protocol.apis import Api
from ....protocol.errors import ApiError, CoordinatorNotAvailable, InvalidRequest
from ....protocol.messages.groups import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from ...context import BrokerContext
from ...coordinator_partitions import partition_of
from ...groups.coordinator import GroupCoordinator
from ...metadata.cache import Picture
from ...metadata.doubts import Doubts
from ...metadata.held_answers import Until
from ...network.exchange import Exchange, HandlerEntry
from ...topic_names import OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from ...transactions.coordinator import TransactionCoordinator

SEVERAL_KEYS_SINCE = 4
GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2
SHARES_SINCE = 6
TOPICS = {GROUP_KEY: OFFSETS_TOPIC, TRANSACTION_KEY: TRANSACTION_STATE_TOPIC}


def find(
    broker: BrokerContext, exchange: Exchange, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | None:
    """The broker that coordinates each key, with its address on the listener of the request."""
    response = _found(broker, exchange, request)
    until = _until(broker, request.key_type, _keys(exchange, request))
    if broker.held.hold(exchange, until, lambda: _found(broker, exchange, request)):
        return None
    return response


def _keys(exchange: Exchange, request: FindCoordinatorRequest) -> Sequence[str]:
    if request.key_type not in TOPICS:
        return ()
    return request.coordinator_keys if exchange.version >= SEVERAL_KEYS_SINCE else (request.key,)


def _coordinators(broker: BrokerContext, key_type: int) -> GroupCoordinator | TransactionCoordinator:
    return broker.groups if key_type == GROUP_KEY else broker.transactions


def _until(broker: BrokerContext, key_type: int, keys: Sequence[str]) -> Until:
    def until(doubts: Doubts, picture: Picture, now: float) -> float:
        count = _coordinators(broker, key_type).partition_count()
        places = {TopicPartition(TOPICS[key_type], partition_of(key, count)) for key in keys}
        return max((doubts.until_of_partition(picture, place, now) for place in places), default=now)

    return until


def _found(
    broker: BrokerContext, exchange: Exchange, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if exchange.version >= SEVERAL_KEYS_SINCE:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[_coordinator(broker, exchange, key, request.key_type) for key in keys]
        )
    found = _coordinator(broker, exchange, request.key, request.key_type)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(broker: BrokerContext, exchange: Exchange, key: str, key_type: int) -> Coordinator:
    try:
        if key_type == SHARE_KEY and exchange.version >= SHARES_SINCE:
            raise CoordinatorNotAvailable("share groups are not supported")
        if key_type not in TOPICS:
            raise InvalidRequest(f"{key_type} is no type of key: expected 0 (group) or 1 (transactional id)")
        return _leader(broker, exchange.listener.name, key, key_type)
    except ApiError as error:
        return _nobody(key, error)


def _leader(broker: BrokerContext, listener: str, key: str, key_type: int) -> Coordinator:
    picture, topic, coordinators = broker.metadata, TOPICS[key_type], _coordinators(broker, key_type)
    if topic not in picture.topics:
        if reason := coordinators.ensure_topic():
            raise CoordinatorNotAvailable(reason)
        broker.held.creating(topic)
        raise CoordinatorNotAvailable(f"{topic} is being created")
    partition = partition_of(key, coordinators.partition_count())
    state = picture.partition(topic, partition)
    address = picture.address(state.leader, listener) if state is not None else None
    if state is None or address is None:
        raise CoordinatorNotAvailable(f"{topic}-{partition}, which keeps {key!r}, has no leader")
    return Coordinator(key=key, node_id=state.leader, host=address.host, port=address.port)


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
