"""An administrator who reassigns partitions among the brokers, cancels some moves, and undoes all at the end.

A request may be lost, or carried out much later: nobody waits for it while faults happen. At the end every
partition is moved back to all brokers, and that must succeed.
Left to others: moving (controller/planning/reassignment.py), what must hold meanwhile (checks/invariants.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from ...base.types import TopicPartition
from ...client.admin.admin import Admin
from ...protocol.errors import ApiError
from ..checks.ledger import Ledger
from ..cluster import BOOTSTRAP, BROKERS, SimCluster
from ..environment.host import Host

LEAST_REPLICAS = 2  # of three, as many as acks=all asks for
CANCELS = 0.25
PATIENCE_S = 5.0
HOME_WITHIN_S = 90.0
LATE_S = 16.0
"""After so long, every request is done, or the broker and the controller have given up on it."""


class Mover:
    """Draws reassignments, and asks for them."""

    def __init__(self, cluster: SimCluster, ledger: Ledger) -> None:
        self.cluster, self.ledger = cluster, ledger
        self._tasks: list[asyncio.Task[None]] = []
        self._asked_at = 0.0

    def move(self) -> None:
        """Ask to move one partition, or to cancel its move."""
        chance = self.cluster.random
        partition = chance.choice(self.ledger.partitions)
        target: list[int] | None = chance.sample(BROKERS, chance.randint(LEAST_REPLICAS, len(BROKERS)))
        if chance.random() < CANCELS:
            target = None
        self.cluster.note(f"{partition}: " + (f"it moves to {target}" if target else "its move is cancelled"))
        self._asked_at = self.cluster.loop.now
        self._tasks.append(self.cluster.loop.spawn(Host("mover"), self._try(partition, target)))

    async def home(self) -> None:
        """Move everything back. Raises TimeoutError if that does not end in time."""
        if not self._tasks:
            return
        await asyncio.gather(*self._tasks)
        await asyncio.sleep(self._asked_at + LATE_S - self.cluster.loop.now)
        async with asyncio.timeout(HOME_WITHIN_S):
            await self.cluster.loop.spawn(Host("mover"), self._bring_home())

    async def _try(self, partition: TopicPartition, target: Sequence[int] | None) -> None:
        await self._ask(lambda admin: admin.alter_partition_reassignments({partition: target}), PATIENCE_S)

    async def _bring_home(self) -> None:
        targets = dict.fromkeys(self.ledger.partitions, BROKERS)

        async def settle(admin: Admin) -> None:
            await admin.alter_partition_reassignments(targets)
            while await admin.list_partition_reassignments():
                await asyncio.sleep(0.1)

        while not await self._ask(settle, HOME_WITHIN_S):
            await asyncio.sleep(0.5)

    async def _ask(self, what: Callable[[Admin], Awaitable[None]], within_s: float) -> bool:
        """Whether the brokers agreed; False if they refuse, or do not answer within `within_s`."""
        try:
            async with (
                asyncio.timeout(within_s),
                Admin(
                    BOOTSTRAP,
                    random=random.Random(self.cluster.random.getrandbits(64)),
                    request_timeout_ms=int(PATIENCE_S * 1000),
                ) as admin,
            ):
                await what(admin)
        except (ApiError, OSError, TimeoutError):
            return False
        return True
