"""Faults of ZooKeeper: connections are lost, sessions end early or late, servers lag behind.

Left to others: what that does to requests (`environment/zk_client.py`).
"""

from __future__ import annotations

from .kinds import SESSION_S, FaultKinds

LAG_S = (0.05, 1.0)
"""How far a server of ZooKeeper lags behind."""


class ZooKeeperFaults(FaultKinds):
    """Faults of ZooKeeper, and of the connections to it."""

    async def lose_zookeeper(self) -> None:
        """A broker's connection to ZooKeeper is lost for a while, and the requests in flight with it."""
        await self._lose_connection(loses=True)

    async def late_writes(self) -> None:
        """The same, but requests in flight are applied later, when nobody expects it any more."""
        await self._lose_connection(loses=False)

    async def _lose_connection(self, *, loses: bool) -> None:
        id = self._one()
        if id in self.world.nodes:
            for_s = self.random.uniform(0.0, 1.2 * SESSION_S)
            self.world.note(f"b{id} loses ZooKeeper for {for_s:.2f} s")
            self.world.zk_clients[id].lose_connection(for_s, loses=loses)

    async def early_expiry(self) -> None:
        """ZooKeeper ends a session although its client is alive."""
        id = self._one()
        if id in self.world.nodes:
            self.world.note(f"the session of b{id} ends early")
            self.world.zk_clients[id].lose_session()

    async def late_expiry(self) -> None:
        """From now on sessions outlive their timeout."""
        self.world.zookeeper.grace_s = self.random.uniform(0.0, SESSION_S)
        self.world.note(f"sessions live {self.world.zookeeper.grace_s:.2f} s longer")

    async def stale_reads(self) -> None:
        """A broker reads from a server that lags behind."""
        id = self._one()
        if id in self.world.zk_clients:
            self.world.zk_clients[id].lag_s = self.random.uniform(*LAG_S)
            self.world.note(f"what b{id} reads in ZooKeeper is old")
