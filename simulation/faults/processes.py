"""Processes that are killed, suspended or shut down, machines that vanish, clocks that jump.

Left to others: what that does to tasks, timers and connections (`environment/loop.py`), loss of data with the
power (`disks.py`).
"""

from __future__ import annotations

import asyncio

from ..checks.pictures import disagreement
from ..cluster import BROKERS, SESSION_S
from ..environment.host import Host
from ..trace import Violation
from .kinds import FaultKinds

PAUSE_S = (0.2, 2 * SESSION_S)
STOP_WITHIN_S = 15.0
DOWN_S = (0.0, 4.0)
BACK_WITHIN_S = 30.0
LOOK_EVERY_S = 0.1
CLOCK_JUMP_S = 3 * 3600


class ProcessFaults(FaultKinds):
    """Faults of processes and their machines."""

    def end(self) -> None:
        """Suspended brokers continue, and all clocks are right."""
        for host in list(self.cluster.hosts.values()):
            self._resume(host)
        for clock in self.cluster.clocks.values():
            clock.offset_ms = 0

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

    async def roll(self) -> None:
        """All brokers are restarted, the controller last; each is waited for, until everybody knows it."""
        cluster = self.cluster
        order = self.random.sample(BROKERS, len(BROKERS))
        for id in sorted(order, key=lambda id: id == cluster.controller()):
            await self._shut_down(id)
            await asyncio.sleep(self.random.uniform(*DOWN_S))
            for each in BROKERS:
                if not cluster.lives(each):
                    cluster.start(each)
            await self._be_back(id)

    async def _be_back(self, id: int) -> None:
        """Wait until each replica is in its ISR, and every broker knows that."""
        deadline = self.cluster.loop.now + BACK_WITHIN_S
        while not (is_whole := self.checks.is_whole()) or self._disagreement():
            if self.cluster.loop.now > deadline:
                what = self._disagreement() if is_whole else "not every replica is in its ISR"
                violation = Violation(f"I25: {BACK_WITHIN_S:g} s after b{id} came back {what}")
                self.cluster.trace.fail(violation)
                return
            await asyncio.sleep(LOOK_EVERY_S)

    def _disagreement(self) -> str | None:
        return disagreement(self.cluster.nodes, self.checks.states.latest)

    async def stop(self) -> None:
        """A broker is shut down cleanly, and started again after a while."""
        await self._shut_down(self._one())

    async def _shut_down(self, id: int) -> None:
        cluster = self.cluster
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

    async def clock(self) -> None:
        """A machine's wall clock jumps by up to hours."""
        id = self._one()
        jump_s = self.random.uniform(-CLOCK_JUMP_S, CLOCK_JUMP_S)
        self.cluster.note(f"the clock of b{id} jumps by {jump_s:.0f} s")
        self.cluster.clocks[id].offset_ms += int(1000 * jump_s)
