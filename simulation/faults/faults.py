"""Injects faults into a world at random times; each kind of fault is a method of one of the files here.

Left to others: which kinds a seed draws (`simulation/families.py`), what a fault does to bytes
(`environment/network.py`), files (`environment/disk.py`), sessions (`environment/zk_client.py`) and processes
(`environment/loop.py`); what must hold in spite of it (`checks/invariants.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from ..checks.invariants import Checks
from ..checks.ledger import Ledger
from ..checks.liveness import Liveness
from ..clients.copiers import Copiers
from ..clients.errands import Errands
from ..clients.members import Members
from ..clients.moving import Mover
from ..clients.readers import Readers
from ..cluster import BROKERS, SimCluster
from ..families import Family
from .disks import DiskFaults
from .links import LinkFaults
from .processes import ProcessFaults
from .requests import Requests
from .zookeeper import ZooKeeperFaults

FAULTS_PER_S = 0.8
SERVED_WITHIN_S = 30.0
"""How soon partitions outside a failed directory must be served, once all other faults are over."""
SWARM_MIN = 3
"""The least number of fault kinds in a swarming seed."""


class Faults:
    """Draws faults, and injects them."""

    def __init__(
        self,
        family: Family,
        cluster: SimCluster,
        ledger: Ledger,
        checks: Checks,
        liveness: Liveness,
        mover: Mover,
        errands: Errands,
        readers: Readers | None,
        copiers: Copiers | None,
        members: Members | None,
    ) -> None:
        self.cluster, self.random, self.liveness = cluster, cluster.random, liveness
        self.processes = ProcessFaults(cluster, ledger, checks)
        self.disks = DiskFaults(cluster, ledger, checks, self.end)
        self.links = LinkFaults(cluster, ledger, checks)
        self.zookeeper = ZooKeeperFaults(cluster, ledger, checks)
        self.requests = Requests(mover, errands, readers, copiers, members)
        self.kinds: Sequence[str] = family.kinds
        if family.swarms:
            kinds = sorted(set(family.kinds))
            chosen = self.random.sample(kinds, self.random.randint(SWARM_MIN, len(kinds)))
            self.kinds = (*chosen, *family.always, *family.always)
        self.number = family.faults
        self.counts: dict[str, int] = {}

    async def chaos(self) -> None:
        """Inject the faults at random times; at least two brokers stay alive most of the time."""
        cluster = self.cluster
        for _ in range(self.number):
            await asyncio.sleep(self.random.expovariate(FAULTS_PER_S))
            kind = self.random.choice(self.kinds)
            self.counts[kind] = self.counts.get(kind, 0) + 1
            await self.fault(kind)()
            for id in BROKERS:
                if not cluster.lives(id) and (len(cluster.hosts) < 2 or self.random.random() < 0.3):
                    cluster.start(id)

    def fault(self, kind: str) -> Callable[[], Awaitable[None]]:
        """The method that injects a fault of this kind."""
        parts = (self.processes, self.disks, self.links, self.zookeeper, self.requests)
        found: Callable[[], Awaitable[None]] = next(getattr(p, kind) for p in parts if hasattr(p, kind))
        return found

    async def end(self) -> None:
        """End all faults: stopped brokers resume, dead ones start, those with an offline directory restart.

        The restart must not hide a bug: before it, every partition that other brokers hold must be served
        without the failed directory.
        """
        cluster = self.cluster
        cluster.note("the faults are over")
        for part in (self.links, self.zookeeper, self.processes, self.disks):
            part.end()
        for id in BROKERS:
            if not cluster.lives(id):
                cluster.start(id)
        if any(self._offline(id) for id in BROKERS):
            await self.liveness.wait_served(SERVED_WITHIN_S)
        for id in BROKERS:
            if self._offline(id) and not cluster.disks[id].broken:
                cluster.crash(id)  # an offline directory comes back with the next start
                cluster.start(id)

    def _offline(self, id: int) -> bool:
        node = self.cluster.nodes.get(id)
        return node is not None and bool(node.broker.logs.places.offline)
