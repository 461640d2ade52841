"""Hosts, listeners and links in memory. Links delay bytes and keep their order; a cut link stalls.

Addresses are names: a process listens on `(its address, port)`, and others connect to that. A crash resets
the connections of a host. A cut (of one direction or both) makes bytes wait, as TCP would. A machine that
vanishes resets nothing: its peers keep half-open connections until it is back and does not know them.
Left to others: what the bytes mean (`simulation/talk.py` may listen).
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias

from .host import CrashedHost, Host

ORDER_S = 3e-9
"""The least time between two arrivals on one connection."""
Hear: TypeAlias = Callable[["Transport", bytes], None]
NOBODY = contextvars.Context()
"""The context in which a machine answers for a process that is gone."""
CUT_RETRY_S = 0.05
"""How often a stalled link tries again."""


class SimServer:
    """What `create_server` returns: a listener to close."""

    def __init__(self, network: Network, key: tuple[str, int], host: Host) -> None:
        self.network, self.key, self.host = network, key, host
        self.sockets: tuple[()] = ()

    def close(self) -> None:
        """A dead process may close late, when its restart already listens there: then do nothing."""
        if self.is_serving():
            del self.network.listeners[self.key]

    async def wait_closed(self) -> None:
        """Nothing to wait for."""

    def is_serving(self) -> bool:
        found = self.network.listeners.get(self.key)
        return found is not None and found[2] is self.host


class Network:
    """All links of a world."""

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random) -> None:
        self.loop, self.random = loop, random
        self.listeners: dict[tuple[str, int], tuple[Any, contextvars.Context, Host]] = {}
        self.transports: list[Transport] = []
        self.cuts: set[tuple[str, str]] = set()
        self.refused: set[tuple[str, str]] = set()
        self.vanished: set[str] = set()  # machines that are off: they neither refuse nor reset
        self.hear: Hear | None = None
        self.latency_s = (0.0001, 0.002)

    def listen(self, host: Host, address: str, port: int, factory: Any) -> SimServer:
        if not host.alive:
            raise CrashedHost(f"{host.name} is dead")
        if (address, port) in self.listeners:
            raise OSError(98, f"{address}:{port} is in use")
        self.listeners[address, port] = factory, contextvars.copy_context(), host
        return SimServer(self, (address, port), host)

    async def dial(self, host: Host, address: str, port: int, factory: Any) -> Any:
        """Connect, after the link's delay. On a cut link this hangs until it heals or the caller gives up."""
        if not host.alive:
            raise CrashedHost(f"{host.name} is dead")
        await asyncio.sleep(self.delay())
        while self._swallows(host.name, address):
            await asyncio.sleep(CUT_RETRY_S)  # try again, as TCP does
        accept = self.listeners.get((address, port))
        if accept is None or not host.alive or (host.name, address) in self.refused:
            raise ConnectionRefusedError(111, f"{address}:{port} refuses connections")
        server_factory, context, server_host = accept
        near = Transport(self, host, server_host, factory(), contextvars.copy_context())
        far = Transport(self, server_host, host, context.run(server_factory), context.copy())
        near.peer, far.peer = far, near
        near.dialled = True
        self.transports += near, far
        far.context.run(far.protocol.connection_made, far)  # what the server starts belongs to its host
        near.protocol.connection_made(near)
        return near, near.protocol

    def _swallows(self, source: str, target: str) -> bool:
        return target in self.vanished or (source, target) in self.cuts or (target, source) in self.cuts

    def delay(self) -> float:
        return self.random.uniform(*self.latency_s)

    def cut(self, source: str, target: str, *, both: bool = True) -> None:
        """Bytes from `source` to `target` stall (and back, if `both`)."""
        self.cuts.add((source, target))
        if both:
            self.cuts.add((target, source))

    def refuse(self, one: str, other: str) -> None:
        """Break the connections between two hosts, and refuse new ones until links heal."""
        self.refused |= {(one, other), (other, one)}
        for transport in list(self.transports):
            if (transport.host.name, transport.remote.name) in self.refused and not transport.dead:
                transport.arrive(None)

    def heal(self) -> None:
        self.cuts.clear()
        self.refused.clear()

    def crash(self, host: Host, *, vanishes: bool = False) -> None:
        """A process is gone. Its peers get a reset at once or, if it `vanishes`, once the machine is back."""
        self.listeners = {key: value for key, value in self.listeners.items() if value[2] is not host}
        if vanishes:
            self.vanished.add(host.name)
        for transport in [t for t in self.transports if t.host is host]:
            transport.dead = True
            self.transports.remove(transport)
            if vanishes:
                transport.half_open = True
                transport.missed = transport.last > self.loop.time()
            else:
                transport.peer.arrive(None)

    def is_back(self, name: str) -> None:
        """A vanished machine is back: it resets connections on which peers sent something meanwhile."""
        self.vanished.discard(name)
        for transport in self.transports:
            if transport.remote.name == name and transport.peer.missed:
                transport.peer.missed = False
                transport.arrive(None)

    def reset(self, transport: Transport) -> None:
        """Break a connection: both ends get a reset, and bytes in flight are lost."""
        for end in (transport, transport.peer):
            end.broken = True
            end.arrive(None)


