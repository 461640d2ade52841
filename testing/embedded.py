"""A local cluster with an asyncio API: real brokers, a real ZooKeeper, a temporary directory.

Brokers can be killed, stopped and paused; links between them be cut and slowed, disks be slow and fail, if
that was asked for at the start. Left to others: how (`faults/links.py`, `faults/disk.py`).
"""

import asyncio
import errno
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from ..local.cluster import LocalCluster
from ..local.owned import temporary_prefix
from ..local.processes import BrokerProcess
from .faults.disk import Call, DiskFaults
from .faults.links import Links, Node, Quality
from .nursery import prepare, spawn


class Cluster:
    """A running cluster. `pause` and `resume` return once the signal is sent, `kill` and `stop` once the
    broker is gone. A test must itself wait for what follows, such as an election. Each raises ValueError for
    a broker that the cluster does not have.
    """

    def __init__(
        self, local: LocalCluster, links: Links | None = None, disks: Mapping[int, DiskFaults] | None = None
    ) -> None:
        self.local, self._links, self._disks = local, links, disks or {}

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
        await asyncio.to_thread(self._broker(broker).kill)

    async def stop(self, broker: int) -> None:
        """SIGTERM: a controlled shutdown. Returns when it has ended."""
        await asyncio.to_thread(self._broker(broker).stop)

    async def pause(self, broker: int) -> None:
        """SIGSTOP: the process stands still, its connections stay open."""
        self._broker(broker).pause()

    async def resume(self, broker: int) -> None:
        """SIGCONT."""
        self._broker(broker).resume()

    async def restart(self, broker: int) -> None:
        """Kill it if it runs, start it again, and wait until it knows the cluster."""
        process = self._broker(broker)
        await asyncio.to_thread(process.kill)
        process.start()
        alive = sum(one.alive for one in self.local.brokers.values())
        await asyncio.to_thread(self.local.wait_ready, alive)

    def _broker(self, id: int) -> BrokerProcess:
        if id not in self.local.brokers:
            raise ValueError(f"there is no broker {id}: there are {', '.join(map(str, self.local.brokers))}")
        return self.local.brokers[id]

    # -- networks; the cluster was started with `network_faults=True`

    async def partition_network(
        self,
        sources: Iterable[Node],
        targets: Iterable[Node],
        *,
        both_ways: bool = True,
        reset: bool = False,
    ) -> None:
        """What `sources` send to `targets` does not arrive, and with `both_ways` nothing comes back.

        Nodes are broker ids, `ZOOKEEPER` and `CLIENTS`. Packets vanish silently; with `reset`, connections
        that there are end with a reset. It holds until `heal_network`; what was sent meanwhile on
        connections that still stand arrives then. ValueError for an unknown node, or if the cluster has
        no network faults.
        """
        cut = Quality(cut=True)
        await self._set(sources, targets, cut, both_ways=both_ways, reset=reset)

    async def slow_network(
        self,
        sources: Iterable[Node],
        targets: Iterable[Node],
        *,
        delay_s: float = 0.0,
        bytes_per_s: float = 0.0,
        resets: float = 0.0,
        both_ways: bool = True,
    ) -> None:
        """What `sources` send to `targets` takes `delay_s` seconds longer, and is at most so many bytes per
        second for each connection (0: no limit); a share `resets` (0 to 1) of all segments ends its
        connection. It replaces what was set for these links. ValueError as for `partition_network`.
        """
        if delay_s < 0 or bytes_per_s < 0 or not 0 <= resets <= 1:
            raise ValueError(
                f"delay_s={delay_s:g} and bytes_per_s={bytes_per_s:g} must be at least 0, "
                f"resets={resets:g} from 0 to 1"
            )
        quality = Quality(delay_s=delay_s, bytes_per_s=bytes_per_s, resets=resets)
        await self._set(sources, targets, quality, both_ways=both_ways, reset=False)

    async def heal_network(self) -> None:
        """Every link carries everything again, at once."""
        await asyncio.to_thread(self._required_links().heal)

    async def _set(
        self,
        sources: Iterable[Node],
        targets: Iterable[Node],
        quality: Quality,
        *,
        both_ways: bool,
        reset: bool,
    ) -> None:
        links, near, far = self._required_links(), list(sources), list(targets)
        await asyncio.to_thread(links.set, near, far, quality, reset=reset)
        if both_ways:
            await asyncio.to_thread(links.set, far, near, quality, reset=reset)

    def _required_links(self) -> Links:
        if self._links is None:
            raise ValueError("this cluster has no network faults: start it with cluster(network_faults=True)")
        return self._links

    # -- disks; the cluster was started with `disk_faults=True`

    async def slow_disk(self, broker: int, delay_s: float, *, calls: Call = Call.WRITE | Call.SYNC) -> None:
        """Each of these calls of a broker about a file of its logs takes `delay_s` seconds longer, 0: none.
        It replaces what was set for this broker. ValueError if the cluster has no disk faults.
        """
        if delay_s < 0:
            raise ValueError(f"delay_s must be at least 0, not {delay_s:g}")
        faults = self._required_disk(broker)
        faults.clear()
        if delay_s:
            faults.add(calls, delay_s=delay_s)

    async def fail_disk(self, broker: int, calls: Call = Call.WRITE, *, error: int = errno.EIO) -> None:
        """Each of these calls of a broker about a file of its logs fails with an errno, until `mend_disk`.

        A broker whose only directory has failed ends. ValueError if the cluster has no disk faults.
        """
        self._required_disk(broker).add(calls, error=error)

    async def mend_disk(self, broker: int) -> None:
        """The broker's disk is as it was. A broker that has ended must be restarted."""
        self._required_disk(broker).clear()

    def _required_disk(self, broker: int) -> DiskFaults:
        self._broker(broker)
        if broker not in self._disks:
            raise ValueError(
                f"broker {broker} has no disk faults: start the cluster with cluster(disk_faults=True)"
            )
        return self._disks[broker]


@asynccontextmanager
async def cluster(
    brokers: int = 3,
    *,
    settings: Mapping[str, str] | None = None,
    zookeeper: str | None = None,
    network_faults: bool = False,
    disk_faults: bool = False,
) -> AsyncIterator[Cluster]:
    """A cluster for one test. `settings` are options for every broker, with Kafka's names.

    With `network_faults`, brokers reach each other, ZooKeeper and clients through proxies, which need no
    rights. With `disk_faults`, brokers load a library first, which a C compiler makes once, or there is an
    EnvironmentProblem. All processes end with the test's own, even if that is killed.
    """
    if brokers < 1:
        raise ValueError(f"brokers={brokers}: a cluster has at least one")
    async with AsyncExitStack() as undo:
        directory = Path(undo.enter_context(tempfile.TemporaryDirectory(prefix=temporary_prefix())))
        local = LocalCluster(directory, brokers, settings=settings, zookeeper=zookeeper, owned=True)
        disks: dict[int, DiskFaults] = {}
        for broker in local.brokers.values() if not disk_faults else ():
            broker.spawn = spawn
            prepare()
        for id, broker in local.brokers.items() if disk_faults else ():
            disks[id] = DiskFaults(broker.directory / "faults" / "table", broker.directory / "data")
            broker.environment |= disks[id].environment
        links = Links(local) if network_faults else None
        if links is not None:
            undo.callback(links.close)
        undo.push_async_callback(asyncio.to_thread, local.kill)
        await asyncio.to_thread(local.start)
        yield Cluster(local, links, disks)
