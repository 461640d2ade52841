"""What happens to a term between the election and its first event."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from strandline.base.clock import SystemClock
from strandline.controller import active_controller
from strandline.controller.controller import Controller, ControllerOptions
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import SessionEvent, SessionState, Stat, Watch
from tests.controller.cluster_harness import until
from tests.controller.memory_zk_client import MemoryZkClient


class OneBroker(MemoryZkClient):
    """The session of a registered broker. `before_seat` runs when its controller looks whether it has won."""

    def __init__(self) -> None:
        super().__init__(SimZooKeeper())
        self.listeners: list[Callable[[SessionEvent], None]] = []
        self.before_seat: Callable[[], None] = lambda: None

    def listen(self, listener: Any) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: None

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        if path == documents.CONTROLLER and self.server.exists(path, self.session_id, None) is not None:
            self.before_seat()
            self.before_seat = lambda: None
        return await super().exists(path, watch)

    async def register(self, broker: int) -> None:
        await znodes.ensure_paths(self)
        await znodes.read_incarnation(self, broker)
        at = [documents.Endpoint("PLAINTEXT", "127.0.0.1", 1)]
        await znodes.register_broker(
            self, broker, documents.RegistrationDocument.of(at, 0, 1, 1, {}, None, False, None), []
        )

    def bounce(self) -> None:
        """The connection breaks, with all watches, and is there again."""
        self.server.forget_watches(self.session_id)
        for state in (SessionState.SUSPENDED, SessionState.CONNECTED):
            for listener in self.listeners:
                listener(SessionEvent(state, 1))


def controller_of(zk: OneBroker, session_timeout_s: float = 18.0) -> Controller:
    config = ControllerOptions(1, "PLAINTEXT", session_timeout_s=session_timeout_s)
    return Controller(config, zk, SystemClock(), random.Random(1).randbytes)


async def test_a_connection_that_breaks_while_a_term_begins_does_not_make_it_blind() -> None:
    """All has been read, and nothing of it is watched any more: brokers would come and go unseen."""

    zk = OneBroker()
    await zk.register(1)
    zk.before_seat = zk.bounce
    controller = controller_of(zk)
    await controller.start()
    await until(lambda: controller.active)
    await zk.register(2)
    await until(lambda: controller.view is not None and 2 in controller.view.brokers)
    await controller.stop()


async def test_a_plan_that_fails_as_a_term_begins_ends_that_term_and_not_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its successors may meet the same: one broker after the other would be gone."""

    zk, planned = OneBroker(), []
    await zk.register(1)

    def fails_once(*told: Any) -> Any:
        planned.append(told)
        assert len(planned) > 1, "this cannot be"
        return plan(*told)

    plan = active_controller.plan
    monkeypatch.setattr(active_controller, "plan", fails_once)
    controller = controller_of(zk, session_timeout_s=0.2)
    loop = asyncio.get_running_loop()
    began = loop.time()
    await controller.start()
    await until(lambda: controller.active)
    assert loop.time() - began >= 0.15 and controller.epoch == 2, "others may stand first"
    await controller.stop()
