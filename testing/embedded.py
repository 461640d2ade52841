"""A local cluster with an asyncio API: real brokers, a real ZooKeeper, a temporary directory."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from ..local.cluster import LocalCluster


class Cluster:
    """A running cluster. `pause` and `resume` return once the signal is sent, `kill` and `stop` once the
    broker is gone. A test must itself wait for what follows, such as an election.
    """

    def __init__(self, local: LocalCluster) -> None:
        self.local = local

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` for clients."""
        return self.local.bootstrap

    @property
    def zookeeper(self) -> str:
        """ZooKeeper's address."""
        return self.local.zookeeper

    def leader(self, topic: str, partition: int) -> int:
        """The id of the broker that leads the partition, or -1."""
        return self.local.leader(topic, partition)

    def controller(self) -> int:
        """The id of the controller's broker, or -1."""
        return self.local.controller()

    async def kill(self, broker: int) -> None:
        """SIGKILL, and wait until it is gone."""
        await asyncio.to_thread(self.local.brokers[broker].kill)

    async def stop(self, broker: int) -> None:
        """SIGTERM: a controlled shutdown. Returns when it has ended."""
        await asyncio.to_thread(self.local.brokers[broker].stop)

    async def pause(self, broker: int) -> None:
        """SIGSTOP: the process stands still, its connections stay open."""
        self.local.brokers[broker].pause()

    async def resume(self, broker: int) -> None:
        """SIGCONT."""
        self.local.brokers[broker].resume()

    async def restart(self, broker: int) -> None:
        """Kill it if it runs, start it again, and wait until it knows the cluster."""
        process = self.local.brokers[broker]
        await asyncio.to_thread(process.kill)
        process.start()
        alive = sum(one.alive for one in self.local.brokers.values())
        await asyncio.to_thread(self.local.wait_ready, alive)


@asynccontextmanager
async def cluster(
    brokers: int = 3, *, settings: Mapping[str, str] | None = None, zookeeper: str | None = None
) -> AsyncIterator[Cluster]:
    """A cluster for one test. `settings` are options for every broker, with Kafka's names."""
    with tempfile.TemporaryDirectory(prefix="strandline-") as directory:
        local = LocalCluster(Path(directory), brokers, settings=settings, zookeeper=zookeeper)
        await asyncio.to_thread(local.start)
        try:
            yield Cluster(local)
        finally:
            await asyncio.to_thread(local.kill)
