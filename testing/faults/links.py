"""Links between brokers, clients and ZooKeeper that are cut, slowed and reset, in each direction by itself.

Brokers advertise the ports of proxies here, and reach ZooKeeper through proxies of their own; so no right is
needed. Who dials is read from /proc: a connection's local port belongs to a socket, and that to a broker's
process. A direction that is cut holds what was sent until it is healed, as TCP would send it again. One thing
is unlike a network: a connection that is begun over a cut link stands, and carries nothing.
Left to others: which link when (`testing/embedded.py`).
"""

import asyncio
import random
import re
import socket
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ...client.loop_thread import LoopThread
from ...local.cluster import LocalCluster
from ...local.ports import free_ports

ZOOKEEPER = "zookeeper"
CLIENTS = "clients"
Node = int | str
HOST = "127.0.0.1"
CHUNK = 1 << 16
HELD_MAX = 64  # chunks of a connection that wait for their time
AGAIN_S = 0.05
LISTENING = re.compile(r"\d+: [0-9A-F]+:([0-9A-F]{4}) \S+ 0A ")
AT_ONCE = struct.pack("ii", 1, 0)  # SO_LINGER: a close is a RST


class Quality(NamedTuple):
    """What one direction of a link does to what is sent."""

    cut: bool = False
    delay_s: float = 0.0
    bytes_per_s: float = 0.0  # 0: no limit
    resets: float = 0.0  # the share of chunks that end their connection


@dataclass(eq=False)
class _Connection:
    """Both halves of a connection through a proxy."""

    dialer: Node
    target: Node
    near: asyncio.StreamWriter
    far: asyncio.StreamWriter | None = None

    def end(self) -> None:
        """Both sides see a reset."""
        for writer in (self.near, self.far):
            if writer is not None and not writer.is_closing():
                opened = writer.get_extra_info("socket")
                with suppress(OSError):
                    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
                writer.transport.abort()


@dataclass
class _Proxy:
    """A port in front of another one; while nobody listens there, nobody listens here."""

    port: int
    host: str
    behind: int
    target: Node
    dialer: Node | None  # None: whoever it is, by /proc
    server: asyncio.Server | None = field(default=None, repr=False)


