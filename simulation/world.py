"""A whole cluster in virtual time: brokers, ZooKeeper, clients, faults; one seed, one story.

The brokers are built by `broker/node.py` and the clients are those of `client/`, unchanged. The world
draws what happens to them, checks what must hold while it happens (`checks.py`), and at the end asks
for the verdict. It has no replication rule of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import structlog

from ..broker.config_file import load
from ..broker.node import Node, StartFailed, build
from .checks import Checks, Violation
from .disk import SimDisk
from .loop import Host, SimLoop, Stuck
from .registry import ADDRESS, SimRegistry
from .workload import Workload
from .zookeeper import SimZooKeeper

BROKERS = (1, 2, 3)
SESSION_S = 3.0
START_WALL_MS = 1_700_000_000_000
RESTART_S = 1.0
"""When whoever runs the brokers starts one again that could not start."""
FAULTS = 12
PAUSE_S = (0.2, 2 * SESSION_S)
LANDED_S = 0.05
"""When whatever a dead process has sent has arrived."""
FIRST_KINDS = ("crash", "bounce", "bounce", "cut", "isolate", "heal")
KINDS = (*FIRST_KINDS, "pause", "power_loss", "behead", "exile")
HEAL_WITHIN_S = 90.0
SETTINGS = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "num.partitions=2",
    "offsets.topic.num.partitions=2",
    "offsets.topic.replication.factor=3",
    "group.initial.rebalance.delay.ms=0",
    "replica.lag.time.max.ms=2000",
    f"zookeeper.session.timeout.ms={int(SESSION_S * 1000)}",
    "listener.security.protocol.map=CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name=INTERNAL",
    "zookeeper.connect=zookeeper:2181",
    "log.dirs=/data",
)


@dataclass
class Outcome:
    """What a seed came to."""

    seed: int
    violation: str | None
    virtual_s: float
    turns: int
    acknowledged: int
    faults: dict[str, int]
    fingerprint: str
    trace: list[str] = field(repr=False, default_factory=list)


class WallClock:
    """Wall time of the world."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop

    def wall_ms(self) -> int:
        return START_WALL_MS + int(self.loop.now * 1000)


