"""Fetch 4-17: batches from an offset on, for consumers and for followers.

A follower's fetch also acknowledges all records before that offset; it is accepted only on the listener
between brokers. v5 log start offset · v7 sessions · v9 leader epoch · v10
zstd · v11 rack, not looked at · v12 flexible, epoch of the last record, diverging epoch, current leader ·
v13 topic ids · v15 the follower's incarnation · v16 addresses of leaders · v17 replica
directory, not looked at.
Left to others: reading (fetch/read.py), waiting (fetch/parked.py).
Why: docs/decisions/0012-fetch-sessions-end-with-their-connection.md
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from ...base.types import BrokerId, Incarnation, start_of
from ...protocol.apis import Api
from ...protocol.errors import (
    ApiError,
    ErrorCode,
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    TopicAuthorizationFailed,
)
from ...protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ...protocol.primitives import Slices
from ..fetch.client_sessions import TOPIC_IDS_FROM, ClientSession
from ..fetch.parked import ParkedFetch
from ..fetch.read import CONSUMER, FetchItem, FetchSource, Reading, charge, refused
from ..fetch.sessions import FetchSession, SessionReading
from ..network.exchange import Exchange, HandlerEntry
from ..roles.held_requests import hold
from ..throttle import UNLIMITED
from .leader_hints import LeaderHints

if TYPE_CHECKING:
    from ..context import BrokerContext

ZSTD_FROM = 10
COLD_WAIT_MS = 5_000  # for a read from disk, even if the caller's max_wait_ms is shorter


def handle(broker: "BrokerContext", exchange: Exchange, request: FetchRequest) -> FetchResponse | None:
    """Answer at once, or park if there is too little and the caller has time, or if the disk must be read."""
    fetcher = _fetcher(request)
    if fetcher.is_replica and not exchange.internal:
        raise TopicAuthorizationFailed(
            "a fetch with a replica id must come from a broker, on inter.broker.listener.name"
        )
    shared = broker.shared
    if broker.roles.change is not None:
        hold(broker.roles.change, broker.replicas, exchange, _named(broker, exchange, request))
    session = _session(broker, exchange, fetcher, request)
    reading = _reading(broker, exchange, request, fetcher, session)

    def respond(found: list[PartitionData]) -> FetchResponse:
        if pace is not None:
            pace.answered(reading.nbytes, now())
        wanted, told = reading.told(found)
        _count(broker, fetcher, wanted, told)
        return _response(broker, exchange, wanted, told, reading.session_id)

    now = shared.loop.time
    pace = broker.parked.pace_of(fetcher.replica) if fetcher.is_replica else None
    at_once = not (reading.wanted or session) or request.max_wait_ms <= 0
    if fetcher.is_replica:
        exchange.is_follower = True
        fetches = broker.metrics.follower_fetches
        fetches[exchange.version] = fetches.get(exchange.version, 0) + 1
    held = pace is not None and not at_once and pace.holds_back(now())
    is_vain = not at_once and request.min_bytes > 0 and reading.is_vain
    found = [] if held or is_vain else reading.read()
    cold = reading.is_cold and not reading.nbytes and not reading.must_be_told
    if not held and not cold and (at_once or reading.nbytes >= request.min_bytes or reading.must_be_told):
        return respond(found)
    parked = ParkedFetch(exchange, reading, 1 if cold else request.min_bytes, respond, pace)
    wait_ms = max(request.max_wait_ms, COLD_WAIT_MS if cold else 0)
    if not parked.park(shared, now() + wait_ms / 1000):
        return respond(found or reading.read())
    if fetcher.is_replica:
        broker.parked.put(fetcher.replica, parked, exchange.channel if fetcher.is_kafkas else None)
    if session is not None:
        session.waiting = parked
    if held:
        parked.look_again()
    return None


def _count(
    broker: "BrokerContext", fetcher: FetchSource, wanted: list[FetchItem], told: list[PartitionData]
) -> None:
    """Count what is sent: for each partition once, however many records it has."""
    for item, data in zip(wanted, told, strict=True):
        records = data.records
        if data.error_code:
            broker.metrics.failed(Api.FETCH, data.error_code)
        elif records and isinstance(records, Slices):
            if fetcher.is_replica:
                broker.shared.replication_bytes_out += records.nbytes
                if broker.leader_throttle.rate != UNLIMITED and item.partition is not None:
                    charge(broker.leader_throttle, fetcher, item.partition, records.nbytes)
            elif item.partition is not None:
                item.partition.traffic.bytes_out += records.nbytes


def _fetcher(request: FetchRequest) -> FetchSource:
    state = request.replica_state
    if state is not None and state.replica_id >= 0:
        return FetchSource(BrokerId(state.replica_id), start_of(state.replica_epoch, state.counts_starts))
    return FetchSource(BrokerId(request.replica_id), Incarnation(-1)) if request.replica_id >= 0 else CONSUMER


def _session(
    broker: "BrokerContext", exchange: Exchange, fetcher: FetchSource, request: FetchRequest
) -> FetchSession | None:
    """The fetch session, updated by this request; None if there is none."""
    session: FetchSession | None
    if fetcher.is_replica:
        broker.parked.next_came(fetcher.replica, exchange.channel if fetcher.is_kafkas else None)
        session = broker.sessions.of(fetcher, request, exchange.channel)
    else:
        session = broker.client_sessions.of(exchange, request)
    if session is None:
        return None
    session.take(request, broker.replicas.get, partial(_name, broker, exchange))
    if isinstance(session, ClientSession) and broker.client_sessions.end_if_empty(session):
        return None
    return session


def _reading(
    broker: "BrokerContext",
    exchange: Exchange,
    request: FetchRequest,
    fetcher: FetchSource,
    session: FetchSession | None,
) -> Reading:
    limit = request.max_bytes if fetcher.is_replica else min(request.max_bytes, broker.config.fetch_max_bytes)
    throttle = broker.leader_throttle
    holds = throttle if fetcher.is_replica and throttle.rate != UNLIMITED else None
    if session is not None:
        return SessionReading(session, limit, holds)
    reading = Reading(fetcher, _wanted(broker, exchange, request), limit, request.isolation_level, holds)
    if fetcher.is_replica:
        reading.acknowledge()
    return reading


def _named(broker: "BrokerContext", exchange: Exchange, request: FetchRequest) -> Iterator[tuple[str, int]]:
    for topic in request.topics:
        name = _name(broker, exchange, topic.topic_id, topic.topic)
        if name is not None:
            yield from ((name, asked.partition) for asked in topic.partitions)
    session = broker.client_sessions.held(exchange, request.session_id)
    if session is not None:
        yield from session.stirred_places()


def _name(broker: "BrokerContext", exchange: Exchange, id: UUID, name: str) -> str | None:
    """The topic's name. From v13 a topic is asked for by its id alone; None if that is unknown."""
    if exchange.version < TOPIC_IDS_FROM:
        return name
    return broker.metadata.names.get(id) or broker.replicas.name_of(id)