class Links:
    """The links of one cluster, from before its start until `close`. Methods may be called by any thread."""

    def __init__(self, cluster: LocalCluster, seed: int = 0) -> None:
        """The cluster must not run yet: its brokers' settings are changed."""
        self._cluster = cluster
        self._random = random.Random(seed)
        self._proxies: list[_Proxy] = []
        self._quality: dict[tuple[Node, Node], Quality] = defaultdict(Quality)
        self._connections: set[_Connection] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = LoopThread("strandline-links")
        self._changed = asyncio.Event()
        for id, broker in cluster.brokers.items():
            client, internal = free_ports(2)
            self._proxies.append(_Proxy(client, broker.host, broker.port, id, None))
            self._proxies.append(_Proxy(internal, broker.host, broker.internal_port, id, None))
            broker.settings["advertised.listeners"] = f"CLIENT://{HOST}:{client},INTERNAL://{HOST}:{internal}"
            broker.zookeeper = self._through_proxies(broker.zookeeper, id)
        self._thread.run(self._begin)

    def set(self, sources: Iterable[Node], targets: Iterable[Node], quality: Quality, *, reset: bool) -> None:
        """What is sent from `sources` to `targets` meets this quality; with `reset` their connections end."""
        pairs = {(source, target) for source in sources for target in targets if source != target}
        for node in {node for pair in pairs for node in pair}:
            if node not in self._cluster.brokers and node not in (ZOOKEEPER, CLIENTS):
                known = ", ".join(map(str, self._cluster.brokers))
                raise ValueError(
                    f"there is no {node!r}: brokers are {known}; others are ZOOKEEPER and CLIENTS"
                )
        self._thread.call(lambda: self._set(pairs, quality, reset))

    def heal(self) -> None:
        """Every link carries everything at once; what was held is delivered."""
        self._thread.call(self._heal)

    def close(self) -> None:
        """End all proxies."""
        self._thread.run(self._end)
        self._thread.close()

    # -- on the loop

    def _through_proxies(self, zookeeper: str, broker: Node) -> str:
        addresses, slash, chroot = zookeeper.partition("/")
        near = []
        for address in addresses.split(","):
            host, _, port = address.rpartition(":")
            (own,) = free_ports(1)
            self._proxies.append(_Proxy(own, host, int(port), ZOOKEEPER, broker))
            near.append(f"{HOST}:{own}")
        return ",".join(near) + slash + chroot

    async def _begin(self) -> None:
        self._keep(asyncio.ensure_future(self._tend()))

    def _keep(self, task: "asyncio.Task[None]") -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _end(self) -> None:
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in [*self._connections]:
            connection.end()
        for proxy in self._proxies:
            if proxy.server is not None:
                proxy.server.close()

    def _set(self, pairs: Iterable[tuple[Node, Node]], quality: Quality, reset: bool) -> None:
        for pair in pairs:
            self._quality[pair] = quality
        self._tell()
        if reset:
            for each in [*self._connections]:
                if (each.dialer, each.target) in pairs or (each.target, each.dialer) in pairs:
                    each.end()

    def _heal(self) -> None:
        self._quality.clear()
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _tend(self) -> None:
        """Listen while somebody listens behind: a port that refuses is a proof of death."""
        while True:
            behind = listening()
            for proxy in self._proxies:
                if proxy.behind in behind and proxy.server is None:
                    accepted = partial(self._accepted, proxy)
                    proxy.server = await asyncio.start_server(accepted, HOST, proxy.port)
                elif proxy.behind not in behind and proxy.server is not None:
                    proxy.server.close()
                    proxy.server = None
            await asyncio.sleep(AGAIN_S)

    def _accepted(self, proxy: _Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        dialer = proxy.dialer if proxy.dialer is not None else self._dialer(writer)
        connection = _Connection(dialer, proxy.target, writer)
        self._connections.add(connection)  # at once: a task that is cancelled before it begins ends nothing
        self._keep(asyncio.ensure_future(self._carry(proxy, connection, reader)))

    async def _carry(self, proxy: _Proxy, connection: _Connection, reader: asyncio.StreamReader) -> None:
        dialer = connection.dialer
        try:
            await self._open(dialer, proxy.target)
            await self._open(proxy.target, dialer)
            behind, connection.far = await asyncio.open_connection(proxy.host, proxy.behind)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(connection, reader, connection.far, (dialer, proxy.target)))
                group.create_task(self._pump(connection, behind, connection.near, (proxy.target, dialer)))
        except (OSError, ExceptionGroup):
            pass  # either side has gone, so the other goes too
        finally:
            self._connections.discard(connection)
            connection.end()

    def _dialer(self, writer: asyncio.StreamWriter) -> Node:
        """The broker whose process has the other end, or CLIENTS."""
        peer = writer.get_extra_info("peername")  # None: it has gone already
        inode = None if peer is None else inode_of(*peer[:2])
        for id, broker in self._cluster.brokers.items():
            if inode is not None and broker.pid is not None and has_socket(broker.pid, inode):
                return id
        return CLIENTS

    async def _open(self, source: Node, target: Node) -> None:
        while self._quality[source, target].cut:
            await self._changed.wait()

    async def _pump(
        self,
        connection: _Connection,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        way: tuple[Node, Node],
    ) -> None:
        """Carry one direction to its end, in order, each chunk when its time has come."""
        held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(HELD_MAX)
        loop = asyncio.get_running_loop()

        async def read() -> None:
            while data := await reader.read(CHUNK):
                await held.put((loop.time() + self._quality[way].delay_s, data))
            await held.put((loop.time(), b""))

        async def write() -> None:
            while True:
                due, data = await held.get()
                await asyncio.sleep(due - loop.time())
                await self._open(*way)
                quality = self._quality[way]
                if not data:
                    if writer.can_write_eof():
                        writer.write_eof()
                    return
                if quality.resets and self._random.random() < quality.resets:
                    connection.end()
                    return
                if quality.bytes_per_s:
                    await asyncio.sleep(len(data) / quality.bytes_per_s)
                writer.write(data)
                await writer.drain()

        async with asyncio.TaskGroup() as group:
            group.create_task(read())
            group.create_task(write())


def listening() -> set[int]:
    """The ports where somebody listens, by the kernel's tables: nobody is bothered with connections."""
    return {int(port, 16) for table in tables() for port in LISTENING.findall(table)}


def inode_of(host: str, port: int) -> int | None:
    """The socket at this end of a connection, by the kernel's table."""
    local = f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}"
    for line in (line for table in tables() for line in table.splitlines() if f"{local} " in line):
        words = line.split()
        if words[1].endswith(local) and words[9] != "0":
            return int(words[9])
    return None


def tables() -> Iterator[str]:
    """The kernel's tables of TCP sockets; Java has those of IPv6, for addresses of IPv4, too."""
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            yield Path(f"/proc/net/{name}").read_text()


def has_socket(pid: int, inode: int) -> bool:
    """Whether a process has this socket open."""
    wanted = f"socket:[{inode}]"
    with suppress(OSError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if str(each.readlink()) == wanted:
                    return True
    return False
