"""Produce 3-11: append one batch to each of some partitions.

v3 batches of magic 2 · v5 log start offset · v7 zstd · v8 errors of single records · v9 flexible · v10
where the leader went. acks=1 is answered when the leader has the batch (and has flushed it, if configured
so), acks=all when the high watermark has passed it. acks=0 gets no answer; an error then closes the
connection, so that the producer notices.
A batch in another codec than its topic's compression.type is recompressed first (replicas/recompression.py).
The first batch of a transaction in a partition waits for its coordinator (transactions/produced.py).
A producer may ask who had its batches when they were acknowledged (replication/durability.py).
Left to others: the checks and the append (replicas/partition.py), the wait (replicas/purgatory.py).
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from ...base.types import NO_OFFSET, Offset, TopicPartition
from ...protocol.apis import Api
from ...protocol.batches import HEADER_SIZE, read_header
from ...protocol.errors import (
    ApiError,
    ErrorCode,
    InvalidRecord,
    InvalidRequiredAcks,
    InvalidTopic,
    NotEnoughReplicas,
    error_for,
)
from ...protocol.messages.produce import (
    BatchDurability,
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    ReplicaCopy,
    TopicProduceResponse,
)
from ...protocol.primitives import Slices
from ...replication.durability import Copies
from ...replication.leader import Leader
from ..network.exchange import Exchange, HandlerEntry, Held, Place
from ..replicas.partition import Partition
from ..replicas.purgatory import AckQueue, Waiter
from ..replicas.recompression import Work
from ..replicas.verification_guards import Guard
from ..roles.held_requests import hold
from ..topic_names import INTERNAL_TOPICS
from .leader_hints import LeaderHints
from .transactions.produced import verify_produced

if TYPE_CHECKING:
    from ..context import BrokerContext

ACKS_ALL, ACKS_NONE, ACKS_LEADER = -1, 0, 1
ZSTD_FROM = 7
MICROSECONDS = 1_000_000
HINTS_FROM = 10
NO_KEY = "records of a compacted topic need a key"

Wait = tuple[tuple[str, int], Partition, AckQueue, int]  # topic and number, replica, queue, offset to reach
Responses = dict[tuple[str, int], PartitionProduceResponse]


def handle(broker: "BrokerContext", exchange: Exchange, request: ProduceRequest) -> ProduceResponse | None:
    """Append all batches, then answer, park or stay silent, as `acks` says."""
    acks = request.acks
    if not ACKS_ALL <= acks <= ACKS_LEADER:
        raise InvalidRequiredAcks()
    if broker.roles.change is not None:
        hold(
            broker.roles.change,
            broker.replicas,
            exchange,
            ((t.name, p.index) for t in request.topic_data for p in t.partition_data),
        )
    if request.transactional_id is not None:
        verify_produced(broker, exchange, request)
    if broker.shared.recoding.is_wanted:
        _recode(broker, exchange, request)
    responses: Responses = {}
    waits: list[Wait] = []
    zstd_allowed = exchange.version >= ZSTD_FROM
    for topic in request.topic_data:
        name = topic.name
        for data in topic.partition_data:
            place = TopicPartition(name, data.index)
            if place in responses:
                continue  # named twice: the first one counts
            try:
                if name in INTERNAL_TOPICS:
                    raise InvalidTopic("clients cannot write to internal topics")
                partition = _replica(broker, place, data)
                guard = None if exchange.verified is None else _verified(exchange.verified, partition, data)
                if exchange.recoded is None or place not in exchange.recoded:
                    base_offset, required, time = partition.append(_batch(data), acks, zstd_allowed, guard)
                else:
                    batch = exchange.recoded[place]
                    base_offset, required, time = _append_recoded(partition, batch, acks, guard)
            except ApiError as error:
                # Java's producer sends it again until it is told where the log begins.
                is_unknown = error.code == ErrorCode.UNKNOWN_PRODUCER_ID
                start = partition.log.start_offset if is_unknown else NO_OFFSET
                responses[place] = _refused(data.index, error, start)
                broker.metrics.failed(Api.PRODUCE, error.code)
                continue
            responses[place] = PartitionProduceResponse(
                index=data.index,
                base_offset=base_offset,
                log_append_time_ms=time,
                log_start_offset=partition.log.start_offset,
            )
            if acks == ACKS_ALL:
                waits.append((place, partition, partition.acks, required))
            elif acks == ACKS_LEADER and required > partition.safe_end:
                waits.append((place, partition, partition.flush_acks, required))
    if acks == ACKS_NONE:
        _say_nothing(exchange, responses)
        return None
    if waits:
        kind = PendingProduce if not request.wants_durability else WitnessedProduce
        pending = kind(broker, exchange, responses)
        return pending.wait(waits, max(request.timeout_ms, 0) / 1000)
    return _respond(broker, exchange, responses)


def _recode(broker: "BrokerContext", exchange: Exchange, request: ProduceRequest) -> None:
    """Raises Held if batches must be recompressed first. The next time they are in `exchange.recoded`."""
    replicas, known = broker.replicas, exchange.recoded or {}
    works: dict[tuple[str, int], Work] = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            place = (topic.name, data.index)
            partition = replicas.find(TopicPartition(*place))
            if place in known or place in works or partition is None or topic.name in INTERNAL_TOPICS:
                continue
            with suppress(ApiError):  # the append will raise it again
                work = _work_for(partition, _batch(data), request.acks, exchange.version >= ZSTD_FROM)
                if work is not None:
                    works[place] = work
    if works:
        raise Held(broker.shared.recoding.begin(exchange, works), ends_by_itself=True)


def _work_for(partition: Partition, records: memoryview, acks: int, zstd_allowed: bool) -> Work | None:
    """The recompression that a batch needs; None if none, or if its partition would refuse it."""
    target = partition.target
    if target is None:
        return None
    try:
        header = partition.would_take(records, acks, zstd_allowed, partition.shared.clock.wall_ms())
        if header.codec == target.codec or partition.log.producers.check(header) is not None:
            return None
    except ApiError:
        return None  # the append will raise it
    return Work(bytes(records), target)


def _append_recoded(
    partition: Partition, batch: memoryview | ApiError, acks: int, guard: Guard | None
) -> tuple[int, int, int]:
    if isinstance(batch, ApiError):
        raise batch
    return partition.append(batch, acks, guard=guard)


def _replica(broker: "BrokerContext", tp: TopicPartition, data: PartitionProduceData) -> Partition:
    """The replica that a batch is for. If it is not here yet, it will know that the batch comes again."""
    try:
        return broker.replicas.get(tp)
    except ApiError:
        with suppress(ApiError):  # it is no batch
            broker.replicas.sent_away(tp, read_header(_batch(data)))
        raise


def _verified(
    verified: Mapping[Place, Guard | ApiError], partition: Partition, data: PartitionProduceData
) -> Guard | None:
    """What the coordinator has said of a batch; None if it was not asked about it."""
    found = verified.get(partition.tp)
    if isinstance(found, NotEnoughReplicas):
        partition.sent_away(_batch(data))
    if isinstance(found, ApiError):
        raise found
    return found


def _batch(data: PartitionProduceData) -> memoryview:
    records = data.records
    if not records or isinstance(records, Slices):
        raise InvalidRecord("the request has no batch")
    if len(records) < HEADER_SIZE:
        raise error_for(ErrorCode.CORRUPT_MESSAGE, "the batch is shorter than its header")
    return memoryview(records)


def _refused(index: int, error: ApiError, start_offset: int = NO_OFFSET) -> PartitionProduceResponse:
    single = error.indexes if isinstance(error, InvalidRecord) else ()
    return PartitionProduceResponse(
        index=index,
        error_code=error.code,
        base_offset=NO_OFFSET,
        log_start_offset=start_offset,
        record_errors=[
            BatchIndexAndErrorMessage(batch_index=place, batch_index_error_message=NO_KEY) for place in single
        ],
        error_message=error.message,
    )


def _say_nothing(exchange: Exchange, responses: Responses) -> None:
    if any(response.error_code for response in responses.values()):
        exchange.close()
    else:
        exchange.skip()


class PendingProduce(Waiter):
    """A produce request from its appends to its answer."""

    __slots__ = ("_broker", "_exchange", "_left", "_responses", "_waits")

    def __init__(self, broker: "BrokerContext", exchange: Exchange, responses: Responses) -> None:
        super().__init__()
        self._broker = broker
        self._exchange = exchange
        self._responses = responses
        self._waits: list[Wait] = []
        self._left: set[int] = set()

    def wait(self, waits: list[Wait], seconds: float) -> ProduceResponse | None:
        """Wait in the queue of each partition. Returns the answer if there is no room to wait."""
        self._waits = waits
        self._left = set(range(len(waits)))
        shared = waits[0][1].shared
        if not shared.deadlines.add(self, shared.loop.time() + seconds):
            self._time_out()
            return self.response()
        for place, (_, partition, queue, required) in enumerate(waits):
            queue.add(required, self, place)
            if not partition.dirty:  # a duplicate, which may be committed already
                partition.mark()
        return None

    def reached(self, place: int, code: ErrorCode) -> None:
        self._left.discard(place)
        if code:
            self._fail(place, code)
        if not self._left:
            self._waits[0][1].shared.deadlines.remove(self)
            self._exchange.answer(self.response())

    def expire(self) -> None:
        self._time_out()
        self._exchange.answer(self.response())

    def _time_out(self) -> None:
        """The records are in the log and may still be committed later: the outcome is unknown."""
        for place in sorted(self._left):
            self._waits[place][2].one_expired()
            self._fail(place, ErrorCode.REQUEST_TIMED_OUT)

    def _fail(self, place: int, code: ErrorCode) -> None:
        key = self._waits[place][0]
        self._broker.metrics.failed(Api.PRODUCE, code)
        self._responses[key] = PartitionProduceResponse(index=key[1], error_code=code, base_offset=NO_OFFSET)

    def response(self) -> ProduceResponse:
        """The answer as things are now."""
        return _respond(self._broker, self._exchange, self._responses)


class WitnessedProduce(PendingProduce):
    """One whose producer asks who had its batches. Others pay nothing for it."""

    __slots__ = ("_watched",)

    def wait(self, waits: list[Wait], seconds: float) -> ProduceResponse | None:
        """Watch the followers from here on: nothing has been awaited since the appends."""
        self._watched: list[tuple[Leader, Copies] | None] = []
        for _, partition, queue, required in waits:
            leader = partition.leading
            watched = None
            if leader is not None and queue is partition.acks:
                watched = leader, leader.watch(Offset(required), partition.shared.loop.time())
            self._watched.append(watched)
        return super().wait(waits, seconds)

    def reached(self, place: int, code: ErrorCode) -> None:
        watched, self._watched[place] = self._watched[place], None
        if watched is not None:
            leader, copies = watched
            leader.forget(copies)
            if not code:
                key, partition, _, required = self._waits[place]
                self._responses[key] = _witnessed(self._responses[key], partition, leader, copies, required)
        super().reached(place, code)

    def _time_out(self) -> None:
        for watched in self._watched:
            if watched is not None:
                watched[0].forget(watched[1])
        super()._time_out()


def _witnessed(
    answer: PartitionProduceResponse, partition: Partition, leader: Leader, copies: Copies, required: int
) -> PartitionProduceResponse:
    """The answer with who had the batch when the high watermark passed it."""
    held = [
        ReplicaCopy(broker=broker, after_us=-1 if after < 0 else round(after * MICROSECONDS))
        for broker, after in leader.holders(copies)
    ]
    return PartitionProduceResponse(
        index=answer.index,
        base_offset=answer.base_offset,
        log_append_time_ms=answer.log_append_time_ms,
        log_start_offset=answer.log_start_offset,
        durability=BatchDurability(
            copies=held,
            replicas=len(leader.replicas),
            min_isr=leader.min_isr,
            is_flushed=partition.log.flushed_offset >= required,
        ),
    )


def _respond(broker: "BrokerContext", exchange: Exchange, responses: Responses) -> ProduceResponse:
    """The answer, partitions in the order of the request."""
    hints: LeaderHints | None = None
    topics: dict[str, list[PartitionProduceResponse]] = {}
    for (topic, _), answer in responses.items():
        if answer.error_code and exchange.version >= HINTS_FROM:
            hints = hints or LeaderHints(broker, exchange.listener.name)
            answer = _with_hint(hints, topic, answer)
        topics.setdefault(topic, []).append(answer)
    return ProduceResponse(
        responses=[TopicProduceResponse(name=name, partition_responses=p) for name, p in topics.items()],
        node_endpoints=[] if hints is None else hints.endpoints,
    )


def _with_hint(hints: LeaderHints, topic: str, answer: PartitionProduceResponse) -> PartitionProduceResponse:
    leader = hints.leader_of(topic, answer.index, answer.error_code)
    if leader is None:
        return answer
    return PartitionProduceResponse(
        index=answer.index,
        error_code=answer.error_code,
        base_offset=NO_OFFSET,
        error_message=answer.error_message,
        current_leader=leader,
    )


def refuse(request: ProduceRequest, error: ApiError) -> ProduceResponse:
    """Every partition with the same error."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[_refused(data.index, error) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )


HANDLERS = {Api.PRODUCE: HandlerEntry(handle, refuse)}
