"""Sends the controller's decisions to brokers: one connection and one queue each, in order, nothing skipped.

The head of a queue is sent again, with a new sequence number, until the broker answers or is gone. A broker
that takes long to answer counts as out of reach until it does. The same connections tell who is alive: see
`failure_detector.py`. A broker that counts as dead loses its queue, because it is told everything again when
it answers again. One that moves to another address keeps its queue. A channel that fails because of a bug is
reported and restarted; no other broker is affected.
A broker of Apache Kafka knows no challenge: whether it is dead, its session says. But without a connection it
is out of reach after a moment, so that nobody waits for it, and others are elected.
Left to others: what is told (`planning/planner.py`), how it looks on the wire (`control_requests.py`),
whether a controller that reaches so few should resign (`self_doubt.py`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any

import structlog

from ..base.tasks import Tasks
from ..base.types import TopicPartition
from ..base.values import dataclass
from ..client.network.connection import Connection, ConnectionLost, RequestExpired
from ..protocol.errors import ErrorCode
from ..protocol.messages.control import LeaderAndIsrResponse, StopReplicaResponse
from ..protocol.messages.elections import GetReplicaLogInfoResponse
from .challenges import Challenger
from .control_requests import VERSIONS, ControlRequest, RequestBuilder
from .failure_detector import FailureDetector, Patience, Standing
from .planning import plans
from .planning.state import Broker, ClusterState, LogEnd
from .refusals import Refusals
from .self_doubt import Doubt

logger = structlog.get_logger(__name__)

QUEUE_MAX = 10_000
PARTITION_S = 0.01  # additional patience for each partition of a request
AWAY_S = 1.0  # then a broker of Kafka without a connection is out of reach
ASKED_AT_ONCE = 1_000  # logs; with KIP-966 a broker answers for no more
STALE = (ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.STALE_BROKER_EPOCH)

Post = Callable[[plans.Event], None]


@dataclass(frozen=True, slots=True)
class Reports:
    """Callbacks by which an announcer tells its owner what happens."""

    post: Post
    fenced: Callable[[str], None]
    doubts: Callable[[str], None]  # too many live brokers are out of reach
    trouble: Callable[[BaseException], None]  # a channel has failed, and begins again


class Announcer:
    """Keeps one channel for each registered incarnation of a broker."""

    def __init__(
        self,
        sender: RequestBuilder,
        patience: Patience,
        reports: Reports,
        challenger: Challenger,
        trusts_until_s: float = float("-inf"),
    ) -> None:
        """`trusts_until_s` (loop time): before that the controller does not doubt, however few it reaches."""
        self._sender = sender
        self._patience = patience
        self._reports = reports
        self._challenger = challenger
        self._doubt = Doubt(reports.doubts, self._wavers, trusts_until_s)
        self._tasks = Tasks("announcer")
        self._channels: dict[int, _Channel] = {}
        self._sequences = count(
            1
        )  # of all channels: a broker that registers again in one process goes on counting
        self._state: ClusterState | None = None

    async def stop(self) -> None:
        """End every connection; what was not sent is not sent any more."""
        self._doubt.end()
        for channel in self._channels.values():
            channel.finish()
        self._channels.clear()
        await self._tasks.stop()

    def follow(self, state: ClusterState) -> None:
        """Open and close channels as brokers come and go."""
        self._state = state
        for broker in sorted(self._channels.keys() | state.brokers.keys()):
            channel, known = self._channels.get(broker), state.brokers.get(broker)
            former = None
            if channel is not None and not channel.serves(known, self._place(known)):
                former = self._channels.pop(broker)
                former.task.cancel()
                former.finish()
            if known is not None and broker not in self._channels:
                self._open(state, known, former)
        self._count()

    def _place(self, broker: Broker | None) -> tuple[str, int] | None:
        return None if broker is None else self._sender.endpoint(broker)

    def _open(self, state: ClusterState, broker: Broker, former: _Channel | None) -> None:
        place = self._place(broker)
        if place is None:
            logger.error("broker_without_listener", broker=broker.id, listener=self._sender.listener)
            return
        detector = FailureDetector(
            place,
            self._patience,
            lambda patience_s: self._challenger.ask(broker.id, broker.incarnation, patience_s),
            lambda: self._changed(channel),
            dead=state.is_suspected(broker.id),
        )
        channel = _Channel(broker, place, detector, self._patience, self._reports)
        channel.sequences = self._sequences
        channel.probe = lambda: self._probe(broker.id)
        channel.task = self._tasks.sustain(channel.run, f"broker-{broker.id}", self._reports.trouble)
        self._channels[broker.id] = channel
        channel.is_away()
        if former is not None and former.broker.incarnation == broker.incarnation:
            channel.take_over(former)

    def _changed(self, channel: _Channel) -> None:
        if channel.detector.is_dead:
            channel.died()
        elif channel.detector.standing is Standing.CUT:
            self._count()  # first: a controller in doubt moves nobody for being out of reach
            channel.answered()
        elif channel.detector.standing is Standing.AWAY:
            channel.is_away()
        else:
            channel.is_connected()
        self._count()

    @property
    def reached_count(self) -> int:
        """How many channels have a connection."""
        return sum(c.detector.standing is Standing.REACHED for c in self._channels.values())

    def _count(self) -> None:
        """Count how many live brokers are reached from here."""
        others = [c for broker, c in sorted(self._channels.items()) if broker != self._sender.broker]
        reached = sum(c.detector.standing is Standing.REACHED for c in others)
        self._doubt.judge(reached, [c.broker.id for c in others if c.detector.standing is Standing.CUT])

    def _wavers(self, doubts: bool) -> None:
        self._reports.post(plans.ReachDoubted(doubts))

    def _probe(self, broker: int) -> ControlRequest:
        """A request that changes nothing, to learn whether it is still the same incarnation of the broker."""
        assert self._state is not None
        return self._sender.update_metadata(self._state, plans.SendUpdateMetadata((broker,), ()))[broker]

    def send_leader_and_isr(self, state: ClusterState, command: plans.SendLeaderAndIsr) -> None:
        """Queue a LeaderAndIsr."""
        self._queue(command.broker, lambda: self._sender.leader_and_isr(state, command))

    def send_stop_replica(self, state: ClusterState, command: plans.SendStopReplica) -> None:
        """Queue a StopReplica."""
        self._queue(command.broker, lambda: self._sender.stop_replica(state, command))

    def ask_log_ends(self, state: ClusterState, command: plans.AskEnds) -> None:
        """Queue questions, after the requests that the broker must handle first. Each gets an answer event,
        even if it is empty, as those of Apache Kafka's brokers, which do not know the question.
        """
        channel = self._channels.get(command.broker)
        for first in range(0, len(command.partitions), ASKED_AT_ONCE):
            part = command.partitions[first : first + ASKED_AT_ONCE]
            if channel is not None and not channel.broker.is_kafkas:
                channel.push(self._sender.log_info(state, plans.AskEnds(command.broker, part)))
            else:
                start = state.start_of(command.broker)
                self._reports.post(plans.EndsAnswered(*start, frozenset(part)))

    def send_update_metadata(self, state: ClusterState, command: plans.SendUpdateMetadata) -> None:
        """Queue an UpdateMetadata for each addressed broker."""
        requests = self._sender.update_metadata(state, command)
        for broker in command.brokers:
            self._queue(broker, lambda broker=broker: requests[broker])  # type: ignore[misc]

    def _queue(self, broker: int, request: Callable[[], ControlRequest]) -> None:
        channel = self._channels.get(broker)
        if channel is not None:
            channel.push(request())

    async def heard(self, brokers: Iterable[int]) -> None:
        """Wait until these brokers have answered everything queued for them now, or are out of reach."""
        channels = [self._channels[broker] for broker in brokers if broker in self._channels]
        for mark, channel in [(channel.pushed, channel) for channel in channels]:
            await channel.heard(mark)


class _Channel:
    """The queue of one incarnation of one broker."""

    def __init__(
        self,
        broker: Broker,
        place: tuple[str, int],
        detector: FailureDetector,
        patience: Patience,
        reports: Reports,
    ) -> None:
        self.broker = broker
        self.place = place
        self.detector = detector
        self.task: asyncio.Task[Any]
        self.probe: Callable[[], ControlRequest]
        self.sequences: Iterator[int]
        self.pushed = 0
        self._answered = 0
        self._requests: deque[ControlRequest] = deque()
        self._news = asyncio.Event()
        self._progress = asyncio.Event()
        self._patience = patience
        self._reports = reports
        self._refusals = Refusals()
        self._taking_up: asyncio.TimerHandle | None = None
        self._away: asyncio.TimerHandle | None = None  # while it has no connection, for a moment
        self._finished = False
        self._is_cut = False  # as last reported
        self.hangs = False  # it has been sent a request, and has not answered it for long

    def serves(self, broker: Broker | None, place: tuple[str, int] | None) -> bool:
        """Whether this is still the same incarnation of the broker, at the same address."""
        return broker is not None and self.broker.incarnation == broker.incarnation and self.place == place

    def take_over(self, former: _Channel) -> None:
        """The same start of the broker was reached at another address until now: what it has not answered
        there it is sent here, in the same order. A copy that is read there late comes too late.
        """
        self._is_cut = former._is_cut
        for request in former._requests:
            self.push(request)
        if refused := former._refusals.take():
            self._refused(refused)

    def push(self, request: ControlRequest) -> None:
        """Append to the queue."""
        if self.detector.is_dead:
            self._unanswered(request)
            return
        self._requests.append(request)
        self.pushed += 1
        if len(self._requests) > QUEUE_MAX:
            self._drop_all()
            self._reports.post(plans.QueueOverflowed(self.broker.id))
        else:
            self._news.set()

    def finish(self) -> None:
        """Nobody needs to wait for this broker any more."""
        self._finished = True
        self._progress.set()
        for timer in (self._taking_up, self._away):
            if timer is not None:
                timer.cancel()

    async def heard(self, mark: int) -> None:
        """Wait for the answers to the first `mark` requests, as long as the broker can be reached."""
        assert mark <= self.pushed == self._answered + len(self._requests), "each request is counted once"
        while self._answered < mark and not (self._finished or self.detector.is_dead or self._is_cut):
            self._progress.clear()
            await self._progress.wait()

    async def run(self) -> None:
        """Connect, send, and begin again when the connection ends."""
        doubtful = False
        while True:
            connection = await self.detector.open(doubtful=doubtful)
            doubtful = False
            try:
                if not self.detector.is_dead or await self._is_back(connection):
                    await self._serve(connection)
                else:
                    await asyncio.sleep(self._patience.retry_every_s_max)
            except ConnectionLost as lost:
                doubtful = isinstance(lost, RequestExpired)
                logger.info("broker_connection_lost", broker=self.broker.id, reason=str(lost))
            finally:
                await connection.close()
                if not self.detector.is_dead:
                    self.detector.now(Standing.AWAY)

    async def _is_back(self, connection: Connection) -> bool:
        """Whether the broker that counted as dead answers, and is still the same incarnation."""
        answer = await self._ask(connection, self.probe())
        if answer.error_code != ErrorCode.NONE:
            return False
        self.detector.now(Standing.REACHED)
        self._reports.post(plans.BrokerCleared(self.broker.id, self.broker.incarnation))
        return True

    async def _serve(self, connection: Connection) -> None:
        connection.on_lost = lambda _: self._news.set()
        while not connection.is_lost:
            if not self._requests:
                self._news.clear()
                await self._news.wait()
                continue
            request = self._requests[0]
            answer = await self._ask_in_time(connection, request)
            if self._requests and self._requests[0] is request:
                self._requests.popleft()
                self._answered += 1
                self._progress.set()
            self._judge(request, answer)

    async def _ask_in_time(self, connection: Connection, request: ControlRequest) -> Any:
        """The answer, however late. Until it comes, a late broker counts as out of reach."""
        patience_s = self._patience.hear_within_s + PARTITION_S * request.partitions
        timer = asyncio.get_running_loop().call_later(patience_s, self._hangs)
        try:
            answer = await self._ask(connection, request)
        finally:
            timer.cancel()
        if self.hangs:
            self.hangs = False
            self.reach(True)
        return answer

    def _hangs(self) -> None:
        logger.warning("broker_unresponsive", broker=self.broker.id)
        self.hangs = True
        self.reach(False)

    async def _ask(self, connection: Connection, request: ControlRequest) -> Any:
        deadline = asyncio.get_running_loop().time() + self._patience.answer_within_s
        if self.broker.is_kafkas and connection.versions is VERSIONS:  # which may be of an earlier version
            await connection.negotiate(deadline, VERSIONS)
        return await connection.request(request.build(next(self.sequences)), deadline=deadline)

    def _judge(self, request: ControlRequest, answer: Any) -> None:
        if request.asks:
            self._reports.post(_told(self.broker, request, answer))
            return
        code = answer.error_code
        if code == ErrorCode.STALE_CONTROLLER_EPOCH:
            self._reports.fenced(f"broker {self.broker.id} knows a newer controller")
        elif code != ErrorCode.NONE:
            logger.warning("control_request_refused", broker=self.broker.id, code=code)
            if request.roles and self.broker.is_kafkas and code not in STALE:
                self._refused({role.partition: role.state.leader_epoch for role in request.roles})
        if request.deletes:
            failed = _failed(request.deletes, answer)
            done = request.deletes - failed
            self._reports.post(plans.ReplicasDeleted(self.broker.id, done, failed))
        elif request.topics and code == ErrorCode.NONE:
            self._reports.post(_answered(self.broker, request, answer))

    def _refused(self, roles: Mapping[TopicPartition, int]) -> None:
        loop = asyncio.get_running_loop()
        wait_s = self._refusals.refused(roles, loop.time())
        if wait_s is not None:
            self._taking_up = loop.call_later(wait_s, self._take_up)
        elif self._refusals.abandon():
            logger.error("refused_roles_abandoned", broker=self.broker.id, rounds=self._refusals.rounds)

    def _take_up(self) -> None:
        """Have what was refused given anew, in a new leader epoch, which Kafka's broker obeys."""
        roles = self._refusals.take()
        logger.warning(
            "refused_roles_renewed",
            broker=self.broker.id,
            partitions=len(roles),
            round=self._refusals.rounds,
        )
        self._reports.post(plans.RolesRefused(self.broker.id, self.broker.incarnation, roles))

    def died(self) -> None:
        """The broker cannot be reached, and does not answer through ZooKeeper either."""
        logger.warning("broker_suspected", broker=self.broker.id, incarnation=self.broker.incarnation)
        self._drop_all()
        self._reports.post(plans.BrokerSuspected(self.broker.id, self.broker.incarnation))

    def answered(self) -> None:
        """The broker cannot be reached, but answers through ZooKeeper: it does not count as dead any more."""
        logger.warning("broker_out_of_reach", broker=self.broker.id)
        self.reach(False)
        self._reports.post(plans.BrokerCleared(self.broker.id, self.broker.incarnation))

    def is_away(self) -> None:
        """There is no connection. A broker of ours is challenged then; one of Kafka's nobody can ask."""
        if self.broker.is_kafkas and self._away is None and not self._finished:
            self._away = asyncio.get_running_loop().call_later(AWAY_S, self._stays_away)

    def is_connected(self) -> None:
        """It is reached, unless it has left a request without an answer."""
        if self._away is not None:
            self._away.cancel()
            self._away = None
        if not self.hangs:
            self.reach(True)

    def _stays_away(self) -> None:
        logger.warning("broker_out_of_reach", broker=self.broker.id)
        self.reach(False)

    def reach(self, is_reached: bool) -> None:
        """Report a change of reach. A broker that is away for a moment counts as it did before."""
        if is_reached is self._is_cut:
            self._is_cut = not is_reached
            self._progress.set()
            self._reports.post(plans.ReachChanged(self.broker.id, self.broker.incarnation, is_reached))

    def _drop_all(self) -> None:
        self._answered += len(self._requests)
        dropped = list(self._requests)
        self._requests.clear()
        self._progress.set()
        for request in dropped:
            self._unanswered(request)

    def _unanswered(self, request: ControlRequest) -> None:
        if request.asks:
            asked = frozenset(request.asks)
            self._reports.post(plans.EndsAnswered(self.broker.id, self.broker.incarnation, asked))


