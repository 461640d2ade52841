"""The send loop of a task: batches go to their leaders, and are acknowledged or given up, in time.

Workers have no event loop: the loop runs while the writer is here, and sockets hold the answers meanwhile.
While Spark computes the next rows no deadline comes nearer. What is sent, numbered, repeated or given up is
decided by the bundled client's rules for a partition's batches; a batch that is sent again bears its old
number, so the log has it once.
A producer outlives its task, as in Spark's own sink, for brokers remember each one. It does not outlive a
failure: what was under way is then uncertain.
Left to others: the rules (../../producer/partition_queues.py), what is known of topics (topics.py),
connections (../client.py).
"""

import os
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from ....base.logger import get_logger
from ....base.types import TopicPartition
from ....protocol.errors import ApiError, ErrorCode, InvalidRecord, error_for
from ....protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ....protocol.messages.producers import InitProducerIdRequest
from ....protocol.primitives import NO_UUID
from ....protocol.records import BatchBuilder
from ...producer.partition_queues import (
    ANSWER_SLACK_SECONDS,
    LEADER_ERRORS,
    SEQUENCE_ERRORS,
    TRANSACTION_TIMEOUT_MS,
    Identity,
    PartitionQueue,
    ProducerBatch,
)
from ..client import (
    BACKOFF_FIRST,
    BACKOFF_MAX,
    Address,
    PartitionLeader,
    SparkCluster,
    Wire,
    answered,
    cluster_for,
)
from .options import SinkOptions
from .topics import Topic, Topics
from .transactions import TaskTransaction
from .trouble import NotWritten, made_again, named

log = get_logger(__name__)

LOOK_SECONDS_MAX = 1.0  # without another look at deadlines
BATCH_BYTES = 1 << 10  # what a batch takes beside its records and the numbers of its rows

Lane = PartitionQueue[int]  # a batch's tokens are the numbers of its rows
Batch = ProducerBatch[int]


@dataclass(slots=True)
class Written:
    """What a task has written to one partition. Offsets are -1 if the brokers did not tell all of them."""

    rows: int = 0
    nbytes: int = 0
    first_offset: int = -1
    last_offset: int = -1
    topic_id: UUID = field(default=NO_UUID, compare=False)  # NO_UUID: not told

    def merge(self, more: "Written") -> None:
        """Add what else was written there."""
        first = min(self.first_offset, more.first_offset) if self.rows else more.first_offset
        self.last_offset = -1 if first < 0 else max(self.last_offset, more.last_offset)
        self.first_offset = first
        self.rows += more.rows
        self.nbytes += more.nbytes
        self.topic_id = more.topic_id if more.topic_id.int else self.topic_id


class Sent(NamedTuple):
    """A request without an answer yet."""

    batches: list[Batch]
    at: float
    topic_ids: dict[str, UUID]  # as they were known when it was sent


@dataclass(slots=True)
class Channel:
    """A connection to one broker, and the requests on it, oldest first."""

    wire: Wire
    sent: deque[Sent] = field(default_factory=deque)
    not_before: float = 0.0  # the broker reads nothing until then: a quota is exceeded


