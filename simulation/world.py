"""A whole cluster in virtual time: brokers, ZooKeeper, clients and faults. A seed always runs the same way.

The brokers are those of `broker/node.py` and the clients those of `client/`, unchanged. The world draws what
happens to them, checks the invariants meanwhile (`checks/invariants.py`), and judges the end. It has no
replication rule of its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import hashlib
import random
import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from ..broker.config.broker import BrokerConfig
from ..broker.config.files import load
from ..broker.errors import StorageLost
from ..broker.node import Node, StartFailed, build
from ..protocol.errors import ApiError
from ..zookeeper.client import Op
from .checks.committed import Violation
from .checks.invariants import Checks
from .checks.judging import Judging
from .checks.liveness import Liveness
from .checks.standing import StandingChecks
from .clients.errands import Errands
from .clients.moving import Mover
from .clients.readers import Readers
from .clients.workload import SimWorkload
from .deeds import Deeds
from .environment.disk import SimDisk
from .environment.host import Host, current_host
from .environment.loop import SimLoop
from .environment.zk_client import SimZkClient
from .environment.zookeeper import SimZooKeeper
from .families import FAMILIES, FLUSHED, KINDS, Family
from .faults.faults import Faults
from .faults.kinds import BROKERS, SESSION_S
from .talk import Talk
from .waits import WaitWatch

START_WALL_MS = 1_700_000_000_000
RESTART_S = 1.0
"""After how long a broker that could not start is started again."""
HEAL_WITHIN_S = 90.0
FAILURES = (
    Violation, ApiError, ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError,
    TypeError, ValueError, struct.error,
)  # fmt: skip
"""These fail one seed, not the whole run: an invariant is violated, or the simulator's own code is wrong."""
PLAY_S = 1.0
"""At most so long after a violation the world ends."""
SETTINGS = (
    "default.replication.factor=3",
    "min.insync.replicas=2",
    "num.partitions=2",
    "offsets.topic.num.partitions=2",
    "offsets.topic.replication.factor=3",
    "group.initial.rebalance.delay.ms=0",
    "replica.lag.time.max.ms=1500",
    f"zookeeper.session.timeout.ms={int(SESSION_S * 1000)}",
    "listener.security.protocol.map=CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
    "inter.broker.listener.name=INTERNAL",
    "zookeeper.connect=zookeeper:2181",
    "log.dirs=/data",
    "log.flush.offset.checkpoint.interval.ms=1000",
    "replica.high.watermark.checkpoint.interval.ms=1000",
    "log.retention.check.interval.ms=1000",
    "log.segment.delete.delay.ms=1000",
    "log.cleaner.backoff.ms=500",
    "log.cleaner.min.cleanable.ratio=0.01",
    "log.cleaner.dedupe.buffer.size=65536",
)
SMALL = 0.9
"""The share of worlds with small segments; in the others a log hardly ever has a second one."""
SEGMENT_BYTES = (1024, 2048, 4096)
KEPT_SEGMENTS = 5
"""How many segments' worth retention by size keeps, in worlds that have it."""
TWO_DIRS = ("log.dirs=/data,/more", "strandline.log.dir.room.reserve.bytes=0")


@dataclass
class Outcome:
    """The result of one seed."""

    seed: int
    family: str
    violation: str | None
    virtual_s: float
    turns: int
    acknowledged: int
    faults: dict[str, int]
    deeds: Counter[str]
    fingerprint: str
    trace: list[str] = field(repr=False, default_factory=list)