def _answered(
    broker: Broker, request: ControlRequest, answer: LeaderAndIsrResponse
) -> plans.ReplicasAnswered:
    """Which replicas are offline or full. Answers with other error codes say nothing about that. Brokers of
    Kafka answer in an order of their own.
    """
    telling = (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
    told = [
        (TopicPartition(request.topics[topic.topic_id], one.partition_index), one)
        for topic in answer.topics
        if topic.topic_id in request.topics
        for one in topic.partition_errors
        if one.error_code in telling
    ]
    return plans.ReplicasAnswered(
        broker.id,
        broker.incarnation,
        answered=frozenset(q for q, _ in told),
        offline=frozenset(q for q, one in told if one.error_code != ErrorCode.NONE),
        full=frozenset(q for q, one in told if one.is_full),
        led=request.leads,
    )


def _told(broker: Broker, request: ControlRequest, answer: GetReplicaLogInfoResponse) -> plans.EndsAnswered:
    """Where logs end. An answer of another incarnation of the broker counts as empty."""
    told = [one for topic in answer.topic_partition_log_info_list for one in topic.partition_log_info]
    ends = {
        asked: (one.current_leader_epoch, LogEnd(one.last_written_leader_epoch, one.log_end_offset))
        for asked, one in zip(request.asks, told, strict=False)
        if asked.partition == one.partition and one.error_code == ErrorCode.NONE
    }
    is_same = answer.broker_epoch == broker.incarnation
    asked = frozenset(request.asks)
    return plans.EndsAnswered(broker.id, broker.incarnation, asked, ends if is_same else {})


def _failed(wanted: frozenset[TopicPartition], answer: StopReplicaResponse) -> frozenset[TopicPartition]:
    """What a broker could not delete. A replica that it does not have counts as deleted."""
    if answer.error_code != ErrorCode.NONE:
        return wanted
    good = (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return frozenset(
        TopicPartition(e.topic_name, e.partition_index)
        for e in answer.partition_errors
        if e.error_code not in good
    )
