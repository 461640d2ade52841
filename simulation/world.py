"""A whole cluster in virtual time: brokers, ZooKeeper, clients and faults. A seed always runs the same way.

The brokers are those of `broker/node.py` and the clients those of `client/`, unchanged. The world puts its
parts together and tells the story: start, work under faults, heal, judge. It has no replication rule of its
own. Left to others: the brokers (`cluster.py`), what happens to them (`faults/`), who uses them (`clients/`),
what must hold (`checks/`).
"""

from __future__ import annotations

import asyncio
import struct
from collections import Counter
from dataclasses import dataclass, field

import structlog

from ..protocol.errors import ApiError
from .checks.invariants import Checks
from .checks.judging import Judging
from .checks.ledger import Ledger
from .checks.liveness import Liveness
from .checks.standing import StandingChecks
from .checks.waits import WaitWatch
from .clients.copiers import Copiers
from .clients.errands import Errands
from .clients.members import Members
from .clients.moving import Mover
from .clients.readers import Readers
from .clients.workload import SimWorkload
from .cluster import BROKERS, SimCluster
from .deeds import Deeds
from .environment.disk import SimDisk
from .environment.host import current_host
from .environment.loop import SimLoop
from .families import FAMILIES, Family
from .faults.faults import Faults
from .settings import drawn
from .talk import Talk
from .trace import Trace, Violation

HEAL_WITHIN_S = 90.0
FAILURES = (
    Violation, ApiError, ArithmeticError, AssertionError, AttributeError, LookupError, OSError, RuntimeError,
    TypeError, ValueError, struct.error,
)  # fmt: skip
"""These fail one seed, not the whole run: an invariant is violated, or the simulator's own code is wrong."""
PLAY_S = 1.0
"""At most so long after a violation the world ends."""


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


class World:
    """Three brokers, and everything around them, under one seed."""

    def __init__(self, seed: int, family: Family = FAMILIES["plain"], *, talks: bool = False) -> None:
        self.seed, self.family = seed, family
        self.loop = SimLoop(seed)
        self.loop.executor_delay_s = family.thread_s
        settings = drawn(family, self.loop.random)
        self.loop.interleaves = settings.interleaves
        self.trace = Trace(self.loop.time)
        talk = Talk(self.trace.note) if talks else None
        self.loop.network.hear = talk.hear if talk else None
        disks = {id: SimDisk(ordered=family.is_ordered) for id in BROKERS}
        for disk in disks.values():
            disk.cold = self.loop.random if seed % 2 == 0 else None
        self.cluster = SimCluster(self.loop, self.trace, disks, settings.broker, talk)
        self.ledger = Ledger()
        self.checks = Checks(self.cluster, self.ledger)
        self.standing = StandingChecks(self.cluster, self.checks)
        self.liveness = Liveness(self.cluster, self.ledger, self.checks, settings.patience_ms)
        self.judging = Judging(self.cluster, self.ledger, self.checks)
        self.workload = SimWorkload(
            self.cluster,
            self.ledger,
            self.checks,
            patience_ms=settings.patience_ms,
            topic_settings=settings.topic,
        )
        self.mover = Mover(self.cluster, self.ledger)
        self.errands = Errands(self.cluster, self.ledger)
        has_readers = seed % 10 < 10 * family.groups
        self.readers = Readers(self.cluster, self.ledger, self.checks) if has_readers else None
        self.copiers = Copiers(self.cluster, self.ledger, self.checks) if family.copies else None
        self.members = Members(self.cluster) if family.assigns else None
        self.faults = Faults(
            family,
            self.cluster,
            self.ledger,
            self.checks,
            self.liveness,
            self.mover,
            self.errands,
            self.readers,
            self.copiers,
            self.members,
        )
        self.waits = WaitWatch(self.cluster)
        self.deeds = Deeds()

    async def begin(self) -> None:
        """Start the brokers, the workload, and what looks at them all the time."""
        for id in BROKERS:
            self.cluster.start(id)
        await self.workload.begin()
        self.checks.begin()
        self.liveness.begin()

    async def story(self) -> None:
        """Start, work under faults, heal, and judge."""
        await self.begin()
        if self.readers is not None:
            self.readers.begin()
        if self.copiers is not None:
            self.copiers.begin()
        if self.members is not None:
            self.members.begin()
        await self.faults.chaos()
        await self.faults.end()
        await self.errands.finish()
        await self.mover.home()
        await self.judging.wait_healed(HEAL_WITHIN_S)
        await self.workload.finish()
        if self.readers is not None:
            await self.readers.finish()
        if self.copiers is not None:
            await self.copiers.finish()
        if self.members is not None:
            await self.members.finish()
        await self.judging.judge()

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
            if self.trace.violations:
                violation = f"Violation: {self.trace.violations[0]}"
            for host in self.cluster.hosts.values():
                host.alive = False
            self.loop.drain()
            self.loop.close()
            asyncio.set_event_loop(None)
            self.deeds.end()
            self.waits.end()
            self.standing.end()
            structlog.reset_defaults()
        return Outcome(
            self.seed,
            self.family.name,
            violation,
            self.loop.now,
            self.loop.turns,
            len(self.ledger.acknowledged),
            self.faults.counts,
            self.deeds.counts,
            self.trace.fingerprint(),
            self.trace.lines,
        )

    def _play(self) -> None:
        """The story, up to its end or to the first violation."""
        story = self.loop.create_task(self.story())
        while not (story.done() or self.trace.violations or self.loop.failures):
            self.loop.run_until_complete(asyncio.wait([story], timeout=PLAY_S))
        if story.done():
            story.result()

    def _to_trace(self, logger: object, method: str, event: structlog.typing.EventDict) -> str:
        name = event.pop("event", "")
        if isinstance(error := event.get("exc_info"), BaseException) and current_host().alive:
            self.loop.failed(name, error)
        facts = " ".join(f"{key}={value}" for key, value in sorted(event.items()) if key != "exc_info")
        self.trace.note(f"{current_host().name}: {name} {facts}".rstrip())
        raise structlog.DropEvent


def run_seed(seed: int, family: str = "plain", *, talks: bool = False) -> Outcome:
    """Run one seed in a new world of this family; `talks`: the trace has requests and responses (talk.py)."""
    return World(seed, FAMILIES[family], talks=talks).run()
