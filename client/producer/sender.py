"""Sends batches that are due to their leaders, and handles the answers.

One task sends; answers come in by callback. At most `max_in_flight` requests per broker, each with at most
one batch per partition.
Left to others: order and sequence numbers (partition_queues.py), growth (accumulator.py), the API
(producer.py).
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Protocol

from ...base.logger import get_logger
from ...base.tasks import Tasks
from ...base.types import TopicPartition
from ...protocol.errors import (
    ApiError,
    ErrorCode,
    NetworkException,
    RequestTimedOut,
    UnsupportedVersion,
    error_for,
)
from ...protocol.messages.produce import (
    BatchDurability,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ...protocol.messages.producers import InitProducerIdRequest
from ..config import ProducerConfig
from ..network.cluster import Cluster
from ..network.connection import Connection, ConnectionLost
from ..results import Durability, Receipt, ReplicaCopy, receipt_of
from .accumulator import Accumulator
from .partition_queues import (
    ANSWER_SLACK_SECONDS,
    LEADER_ERRORS,
    TRANSACTION_TIMEOUT_MS,
    Identity,
    PartitionQueue,
    ProducerBatch,
    Run,
)
from .partitioner import Sticky
from .transactions import TransactionAborted, Transactions

log = get_logger(__name__)

IDLE_SECONDS_MAX = 1.0
BLOCKED_SECONDS = 0.02  # until another look when something is due but has no leader or connection
UNBUILDABLE = (TypeError, ValueError, ArithmeticError, MemoryError, struct.error)


class Sink(Protocol):
    """Receives the outcome of single records."""

    def acknowledged(self, index: int, receipt: Receipt) -> None:
        """The record is in the log."""

    def refused(self, index: int, error: Exception) -> None:
        """The record was given up."""


# Of a record: the sink, the record's index there, its timestamp. A run's sink is an `Outcomes` (receipts.py).
Token = tuple[Sink, int, int] | Run


class Sender:
    """Sends one producer's batches. `freed` is called whenever buffer memory was released."""

    def __init__(
        self,
        cluster: Cluster,
        accumulator: Accumulator[Token],
        config: ProducerConfig,
        freed: Callable[[], None],
        sticky: Sticky,
        transactions: Transactions | None = None,
    ) -> None:
        self._cluster = cluster
        self._accumulator = accumulator
        self._config = config
        self._freed = freed
        self._sticky = sticky
        self._transactions = transactions
        self._tasks = Tasks("sender")
        self._wake = asyncio.Event()
        self._requests: dict[int, int] = {}  # in flight per broker
        self._sent_to: dict[TopicPartition, int] = {}  # where the last batch of a partition went
        self._identity: Identity | None = None
        self._asking_identity = False
        self._acks = config.required_acks
        self._warned: set[str] = set()  # topics where acks=all has meant one replica

    def start(self) -> None:
        """Begin to send."""
        self._cluster.on_change.subscribe(self._leaders_changed)
        self._tasks.sustain(self._run, "pump", self._broken)

    async def stop(self) -> None:
        """Stop sending; records still held fail."""
        try:
            await self._tasks.stop()
        finally:
            for batch in self._accumulator.abandon():
                reason = "the producer was closed before the record was acknowledged"
                self._refuse(batch, NetworkException(reason))

    def wake(self) -> None:
        """Look again: something may be due."""
        self._wake.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            now = loop.time()
            for batch in self._accumulator.expire(now):
                self._refuse(batch, _too_late(batch))
            self._pump(now)
            at = self._accumulator.wake_at()
            at = now + BLOCKED_SECONDS if at <= now else min(at, now + IDLE_SECONDS_MAX)
            timer = loop.call_at(at, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    def _pump(self, now: float) -> None:
        by_leader: dict[int, list[PartitionQueue[Token]]] = {}
        for lane in self._accumulator.busy:
            if self._accumulator.is_due(lane, now) and self._is_announced(lane.partition):
                leader = self._cluster.leader(lane.partition)
                if leader is not None and self._keeps_order(lane, leader.leader):
                    by_leader.setdefault(leader.leader, []).append(lane)
        for node, lanes in by_leader.items():
            connection = self._cluster.ready(node)
            while lanes and connection is not None and self._has_slot(node):
                batches = self._take(lanes, now)
                if not batches:
                    break
                try:
                    sent = self._submit(node, connection, batches)
                except BaseException:  # the pump ends: put the batches back, so that they are refused
                    for batch in batches:
                        self._accumulator.lane(batch.partition).unsent(batch)
                    raise
                if not sent:
                    break  # the connection has just ended, and would end each further attempt
                lanes = [lane for lane in lanes if self._accumulator.is_due(lane, now)]

    def _keeps_order(self, lane: PartitionQueue[Token], node: int) -> bool:
        """Whether no numbered batch is in flight to another node.

        A new leader that does not know this producer accepts any sequence number as the first. A batch that
        the old leader then refuses could not be appended after it any more.
        """
        if not (lane.in_flight and self._config.enable_idempotence):
            return True
        return self._sent_to.get(lane.partition, node) == node

    def _is_announced(self, partition: TopicPartition) -> bool:
        return self._transactions is None or self._transactions.rules.may_send(partition)

    def _has_slot(self, node: int) -> bool:
        return self._requests.get(node, 0) < self._config.max_in_flight

    def _take(self, lanes: list[PartitionQueue[Token]], now: float) -> list[ProducerBatch[Token]]:
        """One batch from each lane, up to the largest request."""
        batches: list[ProducerBatch[Token]] = []
        size = 0
        for lane in lanes:
            if lane.needs_identity and not self._identify(lane):
                continue
            head = lane.head
            if head is None or (batches and size + head.builder.size > self._config.max_request_size):
                continue
            size += head.builder.size
            batch = lane.take()
            if batch.attempts == 1 and lane.growing is None:
                self._sticky.left(lane.partition, batch.builder.size, self._config.batch_size)
            batches.append(batch)
        return batches

    def _submit(self, node: int, connection: Connection, batches: list[ProducerBatch[Token]]) -> bool:
        """False if the connection takes nothing any more."""
        request = self._request(batches)
        if not batches:
            return True
        deadline = self._cluster.now() + self._config.request_timeout_ms / 1000 + ANSWER_SLACK_SECONDS
        epochs = {batch.partition: self._cluster.view.epoch(batch.partition) for batch in batches}
        try:
            future = connection.submit(request, deadline=deadline)
        except ConnectionLost:
            for batch in batches:
                self._accumulator.lane(batch.partition).unsent(batch)
            return False
        except UnsupportedVersion as trouble:
            for batch in batches:
                self._failed(node, batch, trouble, -1)
            return True
        self._requests[node] = self._requests.get(node, 0) + 1
        self._sent_to.update((batch.partition, node) for batch in batches)
        future.add_done_callback(lambda done: self._answered(node, batches, epochs, done))
        return True

    def _request(self, batches: list[ProducerBatch[Token]]) -> ProduceRequest:
        """The request with those of `batches` that can be built. The others fail, and leave `batches`."""
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in list(batches):
            try:
                records = batch.builder.sealed()
            except UNBUILDABLE as trouble:
                batches.remove(batch)
                self._unbuilt(batch, trouble)
            else:
                data = PartitionProduceData(index=batch.partition.partition, records=records)
                topics.setdefault(batch.partition.topic, []).append(data)
        return ProduceRequest(
            transactional_id=self._config.transactional_id,
            acks=self._acks,
            timeout_ms=self._config.request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
            wants_durability=self._config.ask_durability,
        )

    def _unbuilt(self, batch: ProducerBatch[Token], trouble: Exception) -> None:
        """A batch that cannot be built was never sent, and never will be: refuse it."""
        log.error("batch_build_failed", partition=str(batch.partition), exc_info=trouble)
        self._accumulator.lane(batch.partition).discard(batch)
        self._accumulator.release(batch)
        self._refuse(batch, trouble)

    def _answered(
        self,
        node: int,
        batches: list[ProducerBatch[Token]],
        epochs: dict[TopicPartition, int],
        done: "asyncio.Future[ProduceResponse | None]",
    ) -> None:
        self._requests[node] -= 1
        failure = ConnectionLost("cancelled") if done.cancelled() else done.exception()
        results: dict[TopicPartition, PartitionProduceResponse] = {}
        if failure is None and (response := done.result()) is not None:
            addresses = {one.node_id: (one.host, one.port) for one in response.node_endpoints}
            for topic in response.responses:
                for one in topic.partition_responses:
                    partition = TopicPartition(topic.name, one.index)
                    results[partition] = one
                    hint = one.current_leader
                    if hint is not None and hint.leader_id >= 0:
                        address = addresses.get(hint.leader_id)
                        self._cluster.moved(partition, hint.leader_id, hint.leader_epoch, address)
        for batch in batches:
            result = results.get(batch.partition)
            if failure is not None:
                self._failed(node, batch, failure, epochs[batch.partition])  # type: ignore[arg-type]
            elif result is None and self._acks != 0:
                trouble = error_for(
                    ErrorCode.UNKNOWN_SERVER_ERROR, "the broker's response lacks the partition"
                )
                self._failed(node, batch, trouble, epochs[batch.partition])
            elif result is None or result.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                if result is not None:
                    self._cluster.served(batch.partition, node, epochs[batch.partition])
                self._succeeded(batch, result)
            else:
                trouble = error_for(result.error_code, result.error_message)
                self._failed(node, batch, trouble, epochs[batch.partition])
        self.wake()

    def _succeeded(self, batch: ProducerBatch[Token], result: PartitionProduceResponse | None) -> None:
        self._accumulator.lane(batch.partition).succeeded(batch)
        known = result is not None and result.error_code == 0
        base = result.base_offset if result is not None and known else -1
        append_time = result.log_append_time_ms if result is not None else -1
        topic, partition = batch.partition
        durability = (
            None if result is None or result.durability is None else self._held(topic, result.durability)
        )
        tokens, batch.tokens = batch.tokens, []
        offset = base
        for token in tokens:
            if isinstance(token, Run):
                token.sink.run_acknowledged(token, partition, offset, append_time, durability)
                offset += token.count if base >= 0 else 0
                continue
            sink, index, timestamp = token
            stamped = timestamp if append_time < 0 else append_time
            sink.acknowledged(index, receipt_of(topic, partition, offset, stamped, durability))
            offset += 1 if base >= 0 else 0
        self._accumulator.release(batch)
        self._freed()

    def _held(self, topic: str, told: BatchDurability) -> Durability:
        """Who had a batch. Warns once for each topic where acks=all has meant one broker."""
        copies = tuple(
            ReplicaCopy(one.broker, one.after_us if one.after_us >= 0 else None) for one in told.copies
        )
        if len(copies) == 1 and topic not in self._warned:
            self._warned.add(topic)
            log.warning(
                "single_replica_acknowledged",
                topic=topic,
                broker=copies[0].broker,
                replicas=told.replicas,
                min_isr=told.min_isr,
                reason="acks=all waits for the replicas in sync, and the leader is alone; "
                "min.insync.replicas=2 refuses that",
            )
        return Durability(copies, told.replicas, told.min_isr, told.is_flushed)

    def _failed(self, node: int, batch: ProducerBatch[Token], error: Exception, epoch: int) -> None:
        lane = self._accumulator.lane(batch.partition)
        code = error.code if isinstance(error, ApiError) else None
        if code == ErrorCode.MESSAGE_TOO_LARGE and self._accumulator.split(batch):
            log.debug("batch_split", partition=str(batch.partition), records=batch.builder.count)
            return
        if code in LEADER_ERRORS or code is None:
            self._cluster.doubt(batch.partition, node, epoch)
        known = self._cluster.view.leader(batch.partition)
        superseded = code in LEADER_ERRORS and known is not None and known.leader_epoch > epoch
        pause = 0.0 if superseded else self._cluster.pause(batch.attempts - 1)
        again = lane.failed(batch, error, self._cluster.now() + pause)
        log.debug("produce_failed", partition=str(batch.partition), reason=str(error), will_retry=again)
        if not again:
            self._accumulator.release(batch)
            told = error if isinstance(error, ApiError) else NetworkException(str(error))
            self._refuse(batch, told)

    def _refuse(self, batch: ProducerBatch[Token], error: Exception) -> None:
        """Fail the records; `uncertain` on the error says whether they may be in the log all the same."""
        error.uncertain = batch.is_uncertain or bool(batch.attempts and batch.is_expired)  # type: ignore[attr-defined]
        if self._transactions is not None and not isinstance(error, TransactionAborted):
            self._transactions.batch_failed(error)
        tokens, batch.tokens = batch.tokens, []
        for token in tokens:
            if isinstance(token, Run):
                token.sink.run_refused(token, error)
            else:
                token[0].refused(token[1], error)
        self._freed()

    # -- transactions

    def give_up_unsent(self, reason: str) -> None:
        """Let what was not sent fail."""
        for batch in self._accumulator.abandon_unsent():
            self._refuse(batch, TransactionAborted(reason))

    def give_up_all(self, reason: str) -> None:
        """Let everything fail."""
        for batch in self._accumulator.abandon():
            self._refuse(batch, TransactionAborted(reason))

    def number_anew(self) -> None:
        """The producer has another identity."""
        self._accumulator.number_anew()
        self.wake()

    def _broken(self, failure: BaseException) -> None:
        """The pump failed unexpectedly and would fail again on the batches held: drop them and go on."""
        for batch in self._accumulator.abandon():
            trouble = RuntimeError("the producer failed unexpectedly and dropped its unsent records")
            trouble.__cause__ = failure
            self._refuse(batch, trouble)

    def _leaders_changed(self) -> None:
        self._accumulator.hasten()
        self.wake()

    # -- producer ids

    def _identify(self, lane: PartitionQueue[Token]) -> bool:
        """Give the queue a producer id that it has not retired; ask for one if there is none."""
        if self._transactions is not None:
            self._identity = self._transactions.rules.identity
        if self._identity is not None and self._identity != lane.retired:
            lane.adopt(self._identity)
            return True
        if self._transactions is not None:
            return False
        self._identity = None
        if not self._asking_identity:
            self._asking_identity = True
            self._tasks.spawn(self._ask_identity(), "identity")
        return False

    async def _ask_identity(self) -> None:
        request = InitProducerIdRequest(transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)

        async def ask() -> Identity:
            answer = await self._cluster.ask_any(request, self._cluster.deadline())
            if answer.error_code:
                raise error_for(answer.error_code)
            return Identity(answer.producer_id, answer.producer_epoch)

        try:
            self._identity = await self._cluster.persist(ask, self._cluster.deadline())
        except ApiError as trouble:
            log.warning("producer_id_failed", reason=str(trouble))
            if not trouble.retriable:
                for batch in self._accumulator.abandon():
                    self._refuse(batch, trouble)
        finally:
            self._asking_identity = False
        self.wake()


def _too_late(batch: ProducerBatch[Token]) -> ApiError:
    reason = f" (last: {batch.last_error})" if batch.last_error else ""
    return RequestTimedOut(f"{batch.partition}: not acknowledged within delivery_timeout_ms{reason}")