class WorkTime:
    """Seconds of work: the clock stands still between `pause` and `resume`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._away = 0.0
        self._left: float | None = now()

    def resume(self) -> None:
        """Work goes on."""
        if self._left is not None:
            self._away += self._now() - self._left
            self._left = None

    def pause(self) -> None:
        """Work rests."""
        self._left = self._now()

    def __call__(self) -> float:
        return (self._now() if self._left is None else self._left) - self._away


class TaskProducer:
    """Batches on their way, for one task at a time."""

    def __init__(self, cluster: SparkCluster, options: SinkOptions) -> None:
        self.held = 0  # bytes that are not acknowledged yet
        self.written: dict[TopicPartition, Written] = {}
        self._cluster = cluster
        self._options = options
        self._time = WorkTime(cluster.now)
        self._lanes: dict[TopicPartition, Lane] = {}
        self._busy: dict[TopicPartition, Lane] = {}
        self._sent_to: dict[TopicPartition, Address] = {}
        self._channels: dict[Address, Channel] = {}
        self._topics = Topics(cluster, options.block_seconds)
        self._newest: dict[TopicPartition, tuple[tuple[int, int], int]] = {}  # rank, last offset
        self._transaction: TaskTransaction | None = None
        self._identity: Identity | None = None
        self._births = 0
        self._doubted: set[str] = set()  # topics whose leaders are to be looked for
        self._look_at = 0.0
        self._look_pause = BACKOFF_FIRST

    # ------------------------------------------------------------ for the task

    def begin(self, transaction: TaskTransaction | None = None) -> None:
        """Another task writes from now on, in its transaction if it has one."""
        assert not self._busy, "the task before has ended well"
        if transaction is not None:
            self._lanes.clear()  # its sequences begin at 0, under an epoch of its own
        self._transaction = transaction
        self.written, self._newest = {}, {}
        self._topics.known.clear()

    def topic(self, name: str, at_least: int = 0) -> Topic:
        """What is known of a topic; asked for again if it has fewer partitions."""
        return self._topics.get(name, at_least)

    def led(self, topic: str) -> list[int]:
        """Those of its partitions that have a leader, as far as is known."""
        leaders = self._cluster.view.leaders
        return [at for at in range(self._topics.known[topic].places) if TopicPartition(topic, at) in leaders]

    def put(self, partition: TopicPartition, builder: BatchBuilder, rows: "array[int]") -> None:
        """One more batch, with the numbers of its rows."""
        options = self._options
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = PartitionQueue(
                partition, options.in_flight_max, options.idempotent, options.retries
            )
        now = self._time()
        self._births += 1
        builder.transactional = self._transaction is not None
        batch: Batch = ProducerBatch(partition, self._births, builder, now, now + options.delivery_seconds)
        batch.tokens, batch.reserved = rows, builder.size + rows.itemsize * len(rows) + BATCH_BYTES
        self.held += batch.reserved
        lane.closed.append(batch)
        self._busy[partition] = lane
        self._topics.known[partition.topic].has_rows = True

    def settle(self, held_max: int) -> None:
        """Send what can be sent, and wait until at most so many bytes are not acknowledged."""
        self._time.resume()
        try:
            while True:
                self._hear(0)  # before anything is late
                self._give_up_late()
                self._look()
                self._send()
                if self.held <= held_max:
                    return
                self._hear(self._pause())
        finally:
            self._time.pause()

    def end(self) -> None:
        """All is acknowledged: leave connections to others, and see that no topic took its rows with it."""
        assert not self._busy, "all is acknowledged"
        for channel in self._channels.values():
            self._cluster.give(channel.wire)
        self._channels.clear()
        with suppress(OSError):
            self._topics.check({partition.topic for partition in self.written})

    def drop(self) -> None:
        """The task has failed: nothing of this is used again."""
        for channel in self._channels.values():
            channel.wire.close()
        self._channels.clear()

    # ------------------------------------------------------------ sending

    def _send(self) -> None:
        now = self._time()
        by_leader: dict[Address, list[Lane]] = {}
        for partition, lane in self._busy.items():
            leader = self._cluster.view.leaders.get(partition)
            if leader is None:
                self._doubted.add(partition.topic)
            elif self._is_due(lane, now) and self._keeps_order(lane, leader.address):
                by_leader.setdefault(leader.address, []).append(lane)
        if self._transaction is not None:
            self._transaction.add([lane.partition for lanes in by_leader.values() for lane in lanes])
        for address, lanes in by_leader.items():
            while lanes and self._has_slot(address):
                batches = self._take(lanes)
                if not batches or not self._submit(address, batches):
                    break
                lanes = [lane for lane in lanes if self._is_due(lane, now)]

    def _is_due(self, lane: Lane, now: float) -> bool:
        return lane.may_send and lane.head is not None and now >= lane.not_before

    def _keeps_order(self, lane: Lane, address: Address) -> bool:
        """Whether no numbered batch is on its way to another broker.

        A new leader that does not know this producer accepts any number as the first. A batch that the old
        leader then refuses could not be appended after it any more.
        """
        if not (lane.in_flight and self._options.idempotent):
            return True
        return self._sent_to.get(lane.partition, address) == address

    def _has_slot(self, address: Address) -> bool:
        channel = self._channels.get(address)
        if channel is None:
            return True
        return len(channel.sent) < self._options.in_flight_max and self._time() >= channel.not_before

    def _take(self, lanes: Iterable[Lane]) -> list[Batch]:
        """One batch from each lane, up to the largest request."""
        batches: list[Batch] = []
        size = 0
        for lane in lanes:
            if lane.needs_identity:
                self._identify(lane)
            head = lane.head
            if head is None or (batches and size + head.builder.size > self._options.request_bytes):
                continue
            size += head.builder.size
            batches.append(lane.take())
        return batches

    def _submit(self, address: Address, batches: list[Batch]) -> bool:
        """Whether the request was sent. If it was in part, its batches are uncertain."""
        try:
            channel = self._channel(address)
        except OSError as trouble:
            for batch in batches:
                lane = self._lanes[batch.partition]
                batch.last_error = trouble
                lane.unsent(batch)
                lane.not_before = self._time() + self._look_pause
                self._doubted.add(batch.partition.topic)
            return False
        topics = {batch.partition.topic for batch in batches}
        topic_ids = {topic: self._topics.known[topic].id for topic in topics}
        channel.sent.append(Sent(batches, self._time(), topic_ids))
        self._sent_to.update((batch.partition, address) for batch in batches)
        try:
            channel.wire.send(self._request(batches))
        except OSError as trouble:
            self._lose(address, trouble)
            return False
        if self._options.acks == 0:
            channel.sent.pop()
            for batch in batches:
                self._succeeded(batch, -1, topic_ids[batch.partition.topic])
        return True

    def _request(self, batches: Iterable[Batch]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            data = PartitionProduceData(index=batch.partition.partition, records=batch.builder.build())
            topics.setdefault(batch.partition.topic, []).append(data)
        return ProduceRequest(
            transactional_id=None if self._transaction is None else self._transaction.name,
            acks=self._options.acks,
            timeout_ms=int(self._cluster.options.request_seconds * 1000),
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )

    def _channel(self, address: Address) -> Channel:
        """The connection to a broker. One that has ended is refused once: the leader may have moved, too."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = Channel(self._cluster.take(address))
        elif not channel.sent and channel.wire.has_ended:
            self._channels.pop(address).wire.close()
            raise ConnectionError(f"{address[0]}:{address[1]} closed the connection")
        return channel

    # ------------------------------------------------------------ hearing

    def _hear(self, seconds: float) -> None:
        """Read all answers that are there; wait for the first one, if need be."""
        while waiting := {channel.wire: at for at, channel in self._channels.items() if channel.sent}:
            ready = answered(waiting, seconds)
            if not ready:
                return
            for wire in ready:
                self._answer(waiting[wire])
            seconds = 0
        if seconds:
            self._cluster.sleep(seconds)

    def _answer(self, address: Address) -> None:
        channel = self._channels[address]
        try:
            response = channel.wire.receive()
        except OSError as trouble:
            self._lose(address, trouble)
            return
        sent = channel.sent.popleft()
        if response.throttle_time_ms:
            self._rest(channel, response.throttle_time_ms / 1000)
        results: dict[TopicPartition, PartitionProduceResponse] = {}
        for topic in response.responses:
            for one in topic.partition_responses:
                results[TopicPartition(topic.name, one.index)] = one
        self._follow(response, results)
        for batch in sent.batches:
            result = results.get(batch.partition)
            if result is None:
                code = ErrorCode.UNKNOWN_SERVER_ERROR
                self._failed(batch, error_for(code, "the broker's response lacks the partition"))
            elif result.error_code in (0, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                offset = result.base_offset if not result.error_code else -1
                self._succeeded(batch, offset, sent.topic_ids[batch.partition.topic])
            else:
                self._failed(batch, _refusal(result))

    def _rest(self, channel: Channel, seconds: float) -> None:
        """The broker reads nothing from this connection for so long: what is on its way is answered later."""
        channel.not_before = max(channel.not_before, self._time() + seconds)
        channel.sent = deque(one._replace(at=one.at + seconds) for one in channel.sent)

    def _follow(self, response: Any, results: dict[TopicPartition, PartitionProduceResponse]) -> None:
        """The leaders that the broker names instead of itself."""
        view = self._cluster.view
        addresses = {one.node_id: (one.host, one.port) for one in response.node_endpoints}
        for partition, one in results.items():
            hint, known = one.current_leader, view.leaders.get(partition)
            if hint is None or (known is not None and hint.leader_epoch <= known.epoch):
                continue
            address = addresses.get(hint.leader_id, view.brokers.get(hint.leader_id))
            if address is not None:
                view.leaders[partition] = PartitionLeader(address, hint.leader_epoch, hint.leader_id)

    def _lose(self, address: Address, trouble: OSError) -> None:
        channel = self._channels.pop(address)
        channel.wire.close()
        for sent in channel.sent:
            for batch in sent.batches:
                self._failed(batch, trouble)

    def _succeeded(self, batch: Batch, offset: int, topic_id: UUID) -> None:
        """It is written, to the topic of that id: raises NotWritten if there is another one meanwhile."""
        topic = self._topics.known[batch.partition.topic]
        if topic_id != topic.id and NO_UUID not in (topic_id, topic.id):
            raise NotWritten(made_again(batch.partition.topic, topic_id, topic.id))
        topic.is_written = True
        lane = self._lanes[batch.partition]
        lane.succeeded(batch)
        self.held -= batch.reserved
        rows = batch.builder.count
        last = offset + rows - 1 if offset >= 0 else -1
        if offset >= 0:
            self._check_growth(batch, offset, last)
        more = Written(rows, batch.builder.size, offset, last, topic_id)
        self.written.setdefault(batch.partition, Written()).merge(more)
        if lane.is_idle:
            del self._busy[batch.partition]

    def _check_growth(self, batch: Batch, offset: int, last: int) -> None:
        """A log gives later batches higher offsets, unless it has lost what came before them."""
        rank, before = self._newest.get(batch.partition, (batch.rank, -1))
        if batch.rank < rank:
            return
        if offset <= before:
            reason = f"it got offset {offset} after {before}: rows that this task has written there are gone"
            raise _not_written(batch, reason)
        self._newest[batch.partition] = batch.rank, last

    def _failed(self, batch: Batch, error: ApiError | OSError) -> None:
        """Send it again, in pieces if it is too large; or raise NotWritten."""
        lane = self._lanes[batch.partition]
        code = error.code if isinstance(error, ApiError) else None
        if code == ErrorCode.MESSAGE_TOO_LARGE and lane.split(batch):
            return
        if code in SEQUENCE_ERRORS and not lane.follows_another(batch):
            if batch.partition in self.written:
                reason = f"{error}: rows that this task has written there are gone"
                raise _not_written(batch, reason) from error
            log.warning("earlier_rows_missing", partition=str(batch.partition), reason=str(error))
        if code is None or code in LEADER_ERRORS:
            self._doubted.add(batch.partition.topic)
        pause = min(BACKOFF_MAX, BACKOFF_FIRST * 2 ** min(batch.attempts - 1, 8))
        again = lane.failed(batch, error, self._time() + pause)
        log.debug("produce_failed", partition=str(batch.partition), reason=str(error), will_retry=again)
        if not again:
            raise _not_written(batch, str(error)) from error

    def _give_up_late(self) -> None:
        now = self._time()
        for address, channel in list(self._channels.items()):
            limit = self._cluster.options.request_seconds + ANSWER_SLACK_SECONDS
            if channel.sent and now > channel.sent[0].at + limit:
                self._lose(address, TimeoutError(f"{address[0]}:{address[1]} did not answer for {limit:g} s"))
        for lane in self._busy.values():
            for batch in lane.expire(now):
                last = f", the last trouble: {batch.last_error}" if batch.last_error else ""
                limit_ms = int(self._options.delivery_seconds * 1000)
                reason = f"not acknowledged within kafka.delivery.timeout.ms={limit_ms}{last}"
                raise _not_written(batch, reason) from batch.last_error

    # ------------------------------------------------------------ what the cluster knows

    def _look(self) -> None:
        """Look for leaders, if some are doubted: another broker is asked each time.

        Looks that follow each other come at growing intervals, whatever other partitions do meanwhile.
        """
        quiet = self._time() - self._look_at
        if not self._doubted or quiet < 0:
            return
        try:
            self._topics.look(self._doubted)
            self._doubted.clear()
        except OSError as trouble:
            log.debug("leaders_not_found", reason=str(trouble))
        self._look_pause = BACKOFF_FIRST if quiet > BACKOFF_MAX else min(2 * self._look_pause, BACKOFF_MAX)
        self._look_at = self._time() + self._look_pause

    def _pause(self) -> float:
        """Until something other than an answer may happen."""
        now = self._time()
        times = [lane.not_before for lane in self._busy.values() if lane.not_before > now]
        times += [channel.not_before for channel in self._channels.values() if channel.not_before > now]
        if self._doubted:
            times.append(self._look_at)
        return max(0.001, min((at - now for at in times), default=LOOK_SECONDS_MAX))

    def _identify(self, lane: Lane) -> None:
        """Give the lane a producer id that it has not given up."""
        if self._transaction is not None:
            if lane.retired is not None:
                raise NotWritten(
                    f"{lane.partition}: the brokers do not go on with transaction {self._transaction.name}"
                )
            lane.adopt(self._transaction.identity)
            return
        if self._identity is None or self._identity == lane.retired:
            self._identity = self._topics.patiently("a producer id", self._ask_identity)
        lane.adopt(self._identity)

    def _ask_identity(self) -> Identity:
        request = InitProducerIdRequest(transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        answer = self._cluster.ask_any(request)
        if answer.error_code:
            raise error_for(answer.error_code)
        return Identity(answer.producer_id, answer.producer_epoch)


def _refusal(result: PartitionProduceResponse) -> ApiError:
    error = error_for(result.error_code, result.error_message)
    if isinstance(error, InvalidRecord):
        error.indexes = [one.batch_index for one in result.record_errors]
    return error


def _not_written(batch: Batch, reason: str) -> NotWritten:
    return NotWritten(f"{named(_blamed(batch))}: not written to {batch.partition}: {reason}")


def _blamed(batch: Batch) -> Sequence[int]:
    """The rows that the broker has named, or all."""
    error = batch.last_error
    if isinstance(error, InvalidRecord):
        named_by_broker = [batch.tokens[at] for at in error.indexes if at < len(batch.tokens)]
        return named_by_broker or batch.tokens
    return batch.tokens


_PRODUCERS: dict[tuple[int, SinkOptions], TaskProducer] = {}


def producer_for(options: SinkOptions) -> TaskProducer:
    """This process's producer: tasks come one after another."""
    key = (os.getpid(), options)
    if key not in _PRODUCERS:
        _PRODUCERS[key] = TaskProducer(cluster_for(options.cluster), options)
    return _PRODUCERS[key]


def forget(options: SinkOptions) -> None:
    """A task has failed: the next one begins anew."""
    producer = _PRODUCERS.pop((os.getpid(), options), None)
    if producer is not None:
        producer.drop()