class Transport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, network: Network, host: Host, remote: Host, protocol: Any, context: contextvars.Context
    ) -> None:
        super().__init__()
        self.network, self.host, self.remote = network, host, remote
        self.protocol, self.context = protocol, context
        self.peer: Transport = self
        self.dead = self.closing = self.paused = self.broken = False
        self.dialled = False
        self.half_open = False  # its machine is off, or back and does not know it
        self.missed = False  # something was sent to it meanwhile
        self.held: list[bytes | None] = []
        self.last = 0.0

    def write(self, data: Any) -> None:
        if not (self.dead or self.closing):
            data = bytes(data)
            if self.network.hear is not None:
                self.network.hear(self, data)
            self.peer.arrive(data)

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def arrive(self, data: bytes | None) -> None:
        """Schedule bytes (None: the end) to reach this end, after all those sent before."""
        loop = self.network.loop
        self.last = max(self.last + ORDER_S, loop.time() + self.network.delay())
        if self.half_open:
            loop.call_at(self.last, self._answer_for_the_dead, context=NOBODY)
        else:
            loop.call_at(self.last, self._deliver, data, context=self.context)

    def _deliver(self, data: bytes | None) -> None:
        if self.dead:
            return
        if self.broken and data is not None:
            return
        if (self.remote.name, self.host.name) in self.network.cuts:
            again = max(self.last, self.network.loop.time()) + CUT_RETRY_S  # stalled: TCP keeps trying
            self.last = again
            self.network.loop.call_at(again, self._deliver, data, context=self.context)
        elif self.paused:
            self.held.append(data)
        else:
            self._hand_over(data)

    def _answer_for_the_dead(self) -> None:
        """A machine that is back resets connections that it does not know."""
        if self.host.name in self.network.vanished:
            self.missed = True
        elif not self.peer.dead:
            self.peer.arrive(None)

    def _hand_over(self, data: bytes | None) -> None:
        if data is None:
            self.dead = True
            self._forget()
            self.protocol.connection_lost(None if self.closing else ConnectionResetError("peer is gone"))
        elif isinstance(self.protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view and not self.dead:
                buffer = memoryview(self.protocol.get_buffer(len(view)))
                size = min(len(buffer), len(view))
                buffer[:size] = view[:size]
                buffer.release()
                self.protocol.buffer_updated(size)
                view = view[size:]
        else:
            self.protocol.data_received(data)

    def _forget(self) -> None:
        if self in self.network.transports:
            self.network.transports.remove(self)

    def close(self) -> None:
        if not self.closing and not self.dead:
            self.closing = self.dead = True
            self._forget()
            self.peer.arrive(None)
            self.network.loop.call_soon(self.protocol.connection_lost, None, context=self.context)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self.closing or self.dead

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": (self.remote.name, 0), "sockname": (self.host.name, 0)}.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self.protocol
        return protocol

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Writes are never held back here."""

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        while self.held and not (self.paused or self.dead):
            self._hand_over(self.held.pop(0))

    def is_reading(self) -> bool:
        return not self.paused
