"""Injects faults into a world: each kind of fault is a method, called at random times.

Left to others: which kinds a seed draws (`simulation/families.py`), what a fault does to bytes
(`environment/network.py`), files (`environment/disk.py`), sessions (`environment/zk_client.py`) and processes
(`environment/loop.py`); what must hold in spite of it (`checks/invariants.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ..checks.invariants import Checks
from ..checks.ledger import Ledger
from ..checks.liveness import Liveness
from ..clients.errands import Errands
from ..clients.moving import Mover
from ..clients.readers import Readers
from ..cluster import BROKERS, SESSION_S, SimCluster
from ..environment.host import Host
from ..families import Family
from .disks import DiskFaults
from .links import LinkFaults
from .zookeeper import ZooKeeperFaults

FAULTS_PER_S = 0.8
PAUSE_S = (0.2, 2 * SESSION_S)
STOP_WITHIN_S = 15.0
SERVED_WITHIN_S = 30.0
"""How soon partitions outside a failed directory must be served, once all other faults are over."""
CLOCK_JUMP_S = 3 * 3600
SWARM_MIN = 3
"""The least number of fault kinds in a swarming seed."""


class Faults(DiskFaults, LinkFaults, ZooKeeperFaults):
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
    ) -> None:
        super().__init__(cluster, ledger, checks)
        self.liveness, self.mover, self.errands, self.readers = liveness, mover, errands, readers
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
            await getattr(self, kind)()
            for id in BROKERS:
                if not cluster.lives(id) and (len(cluster.hosts) < 2 or self.random.random() < 0.3):
                    cluster.start(id)

    async def end(self) -> None:
        """End all faults: stopped brokers resume, dead ones start, those with an offline directory restart.

        The restart must not hide a bug: before it, every partition that other brokers hold must be served
        without the failed directory.
        """
        cluster = self.cluster
        cluster.note("the faults are over")
        cluster.loop.network.heal()
        cluster.loop.slow.clear()
        cluster.zookeeper.grace_s = 0.0
        for host in list(cluster.hosts.values()):
            self._resume(host)
        for id in BROKERS:
            self._make_room(id)
            cluster.disks[id].scarce = None
            cluster.clocks[id].offset_ms = 0
            if id in cluster.zk_clients:
                cluster.zk_clients[id].lag_s = 0.0
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

    # ------------------------------------------------------------ processes and machines

    async def crash(self) -> None:
        """A process is killed."""
        self.cluster.crash(self._one())

    async def bounce(self) -> None:
        """A process is killed and started again before its session has ended."""
        id = self._one()
        self.cluster.crash(id)
        await asyncio.sleep(self.random.uniform(0.001, 0.3))
        if not self.cluster.lives(id):
            self.cluster.start(id)

    async def vanish(self) -> None:
        """A machine is off: its peers' connections stay half open. Its disk loses nothing."""
        self.cluster.crash(self._one(), vanishes=True)

    async def pause(self) -> None:
        """SIGSTOP, and SIGCONT after a while that may outlast the session."""
        id = self._one()
        pause_s = self.random.uniform(*PAUSE_S)
        if self.cluster.lives(id):
            self.cluster.note(f"b{id} is suspended (SIGSTOP)")
            self.cluster.hosts[id].stopped = True
            self.cluster.loop.call_later(pause_s, self._resume, self.cluster.hosts[id])

    def _resume(self, host: Host) -> None:
        if host.stopped:
            self.cluster.note(f"{host.name} continues (SIGCONT)")
            self.cluster.loop.resume(host)

    async def behead(self) -> None:
        """A leader dies, and soon after its successor, which the others have hardly fetched from."""
        cluster = self.cluster
        tp = self.random.choice(self.ledger.partitions)
        leader = self.checks.leader(tp)
        if len(cluster.hosts) == len(BROKERS) and leader in cluster.hosts:
            cluster.crash(leader)
            for _ in range(200):
                await asyncio.sleep(0.005)
                if (successor := self.checks.leader(tp)) not in (leader, -1):
                    await asyncio.sleep(self.random.uniform(0.0, 0.02))
                    cluster.crash(successor)
                    cluster.start(leader)
                    break

    async def interrupt_plan(self) -> None:
        """A broker dies, and then the controller while it handles that."""
        cluster = self.cluster
        controller = cluster.controller()
        others = [id for id in cluster.hosts if id != controller]
        if controller is None or not others:
            return
        cluster.crash(self.random.choice(sorted(others)))
        before = len(cluster.zookeeper.writes)
        for _ in range(int(1000 * SESSION_S)):
            await asyncio.sleep(0.001)
            if len(cluster.zookeeper.writes) > before + 1:
                break
        await asyncio.sleep(self.random.uniform(0.0, 0.01))
        cluster.crash(controller)
        await asyncio.sleep(self.random.uniform(0.0, 0.3))
        if not cluster.lives(controller):
            cluster.start(controller)

    async def move(self) -> None:
        """An administrator moves a partition to other brokers, or cancels a move."""
        self.mover.move()

    async def stop(self) -> None:
        """A broker is shut down cleanly, and started again after a while."""
        cluster, id = self.cluster, self._one()
        node, host = cluster.nodes.get(id), cluster.hosts.get(id)
        if node is None or host is None or host.stopped:
            return
        cluster.note(f"b{id} starts a controlled shutdown")
        host.is_leaving = True
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await asyncio.shield(cluster.loop.spawn(host, node.stop()))
        except TimeoutError:
            cluster.note(f"the controlled shutdown of b{id} takes long")
        cluster.crash(id)

    async def make_topic(self) -> None:
        """A topic is created."""
        self.errands.make()

    async def grow_topic(self) -> None:
        """A topic gets one more partition."""
        self.errands.grow()

    async def delete_topic(self) -> None:
        """A topic is deleted."""
        self.errands.delete()

    async def elect(self) -> None:
        """An administrator asks for preferred leaders."""
        self.errands.elect()

    async def elect_uncleanly(self) -> None:
        """An administrator asks for unclean elections, in topics other than the one that is judged."""
        self.errands.elect_uncleanly()

    async def churn(self) -> None:
        """A member leaves the group, and another joins it."""
        if self.readers is not None:
            self.readers.churn()

    async def clock(self) -> None:
        """A machine's wall clock jumps by up to hours."""
        id = self._one()
        jump_s = self.random.uniform(-CLOCK_JUMP_S, CLOCK_JUMP_S)
        self.cluster.note(f"the clock of b{id} jumps by {jump_s:.0f} s")
        self.cluster.clocks[id].offset_ms += int(1000 * jump_s)