class World:
    """Three brokers under one seed."""

    def __init__(self, seed: int, kinds: Sequence[str] = KINDS) -> None:
        self.seed = seed
        self.kinds = kinds
        self.loop = SimLoop(seed)
        self.random = self.loop.random
        self.zookeeper = SimZooKeeper()
        self.disks = {id: SimDisk() for id in BROKERS}
        self.hosts: dict[int, Host] = {}
        self.nodes: dict[int, Node] = {}
        self.boots = dict.fromkeys(BROKERS, 1)
        self.lossy: tuple[int, int] | None = None  # who lost power last, and in which incarnation
        self.faults: dict[str, int] = {}
        self.trace: list[str] = []
        self.checks = Checks(self)
        self.workload = Workload(self)

    # ------------------------------------------------------------ what can happen to a broker

    def start(self, id: int) -> None:
        """Start a broker as a new process on its old disk."""
        host = self.hosts[id] = Host(f"b{id}")
        self.note(f"b{id} starts")
        self.loop.spawn(host, self._run(id, host))

    async def _run(self, id: int, host: Host) -> None:
        overrides = [
            *SETTINGS,
            f"broker.id={id}",
            f"listeners=CLIENT://b{id}:9092,INTERNAL://b{id}:19092",
        ]
        node = build(
            load(overrides=overrides).config,
            self.disks[id],
            lambda previous: SimRegistry(self.loop, self.zookeeper, SESSION_S, previous),
            WallClock(self.loop),
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
            self.note(f"b{id} serves, incarnation {node.broker.incarnation}")
            await node.run_until(asyncio.Event())

    def _start_again(self, id: int) -> None:
        if not self.lives(id):
            self.start(id)

    def crash(self, id: int) -> None:
        """kill -9."""
        host = self.hosts.pop(id, None)
        if host is not None:
            self.note(f"b{id} is killed")
            self.nodes.pop(id, None)
            self.loop.crash(host)

    def lives(self, id: int) -> bool:
        return id in self.hosts

    # ------------------------------------------------------------ faults, drawn

    async def chaos(self) -> None:
        """A number of faults at drawn moments; at least two brokers stay alive most of the time."""
        for _ in range(FAULTS):
            await asyncio.sleep(self.random.expovariate(0.6))
            kind = self.random.choice(self.kinds)
            self.faults[kind] = self.faults.get(kind, 0) + 1
            await getattr(self, f"_{kind}")()
            for id in BROKERS:
                if not self.lives(id) and (len(self.hosts) < 2 or self.random.random() < 0.3):
                    self.start(id)

    async def _crash(self) -> None:
        self.crash(self.random.choice(BROKERS))

    async def _bounce(self) -> None:
        id = self.random.choice(BROKERS)
        self.crash(id)
        await asyncio.sleep(self.random.uniform(0.001, 0.3))
        if not self.lives(id):
            self.start(id)

    async def _cut(self) -> None:
        a, b = self.random.sample(BROKERS, 2)
        both = self.random.random() < 0.7
        self.note(f"b{a} {'and' if both else 'to'} b{b} are cut")
        self.loop.network.cut(f"b{a}", f"b{b}", both=both)

    async def _isolate(self) -> None:
        id = self.random.choice(BROKERS)
        self.note(f"b{id} and ZooKeeper are cut")
        self.loop.network.cut(f"b{id}", ADDRESS)

    async def _heal(self) -> None:
        self.note("all links heal")
        self.loop.network.heal()

    async def _pause(self) -> None:
        """SIGSTOP, and SIGCONT after a while that may outlast the session."""
        id = self.random.choice(BROKERS)
        pause_s = self.random.uniform(*PAUSE_S)
        if self.lives(id):
            self.note(f"b{id} is stopped")
            self.hosts[id].stopped = True
            self.loop.call_later(pause_s, self._resume, self.hosts[id])

    def _resume(self, host: Host) -> None:
        if host.stopped:
            self.note(f"{host.name} goes on")
            self.loop.resume(host)

    async def _power_loss(self) -> None:
        """A machine forgets what was not synced.

        One at a time, while another replica still holds what was promised, and ZooKeeper has noticed before
        the next fault: who may lead when every member of an ISR has lost data is not decided here.
        """
        id = self.random.choice(BROKERS)
        self.crash(id)
        await asyncio.sleep(LANDED_S)
        if not self.lives(id) and self.checks.spares(id, self.lossy):
            self.note(f"b{id} has lost power")
            self.lossy = id, self.checks.incarnation(id)
            self.boots[id] += 1
            self.disks[id].lose_power(self.random.random())
            self._forget_session(id)

    def _forget_session(self, id: int) -> None:
        registration = self.zookeeper.nodes.get(f"/brokers/ids/{id}")
        if registration is not None:
            self.zookeeper.end(registration.owner)

    async def _behead(self) -> None:
        """A leader dies, and then its successor, before all have heard what it holds."""
        tp = self.random.choice(self.workload.partitions)
        leader = self.checks.leader(tp)
        if len(self.hosts) == len(BROKERS) and leader in self.hosts:
            self.crash(leader)
            for _ in range(200):
                await asyncio.sleep(0.005)
                if (successor := self.checks.leader(tp)) not in (leader, -1):
                    await asyncio.sleep(self.random.uniform(0.0, 0.02))
                    self.crash(successor)
                    self.start(leader)
                    break

    async def _exile(self) -> None:
        """A leader reaches neither ZooKeeper nor one of its followers, only the other one."""
        leader = self.checks.leader(self.random.choice(self.workload.partitions))
        follower = self.random.choice([id for id in BROKERS if id != leader])
        self.note(f"b{leader} is cut from b{follower}, then from ZooKeeper")
        self.loop.network.cut(f"b{leader}", f"b{follower}")
        await asyncio.sleep(self.random.uniform(0.0, 3.0))
        self.loop.network.cut(f"b{leader}", ADDRESS)
        await asyncio.sleep(2 * SESSION_S)

    # ------------------------------------------------------------ the story

    async def story(self) -> None:
        """Start, work under faults, heal, and judge."""
        for id in BROKERS:
            self.start(id)
        await self.workload.begin()
        self.checks.begin()
        await self.chaos()
        self.note("the faults are over")
        self.loop.network.heal()
        for host in self.hosts.values():
            self._resume(host)
        for id in BROKERS:
            if not self.lives(id):
                self.start(id)
        await self.checks.wait_healed(HEAL_WITHIN_S)
        await self.workload.finish()
        await self.checks.judge()

    def note(self, what: str) -> None:
        self.trace.append(f"{self.loop.now:9.4f} {what}")

    def run(self) -> Outcome:
        """Run the story to its end; what it came to."""
        asyncio.set_event_loop(self.loop)
        everything = structlog.make_filtering_bound_logger(0)
        structlog.configure([self._to_trace], wrapper_class=everything, cache_logger_on_first_use=False)
        violation: str | None = None
        try:
            self.loop.run_until_complete(self.story())
            if self.loop.failures:
                violation = f"a callback raised: {self.loop.failures[0]}"
        except (Violation, Stuck, TimeoutError, AssertionError) as error:
            violation = f"{type(error).__name__}: {error}"
        finally:
            for host in self.hosts.values():
                host.alive = False
            self.loop.drain()
            self.loop.close()
            asyncio.set_event_loop(None)
            structlog.reset_defaults()
        print_of = hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]
        return Outcome(
            self.seed,
            violation,
            self.loop.now,
            self.loop.turns,
            len(self.workload.acknowledged),
            self.faults,
            print_of,
            self.trace,
        )

    def _to_trace(self, logger: object, method: str, event: structlog.typing.EventDict) -> str:
        from .loop import current_host

        name = event.pop("event", "")
        facts = " ".join(f"{key}={value}" for key, value in sorted(event.items()) if key != "exc_info")
        self.note(f"{current_host().name}: {name} {facts}".rstrip())
        raise structlog.DropEvent


def run_seed(seed: int, kinds: Sequence[str] = KINDS) -> Outcome:
    """One seed in a fresh world, in which faults of these kinds are drawn."""
    return World(seed, kinds).run()
