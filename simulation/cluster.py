"""Three brokers of a world, with their disks, clocks and ZooKeeper: what can happen to a broker.

They start, are killed, lose power and lose their sessions. The brokers are those of `broker/node.py`,
unchanged. Left to others: when that happens (`faults/`), and what must hold meanwhile (`checks/`), which is
told by the `on_…` functions.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import json
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base.types import TopicPartition
from ..broker.config.broker import BrokerConfig
from ..broker.config.files import load
from ..broker.errors import StorageLost
from ..broker.node import Node, StartFailed, build
from ..zookeeper.client import Op
from .environment.disk import SimDisk
from .environment.host import Host
from .environment.loop import SimLoop
from .environment.zk_client import SimZkClient
from .environment.zookeeper import SimZooKeeper
from .families import FLUSHED
from .talk import Talk
from .trace import Trace

BROKERS = (1, 2, 3)
BOOTSTRAP = ",".join(f"b{id}:9092" for id in BROKERS)
SESSION_S = 2.0
START_WALL_MS = 1_700_000_000_000
RESTART_S = 1.0
"""After how long a broker that could not start is started again."""


class WallClock:
    """Wall time on one machine."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.offset_ms = 0

    def wall_ms(self) -> int:
        return START_WALL_MS + self.offset_ms + int(self.loop.now * 1000)


def _ignore(*_: object) -> None:
    """Nobody watches."""


class SimCluster:
    """The brokers: a host is there while the process lives, a node while it serves."""

    def __init__(
        self,
        loop: SimLoop,
        trace: Trace,
        disks: Mapping[int, SimDisk],
        settings: Sequence[str],
        talk: Talk | None,
    ) -> None:
        self.loop, self.random = loop, loop.random
        self.trace, self.disks, self.settings, self.talk = trace, disks, settings, talk
        self.zookeeper = SimZooKeeper()
        self.zookeeper.clock = loop.time
        self.zookeeper.defer = loop.call_soon
        self.clocks = {id: WallClock(loop) for id in BROKERS}
        for id, clock in self.clocks.items():
            self.disks[id].wall_ms = clock.wall_ms
        self.clock = WallClock(loop)  # of the clients
        self.hosts: dict[int, Host] = {}
        self.nodes: dict[int, Node] = {}
        self.zk_clients: dict[int, SimZkClient] = {}
        self.boots = dict.fromkeys(BROKERS, 1)
        self.on_send: Callable[[Node, Sequence[Op]], None] = _ignore  # before a write to ZooKeeper
        self.on_resigned: Callable[[int, TopicPartition], None] = _ignore
        self.on_death: Callable[[int], None] = _ignore  # just before it
        self.on_data_lost: Callable[[int], None] = _ignore

    @property
    def is_proof_lost(self) -> bool:
        """Whether what was acknowledged may be lost with the power."""
        return FLUSHED[0] not in self.settings

    def note(self, what: str) -> None:
        """Add a line to the trace."""
        self.trace.note(what)

    def start(self, id: int) -> None:
        """Start a broker as a new process on its old disk."""
        host = self.hosts[id] = Host(f"b{id}")
        self.loop.network.is_back(host.name)
        self.note(f"b{id} starts")
        self.loop.spawn(host, self._run(id, host)).add_done_callback(self._ended)

    def _ended(self, process: asyncio.Task[None]) -> None:
        if not process.cancelled() and (error := process.exception()) is not None:
            self.loop.call_exception_handler({"message": "a broker stopped by itself", "exception": error})

    async def _run(self, id: int, host: Host) -> None:
        overrides = [
            *self.settings,
            f"broker.id={id}",
            f"listeners=CLIENT://b{id}:9092,INTERNAL://b{id}:19092",
        ]
        node = build(
            _configured(tuple(overrides)),
            self.disks[id],
            lambda previous: self._connect(id, previous, lambda ops: self.on_send(node, ops)),
            self.clocks[id],
            random.Random(self.random.getrandbits(64)),
            f"boot-{self.boots[id]}",
        )
        try:
            await node.start()
        except StartFailed as error:
            self.note(f"b{id} does not start: {error}")
            self.crash(id)
            self.loop.call_later(RESTART_S, self._start_again, id, context=contextvars.Context())
            return
        if host.alive:
            self.nodes[id] = node
            node.broker.shared.on_resigned.subscribe(lambda tp: self.on_resigned(id, tp))
            self.note(f"b{id} serves, incarnation {node.broker.incarnation}")
            try:
                await node.run_until(asyncio.Event())
            except StorageLost as error:
                self.note(f"b{id} stops by itself: {error}")
                self.crash(id)

    def _start_again(self, id: int) -> None:
        if not self.lives(id):
            self.start(id)

    def _connect(
        self, id: int, previous: tuple[int, bytes] | None, on_send: Callable[[Sequence[Op]], None]
    ) -> SimZkClient:
        zk = self.zk_clients[id] = SimZkClient(self.loop, self.zookeeper, SESSION_S, previous)
        zk.on_send = on_send
        zk.hear = self.talk.to_zookeeper if self.talk else None
        return zk

    def crash(self, id: int, *, vanishes: bool = False) -> None:
        """kill -9. Or, if it `vanishes`, the machine is off: peers get no reset."""
        host = self.hosts.pop(id, None)
        if host is not None:
            self.note(f"b{id} {'vanishes' if vanishes else 'is killed'}")
            self.on_death(id)
            self.nodes.pop(id, None)
            self.loop.crash(host, vanishes=vanishes)

    def lives(self, id: int) -> bool:
        return id in self.hosts

    def controller(self) -> int | None:
        """The broker that believes itself the controller; None if no broker does."""
        return next((id for id, node in self.nodes.items() if node.broker.controller.active), None)

    def lose_power(self, id: int, *, cruel: bool, keep: float | None = None) -> None:
        """The machine of a dead broker loses what was not synced, except for a share, and boots again."""
        self.boots[id] += 1
        share = self.random.random() if keep is None else keep
        self.disks[id].lose_power(share, self.random if cruel else None)
        if self.is_proof_lost:
            self.on_data_lost(id)
        self.forget_session(id)

    def forget_session(self, id: int) -> None:
        """ZooKeeper ends a dead broker's session."""
        registration = self.zookeeper.nodes.get(f"/brokers/ids/{id}")
        if registration is not None:
            self.zookeeper.end(registration.owner)

    def topic(self, name: str) -> dict[str, Any]:
        """What ZooKeeper knows of a topic: its id, its partitions; nothing if there is none."""
        node = self.zookeeper.nodes.get(f"/brokers/topics/{name}")
        found: dict[str, Any] = json.loads(node.data) if node else {}
        return found


@functools.cache
def _configured(overrides: tuple[str, ...]) -> BrokerConfig:
    """A broker's configuration; parsed once for all its restarts."""
    return load(overrides=overrides).config
