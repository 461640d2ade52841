"""`Controller`: every broker stands for election as controller, one is elected, and all others watch it.

The broker that creates `/controller` is controller until its session ends or it is proved dead. Every
candidate keeps a connection to the controller's broker. It takes `/controller` over when that connection
cannot be made again and the broker does not answer through ZooKeeper either. A wrong verdict is safe: the old
controller's next write meets the fence. A broker that lost the role while alive does not take it back at once
(`takeover_backoff.py`), nor does one that resigned because it reached too few brokers (`self_doubt.py`).
Left to others: the controller's work (`active_controller.py`), clients' requests (`requests/table.py`),
registering (`broker/registration.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from ..base.tasks import Tasks
from ..base.types import Clock
from ..protocol.errors import NotController
from ..protocol.messages.control import ControlledShutdownResponse
from ..zookeeper import documents, znodes
from ..zookeeper.client import SessionEvent, SessionState, ZkClient, ZkError
from ..zookeeper.znodes import ControllerMoved, ControllerNode, ControllerTerm
from .active_controller import ActiveController
from .control_requests import RequestBuilder
from .controller_watch import ControllerWatch
from .failure_detector import Patience
from .planning import plans
from .planning.decision_notes import DecisionNotes
from .planning.state import ClusterState, Start
from .requests.config_changes import Alteration, AnySettings, Catalogue
from .requests.configs import ConfigRequests
from .requests.election_requests import ElectionPolicy
from .requests.isr_changes import IsrChanges
from .requests.own_settings import alter_own
from .requests.producer_id_blocks import ProducerIdBlocks
from .requests.reach import Reach
from .requests.table import REQUESTS, RequestHandlers
from .requests.topics import ConfigCheck, Defaults, TopicRequests
from .self_doubt import Abstention
from .takeover_backoff import TakeoverBackoff

logger = structlog.get_logger(__name__)

RETRY_S = 0.2


def any_configs(topic: str, configs: object) -> None:
    """Accepts every setting."""


@dataclass(frozen=True, slots=True)
class ControllerOptions:
    """A controller's configuration. `listener` names the listener through which brokers reach each other."""

    broker_id: int
    listener: str
    defaults: Callable[[], Defaults] = Defaults  # the current ones
    patience: Patience = field(default_factory=Patience)
    takeover_spread_s: float = 0.05
    session_timeout_s: float = 18.0
    check_configs: ConfigCheck = any_configs
    catalogue: Catalogue = field(default_factory=AnySettings)
    deletes_topics: bool = True  # also those that are to be deleted by a node in ZooKeeper
    isr_order: bool = False  # elect by the order of the ISR, as the oldest semantics profile does


