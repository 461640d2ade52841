"""Disks that are slow, full or broken, machines that lose power, processes short of descriptors.

Left to others: what that does to bytes and names (`environment/disk.py`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from ..checks.committed import Violation
from .kinds import BROKERS, SESSION_S, TROUBLE_S, FaultKinds

LANDED_S = 0.05
"""After so long, everything that a dead process has sent has arrived."""
DRAINED_S = 0.5
"""After so long, a reader has got all records that reached it."""
SPARED_WITHIN_S = 90.0
"""How soon other replicas must hold what a broker with a broken directory leads."""
SLOW_THREAD_S = (0.02, 0.4)


class DiskFaults(FaultKinds, ABC):
    """Faults of disks and power."""

    @abstractmethod
    async def end(self) -> None:
        """End all faults."""

    async def slow_disk(self) -> None:
        """One broker's threads are slow for a while."""
        id = self._one()
        self.world.note(f"the disk of b{id} is slow")
        self.world.loop.slow[f"b{id}"] = SLOW_THREAD_S
        self._later(TROUBLE_S, self.world.loop.slow.pop, f"b{id}", None)

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
        world = self.world
        id = self._one()
        world.crash(id)
        await asyncio.sleep(LANDED_S)
        if not world.lives(id) and world.checks.spares(id, self.lossy):
            world.note(f"b{id} has lost power")
            self.lossy = id, world.checks.incarnation(id)
            world.lose_power(id, cruel=cruel)

    async def blackout(self) -> None:
        """All machines lose power at once: only flushed data is sure to be left.

        If records are acknowledged before they are flushed, those not flushed may be lost, and no others.
        """
        world = self.world
        flushed = world.checks.flushed()
        for id in BROKERS:
            world.crash(id)
        await asyncio.sleep(LANDED_S)
        for id in BROKERS:
            if not world.lives(id):
                world.note(f"b{id} has lost power with all others")
                world.lose_power(id, cruel=self.random.random() < 0.5)
        if world.is_proof_lost:
            await asyncio.sleep(DRAINED_S)
            world.workload.forgive(flushed)

    async def last_power_loss(self) -> None:
        """The last member of an ISR loses power; earlier members still hold what was acknowledged.

        As with `_lose_power`, the broker that lost data before must have recovered. The broker that comes
        back first must not become leader just for that.
        """
        world = self.world
        id = world.checks.leader(self.random.choice(world.workload.partitions))
        is_calm = id in world.hosts and len(world.hosts) == len(BROKERS)
        if not is_calm or not world.checks.spares(id, self.lossy):
            return
        for other in BROKERS:
            if other != id:
                world.crash(other)
                await asyncio.sleep(self.random.uniform(0.0, SESSION_S))
        await asyncio.sleep(self.random.uniform(0.0, 2 * SESSION_S))
        world.crash(id)
        await asyncio.sleep(LANDED_S)
        if world.hosts:
            return
        world.note(f"b{id} has lost power as the last one")
        self.lossy = id, world.checks.incarnation(id)
        world.lose_power(id, cruel=self.random.random() < 0.5)
        world.start(self._one())
        await asyncio.sleep(self.random.uniform(0.0, 2 * SESSION_S))

    async def fill(self) -> None:
        """One disk is full for a while, or all of them."""
        for id in BROKERS if self.random.random() < 0.3 else [self._one()]:
            self.world.note(f"the disk of b{id} is full")
            self.world.disks[id].is_full = True
            self._later(TROUBLE_S, self._make_room, id)

    def _make_room(self, id: int) -> None:
        self.world.disks[id].is_full = False

    async def break_dir(self) -> None:
        """A log directory fails, in every call or in one, and works again after the next start.

        With it the broker loses the proof of all its data, as in `_lose_power`. So this happens only while
        all replicas are in their ISRs and no disk is full, which would soon leave it alone in an ISR. No
        other fault is drawn until the broker has restarted, which it does once others hold what it leads.
        """
        world, id = self.world, self._one()
        is_calm = len(world.hosts) == len(BROKERS) and not any(host.stopped for host in world.hosts.values())
        if is_calm and self._has_room() and world.checks.is_whole() and world.checks.spares(id, self.lossy):
            directory = self.random.choice(["/data", "/more"])
            world.note(f"{directory} of b{id} is broken, and all links heal")
            world.loop.network.heal()
            disk = world.disks[id]
            (disk.broken if self.random.random() < 0.7 else disk.flawed).add(directory)
            await asyncio.sleep(self.random.uniform(*TROUBLE_S))
            if not world.checks.spares(id, None):
                await self.end()
            until_s = world.loop.now + SPARED_WITHIN_S
            while world.lives(id) and not world.checks.spares(id, None):
                if world.loop.now > until_s:
                    raise Violation(f"b{id} lacks {directory}, and nobody else gets to hold what it leads")
                await asyncio.sleep(0.1)
            self.lossy = id, world.checks.incarnation(id)
            disk.broken.clear()
            disk.flawed.clear()
            world.crash(id)
            world.forget_session(id)
            world.start(id)

    def _has_room(self) -> bool:
        """No disk is full, and no broker thinks that one is."""
        full = [node.broker.replicas.logs.places.full for node in self.world.nodes.values()]
        return not any(full) and not any(disk.is_full for disk in self.world.disks.values())

    async def scarce(self) -> None:
        """A broker is short of file descriptors for a while: some calls that need one fail."""
        id = self._one()
        self.world.note(f"b{id} is short of descriptors")
        self.world.disks[id].scarce = self.random
        self._later(TROUBLE_S, setattr, self.world.disks[id], "scarce", None)
