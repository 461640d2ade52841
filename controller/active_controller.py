"""The elected controller at work: brokers die, topics come, ISRs change; it plans and carries the plans out.

It lives for one term, which begins with an election. A write that meets a newer fence, or an answer that
names a newer controller, ends it at once. Nothing here survives into the next term.
Left to others: getting elected (`controller.py`), deciding (`planning/planner.py`), the requests of clients
(`requests/topics.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial

import structlog

from ..base.tasks import Tasks
from ..base.types import TopicPartition
from ..protocol.errors import NotController
from ..zookeeper.client import MultiFailed, Unknown, ZkClient, ZkError
from ..zookeeper.topic_lives import remove_orphans
from ..zookeeper.znodes import ControllerMoved, ControllerTerm
from .assignment_nodes import restore_partitions
from .broker_channels import Announcer, Reports
from .challenges import Challenger
from .control_requests import RequestBuilder
from .failure_detector import Patience
from .planning import plans
from .planning.decision_notes import DecisionNotes
from .planning.planner import plan
from .planning.state import ClusterState, Start
from .requests.election_requests import ElectionPolicy, ElectionRequests, tell_loss
from .requests.reach import Condition, Reach
from .requests.reassignments import MoveWatch, ReassignmentWriter
from .requests.topic_removal import remove_topic
from .requests.znode_reassignments import ReassignmentRequests
from .state_writes import StateWrites, WriteContext
from .watches import BrokerWatch, IsrWatch, LogDirWatch, TopicWatch, read_states

logger = structlog.get_logger(__name__)

INBOX_MAX = 10_000
THOUSANDS = 1000  # from so many partitions on, a plan takes long enough to hold up the event loop
RETRY_S = 0.2


class ActiveController:
    """One term of the controller. `over` is called once, when the term has ended from outside."""

    def __init__(
        self,
        zk: ZkClient,
        term: ControllerTerm,
        sender: RequestBuilder,
        patience: Patience,
        over: Callable[[str], None],
        random_bytes: Callable[[int], bytes],
        unclean: bool = False,
        decision_notes: DecisionNotes | None = None,
        policy: Callable[[], ElectionPolicy] = ElectionPolicy,
        trusts_until_s: float = float("-inf"),
        deletes_topics: bool = True,
    ) -> None:
        self.state = ClusterState(term.epoch, unclean=unclean, strategy=policy().strategy)
        self.term = term
        self._zk = zk
        self._over = over
        self._decision_notes = decision_notes
        self._ended = False
        self.abstains = False  # it ended for a reason that lies in this broker: others should be controller
        self._inbox: asyncio.Queue[plans.Event] = asyncio.Queue(INBOX_MAX)
        self._tasks = Tasks("controller", self._failed)
        reports = Reports(self.post, self.end, self._doubts, self._channel_failed)
        self.announcer = Announcer(sender, patience, reports, Challenger(zk), trusts_until_s)
        self._brokers = BrokerWatch(zk)
        self._topics = TopicWatch(zk, term, random_bytes, deletes_topics)
        self._isrs = IsrWatch(zk, term)
        self._log_dirs = LogDirWatch(zk, term)
        self.reach = Reach(
            zk, term, lambda: self.state, self.post, self.until, self._all_told, self._topics.configured
        )
        self.mover = ReassignmentWriter(self.reach)
        self._moves = MoveWatch(zk)
        self._requests = ReassignmentRequests(self.reach, self.mover)
        self.elections = ElectionRequests(self.reach, policy)
        self._connected = asyncio.Event()
        self._connected.set()
        self._waiters: list[tuple[Condition, asyncio.Future[None]]] = []
        self._states = StateWrites(WriteContext(zk, term, self._connected, lambda: self._ended, self.end))

    @property
    def ended(self) -> bool:
        """Whether the term is over: nothing is decided or written here any more."""
        return self._ended

    @property
    def queued(self) -> int:
        """Events that wait to be handled."""
        return self._inbox.qsize()

    async def open(self, suspect: Start | None = None) -> None:
        """Set the watches, read everything, repair what is wrong. `suspect` is known to be dead."""
        (failure,) = await asyncio.gather(self._read_everything(suspect), return_exceptions=True)
        if isinstance(failure, ZkError | ControllerMoved):
            raise failure
        if failure is not None:  # as in the tasks that begin below
            logger.error("controller_start_failed", epoch=self.term.epoch, exc_info=failure)
            self._failed(failure)
        if self._ended:
            return
        self._tasks.spawn(self._consume(), "events")
        self._tasks.spawn(self._watch(self._brokers.due, self._look_at_brokers), "brokers")
        self._tasks.spawn(self._watch(self._topics.due, self._look_at_topics), "topics")
        self._tasks.spawn(self._watch(self._isrs.due, self._isrs.look, self._isrs.handled), "isrs")
        dirs = self._log_dirs
        self._tasks.spawn(self._watch(dirs.due, dirs.look, dirs.handled), "log-dirs")
        self._tasks.spawn(self._watch(self._moves.due, self._moves.look), "moves")
        self._tasks.spawn(self._watch(self._requests.due, self._requests.look), "reassign-partitions")
        self._tasks.spawn(self._watch(self.elections.due, self.elections.look), "preferred-election")
        self._tasks.spawn(self.elections.keep_balance(), "balance")
        self._tasks.spawn(self._persist(self._tidy_up), "tidy-up")
        self._isrs.due.set()
        self._log_dirs.due.set()
        self._requests.due.set()
        self.elections.due.set()

    async def close(self) -> None:
        """Stop at once. The outcome of writes in flight stays unknown; the next controller reads it."""
        self._ended = True
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(NotController())
        await self.announcer.stop()
        await self._tasks.stop()

    def end(self, because: str) -> None:
        """End this term, and tell the owner why."""
        if not self._ended:
            self._ended = True
            logger.warning("controller_resigned", epoch=self.term.epoch, reason=because)
            self._over(because)

    def _doubts(self, why: str) -> None:
        self.abstains = True
        self.end(why)

    def _channel_failed(self, failure: BaseException) -> None:
        if self._decision_notes is not None:
            self._decision_notes.channel_failures += 1

    def post(self, event: plans.Event) -> None:
        """Queue an event. If the queue is full, this broker cannot keep up, and the term ends."""
        if self._ended:
            return
        try:
            self._inbox.put_nowait(event)
        except asyncio.QueueFull:
            self.end("the event queue is full")

    def defaults_are(self, policy: ElectionPolicy, min_isr: int) -> None:
        """The defaults for topics without their own setting have changed."""
        self.post(plans.DefaultsChanged(policy.unclean, policy.strategy, min_isr))

    def session(self, connected: bool) -> None:
        """The connection to ZooKeeper is lost or back. When it is back, every watch must be set again."""
        if not connected:
            self._connected.clear()
            return
        self._connected.set()
        self._brokers.reconnected()
        self._topics.reconnected()
        self._isrs.reconnected()
        self._log_dirs.reconnected()
        self.elections.reconnected()
        self._moves.reconnected()
        self._requests.reconnected()

    async def until(self, condition: Condition) -> None:
        """Wait until the state meets this condition, checked after every event. Raises `NotController`."""
        if self._ended:
            raise NotController()
        if condition(self.state):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (condition, waiter)
        self._waiters.append(entry)
        try:
            await waiter
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)

    async def _all_told(self) -> None:
        await self.announcer.heard(self.state.live)

    # --- events ------------------------------------------------------------------------------------

    async def _read_everything(self, suspect: Start | None) -> None:
        brokers, news = await asyncio.gather(self._brokers.look(), self._topics.look())
        state = replace(self.state, brokers=brokers)
        deleting: frozenset[str] = frozenset()
        broken: frozenset[TopicPartition] = frozenset()
        for event in news:
            match event:
                case plans.TopicsRead(topics):
                    state = replace(state, topics=topics)
                case plans.DeletionsWanted(names):
                    deleting = names
                case plans.StatesRead(_, unreadable):
                    broken |= unreadable
        read = await read_states(self._zk, state.all_partitions())
        newest = max((s.controller_epoch for s in read.states.values() if s is not None), default=0)
        if newest > self.term.epoch:
            raise ControllerMoved(f"a partition state was written by the newer controller epoch {newest}")
        suspected = frozenset((b.id, b.incarnation) for b in brokers.values()).intersection({suspect})
        await self._take(
            plans.Elected(
                brokers=brokers,
                topics=state.topics,
                partitions={q: s for q, s in read.states.items() if s is not None},
                broken=broken | read.broken,
                suspected=suspected,
                deleting=deleting,
            )
        )

    async def _consume(self) -> None:
        while True:
            await self._take(await self._inbox.get())

    async def _plan(self, event: plans.Event) -> tuple[ClusterState, list[plans.Command]]:
        """Plan in a thread if there are thousands of partitions: it would block the event loop too long."""
        if len(self.state.partitions) + len(getattr(event, "partitions", ())) < THOUSANDS:
            return plan(self.state, event)
        return await asyncio.get_running_loop().run_in_executor(None, plan, self.state, event)

    async def _take(self, event: plans.Event) -> None:
        """Handle one event. Events are handled one by one, and nothing else changes the state."""
        before = self.state
        after, commands = await self._plan(event)
        if self._ended:
            return
        assert self.state is before, "events are handled one by one"
        assert after.controller_epoch == self.term.epoch, "it decides in its own epoch"
        self.state = after
        if before.brokers is not self.state.brokers:
            self.announcer.follow(self.state)
        if before.topics is not self.state.topics:
            self._moves.follow(self.state.moving())
            self._requests.follow(self.state)
        for command in commands:
            self._carry_out(command)
            if len(after.partitions) >= THOUSANDS:
                await asyncio.sleep(0)  # building the requests took a while: let other tasks run
                if self._ended:
                    return
        if self._decision_notes is not None:
            self._decision_notes.told(before, self.state, event, commands)
        ready = [entry for entry in self._waiters if entry[0](self.state)]
        for entry in ready:
            self._waiters.remove(entry)
            if not entry[1].done():
                entry[1].set_result(None)

    def _carry_out(self, command: plans.Command) -> None:
        match command:
            case plans.WriteStates(writes):
                logger.info("partition_states_changed", partitions=len(writes), epoch=self.term.epoch)
                self._tasks.spawn(self._write(self._states.replace(writes)), "write")
            case plans.CreateStates(writes):
                self._tasks.spawn(self._write(self._states.create(writes)), "create")
            case plans.ReadStates(partitions):
                self._tasks.spawn(self._read(partitions), "read")
            case plans.RemoveTopic(topic):
                self._tasks.spawn(self._remove(topic), "remove")
            case plans.SendLeaderAndIsr():
                self.announcer.send_leader_and_isr(self.state, command)
            case plans.SendUpdateMetadata():
                self.announcer.send_update_metadata(self.state, command)
            case plans.SendStopReplica():
                self.announcer.send_stop_replica(self.state, command)
            case plans.WriteAssignments():
                self._tasks.spawn(self._persist(partial(self.mover.finish, command)), "assign")
            case plans.RestorePartitions(topic, _, assignments):
                logger.error("topic_shrunk", topic=topic, restored=sorted(assignments))
                self._tasks.spawn(
                    self._persist(partial(restore_partitions, self._zk, self.term, command)), "restore"
                )
            case plans.AskEnds():
                self.announcer.ask_log_ends(self.state, command)
            case plans.AwaitReplicas() | plans.AskAgainLater():
                self._tasks.spawn(self.elections.later(command), "later")
            case plans.ReportLoss():
                tell_loss(command)
            case plans.Refuse(partition, move):
                logger.error("state_transition_illegal", partition=str(partition), move=move)
            case plans.Resign(because):
                self.end(because)

    async def _watch(
        self,
        due: asyncio.Event,
        look: Callable[[], Awaitable[Iterable[plans.Event]]],
        handled: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        while True:
            await due.wait()
            due.clear()
            try:
                for event in await look():
                    self.post(event)
                if handled is not None:
                    await handled()
            except ControllerMoved as moved:
                self.end(str(moved))
            except ZkError as error:
                logger.info("zookeeper_read_failed", reason=repr(error))
                due.set()
                await asyncio.sleep(RETRY_S)
                await self._connected.wait()

    async def _look_at_brokers(self) -> list[plans.Event]:
        return [plans.BrokersRead(await self._brokers.look())]

    async def _look_at_topics(self) -> list[plans.Event]:
        return await self._topics.look()

    # --- reads and writes --------------------------------------------------------------------------

    async def _write(self, settled: Awaitable[plans.StatesWritten | None]) -> None:
        event = await settled
        if event is not None:
            self.post(event)

    async def _read(self, partitions: Iterable[TopicPartition]) -> None:
        while not self._ended:
            try:
                self.post(await read_states(self._zk, partitions))
            except Unknown:
                await asyncio.sleep(RETRY_S)
                await self._connected.wait()
            else:
                return

    async def _persist(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write until it is known to be written, or the term ends."""
        while not self._ended:
            try:
                await write()
                return
            except Unknown:
                await asyncio.sleep(RETRY_S)
                await self._connected.wait()
            except ControllerMoved as moved:
                self.end(str(moved))

    async def _tidy_up(self) -> None:
        """Remove what topics have left that a controller of Apache Kafka has deleted."""
        known = [topic.id for topic in self.state.topics.values()]
        if count := await remove_orphans(self._zk, self.term, known):
            logger.info("orphaned_nodes_removed", count=count)

    async def _remove(self, topic: str) -> None:
        while not self._ended:
            try:
                await remove_topic(self._zk, self.term, topic)
            except (Unknown, MultiFailed):
                await asyncio.sleep(RETRY_S)
                await self._connected.wait()
            except ControllerMoved as moved:
                self.end(str(moved))
            else:
                logger.info("topic_deleted", topic=topic)
                self._topics.removed(topic)
                return

    def _failed(self, failure: BaseException) -> None:
        """A bug here ends the term, not the broker: the successor may meet the same bug."""
        self._tasks.forgive(failure)
        self.abstains = True
        self.end(f"{type(failure).__name__}: {failure}")
