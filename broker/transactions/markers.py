"""Sends markers: tells every partition of a decided transaction how it ended, until each has been told.

Partitions that this broker leads are written here. For the others there is one connection and one queue per
broker, with one WriteTxnMarkers in flight that carries all markers for that broker. A request is answered
when the last of its markers is committed: so a partition whose marker was not committed in time, as when a
follower in its ISR hangs, goes by a second connection until one is, and holds up only its like. What fails is
routed again after a pause, to whoever leads the partition then. A partition that has no leader waits for one,
however long. One that the cluster lacks for GONE_AFTER_S was deleted and needs no marker: not at once,
because a broker that has just become coordinator may not have heard of a new topic yet. Controllers of Apache
Kafka never say that they have named all topics: with one ZooKeeper is asked. A request that is
given up must not arrive later, when the producer may have begun another transaction with the same epoch: so
such a connection is aborted (client/network/connection.py).
Left to others: which markers (transaction.py), what a marker does to a partition (storage/log/).
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import count
from typing import Any, TypeAlias

import structlog

from ...base.tasks import Tasks
from ...base.types import BrokerId, TopicPartition
from ...base.values import dataclass
from ...client.network.connection import Connection
from ...protocol.errors import ErrorCode
from ...protocol.markers import EndMarker
from ...protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ...protocol.schema import spec_of
from ...zookeeper.client import ZkError
from ..metadata.cache import Address, Picture
from .state import Marking

logger = structlog.get_logger(__name__)

PAUSE_S = (0.05, 1.0)  # before a partition is tried again: at first, and at most
GONE_AFTER_S = 5.0
ANSWER_S = 30.0  # that a broker may take for a request, which includes the replication of its markers
CONNECT_S = 5.0
LOOK_S = 0.5  # how often a request in flight is looked at: its partitions may have other leaders by now
MARKERS_AT_ONCE = 1_000  # partitions in one request

UNFIT = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)  # holds no transactions
VERSIONS = {spec_of(WriteTxnMarkersRequest).key: spec_of(WriteTxnMarkersRequest).versions[-1]}

WriteHere: TypeAlias = Callable[
    [TopicPartition, int, int, EndMarker, Callable[[ErrorCode], None], float], None
]
"""`write_marker` of the replicas: partition, producer id and epoch, marker, what hears the result, deadline.
"""
IsGone: TypeAlias = Callable[[str], Awaitable[bool]]  # whether the topic is deleted, for certain; or ZkError
Open: TypeAlias = Callable[[Address], Any]  # a coroutine that makes a Connection


@dataclass(frozen=True, slots=True, eq=False)
class Errand:
    """The markers of one transaction. `heard` is told NONE for each partition that needs no more, or why it
    must not be sent any marker of this coordinator.
    """

    marking: Marking
    coordinator_epoch: int
    heard: Callable[[TopicPartition, ErrorCode], None]

    @property
    def marker(self) -> EndMarker:
        return EndMarker(self.marking.committed, self.coordinator_epoch)


@dataclass(slots=True, eq=False)
class Delivery:
    """One marker for one partition."""

    errand: Errand
    partition: TopicPartition
    tries: int = 0
    lacking_since: float | None = None


class MarkerSender:
    """All markers that this broker's coordinator has to deliver."""

    def __init__(
        self,
        me: BrokerId,
        listener: str,
        picture: Callable[[], Picture],
        write_here: WriteHere,
        tasks: Tasks,
        is_gone: IsGone,
        open_connection: Open | None = None,
    ) -> None:
        """`listener` names the one between brokers; `picture` is the cluster as it is known now."""
        self._me = me
        self._listener = listener
        self._picture = picture
        self._write_here = write_here
        self._tasks = tasks
        self._is_gone = is_gone
        self._open = open_connection or self._connect
        self._channels: dict[tuple[int, bool], _Channel] = {}  # by broker, and whether for the late ones
        self._late: set[TopicPartition] = set()  # their last marker was not committed in time
        self._pausing: list[tuple[float, int, Delivery]] = []
        self._order = count()  # breaks ties: deliveries cannot be compared
        self._news = asyncio.Event()

    def start(self) -> None:
        """Start the task that routes again what has failed."""
        self._tasks.spawn(self._run(), "markers")

    async def stop(self) -> None:
        """Send nothing more: whoever coordinates next begins again."""
        await self._tasks.stop()

    def send(self, errand: Errand) -> None:
        """Deliver to all partitions that wait."""
        for partition in sorted(errand.marking.waiting):
            self._route(Delivery(errand, partition))

    @property
    def homeless(self) -> int:
        """Markers that wait because nobody could be told."""
        return sum(not each.errand.marking.is_over for _, _, each in self._pausing)

    def _route(self, delivery: Delivery) -> None:
        errand, tp = delivery.errand, delivery.partition
        if errand.marking.is_over or self._tasks.is_stopping:
            return None
        now, picture = self._now(), self._picture()
        state = picture.partition(*tp)
        if state is None:
            delivery.lacking_since = delivery.lacking_since if delivery.lacking_since is not None else now
            if now - delivery.lacking_since < GONE_AFTER_S:
                return self.again(delivery)
            if picture.is_said_whole:
                return self._drop(delivery)
            self._tasks.spawn(self._look_for(delivery), f"look-for-{tp}")
            return None
        delivery.lacking_since = None
        if state.leader == self._me:
            return self._write(delivery, now)
        address = picture.address(state.leader, self._listener)
        if address is None:
            return self.again(delivery)
        return self._channel(state.leader, address, tp in self._late).push(delivery)

    def _drop(self, delivery: Delivery) -> None:
        """The partition is gone: there is nothing to end in it."""
        errand, tp = delivery.errand, delivery.partition
        logger.info("marker_dropped", partition=str(tp), producer_id=errand.marking.producer.id)
        self._late.discard(tp)
        errand.heard(tp, ErrorCode.NONE)

    async def _look_for(self, delivery: Delivery) -> None:
        """Nobody has told us of the partition, nor that all were told."""
        try:
            is_gone = await self._is_gone(delivery.partition.topic)
        except (ZkError, TimeoutError) as error:
            logger.info("topic_not_looked_for", topic=delivery.partition.topic, reason=repr(error))
            is_gone = False
        if delivery.errand.marking.is_over:
            return
        if is_gone:
            self._drop(delivery)
        else:
            delivery.lacking_since = None
            self.again(delivery)

    def _write(self, delivery: Delivery, now: float) -> None:
        errand, producer = delivery.errand, delivery.errand.marking.producer
        done = partial(self.judge, delivery)
        self._write_here(delivery.partition, producer.id, producer.epoch, errand.marker, done, now + ANSWER_S)

    def judge(self, delivery: Delivery, code: int) -> None:
        """What a leader has answered."""
        errand, tp = delivery.errand, delivery.partition
        if code == ErrorCode.REQUEST_TIMED_OUT:
            self._late.add(tp)
        else:
            self._late.discard(tp)
        if errand.marking.is_over:
            return
        if code == ErrorCode.NONE or code in UNFIT:
            errand.heard(tp, ErrorCode.NONE)
        elif code == ErrorCode.INVALID_PRODUCER_EPOCH:
            # A newer epoch has written there, which is refused while the transaction is open: it is not.
            logger.warning("marker_not_needed", partition=str(tp), producer_id=errand.marking.producer.id)
            errand.heard(tp, ErrorCode.NONE)
        elif code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            errand.heard(tp, ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        else:
            self.again(delivery)

    def again(self, delivery: Delivery) -> None:
        """Route it again after a pause."""
        pause_s = min(PAUSE_S[0] * 2 ** min(delivery.tries, 10), PAUSE_S[1])
        delivery.tries += 1
        heapq.heappush(self._pausing, (self._now() + pause_s, next(self._order), delivery))
        if self._pausing[0][2] is delivery:
            self._news.set()

    async def _run(self) -> None:
        while True:
            self._news.clear()
            due = []
            while self._pausing and self._pausing[0][0] <= self._now():
                due.append(heapq.heappop(self._pausing)[2])
            for delivery in due:
                self._route(delivery)
            try:
                async with asyncio.timeout_at(self._pausing[0][0] if self._pausing else None):
                    await self._news.wait()
            except TimeoutError:
                continue

    def _channel(self, broker: int, address: Address, late: bool) -> "_Channel":
        channel = self._channels.get((broker, late))
        if channel is None:
            channel = self._channels[broker, late] = _Channel(self)
            self._tasks.sustain(channel.run, f"markers-{broker}{'-late' * late}")
        channel.broker, channel.address = broker, address
        return channel

    def leads_all(self, broker: int, deliveries: Iterable[Delivery]) -> bool:
        """Whether this broker still leads all these partitions, as far as is known."""
        picture = self._picture()
        states = (picture.partition(*each.partition) for each in deliveries)
        return all(state is not None and state.leader == broker for state in states)

    async def open(self, address: Address) -> Connection:
        """A connection for markers to a broker. Raises OSError."""
        made: Connection = await self._open(address)
        return made

    async def _connect(self, address: Address) -> Connection:
        return await Connection.open(
            address.host,
            address.port,
            client_id=f"broker-{self._me}-markers",
            deadline=self._now() + CONNECT_S,
            highest=VERSIONS,
        )

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


class _Channel:
    """The way to one broker. Its queue has at most the partitions of transactions that are being ended."""

    broker: int
    address: Address

    def __init__(self, sender: MarkerSender) -> None:
        self._sender = sender
        self._queue: list[Delivery] = []
        self._under_way: list[Delivery] = []
        self._news = asyncio.Event()

    def push(self, delivery: Delivery) -> None:
        self._queue.append(delivery)
        self._news.set()

    async def run(self) -> None:
        """Connect when there is something to send; begin again when the connection ends."""
        connection: Connection | None = None
        address: Address | None = None
        try:
            while True:
                await self._news.wait()
                batch = self._under_way = self._take()
                if not batch:
                    continue
                try:
                    if connection is None or connection.is_lost or address != self.address:
                        if connection is not None:
                            await connection.close()
                        address = self.address
                        connection = await self._sender.open(address)
                    answer = await self._ask(connection, batch)
                except OSError as error:  # includes ConnectionLost and a passed deadline
                    logger.info("markers_not_sent", broker=self.broker, reason=str(error))
                    for delivery in batch:
                        self._sender.again(delivery)
                else:
                    self._judge(batch, answer)
                self._under_way = []
        finally:
            for delivery in self._under_way:
                self._sender.again(delivery)
            if connection is not None:
                await connection.close()

    def _take(self) -> list[Delivery]:
        batch, self._queue = self._queue[:MARKERS_AT_ONCE], self._queue[MARKERS_AT_ONCE:]
        if not self._queue:
            self._news.clear()
        return [delivery for delivery in batch if not delivery.errand.marking.is_over]

    async def _ask(self, connection: Connection, batch: list[Delivery]) -> WriteTxnMarkersResponse:
        loop = asyncio.get_running_loop()
        answer = connection.submit(request_for(batch), deadline=loop.time() + ANSWER_S)
        while not answer.done():
            await asyncio.wait([answer], timeout=LOOK_S)
            if not answer.done() and not self._sender.leads_all(self.broker, batch):
                connection.give_up("some of its partitions have other leaders now")
        response: WriteTxnMarkersResponse = answer.result()
        return response

    def _judge(self, batch: list[Delivery], answer: WriteTxnMarkersResponse) -> None:
        codes = {
            (result.producer_id, TopicPartition(topic.name, each.partition_index)): each.error_code
            for result in answer.markers
            for topic in result.topics
            for each in topic.partitions
        }
        for delivery in batch:
            key = (delivery.errand.marking.producer.id, delivery.partition)
            self._sender.judge(delivery, codes.get(key, ErrorCode.UNKNOWN_SERVER_ERROR))


def request_for(batch: Iterable[Delivery]) -> WriteTxnMarkersRequest:
    """One request with all these markers, those of one transaction together."""
    errands: dict[Errand, dict[str, list[int]]] = {}
    for delivery in batch:
        topic, partition = delivery.partition
        errands.setdefault(delivery.errand, {}).setdefault(topic, []).append(partition)
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=errand.marking.producer.id,
                producer_epoch=errand.marking.producer.epoch,
                transaction_result=errand.marking.committed,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=partitions)
                    for topic, partitions in topics.items()
                ],
                coordinator_epoch=errand.coordinator_epoch,
            )
            for errand, topics in errands.items()
        ]
    )