class Controller:
    """This broker's part in the election, and its term while elected."""

    def __init__(
        self,
        config: ControllerOptions,
        zk: ZkClient,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        fail: Callable[[BaseException], None] | None = None,
        decision_notes: DecisionNotes | None = None,
    ) -> None:
        self._config = config
        self.decision_notes = decision_notes or DecisionNotes(lambda _: None)
        self._zk = zk
        self._clock = clock
        self._random_bytes = random_bytes
        self._tasks = Tasks("candidate", fail)
        self._due = asyncio.Event()
        self._node: ControllerNode | None = None
        self._active: ActiveController | None = None
        self._handlers: RequestHandlers | None = None
        self._configured: set[str] | None = None  # topics whose settings changed while a term begins
        self._former: list[ActiveController] = []
        self._closing = asyncio.Lock()
        me = RequestBuilder(config.broker_id, 0, config.listener)
        self._watch = ControllerWatch(zk, me, config.patience, self._tasks, self._due.set)
        self._backoff = TakeoverBackoff(config.session_timeout_s)
        self._abstention = Abstention(config.session_timeout_s)
        self._retry: asyncio.TimerHandle | None = None
        self._stop_listening: Callable[[], None] = lambda: None

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._active is not None

    @property
    def controller_id(self) -> int | None:
        """The broker that is controller, as far as is known."""
        return None if self._node is None else self._node.broker

    @property
    def is_informed(self) -> bool:
        """Whether ZooKeeper is connected: without it nobody here knows who is controller, nor can write."""
        return self._zk.connected

    @property
    def view(self) -> ClusterState | None:
        """The controller's state, None if this broker is not controller."""
        return None if self._active is None else self._active.state

    @property
    def epoch(self) -> int | None:
        """The epoch of our term, None if this broker is not controller."""
        return None if self._active is None else self._active.term.epoch

    @property
    def reach(self) -> Reach | None:
        """What requests may use of our term, None if this broker is not controller."""
        return None if self._active is None else self._active.reach

    @property
    def queued(self) -> int:
        """Events that wait to be handled by our term."""
        return 0 if self._active is None else self._active.queued

    @property
    def channel_count(self) -> int:
        """Brokers that our term reaches."""
        return 0 if self._active is None else self._active.announcer.reached_count

    @property
    def terms(self) -> Sequence[ActiveController]:
        """Our term, and those whose end is not complete. Only the last in ZooKeeper can still write there."""
        return [*self._former, *filter(None, [self._active])]

    @property
    def watches_controller(self) -> bool:
        """Whether the broker that is controller is being watched from here."""
        return self._watch.is_kept

    async def start(self) -> None:
        """Stand for election from now on. The broker's listener must be open, and it must have registered.

        ZooKeeper is not asked here: it may be lost by now, which must not end a broker that is registered.
        """
        self._stop_listening = self._zk.listen(self._session_changed)
        self._due.set()
        self._tasks.spawn(self._campaign(), "election")

    async def stop(self) -> None:
        """Stand no more, and delete `/controller` if it is ours, so that a successor need not wait."""
        active = await self.halt()
        if active is not None and self._zk.connected:
            try:
                await znodes.resign(self._zk, active.term)
            except ZkError as error:
                logger.info("resignation_unknown", reason=repr(error))

    async def halt(self) -> ActiveController | None:
        """End at once, without a word to ZooKeeper, as a killed process does. Returns the term that ended."""
        self._stop_listening()
        if self._retry is not None:
            self._retry.cancel()
        await self._tasks.stop()
        active = self._end_term()
        await self._close_former()
        return active

    def suspect(self, broker: int) -> None:
        """There is proof that this broker is dead. Ignored unless we are controller."""
        active = self._active
        if active is not None and broker in active.state.brokers:
            active.post(plans.BrokerSuspected(broker, active.state.brokers[broker].incarnation))

    def topic_configured(self, topic: str) -> None:
        """The topic's settings have changed in ZooKeeper."""
        if self._active is not None:
            self._active.reach.configured([topic])
        elif self._configured is not None:
            self._configured.add(topic)

    def defaults_changed(self) -> None:
        """The defaults for topics without their own setting have changed."""
        if self._active is not None:
            defaults = self._config.defaults()
            self._active.defaults_are(defaults.elections, defaults.min_isr)

    def _policy(self) -> ElectionPolicy:
        return self._config.defaults().elections

    # --- requests ----------------------------------------------------------------------------------

    async def ask(self, request: Any) -> Any:
        """The answer to a request of `REQUESTS`, once it is carried out or has timed out.

        Raises `NotController`.
        """
        return await REQUESTS[type(request)](self._current_handlers(), request)

    async def alter_own(self, wanted: Alteration, validate_only: bool) -> None:
        """Change this broker's own settings, where the controller is one of Apache Kafka. Raises ApiError."""
        await alter_own(self._zk, self._config.catalogue, wanted, validate_only)

    async def controlled_shutdown(self, broker_id: int, epoch: int) -> ControlledShutdownResponse:
        """Move leadership away from a broker that shuts down, where others can lead."""
        return await self._current_handlers().topics.controlled_shutdown(broker_id, epoch)

    def _current_handlers(self) -> RequestHandlers:
        if self._handlers is None or self._active is None or self._active.ended:
            raise NotController()
        return self._handlers

    # --- election ----------------------------------------------------------------------------------

    def _session_changed(self, event: SessionEvent) -> None:
        """When the session expires our term ends, before a new session can do anything."""
        if event.state is SessionState.EXPIRED:
            self._end_term()
            self._watch.end()
            self._node = None
        else:
            for active in filter(None, (self._active, *self._former)):  # `_former`: one may be starting
                active.session(event.state is SessionState.CONNECTED)
            if event.state is SessionState.CONNECTED:
                self._watch.end()  # the registration it watches may have changed unseen
        self._due.set()

    async def _campaign(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            await self._close_former()
            if not self._zk.connected:
                continue
            try:
                await self._replace_the_dead()
                await self._look()
            except (ZkError, ControllerMoved, documents.BadDocument) as error:
                logger.info("election_interrupted", reason=repr(error))
                self._due.set()
                await asyncio.sleep(RETRY_S)

    async def _look(self) -> None:
        """Look who is controller. If nobody is, stand for election."""
        node = await znodes.read_controller(self._zk, self._wake)
        if node is not None and self._is_ours(node):
            if self._active is None:
                await self._give_up_node(node)
            return
        if node is not None and self._is_ours(self._node):
            self._backoff.lost(asyncio.get_running_loop().time())
            logger.warning("controller_replaced", successor=node.broker)
        self._end_term()
        await self._close_former()
        if node is None:
            self._node = None
            self._watch.end()
            if not self._must_abstain() and await self._is_registered():
                term = await znodes.elect(self._zk, self._config.broker_id, self._clock.wall_ms())
                self._due.set()
                if term is not None:
                    await self._begin_term(term, None)
            return
        if self._watch.dead is None:
            self._abstention.taken()
        if node != self._node or not self._watch.is_kept:
            self._node = node
            await self._watch.begin(node)

    async def _replace_the_dead(self) -> None:
        """Take over from a controller whose broker is dead. Brokers with lower ids try first."""
        node, dead = self._node, self._watch.dead
        if node is None or dead is None:
            return
        if self._must_wait() or self._must_abstain() or not await self._is_registered():
            return
        brokers = [int(name) for name in await self._zk.children(documents.BROKER_IDS) if name.isdigit()]
        rank = sum(broker < self._config.broker_id for broker in brokers)
        await asyncio.sleep(self._config.takeover_spread_s * rank / max(1, len(brokers)))
        if self._watch.dead != dead:
            return
        term = await znodes.take_over(self._zk, self._config.broker_id, self._clock.wall_ms(), node)
        if term is not None:
            logger.warning("controller_taken_over", predecessor=node.broker, epoch=term.epoch)
            await self._begin_term(term, dead)

    def _must_wait(self) -> bool:
        """Whether we lost the role while alive a short time ago. If so, look again when the wait is over."""
        return self._looks_again_at(self._backoff.until)

    def _must_abstain(self) -> bool:
        """Whether we resigned a short time ago, and others may still take over."""
        return self._looks_again_at(self._abstention.stands_at(asyncio.get_running_loop().time()))

    def _looks_again_at(self, when: float) -> bool:
        """Whether `when` is still to come. If so, look again then."""
        loop = asyncio.get_running_loop()
        if loop.time() >= when:
            return False
        if self._retry is not None:
            self._retry.cancel()
        self._retry = loop.call_at(when, self._due.set)
        return True

    def _is_ours(self, node: ControllerNode | None) -> bool:
        return node is not None and node.owner == self._zk.session_id

    async def _begin_term(self, term: ControllerTerm, dead: Start | None) -> None:
        self._watch.end()
        self._end_term()
        now = asyncio.get_running_loop().time()
        is_reluctant = self._abstention.is_reluctant(now)
        trusts_until_s = now + (self._config.session_timeout_s if is_reluctant else 0.0)
        sender = RequestBuilder(self._config.broker_id, term.epoch, self._config.listener)
        min_isr = self._config.defaults().min_isr
        active = ActiveController(
            self._zk, term, sender, self._config.patience, self._wake, self._random_bytes,
            self._policy().unclean, self.decision_notes, self._policy, trusts_until_s,
            self._config.deletes_topics,
        )  # fmt: skip
        active.state = replace(active.state, isr_order=self._config.isr_order, min_isr=min_isr)
        self._former.append(active)  # until it is certain that the term has begun
        self._configured = set()
        try:
            await active.open(dead)
            self._node = await znodes.read_controller(self._zk, self._wake)
            if not self._is_ours(self._node) or active.ended:
                self._due.set()
                return
            self._former.remove(active)
            self._open_for_requests(active, self._configured)
        finally:
            self._configured = None
        logger.info("controller_elected", broker=self._config.broker_id, epoch=term.epoch)

    def _open_for_requests(self, active: ActiveController, configured: set[str]) -> None:
        assert self._active is None, "one term at a time"
        self._active = active
        config = self._config
        self._handlers = RequestHandlers(
            TopicRequests(active.reach, config.defaults, config.check_configs, self._random_bytes),
            ConfigRequests(active.reach, config.catalogue),
            active.mover,
            active.elections,
            IsrChanges(active.reach),
            ProducerIdBlocks(active.reach),
        )
        active.reach.configured(configured)
        self.defaults_changed()  # they may have changed meanwhile

    def _end_term(self) -> ActiveController | None:
        """Our term is over. Its tasks are awaited later, by `_close_former`."""
        active, self._active, self._handlers = self._active, None, None
        if active is not None:
            self._former.append(active)
            active.end("another broker is the controller")
        return active

    async def over(self) -> None:
        """Wait until every term of the expired session is over: its fence would hold in the new session."""
        for active in self._former:
            active.end("its ZooKeeper session has expired")
        await self._close_former()

    async def _close_former(self) -> None:
        async with self._closing:
            while self._former:
                active = self._former.pop()
                if active.abstains:
                    self._abstention.begin(asyncio.get_running_loop().time())
                await active.close()

    async def _give_up_node(self, node: ControllerNode) -> None:
        """Delete our `/controller`: we have no term, as the election's answer was lost or the term failed."""
        await znodes.resign_without_term(self._zk)
        self._node = None
        logger.info("controller_node_deleted", broker=node.broker)
        self._due.set()

    async def _is_registered(self) -> bool:
        """Only a broker whose registration belongs to this session may become controller."""
        stat = await self._zk.exists(documents.broker_path(self._config.broker_id), self._wake)
        return stat is not None and stat.owner == self._zk.session_id

    def _wake(self, _: str) -> None:
        if self._active is not None and self._active.ended:
            self._end_term()
        self._due.set()
