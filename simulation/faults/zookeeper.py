"""Faults of ZooKeeper: connections are lost, sessions end early or late, servers lag behind.

Left to others: what that does to requests (`environment/zk_client.py`).
"""

from __future__ import annotations

from ..cluster import SESSION_S
from ..environment.zookeeper import LATENCY_S
from .kinds import FaultKinds

LAG_S = (0.05, 1.0)
"""How far a server of ZooKeeper lags behind."""
SLOW_S = 0.4
"""The most that a request, or an answer, takes on its way while ZooKeeper is slow."""


class ZooKeeperFaults(FaultKinds):
    """Faults of ZooKeeper, and of the connections to it."""

    def end(self) -> None:
        """Sessions end in time, nobody reads what is old, and ZooKeeper is quick."""
        self.cluster.zookeeper.grace_s = 0.0
        self.cluster.zookeeper.latency_s = LATENCY_S
        for zk in self.cluster.zk_clients.values():
            zk.lag_s = 0.0

    async def lose_zookeeper(self) -> None:
        """A broker's connection to ZooKeeper is lost for a while, and the requests in flight with it."""
        await self._lose_connection(loses=True)

    async def late_writes(self) -> None:
        """The same, but requests in flight are applied later, when nobody expects it any more."""
        await self._lose_connection(loses=False)

    async def _lose_connection(self, *, loses: bool) -> None:
        id = self._one()
        if id in self.cluster.nodes:
            for_s = self.random.uniform(0.0, 1.2 * SESSION_S)
            self.cluster.note(f"b{id} loses ZooKeeper for {for_s:.2f} s")
            self.cluster.zk_clients[id].lose_connection(for_s, loses=loses)

    async def early_expiry(self) -> None:
        """ZooKeeper ends a session although its client is alive."""
        id = self._one()
        if id in self.cluster.nodes:
            self.cluster.note(f"the session of b{id} ends early")
            self.cluster.zk_clients[id].lose_session()

    async def late_expiry(self) -> None:
        """From now on sessions outlive their timeout."""
        self.cluster.zookeeper.grace_s = self.random.uniform(0.0, SESSION_S)
        self.cluster.note(f"sessions expire {self.cluster.zookeeper.grace_s:.2f} s late")

    async def slow_zookeeper(self) -> None:
        """From now on each answer of ZooKeeper takes up to so long, as on a machine with too much to do."""
        slowest_s = self.random.uniform(0.0, SLOW_S)
        self.cluster.zookeeper.latency_s = (LATENCY_S[0], LATENCY_S[1] + slowest_s)
        self.cluster.note(f"requests to ZooKeeper, and its answers, take up to {slowest_s:.2f} s")

    async def stale_reads(self) -> None:
        """A broker reads from a server that lags behind."""
        id = self._one()
        if id in self.cluster.zk_clients:
            self.cluster.zk_clients[id].lag_s = self.random.uniform(*LAG_S)
            self.cluster.note(f"b{id} reads stale data from ZooKeeper")
