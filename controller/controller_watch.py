"""How a candidate watches the controller's broker: a connection, and a challenge when it breaks.

It finds the broker by its registration. When that cannot be read or changes, the watch ends and its owner is
told to begin again: a znode that is missing for a moment must not leave the controller unwatched.
Left to others: what a connection proves (`failure_detector.py`), what to do about a death (`controller.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from ..base.tasks import Tasks
from ..zookeeper import documents
from ..zookeeper.client import NoNode, ZkClient
from ..zookeeper.znodes import ControllerNode
from .challenges import Challenger
from .control_requests import RequestBuilder
from .failure_detector import FailureDetector, Patience
from .planning.state import Broker, Start
from .watches import broker_of

logger = structlog.get_logger(__name__)


class ControllerWatch:
    """Watches one controller at a time. `news` is called when there is a reason to look again."""

    def __init__(
        self,
        zk: ZkClient,
        me: RequestBuilder,
        patience: Patience,
        tasks: Tasks,
        news: Callable[[], None],
    ) -> None:
        self._zk = zk
        self._me = me
        self._patience = patience
        self._tasks = tasks
        self._news = news
        self._challenger = Challenger(zk)
        self._node: ControllerNode | None = None
        self._start: Start | None = None
        self._detector: FailureDetector | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_kept(self) -> bool:
        """Whether a controller's broker is being watched."""
        return self._detector is not None

    @property
    def dead(self) -> Start | None:
        """The incarnation of the controller's broker, if it has been proved dead."""
        return self._start if self._detector is not None and self._detector.is_dead else None

    async def begin(self, node: ControllerNode) -> None:
        """Watch this controller. If its registration is not found now, `news` is called when it changes."""
        self.end()
        self._node = node
        broker = await self._broker_in(node)
        if broker is None or self._node is not node:
            return
        place = self._me.endpoint(broker)
        if place is None or broker.id == self._me.broker:
            return
        start = self._start = broker.id, broker.incarnation
        self._detector = FailureDetector(
            place, self._patience, lambda patience_s: self._challenger.ask(*start, patience_s), self._news
        )
        self._task = self._tasks.sustain(self._detector.run, f"controller-{broker.id}")

    def end(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
        self._node = self._start = self._detector = self._task = None

    async def _broker_in(self, node: ControllerNode) -> Broker | None:
        path = documents.broker_path(node.broker)
        try:
            if await self._zk.exists(path, lambda _: self._changed(node)) is None:
                return None
            data, stat = await self._zk.get(path)
            return broker_of(node.broker, documents.parse(documents.RegistrationDocument, data), stat)
        except (NoNode, documents.BadDocument) as error:
            logger.warning("controller_not_watched", broker=node.broker, reason=str(error))
            return None

    def _changed(self, node: ControllerNode) -> None:
        if self._node is node:
            self.end()
            self._news()