class WallClock:
    """Wall time on one machine."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.offset_ms = 0

    def wall_ms(self) -> int:
        return START_WALL_MS + self.offset_ms + int(self.loop.now * 1000)


class World:
    """Three brokers, and everything around them, under one seed."""

    def __init__(self, seed: int, family: Family = FAMILIES["plain"], *, talks: bool = False) -> None:
        self.seed, self.family = seed, family
        self.loop = SimLoop(seed)
        self.random = self.loop.random
        self.topic_settings = {"min.insync.replicas": "2"}
        self.settings = (*SETTINGS, *self._drawn(), *family.settings)
        self.is_cold = seed % 2 == 0
        self.patience_ms = self.random.choice(family.patience_ms)
        self.loop.interleaves = self.random.random() < family.interleaves
        self.is_proof_lost = FLUSHED[0] not in family.settings  # with the power
        self.loop.executor_delay_s = family.thread_s
        self.zookeeper = SimZooKeeper()
        self.zookeeper.clock = self.loop.time
        self.zookeeper.defer = self.loop.call_soon
        self.disks = {id: SimDisk(ordered=family.is_ordered) for id in BROKERS}
        for disk in self.disks.values():
            disk.cold = self.random if self.is_cold else None
        self.hosts: dict[int, Host] = {}
        self.nodes: dict[int, Node] = {}
        self.zk_clients: dict[int, SimZkClient] = {}
        self.clocks = {id: WallClock(self.loop) for id in BROKERS}
        for id, clock in self.clocks.items():
            self.disks[id].wall_ms = clock.wall_ms
        self.clock = WallClock(self.loop)  # of the clients
        self.boots = dict.fromkeys(BROKERS, 1)
        self.trace: list[str] = []
        self.violations: list[str] = []
        self.faults = Faults(self, family)
        self.workload = SimWorkload(self)
        self.mover = Mover(self)
        self.errands = Errands(self)
        self.checks = Checks(self)
        self.judging = Judging(self)
        self.liveness = Liveness(self)
        self.readers = Readers(self) if seed % 10 < 10 * family.groups else None
        self.standing = StandingChecks(self.checks)
        self.waits = WaitWatch(self)
        self.deeds = Deeds()
        self.talk = Talk(self.note) if talks else None
        self.loop.network.hear = self.talk.hear if self.talk else None

    def _drawn(self) -> list[str]:
        """Settings that differ from seed to seed."""
        drawn: list[str] = []
        if self.random.random() < SMALL:
            size = self.random.choice(SEGMENT_BYTES)
            drawn += [f"log.segment.bytes={size}", "offsets.topic.segment.bytes=1024"]
            drawn.append("log.index.interval.bytes=100")
            if self.random.random() < 0.5:
                self.topic_settings["retention.bytes"] = str(KEPT_SEGMENTS * size)
        if self.random.random() < 0.5:
            drawn += TWO_DIRS
        if self.family.sometimes and self.random.random() < 0.5:
            drawn += self.family.sometimes
        return drawn

    # ------------------------------------------------------------ what can happen to a broker

    def start(self, id: int) -> None:
        """Start a broker as a new process on its old disk."""
        host = self.hosts[id] = Host(f"b{id}")
        self.loop.network.is_back(host.name)
        self.note(f"b{id} starts")
        self.loop.spawn(host, self._run(id, host)).add_done_callback(self._ended)

    def _ended(self, process: asyncio.Task[None]) -> None:
        if not process.cancelled() and (error := process.exception()) is not None:
            self.loop.call_exception_handler({"message": "a broker ended", "exception": error})

    async def _run(self, id: int, host: Host) -> None:
        overrides = [
            *self.settings,
            f"broker.id={id}",
            f"listeners=CLIENT://b{id}:9092,INTERNAL://b{id}:19092",
        ]
        node = build(
            _configured(tuple(overrides)),
            self.disks[id],
            lambda previous: self._connect(id, previous, lambda ops: self.standing.sends(node, ops)),
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
            node.broker.replicas.on_resigned.append(lambda tp: self.checks.leads_no_more(id, tp))
            self.note(f"b{id} serves, incarnation {node.broker.incarnation}")
            try:
                await node.run_until(asyncio.Event())
            except StorageLost as error:
                self.note(f"b{id} ends: {error}")
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
            self.checks.last_words(id)
            self.nodes.pop(id, None)
            self.loop.crash(host, vanishes=vanishes)

    def lives(self, id: int) -> bool:
        return id in self.hosts

    def lose_power(self, id: int, *, cruel: bool, keep: float | None = None) -> None:
        """The machine of a dead broker loses what was not synced, except for a share, and boots again."""
        self.boots[id] += 1
        share = self.random.random() if keep is None else keep
        self.disks[id].lose_power(share, self.random if cruel else None)
        if self.is_proof_lost:
            self.checks.lost_data(id)
        self.forget_session(id)

    def forget_session(self, id: int) -> None:
        """ZooKeeper ends a dead broker's session."""
        registration = self.zookeeper.nodes.get(f"/brokers/ids/{id}")
        if registration is not None:
            self.zookeeper.end(registration.owner)

    # ------------------------------------------------------------ the story

    async def story(self) -> None:
        """Start, work under faults, heal, and judge."""
        for id in BROKERS:
            self.start(id)
        await self.workload.begin()
        self.checks.begin()
        self.liveness.begin()
        if self.readers is not None:
            self.readers.begin()
        await self.faults.chaos()
        await self.faults.end()
        await self.errands.finish()
        await self.mover.home()
        await self.judging.wait_healed(HEAL_WITHIN_S)
        await self.workload.finish()
        if self.readers is not None:
            await self.readers.finish()
        await self.judging.judge()

    def note(self, what: str) -> None:
        self.trace.append(f"{self.loop.now:9.4f} {what}")

    def run(self) -> Outcome:
        """Run the story to its end, and return the result."""
        asyncio.set_event_loop(self.loop)
        everything = structlog.make_filtering_bound_logger(0)
        structlog.configure([self._to_trace], wrapper_class=everything, cache_logger_on_first_use=False)
        violation: str | None = None
        self.standing.begin()
        self.waits.begin()
        self.deeds.begin()
        try:
            self._play()
            self.loop.let_go()
            if self.loop.failures:
                violation = f"unexpected: {self.loop.failures[0]}"
        except FAILURES as error:
            violation = f"{type(error).__name__}: {error}"
        finally:
            if self.violations:
                violation = f"Violation: {self.violations[0]}"
            for host in self.hosts.values():
                host.alive = False
            self.loop.drain()
            self.loop.close()
            asyncio.set_event_loop(None)
            self.deeds.end()
            self.waits.end()
            self.standing.end()
            structlog.reset_defaults()
        print_of = hashlib.sha256("\n".join(self.trace).encode()).hexdigest()[:16]
        return Outcome(
            self.seed,
            self.family.name,
            violation,
            self.loop.now,
            self.loop.turns,
            len(self.workload.acknowledged),
            self.faults.counts,
            self.deeds.counts,
            print_of,
            self.trace,
        )

    def _play(self) -> None:
        """The story, up to its end or to the first violation."""
        story = self.loop.create_task(self.story())
        while not (story.done() or self.violations or self.loop.failures):
            self.loop.run_until_complete(asyncio.wait([story], timeout=PLAY_S))
        if story.done():
            story.result()

    def _to_trace(self, logger: object, method: str, event: structlog.typing.EventDict) -> str:
        name = event.pop("event", "")
        if isinstance(error := event.get("exc_info"), BaseException) and current_host().alive:
            self.loop.failed(name, error)
        facts = " ".join(f"{key}={value}" for key, value in sorted(event.items()) if key != "exc_info")
        self.note(f"{current_host().name}: {name} {facts}".rstrip())
        raise structlog.DropEvent


@functools.cache
def _configured(overrides: tuple[str, ...]) -> BrokerConfig:
    """A broker's configuration; parsed once for all its restarts."""
    return load(overrides=overrides).config


def run_seed(seed: int, family: str = "plain", *, talks: bool = False) -> Outcome:
    """Run one seed in a new world of this family; `talks`: the trace has requests and responses (talk.py)."""
    return World(seed, FAMILIES[family], talks=talks).run()


__all__ = ["BROKERS", "FAMILIES", "KINDS", "Outcome", "World", "run_seed"]
