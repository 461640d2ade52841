"""Injects faults into a world: each kind of fault is a method, called at random times.

Left to others: which kinds a seed draws (`simulation/families.py`), what a fault does to bytes
(`environment/network.py`), files (`environment/disk.py`), sessions (`environment/zk_client.py`) and processes
(`environment/loop.py`); what must hold in spite of it (`checks/invariants.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..environment.host import Host
from ..families import Family
from .disks import DiskFaults
from .kinds import BROKERS, SESSION_S
from .links import LinkFaults
from .zookeeper import ZooKeeperFaults

if TYPE_CHECKING:
    from ..world import World

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

    def __init__(self, world: World, family: Family) -> None:
        self.world = world
        self.random = world.random
        self.kinds: Sequence[str] = family.kinds
        if family.swarms:
            kinds = sorted(set(family.kinds))
            chosen = self.random.sample(kinds, self.random.randint(SWARM_MIN, len(kinds)))
            self.kinds = (*chosen, *family.always, *family.always)
        self.number = family.faults
        self.counts: dict[str, int] = {}
        self.lossy = None

    async def chaos(self) -> None:
        """Inject the faults at random times; at least two brokers stay alive most of the time."""
        world = self.world
        for _ in range(self.number):
            await asyncio.sleep(self.random.expovariate(FAULTS_PER_S))
            kind = self.random.choice(self.kinds)
            self.counts[kind] = self.counts.get(kind, 0) + 1
            await getattr(self, kind)()
            for id in BROKERS:
                if not world.lives(id) and (len(world.hosts) < 2 or self.random.random() < 0.3):
                    world.start(id)

    async def end(self) -> None:
        """End all faults: stopped brokers resume, dead ones start, those with an offline directory restart.

        The restart must not hide a bug: before it, every partition that other brokers hold must be served
        without the failed directory.
        """
        world = self.world
        world.note("the faults are over")
        world.loop.network.heal()
        world.loop.slow.clear()
        world.zookeeper.grace_s = 0.0
        for host in list(world.hosts.values()):
            self._resume(host)
        for id in BROKERS:
            self._make_room(id)
            world.disks[id].scarce = None
            world.clocks[id].offset_ms = 0
            if id in world.zk_clients:
                world.zk_clients[id].lag_s = 0.0
            if not world.lives(id):
                world.start(id)
        if any(self._offline(id) for id in BROKERS):
            await world.liveness.wait_served(SERVED_WITHIN_S)
        for id in BROKERS:
            if self._offline(id) and not world.disks[id].broken:
                world.crash(id)  # an offline directory comes back with the next start
                world.start(id)

    def _offline(self, id: int) -> bool:
        node = self.world.nodes.get(id)
        return node is not None and bool(node.broker.replicas.logs.places.offline)

    # ------------------------------------------------------------ processes and machines

    async def crash(self) -> None:
        """A process is killed."""
        self.world.crash(self._one())

    async def bounce(self) -> None:
        """A process is killed and started again before its session has ended."""
        id = self._one()
        self.world.crash(id)
        await asyncio.sleep(self.random.uniform(0.001, 0.3))
        if not self.world.lives(id):
            self.world.start(id)

    async def vanish(self) -> None:
        """A machine is off: its peers' connections stay half open. Its disk loses nothing."""
        self.world.crash(self._one(), vanishes=True)

    async def pause(self) -> None:
        """SIGSTOP, and SIGCONT after a while that may outlast the session."""
        id = self._one()
        pause_s = self.random.uniform(*PAUSE_S)
        if self.world.lives(id):
            self.world.note(f"b{id} is stopped")
            self.world.hosts[id].stopped = True
            self.world.loop.call_later(pause_s, self._resume, self.world.hosts[id])

    def _resume(self, host: Host) -> None:
        if host.stopped:
            self.world.note(f"{host.name} goes on")
            self.world.loop.resume(host)

    async def behead(self) -> None:
        """A leader dies, and soon after its successor, which the others have hardly fetched from."""
        world = self.world
        tp = self.random.choice(world.workload.partitions)
        leader = world.checks.leader(tp)
        if len(world.hosts) == len(BROKERS) and leader in world.hosts:
            world.crash(leader)
            for _ in range(200):
                await asyncio.sleep(0.005)
                if (successor := world.checks.leader(tp)) not in (leader, -1):
                    await asyncio.sleep(self.random.uniform(0.0, 0.02))
                    world.crash(successor)
                    world.start(leader)
                    break

    async def interrupt_plan(self) -> None:
        """A broker dies, and then the controller while it handles that."""
        world = self.world
        controller = next((id for id, node in world.nodes.items() if node.broker.controller.active), None)
        others = [id for id in world.hosts if id != controller]
        if controller is None or not others:
            return
        world.crash(self.random.choice(sorted(others)))
        before = len(world.zookeeper.writes)
        for _ in range(int(1000 * SESSION_S)):
            await asyncio.sleep(0.001)
            if len(world.zookeeper.writes) > before + 1:
                break
        await asyncio.sleep(self.random.uniform(0.0, 0.01))
        world.crash(controller)
        await asyncio.sleep(self.random.uniform(0.0, 0.3))
        if not world.lives(controller):
            world.start(controller)

    async def move(self) -> None:
        """An administrator moves a partition to other brokers, or cancels a move."""
        self.world.mover.move()

    async def stop(self) -> None:
        """A broker is shut down cleanly, and started again after a while."""
        world, id = self.world, self._one()
        node, host = world.nodes.get(id), world.hosts.get(id)
        if node is None or host is None or host.stopped:
            return
        world.note(f"b{id} is told to stop")
        host.is_leaving = True
        try:
            async with asyncio.timeout(STOP_WITHIN_S):
                await asyncio.shield(world.loop.spawn(host, node.stop()))
        except TimeoutError:
            world.note(f"b{id} takes long to stop")
        world.crash(id)

    async def make_topic(self) -> None:
        """A topic is created."""
        self.world.errands.make()

    async def grow_topic(self) -> None:
        """A topic gets one more partition."""
        self.world.errands.grow()

    async def delete_topic(self) -> None:
        """A topic is deleted."""
        self.world.errands.delete()

    async def elect(self) -> None:
        """An administrator asks for preferred leaders."""
        self.world.errands.elect()

    async def elect_uncleanly(self) -> None:
        """An administrator asks for unclean elections, in topics other than the one that is judged."""
        self.world.errands.elect_uncleanly()

    async def churn(self) -> None:
        """A member leaves the group, and another joins it."""
        if self.world.readers is not None:
            self.world.readers.churn()

    async def clock(self) -> None:
        """A machine's wall clock jumps by up to hours."""
        id = self._one()
        jump_s = self.random.uniform(-CLOCK_JUMP_S, CLOCK_JUMP_S)
        self.world.note(f"the clock of b{id} jumps by {jump_s:.0f} s")
        self.world.clocks[id].offset_ms += int(1000 * jump_s)