def _wanted(broker: "BrokerContext", exchange: Exchange, request: FetchRequest) -> list[FetchItem]:
    """The partitions asked for, each with its replica here, or with its error."""
    wanted = []
    for topic in request.topics:
        name = _name(broker, exchange, topic.topic_id, topic.topic)
        for asked in topic.partitions:
            item = FetchItem(name or "", topic.topic_id, asked)
            item.look_up(name, broker.replicas.get)
            if exchange.version < ZSTD_FROM and _is_of_zstd(item):
                item.error = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
            wanted.append(item)
    return wanted


def _is_of_zstd(item: FetchItem) -> bool:
    """Whether the topic's compression.type is zstd, which older clients cannot read (as KafkaApis checks).

    Batches that a producer compressed with zstd by its own choice are not looked into.
    """
    replica = item.partition
    return (
        replica is not None
        and replica.leading is not None
        and replica.topic_config.compression_type == "zstd"
    )


def _response(
    broker: "BrokerContext",
    exchange: Exchange,
    wanted: list[FetchItem],
    found: list[PartitionData],
    session_id: int,
) -> FetchResponse:
    hints: LeaderHints | None = None
    topics: list[FetchableTopicResponse] = []
    for item, data in zip(wanted, found, strict=True):
        if data.error_code:
            hints = hints or LeaderHints(broker, exchange.listener.name)
            data = _with_hint(hints, item, data)
        if not topics or (topics[-1].topic, topics[-1].topic_id) != (item.topic, item.topic_id):
            topics.append(FetchableTopicResponse(topic=item.topic, topic_id=item.topic_id, partitions=[]))
        topics[-1].partitions.append(data)
    return FetchResponse(
        session_id=session_id, responses=topics, node_endpoints=[] if hints is None else hints.endpoints
    )


def _with_hint(hints: LeaderHints, item: FetchItem, data: PartitionData) -> PartitionData:
    leader = hints.leader_of(item.topic, data.partition_index, data.error_code)
    return data if leader is None else replace(data, current_leader=leader)


def refuse(request: FetchRequest, error: ApiError) -> FetchResponse:
    """A session error is one for the whole response; any other error is set at every partition."""
    if isinstance(error, FetchSessionIdNotFound | InvalidFetchSessionEpoch | FetchSessionTopicIdError):
        return FetchResponse(error_code=error.code, responses=[])
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    refused(asked.partition, error.code, request.isolation_level)
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLERS = {Api.FETCH: HandlerEntry(handle, refuse)}
