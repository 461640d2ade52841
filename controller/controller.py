"""`Controller`: every broker stands for election, one is elected, and all others watch it.

The broker that creates `/controller` is controller until its session ends or it is proved dead. Every
candidate keeps a connection to the controller's broker. It takes `/controller` over when that connection
cannot be made again and the broker does not answer through ZooKeeper either. A wrong verdict is safe: the old
controller's next write meets the fence. A broker that lost the role while alive does not take it back at once
(`takeover_backoff.py`), nor does one that resigned because it reached too few brokers (`self_doubt.py`).
Left to others: the controller's work (`active.py`), clients' requests (`requests/table.py`), registering
(`broker/registration.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
from .active import ActiveController
from .control_requests import RequestBuilder
from .controller_watch import Vigil
from .failure_detector import Patience
from .planning import plans
from .planning.decisions import DecisionNotes
from .planning.state import ClusterState, Start
from .requests.config_changes import AnySettings, Catalogue
from .requests.configs import Settings
from .requests.elections import ElectionPolicy
from .requests.table import REQUESTS, Desks
from .requests.topics import ConfigCheck, Defaults, TopicRequests
from .self_doubt import Abstention
from .takeover_backoff import TakeoverBackoff

logger = structlog.get_logger(__name__)

RETRY_S = 0.2


def any_configs(configs: object) -> None:
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
    isr_order: bool = False  # elect by the order of the ISR, as the oldest semantics profile does


class Controller:
    """This broker's part in the election, and its term while elected."""

    def __init__(
        self,
        config: ControllerOptions,
        registry: ZkClient,
        clock: Clock,
        random_bytes: Callable[[int], bytes],
        fail: Callable[[BaseException], None] | None = None,
        chronicle: DecisionNotes | None = None,
    ) -> None:
        self._config = config
        self.chronicle = chronicle or DecisionNotes(lambda _: None)
        self._registry = registry
        self._clock = clock
        self._random_bytes = random_bytes
        self._tasks = Tasks("candidate", fail)
        self._due = asyncio.Event()
        self._seat: ControllerNode | None = None
        self._office: ActiveController | None = None
        self._desks: Desks | None = None
        self._configured: set[str] | None = None  # topics whose settings changed while a term begins
        self._dismissed: list[ActiveController] = []
        self._burial = asyncio.Lock()
        me = RequestBuilder(config.broker_id, 0, config.listener)
        self._vigil = Vigil(registry, me, config.patience, self._tasks, self._due.set)
        self._unseated = TakeoverBackoff(config.session_timeout_s)
        self._abstention = Abstention(config.session_timeout_s)
        self._retry: asyncio.TimerHandle | None = None
        self._deafen: Callable[[], None] = lambda: None

    @property
    def active(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._office is not None

    @property
    def controller_id(self) -> int | None:
        """The broker that is controller, as far as is known."""
        return None if self._seat is None else self._seat.broker

    @property
    def is_informed(self) -> bool:
        """Whether ZooKeeper is connected: without it nobody here knows who is controller, nor can write."""
        return self._registry.connected

    @property
    def view(self) -> ClusterState | None:
        """The controller's state, None if this broker is not controller."""
        return None if self._office is None else self._office.state

    @property
    def epoch(self) -> int | None:
        """The epoch of our term, None if this broker is not controller."""
        return None if self._office is None else self._office.reign.epoch

    async def start(self) -> None:
        """Stand for election from now on. The broker's listener must be open, and it must have registered.

        ZooKeeper is not asked here: it may be lost by now, which must not end a broker that is registered.
        """
        self._deafen = self._registry.listen(self._session_changed)
        self._due.set()
        self._tasks.spawn(self._stand(), "election")

    async def stop(self) -> None:
        """Delete `/controller` if it is ours, so that a successor need not wait."""
        self._deafen()
        if self._retry is not None:
            self._retry.cancel()
        await self._tasks.stop()
        office = self._dismiss()
        await self._bury()
        if office is not None and self._registry.connected:
            try:
                await znodes.resign(self._registry, office.reign)
            except ZkError as error:
                logger.info("resignation_unknown", reason=repr(error))

    def suspect(self, broker: int) -> None:
        """There is proof that this broker is dead. Ignored unless we are controller."""
        office = self._office
        if office is not None and broker in office.state.brokers:
            office.post(plans.BrokerSuspected(broker, office.state.brokers[broker].incarnation))

    def topic_configured(self, topic: str) -> None:
        """The topic's settings have changed in ZooKeeper."""
        if self._office is not None:
            self._office.topics.configured([topic])
        elif self._configured is not None:
            self._configured.add(topic)

    def defaults_changed(self) -> None:
        """The defaults for topics without their own setting have changed."""
        if self._office is not None:
            defaults = self._config.defaults()
            self._office.defaults_are(defaults.elections, defaults.min_isr)

    def _policy(self) -> ElectionPolicy:
        return self._config.defaults().elections

    # --- requests ----------------------------------------------------------------------------------

    async def ask(self, request: Any) -> Any:
        """The answer to a request of `REQUESTS`, once it is carried out or has timed out.

        Raises `NotController`.
        """
        return await REQUESTS[type(request)](self._ruling(), request)

    async def controlled_shutdown(self, broker_id: int, epoch: int) -> ControlledShutdownResponse:
        """Move leadership away from a broker that shuts down, where others can lead."""
        return await self._ruling().topics.controlled_shutdown(broker_id, epoch)

    def _ruling(self) -> Desks:
        if self._desks is None or self._office is None or self._office.ended:
            raise NotController()
        return self._desks

    # --- election ----------------------------------------------------------------------------------

    def _session_changed(self, event: SessionEvent) -> None:
        """When the session expires our term ends, before a new session can do anything."""
        if event.state is SessionState.EXPIRED:
            self._dismiss()
            self._vigil.end()
            self._seat = None
        else:
            for office in filter(None, (self._office, *self._dismissed)):  # `_dismissed`: one may be starting
                office.session(event.state is SessionState.CONNECTED)
            if event.state is SessionState.CONNECTED:
                self._vigil.end()  # the registration it watches may have changed unseen
        self._due.set()

    async def _stand(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            await self._bury()
            if not self._registry.connected:
                continue
            try:
                await self._succeed_the_dead()
                await self._look()
            except (ZkError, ControllerMoved, documents.BadDocument) as error:
                logger.info("election_interrupted", reason=repr(error))
                self._due.set()
                await asyncio.sleep(RETRY_S)

    async def _look(self) -> None:
        """Look who is controller. If nobody is, stand for election."""
        seat = await znodes.read_seat(self._registry, self._wake)
        if seat is not None and self._is_ours(seat):
            if self._office is None:
                await self._leave(seat)
            return
        if seat is not None and self._is_ours(self._seat):
            self._unseated.lost(asyncio.get_running_loop().time())
            logger.warning("controller_unseated", successor=seat.broker)
        self._dismiss()
        await self._bury()
        if seat is None:
            self._seat = None
            self._vigil.end()
            if not self._must_abstain() and await self._is_registered():
                reign = await znodes.elect(self._registry, self._config.broker_id, self._clock.wall_ms())
                self._due.set()
                if reign is not None:
                    await self._rule(reign, None)
            return
        if self._vigil.dead is None:
            self._abstention.taken()
        if seat != self._seat or not self._vigil.is_kept:
            self._seat = seat
            await self._vigil.begin(seat)

    async def _succeed_the_dead(self) -> None:
        """Take over from a controller whose broker is dead. Brokers with lower ids try first."""
        seat, dead = self._seat, self._vigil.dead
        if seat is None or dead is None:
            return
        if self._must_wait() or self._must_abstain() or not await self._is_registered():
            return
        brokers = [
            int(name) for name in await self._registry.children(documents.BROKER_IDS) if name.isdigit()
        ]
        rank = sum(broker < self._config.broker_id for broker in brokers)
        await asyncio.sleep(self._config.takeover_spread_s * rank / max(1, len(brokers)))
        if self._vigil.dead != dead:
            return
        reign = await znodes.take_over(self._registry, self._config.broker_id, self._clock.wall_ms(), seat)
        if reign is not None:
            logger.warning("controller_succeeded", dead=seat.broker, epoch=reign.epoch)
            await self._rule(reign, dead)

    def _must_wait(self) -> bool:
        """Whether we lost the role while alive a short time ago. If so, look again when the wait is over."""
        return self._looks_again_at(self._unseated.until)

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

    def _is_ours(self, seat: ControllerNode | None) -> bool:
        return seat is not None and seat.owner == self._registry.session_id

    async def _rule(self, reign: ControllerTerm, dead: Start | None) -> None:
        self._vigil.end()
        self._dismiss()
        now = asyncio.get_running_loop().time()
        is_reluctant = self._abstention.is_reluctant(now)
        trusts_until_s = now + (self._config.session_timeout_s if is_reluctant else 0.0)
        sender = RequestBuilder(self._config.broker_id, reign.epoch, self._config.listener)
        min_isr = self._config.defaults().min_isr
        office = ActiveController(
            self._registry, reign, sender, self._config.patience, self._wake, self._policy().unclean,
            self.chronicle, self._policy, trusts_until_s,
        )  # fmt: skip
        office.state = replace(office.state, isr_order=self._config.isr_order, min_isr=min_isr)
        self._dismissed.append(office)  # until it is certain that the term has begun
        self._configured = set()
        try:
            await office.open(dead)
            self._seat = await znodes.read_seat(self._registry, self._wake)
            if not self._is_ours(self._seat) or office.ended:
                self._due.set()
                return
            self._dismissed.remove(office)
            self._enter(office, self._configured)
        finally:
            self._configured = None
        logger.info("controller_elected", broker=self._config.broker_id, epoch=reign.epoch)

    def _enter(self, office: ActiveController, configured: set[str]) -> None:
        self._office = office
        config = self._config
        admin = TopicRequests(office, config.defaults, config.check_configs, self._random_bytes)
        self._desks = Desks(admin, Settings(office, config.catalogue), office.mover, office.elections)
        office.topics.configured(configured)
        self.defaults_changed()  # they may have changed meanwhile

    def _dismiss(self) -> ActiveController | None:
        """Our term is over. Its tasks are awaited later, by `_bury`."""
        office, self._office, self._desks = self._office, None, None
        if office is not None:
            self._dismissed.append(office)
            office.end("the seat is lost")
        return office

    async def over(self) -> None:
        """Wait until every term of the expired session is over: its fence would hold in the new session."""
        for office in self._dismissed:
            office.end("its session has expired")
        await self._bury()

    async def _bury(self) -> None:
        async with self._burial:
            while self._dismissed:
                office = self._dismissed.pop()
                if office.abstains:
                    self._abstention.begin(asyncio.get_running_loop().time())
                await office.close()

    async def _leave(self, seat: ControllerNode) -> None:
        """Delete our `/controller`: we have no term, as the election's answer was lost or the term failed."""
        await znodes.vacate(self._registry)
        self._seat = None
        logger.info("seat_left", broker=seat.broker)
        self._due.set()

    async def _is_registered(self) -> bool:
        """Only a broker whose registration belongs to this session may become controller."""
        stat = await self._registry.exists(documents.broker_path(self._config.broker_id), self._wake)
        return stat is not None and stat.owner == self._registry.session_id

    def _wake(self, _: str) -> None:
        if self._office is not None and self._office.ended:
            self._dismiss()
        self._due.set()
