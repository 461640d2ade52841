"""The listeners of a broker, all its connections, and the end of each turn of the loop.

One turn: the complete frames of every readable connection are executed; then `replicas.sweep()` runs once for
all of them; then the answers of each connection leave in one `writelines`. One coarse timer checks the
deadlines of all connections. Malformed requests are counted, and logged at most once per second.
Listeners are bound early (their ports are advertised; see early_listeners.py) but read only after `open()`.
Left to others: one connection (connection.py), what a request does (handlers/table.py and handlers/).
"""

import asyncio
import errno
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING

import structlog

from ...base.tasks import FailureHook, Tasks
from ...protocol.apis import Api
from ..config.broker import BrokerConfig, ListenerAddress
from ..errors import StartFailed
from .connection import ServerConnection
from .early_listeners import Doors
from .exchange import HandlerEntry, Listener
from .metrics import Metrics
from .request_memory import Intake
from .routes import Route, routes

if TYPE_CHECKING:
    from ..context import BrokerContext

logger = structlog.get_logger(__name__)

TICK_S = 1.0
CLOSE_GRACE_S = 1.0
COMPLAINT_INTERVAL_S = 1.0
NO_DOORS: Doors = {}


class _FailStop:
    """Wraps every call of a handler: an unexpected exception stops the node (style principle 8)."""

    __slots__ = ("_server",)

    def __init__(self, server: "Server") -> None:
        self._server = server

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._server.fail(error)


class Server:
    """All listeners and connections of one broker, and the end of each turn of the loop."""

    def __init__(
        self,
        config: BrokerConfig,
        metrics: Metrics,
        handlers: Mapping[Api, HandlerEntry],
        fail: FailureHook,
    ) -> None:
        self.config = config
        self.metrics = metrics
        self.tasks = Tasks("server", fail)
        self._fail = fail
        self.broker: BrokerContext
        self.routes: dict[bool, dict[int, Route]] = {kind: routes(kind, handlers) for kind in (False, True)}
        self.connections: dict[ServerConnection, None] = {}
        self.intake = Intake(config.queued_max_request_bytes)
        self.dirty: list[ServerConnection] = []
        self.fail_stop = _FailStop(self)
        self.is_open = False
        self.now = 0.0
        self._loop = asyncio.get_running_loop()
        self._listening: list[asyncio.AbstractServer] = []
        self._one_less = asyncio.Event()
        self.is_awake = False  # something was executed in this turn, and `_end_turn` is scheduled
        self.on_turn: Callable[[], None] = _nothing  # called when bytes have come, before they are executed
        self._timer: asyncio.TimerHandle | None = None
        self._complained_at = 0.0
        self._complaints = 0

    async def bind(self, endpoints: Sequence[ListenerAddress], doors: Doors = NO_DOORS) -> dict[str, int]:
        """Bind the listeners that are not open as `doors` already (port 0: the system chooses).

        Returns the ports by listener.
        """
        self.now = self._loop.time()
        ports: dict[str, int] = {}
        for endpoint in endpoints:
            listener = Listener(endpoint.listener, endpoint.listener == self.config.inter_broker_listener)
            make = partial(ServerConnection, self, listener)
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

    def open(self, broker: "BrokerContext") -> None:
        """Execute requests from now on, including those of connections that came early."""
        self.broker = broker
        self.is_open = True
        for connection in list(self.connections):
            connection.run()

    async def stop(self) -> None:
        """Stop accepting and reading, let answers leave, then close every connection."""
        self.is_open = False
        for listening in self._listening:
            listening.close()
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections):
            connection.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                while self.connections:
                    self._one_less.clear()
                    await self._one_less.wait()
        for connection in list(self.connections):
            connection.abort()
        await self.tasks.stop()

    def wake(self) -> None:
        """Schedule the end of this turn: replicas are swept, then answers leave."""
        if not self.is_awake:
            self.is_awake = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        with self.fail_stop:
            if self.is_open:
                self.broker.replicas.sweep()
            self.is_awake = False
            dirty, self.dirty = self.dirty, []
            for connection in dirty:
                connection.flush()

    def admit(self, connection: ServerConnection) -> bool:
        """Whether one more connection fits `max.connections`, if need be because a client's was closed."""
        is_full = len(self.connections) >= self.config.max_connections
        if is_full and not self._makes_way(connection):
            return False
        self.connections[connection] = None
        self.metrics.connections_opened += 1
        return True

    def _makes_way(self, newcomer: ServerConnection) -> bool:
        """A broker gets in all the same: the client that has been silent for the longest is closed (KIP-402).

        Not with a single listener, where brokers and clients cannot be told apart.
        """
        if not newcomer.listener.internal or len(self._listening) == 1:
            return False
        clients = [each for each in self.connections if not each.listener.internal and not each.closed]
        if clients:
            silent = min(clients, key=lambda each: each.heard_at)
            logger.info("connection_makes_way", peer=silent.peer, listener=silent.listener.name)
            silent.close()
        return True

    def forget(self, connection: ServerConnection) -> None:
        """The connection is gone."""
        self.intake.release(connection)
        if self.connections.pop(connection, self) is None:
            self.metrics.connections_closed += 1
            self._one_less.set()

    def fail(self, error: BaseException) -> None:
        """Hand an impossible state to the node, which stops."""
        self._fail(error)

    def expired(self, connection: ServerConnection, why: str) -> None:
        """A deadline of this connection has passed."""
        self.metrics.deadlines_passed += 1
        logger.info("connection_expired", peer=connection.peer, listener=connection.listener.name, why=why)
        connection.close()

    def complain(self, connection: ServerConnection, why: str) -> None:
        """Count a malformed request; log it, but at most once per second."""
        self.metrics.malformed += 1
        self._complaints += 1
        now = self._loop.time()
        if (
            now - self._complained_at >= COMPLAINT_INTERVAL_S
            or self._complaints == self.metrics.malformed == 1
        ):
            logger.warning(
                "connection_refused", peer=connection.peer, listener=connection.listener.name, why=why,
                times=self._complaints,
            )  # fmt: skip
            self._complained_at, self._complaints = now, 0

    def _tick(self) -> None:
        self.now = self._loop.time()
        self._timer = self._loop.call_later(TICK_S, self._tick)
        for connection in list(self.connections):
            connection.expire(self.now)


def _nothing() -> None:
    """The default `on_turn`."""


def _why_not_bound(endpoint: ListenerAddress, error: OSError) -> str:
    place = f"{endpoint.host}:{endpoint.port}"
    if error.errno == errno.EADDRINUSE:
        return (
            f"listener {endpoint.listener}: {place} is in use by another process; "
            "stop that one or choose another port in `listeners`"
        )
    reason = error.strerror or error
    return f"listener {endpoint.listener}: cannot listen on {place} ({reason}); change `listeners`"
