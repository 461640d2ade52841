"""The listeners of a broker: bound early, read from once the broker is complete, closed at its stop.

Listeners are bound early because their ports are advertised (see early_listeners.py). Connections that come
before `open()` wait. One coarse timer checks the deadlines of all connections.
Left to others: one connection (connection.py), which connections there are (admission.py), the end of a turn
(broker/turn.py), what a request does (handlers/table.py and handlers/).
"""

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from ...base.tasks import FailureHook, Tasks
from ...protocol.apis import Api
from ..config.addresses import ListenerAddress
from ..config.broker import BrokerConfig
from ..errors import StartFailed
from ..turn import Turn
from .admission import Admission
from .connection import ServerConnection
from .early_listeners import Doors
from .exchange import HandlerEntry, Listener
from .metrics import Metrics
from .routes import Service
from .timed_connection import TimedConnection
from .timings import Timings

TICK_S = 1.0
CLOSE_GRACE_S = 1.0
NO_DOORS: Doors = {}


class Server:
    """All listeners of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        metrics: Metrics,
        handlers: Mapping[Api, HandlerEntry[Any]],
        turn: Turn,
        fail: FailureHook,
        timings: Timings | None = None,
    ) -> None:
        """`timings`: count there how long requests take."""
        self.admission = Admission(config, metrics)
        self._inter_broker_listener = config.inter_broker_listener
        self._turn = turn
        self._timings = timings
        self._service = Service(handlers, Tasks("server", fail))
        metrics.calls = self._service.calls
        self._loop = asyncio.get_running_loop()
        self._listening: list[asyncio.AbstractServer] = []
        self._timer: asyncio.TimerHandle | None = None

    async def bind(self, endpoints: Sequence[ListenerAddress], doors: Doors = NO_DOORS) -> dict[str, int]:
        """Bind the listeners that are not open as `doors` already (port 0: the system chooses).

        Returns the ports by listener.
        """
        ports: dict[str, int] = {}
        for endpoint in endpoints:
            listener = Listener(endpoint.listener, endpoint.listener == self._inter_broker_listener)
            make = self._maker(listener)
            for door in doors.get(endpoint.listener, ()):
                self._listening.append(await self._loop.create_server(make, sock=door))
                ports[endpoint.listener] = endpoint.port
            if endpoint.listener in ports:
                continue
            try:
                listening = await self._loop.create_server(make, endpoint.host, endpoint.port)
            except OSError as error:
                raise StartFailed(_why_not_bound(endpoint, error)) from error
            self._listening.append(listening)
            ports[endpoint.listener] = endpoint.port or listening.sockets[0].getsockname()[1]
        self._timer = self._loop.call_later(TICK_S, self._tick)
        return ports

    def _maker(self, listener: Listener) -> Callable[[], ServerConnection]:
        """What makes the connections of this listener."""
        parts = (self._turn, self.admission, self._service, listener)
        if self._timings is None:
            return partial(ServerConnection, *parts)
        return partial(TimedConnection, *parts, self._timings)

    def open(self, broker: object) -> None:
        """Execute requests from now on, including those of connections that came early.

        `broker` is what the handlers work on.
        """
        self._service.broker = broker
        self._turn.is_open = True
        for connection in list(self.admission.connections):
            connection.run()

    async def stop(self) -> None:
        """Stop accepting and reading, let answers leave, then close every connection."""
        self._turn.is_open = False
        for listening in self._listening:
            listening.close()
        if self._timer is not None:
            self._timer.cancel()
        connections = self.admission.connections
        for connection in list(connections):
            connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                await self.admission.until_empty()
        for connection in list(connections):
            connection.abort()
        await self._service.tasks.stop()

    def _tick(self) -> None:
        self._timer = self._loop.call_later(TICK_S, self._tick)
        self.admission.tick()
        if self._timings is not None:
            self._timings.adapt(self.admission.metrics.requests)


def _why_not_bound(endpoint: ListenerAddress, error: OSError) -> str:
    place = f"{endpoint.host}:{endpoint.port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"listener {endpoint.listener}: {place} is in use by another process: stop it, or "
            "change the port in `listeners`"
        )
    reason = error.strerror or error
    return f"listener {endpoint.listener}: cannot listen on {place} ({reason}): change `listeners`"
