"""The transaction coordinator: finds a transactional id, performs what its rules ask, writes its state.

This broker coordinates the transactional ids whose partition of `__transaction_state` it leads. State changes
on the event loop without an await. An answer that needs a committed record is sent when it is committed.
Left to others: the rules (transaction.py), becoming and ceasing to be leader (shards.py), markers
(markers.py), records (records.py), requests and responses (handlers/transactions/).
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import TypeAlias

import structlog

from ...base.tasks import FailureHook, Tasks
from ...base.types import Clock, TopicPartition
from ...protocol.errors import (
    ApiError,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidRequest,
    InvalidTransactionTimeout,
)
from ...protocol.records import BatchBuilder
from ..config.sections import TransactionsConfig
from ..coordinator_partitions import partition_of
from ..internal_topics.topic import InternalTopic
from ..topic_names import TRANSACTION_STATE_TOPIC
from .counts import TransactionCounts, transaction_metrics
from .markers import Errand, MarkerSender
from .records import transaction_key, transaction_value
from .shards import Held, Shard, ShardStore, StatePartition, WhenCommitted
from .state import (
    Answer,
    Effects,
    Forget,
    InitAsked,
    Persist,
    ProducerIdentity,
    Reply,
    Respond,
    SendMarkers,
    TransactionState,
    TryAgain,
)
from .transaction import Transaction

logger = structlog.get_logger(__name__)

TRANSACTIONAL_IDS_MAX = 1_000_000  # per broker; who wants one more gets COORDINATOR_NOT_AVAILABLE
WRITE_PATIENCE_S = 5.0  # an answer waits so long for its record; then COORDINATOR_NOT_AVAILABLE
RETRY_S = 0.5  # before a refused write of a completed transaction is tried again
LOOKED_AT_ONCE = 2_000  # transactional ids, without an await: about a millisecond
TOMBSTONES_AT_ONCE = 500  # in one batch

Append: TypeAlias = Callable[
    [TopicPartition, bytearray, Callable[[ErrorCode], None], Callable[[], None], float], None
]
"""`append_surely` of the replicas: partition, batch, what hears the outcome, what hears that it is late,
when.
"""
Stored: TypeAlias = tuple[Held, Persist]


class TransactionCoordinator:
    """All transactional ids that this broker coordinates.

    `on_leading` and `on_resigned` hear of the replicas' events; `new_producer_id` is `ProducerIds.take`.
    """

    def __init__(
        self,
        config: Callable[[], TransactionsConfig],
        append: Append,
        when_committed: WhenCommitted,
        clock: Clock,
        new_producer_id: Callable[[], Awaitable[int]],
        topic: InternalTopic,
        markers: MarkerSender,
        on_failure: FailureHook | None = None,
    ) -> None:
        """`config` is the present configuration, for some of it changes while the broker runs."""
        self._config = config
        self._append = append
        self._clock = clock
        self._new_producer_id = new_producer_id
        self._topic = topic
        self.partition_count = topic.partition_count
        self._tasks = Tasks("transactions", on_failure)
        self._markers = markers
        self._shards = ShardStore(when_committed, self._served, self._tasks)
        self.counts = TransactionCounts()
        self._to_retry: dict[Held, None] = {}
        self._is_retrying = False
        self._curious: dict[str, dict[Callable[[], None], None]] = {}  # by transactional id

    # Life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the passes for transactions that time out and transactional ids that expire."""
        self._markers.start()
        self._tasks.spawn(self._time_out_for_ever(), "time-outs")
        self._tasks.spawn(self._expire_for_ever(), "expiry")

    async def stop(self) -> None:
        """Stop passes, loading and markers. Parked requests end with their connections."""
        await self._markers.stop()
        await self._tasks.stop()

    def ensure_topic(self) -> str | None:
        """Start to create `__transaction_state`, without waiting. Returns why it cannot be, or None."""
        if reason := self._topic.lacks_brokers:
            return reason
        if not self._topic.is_creating:
            self._topic.is_creating = True
            self._tasks.spawn(self._topic.create(), "create-topic")
        return None

    def on_leading(self, partition: StatePartition) -> None:
        """We lead this partition, perhaps again in a new epoch. Load it; or tell with the new epoch what has
        not been told: partitions may have heard from another coordinator in between.
        """
        if partition.log.partition.topic != TRANSACTION_STATE_TOPIC:
            return
        known = self._shards.lead(partition)
        if known is not None and not known.loading:
            self._resume(known)

    def on_resigned(self, tp: TopicPartition) -> None:
        """We lead this partition no more. Who waits gets NOT_COORDINATOR."""
        if tp.topic != TRANSACTION_STATE_TOPIC:
            return
        for held in self._shards.resign(tp.partition):
            self._perform(held, held.transaction.leave())

    # What producers ask ----------------------------------------------------------------------------------

    async def init(self, transactional_id: str, asked: InitAsked, reply: Reply) -> None:
        """A producer begins; the reply comes when nobody else can write with its transactional id."""
        timeout_ms_max = self._config().timeout_ms_max
        if transactional_id and not 0 < asked.timeout_ms <= timeout_ms_max:
            raise InvalidTransactionTimeout(
                f"transaction.timeout.ms is {asked.timeout_ms}: expected 1 to {timeout_ms_max}, the brokers' "
                "transaction.max.timeout.ms"
            )
        held, fresh_id = self._find(transactional_id), None
        if held is None or held.transaction.wants_producer_id(asked):
            fresh_id = await self._new_producer_id()
            held = self._find(transactional_id)  # it may be here by now, or elsewhere
        if held is None:
            held = self._create(transactional_id)
        self._perform(held, held.transaction.init(asked, reply, self._wall_ms(), fresh_id))

    def init_again(self, transactional_id: str, asked: InitAsked, reply: Reply) -> None:
        """The same question once more, about a transactional id that has moved on. Answered without a wait:
        if it needs a new producer id by now, the answer is CONCURRENT_TRANSACTIONS.
        """
        held = self._find(transactional_id)
        if held is None:
            return reply(Answer(ErrorCode.CONCURRENT_TRANSACTIONS))
        return self._perform(held, held.transaction.init(asked, reply, self._wall_ms(), None))

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: frozenset[TopicPartition],
        reply: Reply,
    ) -> None:
        """The producer is about to write to these partitions."""
        held = self._find(transactional_id)
        if held is None:
            return reply(Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return self._perform(held, held.transaction.add(producer, partitions, reply, self._wall_ms()))

    def end(self, transactional_id: str, producer: ProducerIdentity, committed: bool, reply: Reply) -> None:
        """Commit or abort; the reply comes when that is decided for good."""
        held = self._find(transactional_id)
        if held is None:
            return reply(Answer(ErrorCode.INVALID_PRODUCER_ID_MAPPING))
        return self._perform(held, held.transaction.end(producer, committed, reply, self._wall_ms()))

    def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Collection[TopicPartition],
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether these partitions are in the producer's ongoing transaction. Raises ApiError if this broker
        does not coordinate it or is still loading.
        """
        held = self._find(transactional_id)
        if held is None:
            return dict.fromkeys(partitions, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        return held.transaction.verify(ProducerIdentity(producer_id, producer_epoch), partitions)

    def when_moved(self, transactional_id: str, hear: Callable[[], None]) -> None:
        """Call `hear` once, when the next change of this transactional id is committed."""
        self._curious.setdefault(transactional_id, {})[hear] = None

    def forget(self, transactional_id: str, hear: Callable[[], None]) -> None:
        """Do not call `hear` any more."""
        curious = self._curious.get(transactional_id, {})
        curious.pop(hear, None)
        if not curious:
            self._curious.pop(transactional_id, None)

    # Looking ---------------------------------------------------------------------------------------------

    def find(self, transactional_id: str) -> Transaction | None:
        """The transactional id, or None. Raises ApiError if this broker does not coordinate it (yet)."""
        held = self._find(transactional_id)
        return held.transaction if held is not None else None

    @property
    def is_loading(self) -> bool:
        """Whether a partition is still loading: a list of all transactional ids would be incomplete."""
        return self._shards.is_loading

    def all_transactions(self) -> Iterable[Transaction]:
        """Every transactional id here."""
        return (held.transaction for held in self._shards.all_held())

    @property
    def loading_count(self) -> int:
        """How many partitions are still loading."""
        return self._shards.loading_count

    @property
    def homeless_markers(self) -> int:
        """Markers that wait because nobody could be told."""
        return self._markers.homeless

    def wall_ms(self) -> int:
        """The time by which transactions are timed."""
        return self._wall_ms()

    def metrics(self) -> dict[str, int]:
        """The coordinator in numbers."""
        return transaction_metrics(self.all_transactions(), self._markers.homeless, self.counts)

    # Performing ------------------------------------------------------------------------------------------

    def _perform(self, held: Held, effects: Effects) -> None:
        for effect in effects:
            match effect:
                case Respond():
                    effect.reply(effect.answer)
                case Persist():
                    self._write(held.shard, [(held, effect)])
                case SendMarkers():
                    self._send(held, effect)
                case TryAgain():
                    self._retry_soon(held)
                case Forget():
                    if held.is_here:
                        self._shards.remove(held)

    def _write(self, shard: Shard, stored: Sequence[Stored]) -> None:
        """Append one batch with these records. Each transactional id hears what becomes of it."""
        builder, now_ms = BatchBuilder(), self._wall_ms()
        for held, effect in stored:
            value = None if effect.standing is None else transaction_value(effect.standing)
            builder.append(now_ms, transaction_key(held.transaction.transactional_id), value)

        def outcome(code: ErrorCode) -> None:
            for held, effect in stored:
                if code is ErrorCode.NONE:
                    self._committed(held, effect)
                elif held.is_here:  # we lead no more: what becomes of it is not ours to know
                    self._perform(held, held.transaction.leave())

        def late() -> None:
            for held, effect in stored:
                self._perform(held, held.transaction.late(effect.token))

        try:
            late_at = asyncio.get_running_loop().time() + WRITE_PATIENCE_S
            self._append(shard.partition, bytearray(builder.build()), outcome, late, late_at)
        except ApiError as error:
            for held, effect in stored:
                self._perform(held, held.transaction.refused(effect.token, error.code))

    def _committed(self, held: Held, effect: Persist) -> None:
        if not held.is_here:
            return
        if effect.standing is None:
            self.counts.expired += 1
        elif effect.standing.state is TransactionState.COMPLETE_COMMIT:
            self.counts.committed += 1
        elif effect.standing.state is TransactionState.COMPLETE_ABORT:
            self.counts.aborted += 1
        if effect.is_time_out:  # told when it is decided: until then every pass may have to try again
            self.counts.timed_out += 1
            logger.info("transaction_timed_out", transactional_id=held.transaction.transactional_id)
        self._perform(held, held.transaction.committed(effect.token, self._wall_ms()))
        for hear in self._curious.pop(held.transaction.transactional_id, ()):
            hear()

    def _send(self, held: Held, effect: SendMarkers) -> None:
        marking, transaction = effect.marking, held.transaction

        def heard(tp: TopicPartition, code: ErrorCode) -> None:
            if not held.is_here or marking.is_over:
                return None
            if code is not ErrorCode.NONE:
                logger.warning(
                    "marker_refused",
                    transactional_id=transaction.transactional_id,
                    partition=str(tp),
                    error=code.name,
                )
                return transaction.stop_marking()
            return self._perform(held, transaction.marked(marking, tp, self._wall_ms()))

        self._markers.send(Errand(marking, held.shard.source.leader_epoch, heard))

    def _resume(self, shard: Shard) -> None:
        for held in list(shard.held.values()):
            self._perform(held, held.transaction.resume(self._wall_ms()))

    def _served(self, shard: Shard, seconds: float) -> None:
        self.counts.load_ms_max = max(self.counts.load_ms_max, round(seconds * 1000))
        self._resume(shard)

    # What time asks --------------------------------------------------------------------------------------

    def _retry_soon(self, held: Held) -> None:
        self._to_retry[held] = None
        if not self._is_retrying and not self._tasks.is_stopping:
            self._is_retrying = True
            self._tasks.spawn(self._retry(), "retry")

    async def _retry(self) -> None:
        """Until nothing is left: each of them may be refused again."""
        try:
            while self._to_retry:
                await asyncio.sleep(RETRY_S)
                tried, self._to_retry = self._to_retry, {}
                for held in tried:
                    if held.is_here:
                        self._perform(held, held.transaction.retry(self._wall_ms()))
        finally:
            self._is_retrying = False

    async def _time_out_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._config().time_out_interval_ms / 1000)
            await self.time_out()

    async def _expire_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._config().expiry_interval_ms / 1000)
            await self.expire()

    async def time_out(self) -> None:
        """One pass: abort transactions that have been open for longer than their producers said."""
        for number, held in enumerate(list(self._shards.all_held()), 1):
            if number % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
            if not held.is_here:
                continue
            self._perform(held, held.transaction.time_out(self._wall_ms()))

    async def expire(self) -> None:
        """One pass: forget transactional ids that nobody has used for long."""
        for shard in list(self._shards.serving()):
            for first in range(0, len(held_here := list(shard.held.values())), LOOKED_AT_ONCE):
                self._expire_some(shard, held_here[first : first + LOOKED_AT_ONCE])
                await asyncio.sleep(0)

    def _expire_some(self, shard: Shard, looked_at: Sequence[Held]) -> None:
        if not self._shards.has(shard):
            return
        now_ms, expiration_ms = self._wall_ms(), self._config().id_expiration_ms
        expired: list[Stored] = []
        for held in looked_at:
            if held.is_here:
                effects = held.transaction.expire(now_ms, expiration_ms)
                expired += [(held, effect) for effect in effects if isinstance(effect, Persist)]
        for first in range(0, len(expired), TOMBSTONES_AT_ONCE):
            self._write(shard, expired[first : first + TOMBSTONES_AT_ONCE])

    # Helpers ---------------------------------------------------------------------------------------------

    def _shard(self, transactional_id: str) -> Shard:
        if not transactional_id:
            raise InvalidRequest("a transactional id must not be empty")
        return self._shards.serving_shard(partition_of(transactional_id, self.partition_count()))

    def _find(self, transactional_id: str) -> Held | None:
        return self._shard(transactional_id).held.get(transactional_id)

    def _create(self, transactional_id: str) -> Held:
        if self._shards.count >= TRANSACTIONAL_IDS_MAX:
            logger.warning("transactional_id_limit_reached", transactional_ids=TRANSACTIONAL_IDS_MAX)
            raise CoordinatorNotAvailable(
                f"this broker already coordinates {TRANSACTIONAL_IDS_MAX} transactional ids, its limit"
            )
        return self._shards.add(self._shard(transactional_id), Transaction(transactional_id))

    def _wall_ms(self) -> int:
        return self._clock.wall_ms()
