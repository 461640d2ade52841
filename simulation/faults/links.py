"""Links that are cut, refused or reset; for a moment, or so long that the others must go on without them.

Left to others: what that does to bytes (`environment/network.py`), which partitions must go on all the same
(`checks/liveness.py`).
"""

from __future__ import annotations

import asyncio

from ..cluster import BROKERS, SESSION_S
from ..environment.zk_client import ADDRESS
from .kinds import FaultKinds

PART_S = (12.0, 16.0)
"""Longer than partitions that can go on may take to do so."""
CALM_WITHIN_S = 30.0


class LinkFaults(FaultKinds):
    """Faults of the network."""

    def end(self) -> None:
        """All links are good again."""
        self.cluster.loop.network.heal()

    async def cut(self) -> None:
        """The link between two brokers stalls, in both directions or in one."""
        a, b = self.random.sample(BROKERS, 2)
        both = self.random.random() < 0.7
        self.cluster.note(f"b{a} {'and' if both else 'to'} b{b} are cut")
        self.cluster.loop.network.cut(f"b{a}", f"b{b}", both=both)

    async def isolate(self) -> None:
        """A broker does not reach ZooKeeper."""
        id = self._one()
        self.cluster.note(f"b{id} and ZooKeeper are cut")
        self.cluster.loop.network.cut(f"b{id}", ADDRESS)

    async def exile(self) -> None:
        """A leader loses one follower and then ZooKeeper; it reaches only its other follower."""
        cluster = self.cluster
        leader = self.checks.leader(self.random.choice(self.ledger.partitions))
        follower = self.random.choice([id for id in BROKERS if id != leader])
        cluster.note(f"b{leader} is cut from b{follower}, then from ZooKeeper")
        cluster.loop.network.cut(f"b{leader}", f"b{follower}")
        await asyncio.sleep(self.random.uniform(0.0, SESSION_S))
        cluster.loop.network.cut(f"b{leader}", ADDRESS)
        await asyncio.sleep(2 * SESSION_S)

    async def heal(self) -> None:
        """All links are good again."""
        self.cluster.note("all links heal")
        self.cluster.loop.network.heal()

    async def reset(self) -> None:
        """Some connections break; bytes in flight on them are lost."""
        network = self.cluster.loop.network
        share = self.random.choice([0.1, 0.5, 1.0])
        broken = [t for t in network.transports if self.random.random() < share / 2]
        self.cluster.note(f"{len(broken)} connections are reset")
        for transport in broken:
            network.reset(transport)

    async def refuse(self) -> None:
        """Two brokers refuse each other's connections for a moment."""
        a, b = self.random.sample(BROKERS, 2)
        network = self.cluster.loop.network
        self.cluster.note(f"b{a} and b{b} refuse each other")
        network.refuse(f"b{a}", f"b{b}")
        self._later((0.05, SESSION_S), network.refused.clear)

    async def part(self) -> None:
        """Some links of one broker (controller, leader or any) fail for long, and nothing else does.

        The others reach each other and ZooKeeper, so they must go on.
        """
        cluster = self.cluster
        cluster.loop.network.heal()
        if not await self._is_calm():
            return
        active = cluster.controller()
        leader = self.checks.leader(self.random.choice(self.ledger.partitions))
        one = self.random.choice([active or 1, leader, self._one()])
        others = [id for id in BROKERS if id != one]
        match self.random.randrange(4):
            case 0:
                self._part(one, others)
            case 1:
                self._part(one, [self.random.choice(others)])
            case 2:
                far = self.random.choice(others)
                cluster.note(f"b{one} cannot send to b{far} for long")
                cluster.loop.network.cut(f"b{one}", f"b{far}", both=False)
            case _:
                cluster.note(f"b{one} and ZooKeeper are cut for long")
                cluster.loop.network.cut(f"b{one}", ADDRESS)
        await asyncio.sleep(self.random.uniform(*PART_S))
        cluster.note("all links heal")
        cluster.loop.network.heal()

    def _part(self, one: int, others: list[int]) -> None:
        """Drop or refuse: a router may do either."""
        network = self.cluster.loop.network
        silent = self.random.random() < 0.5
        self.cluster.note(f"b{one} and {others} {'cannot reach' if silent else 'refuse'} each other for long")
        for other in others:
            (network.cut if silent else network.refuse)(f"b{one}", f"b{other}")

    async def _is_calm(self) -> bool:
        for _ in range(int(CALM_WITHIN_S / 0.1)):
            for id in BROKERS:
                if not self.cluster.lives(id):
                    self.cluster.start(id)
            if self.checks.is_whole():
                return True
            await asyncio.sleep(0.1)
        return False
