"""Disks that are slow, full or broken, machines that lose power, processes short of descriptors.

Left to others: what that does to bytes and names (`environment/disk.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from ..checks.invariants import Checks
from ..checks.ledger import Ledger
from ..cluster import BROKERS, SESSION_S, SimCluster
from ..trace import Violation
from .kinds import TROUBLE_S, FaultKinds

LANDED_S = 0.05
"""After so long, everything that a dead process has sent has arrived."""
DRAINED_S = 0.5
"""After so long, a reader has got all records that reached it."""
SPARED_WITHIN_S = 90.0
"""How soon other replicas must hold what a broker with a broken directory leads."""
SLOW_THREAD_S = (0.02, 0.4)


class DiskFaults(FaultKinds):
    """Faults of disks and power."""

    def __init__(
        self, cluster: SimCluster, ledger: Ledger, checks: Checks, end_all: Callable[[], Awaitable[None]]
    ) -> None:
        """`end_all` ends all faults in the world."""
        super().__init__(cluster, ledger, checks)
        self._end_all = end_all
        self.lossy: tuple[int, int] | None = None  # the broker that lost data last, and its incarnation

    def end(self) -> None:
        """All disks have room, all threads are quick, no process is short of descriptors."""
        self.cluster.loop.slow.clear()
        for disk in self.cluster.disks.values():
            disk.is_full, disk.scarce = False, None

    async def slow_disk(self) -> None:
        """One broker's threads are slow for a while."""
        id = self._one()
        self.cluster.note(f"the disk of b{id} is slow")
        self.cluster.loop.slow[f"b{id}"] = SLOW_THREAD_S
        self._later(TROUBLE_S, self.cluster.loop.slow.pop, f"b{id}", None)

    async def power_loss(self) -> None:
        """A machine loses power, and a random part of its unsynced data."""
        await self._lose_power(cruel=False)

    async def torn_tail(self) -> None:
        """A power loss that also damages unsynced data, and undoes name changes that were not durable."""
        await self._lose_power(cruel=True)

    async def _lose_power(self, *, cruel: bool) -> None:
        """One machine at a time, and only if each ISR has another member: nothing acknowledged may be lost.

        The last one to lose data must be back in all ISRs. ZooKeeper ends the session of the new one.
        What happens when every member of an ISR has lost data is tested by the family "dark".
        """
        cluster = self.cluster
        id = self._one()
        cluster.crash(id)
        await asyncio.sleep(LANDED_S)
        if not cluster.lives(id) and self.checks.spares(id, self.lossy):
            cluster.note(f"b{id} has lost power")
            self.lossy = id, self.checks.incarnation(id)
            cluster.lose_power(id, cruel=cruel)

    async def blackout(self) -> None:
        """All machines lose power at once: only flushed data is sure to be left.

        If records are acknowledged before they are flushed, those not flushed may be lost, and no others.
        """
        cluster = self.cluster
        flushed = self.checks.flushed()
        for id in BROKERS:
            cluster.crash(id)
        await asyncio.sleep(LANDED_S)
        for id in BROKERS:
            if not cluster.lives(id):
                cluster.note(f"b{id} has lost power, like all others")
                cluster.lose_power(id, cruel=self.random.random() < 0.5)
        if cluster.is_proof_lost:
            await asyncio.sleep(DRAINED_S)
            self.ledger.forgive(flushed, cluster.loop.now)

    async def last_power_loss(self) -> None:
        """The last member of an ISR loses power; earlier members still hold what was acknowledged.

        As with `_lose_power`, the broker that lost data before must have recovered. The broker that comes
        back first must not become leader just for that.
        """
        cluster = self.cluster
        id = self.checks.leader(self.random.choice(self.ledger.partitions))
        is_calm = id in cluster.hosts and len(cluster.hosts) == len(BROKERS)
        if not is_calm or not self.checks.spares(id, self.lossy):
            return
        for other in BROKERS:
            if other != id:
                cluster.crash(other)
                await asyncio.sleep(self.random.uniform(0.0, SESSION_S))
        await asyncio.sleep(self.random.uniform(0.0, 2 * SESSION_S))
        cluster.crash(id)
        await asyncio.sleep(LANDED_S)
        if cluster.hosts:
            return
        cluster.note(f"b{id} has lost power, last of all")
        self.lossy = id, self.checks.incarnation(id)
        cluster.lose_power(id, cruel=self.random.random() < 0.5)
        cluster.start(self._one())
        await asyncio.sleep(self.random.uniform(0.0, 2 * SESSION_S))

    async def fill(self) -> None:
        """One disk is full for a while, or all of them."""
        for id in BROKERS if self.random.random() < 0.3 else [self._one()]:
            self.cluster.note(f"the disk of b{id} is full")
            self.cluster.disks[id].is_full = True
            self._later(TROUBLE_S, self._make_room, id)

    def _make_room(self, id: int) -> None:
        self.cluster.disks[id].is_full = False

    async def break_dir(self) -> None:
        """A log directory fails, in every call or in one, and works again after the next start.

        With it the broker loses the proof of all its data, as in `_lose_power`. So this happens only while
        all replicas are in their ISRs and no disk is full, which would soon leave it alone in an ISR. No
        other fault is drawn until the broker has restarted, which it does once others hold what it leads.
        """
        cluster, id = self.cluster, self._one()
        is_calm = len(cluster.hosts) == len(BROKERS) and not any(
            host.stopped for host in cluster.hosts.values()
        )
        if is_calm and self._has_room() and self.checks.is_whole() and self.checks.spares(id, self.lossy):
            directory = self.random.choice(["/data", "/more"])
            cluster.note(f"log directory {directory} of b{id} fails, and all links heal")
            cluster.loop.network.heal()
            disk = cluster.disks[id]
            (disk.broken if self.random.random() < 0.7 else disk.flawed).add(directory)
            await asyncio.sleep(self.random.uniform(*TROUBLE_S))
            if not self.checks.spares(id, None):
                await self._end_all()
            until_s = cluster.loop.now + SPARED_WITHIN_S
            while cluster.lives(id) and not self.checks.spares(id, None):
                if cluster.loop.now > until_s:
                    raise Violation(
                        f"b{id} has lost {directory}, and the partitions it leads have no other "
                        "complete replica"
                    )
                await asyncio.sleep(0.1)
            self.lossy = id, self.checks.incarnation(id)
            disk.broken.clear()
            disk.flawed.clear()
            cluster.crash(id)
            cluster.forget_session(id)
            cluster.start(id)

    def _has_room(self) -> bool:
        """No disk is full, and no broker thinks that one is."""
        full = [node.broker.logs.places.full for node in self.cluster.nodes.values()]
        return not any(full) and not any(disk.is_full for disk in self.cluster.disks.values())

    async def scarce(self) -> None:
        """A broker is short of file descriptors for a while: some calls that need one fail."""
        id = self._one()
        self.cluster.note(f"b{id} runs out of file descriptors")
        self.cluster.disks[id].scarce = self.random
        self._later(TROUBLE_S, setattr, self.cluster.disks[id], "scarce", None)
