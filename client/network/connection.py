"""One socket to one broker: requests go out pipelined, answers come back in the same order.

The shell round `protocol/connection.ClientEnd`. No future is left hanging: each request has a deadline. A
broker that misses one is taken for dead, so the connection ends and every waiting request fails. Works on any
asyncio loop (uvloop, the simulator): it uses `loop.create_connection` and nothing below.
Left to others: which broker to ask, retries, reconnecting (cluster.py).
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping
from ssl import SSLContext
from struct import Struct
from typing import Any

from ...base.logger import get_logger
from ...protocol.apis import APIS, Api
from ...protocol.connection import ClientEnd, FrameSplitter
from ...protocol.errors import UnsupportedVersion
from ...protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ...protocol.messages.produce import ProduceRequest
from ...protocol.primitives import Malformed
from ...protocol.schema import spec_of

log = get_logger(__name__)

FRAME_BYTES_MAX = 256 << 20
REQUESTS_WAITING_MAX = 4096
KEEPALIVE = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}  # s, s, probes without an answer
CLOSE_SECONDS_MAX = 0.5
LOOK_SECONDS_MIN, LOOK_SECONDS_MAX = 0.001, 0.05  # until another look at what has not left yet
PORT_MAX = 65_535
NO_LINGER = Struct("ii").pack(1, 0)
API_VERSIONS_FIRST = 0  # the one version that every broker answers in a known format

Versions = Mapping[int, int]
LostHook = Callable[["Connection"], None]


class ConnectionLost(ConnectionError):
    """The connection ended before the answer came. Whether the request took effect is unknown."""

    retriable = True


class RequestExpired(ConnectionLost, TimeoutError):
    """The broker did not answer in time; the connection was given up. The effect is unknown."""


class Unreadable(ConnectionLost):
    """What came is no answer, or too large for one. It would be the same again."""


class Connection(asyncio.BufferedProtocol):
    """Made by `Connection.open`; ends by `close()`, by the peer, or by a missed deadline."""

    def __init__(self, address: str, client_id: str | None, frame_bytes_max: int) -> None:
        self.address = address
        self.versions: Versions = {}
        self.on_lost: LostHook | None = None
        self._end = ClientEnd(client_id)
        self._splitter = FrameSplitter(frame_bytes_max)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[asyncio.Future[Any], float, float]] = deque()  # answer, deadline, sent at
        self._written = 0  # bytes
        self._leaving: deque[tuple[asyncio.Future[Any], float, int]] = deque()  # acks=0: done, deadline, end
        self._timer: asyncio.TimerHandle | None = None
        self._cause: BaseException | None = None
        self._lost = False
        self.closed: asyncio.Future[None] = self._loop.create_future()

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str | None = "strandline",
        deadline: float,
        ssl: SSLContext | None = None,
        versions: Versions | None = None,
        highest: Versions | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        on_lost: LostHook | None = None,
    ) -> "Connection":
        """Connect before `deadline` (loop time). Raises OSError (TimeoutError is one), also for a `host` or
        `port` that cannot exist.

        `versions` (api key -> version) skips the negotiation: for brokers, which know each other. `highest`
        limits the negotiation to versions that the caller speaks.
        """
        loop = asyncio.get_running_loop()
        if not 0 <= port <= PORT_MAX:
            raise OSError(f"{host}:{port} is not an address: expected a port from 0 to {PORT_MAX}")
        async with asyncio.timeout_at(deadline):
            try:
                _, connection = await loop.create_connection(
                    lambda: cls(f"{host}:{port}", client_id, frame_bytes_max), host, port, ssl=ssl
                )
            except ValueError as error:  # a name that cannot be encoded
                raise OSError(f"{host}:{port} is not an address: {error}") from error
            try:
                if versions is None:
                    await connection.negotiate(deadline, highest or {})
                else:
                    connection.versions = versions
            except BaseException:
                connection._abort(ConnectionLost(f"{host}:{port}: ApiVersions failed"))
                raise
        connection.on_lost = on_lost
        if connection.is_lost and on_lost is not None:
            loop.call_soon(on_lost, connection)
        return connection

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self._lost

    @property
    def waiting(self) -> int:
        """Requests without an answer yet: the connection's load."""
        return len(self._waiting)

    def silent_for(self, now: float) -> float:
        """Seconds that the oldest request has been waiting; 0 when none is."""
        return now - self._waiting[0][2] if self._waiting else 0.0

    def version_for(self, api: int) -> int:
        """The agreed version; UnsupportedVersion when the broker does not speak this API as we do."""
        version = self.versions.get(api)
        if version is None:
            raise UnsupportedVersion(f"{self.address} and this client share no version of {Api(api).name}")
        return version

    async def request(self, message: Any, *, deadline: float, version: int | None = None) -> Any:
        """Send and await the answer. Raises ConnectionLost, or RequestExpired once `deadline` has passed."""
        return await self.submit(message, deadline=deadline, version=version)

    def submit(self, message: Any, *, deadline: float, version: int | None = None) -> asyncio.Future[Any]:
        """Write the request now; the future holds the answer. Cancelling it only drops the answer.

        A produce with acks=0 has none: its future is done when all of it has left for the other end.
        """
        if self._lost or self._transport is None:
            raise ConnectionLost(f"the connection to {self.address} is closed")
        if len(self._waiting) >= REQUESTS_WAITING_MAX:
            raise ConnectionLost(f"{self.address} has {len(self._waiting)} requests in flight")
        if version is None:
            version = self.version_for(spec_of(type(message)).key)
        parts = self._end.send(message, version)
        future: asyncio.Future[Any] = self._loop.create_future()
        self._written += sum(map(len, parts))
        if isinstance(message, ProduceRequest) and message.acks == 0:
            if not self._leaving:
                self._loop.call_soon(self._look_what_left, LOOK_SECONDS_MIN)
            self._leaving.append((future, deadline, self._written))
        else:
            self._waiting.append((future, deadline, self._loop.time()))
        self._watch(deadline)
        self._transport.writelines(parts)
        return future

    def give_up(self, reason: str) -> None:
        """End the connection at once, if it stands: the other end is known to be dead or deposed."""
        self._abort(ConnectionLost(f"{self.address}: {reason}"))

    async def close(self) -> None:
        """End the connection; requests still waiting fail with ConnectionLost. May be called twice.

        What was written already (acks=0) gets a moment to leave. A peer that takes nothing would hold the
        connection, so what is left then is dropped.
        """
        self._cause = self._cause or ConnectionLost(
            f"the connection to {self.address} was closed by this client"
        )
        if self._transport is not None:
            self._transport.close()
        self._lose(self._cause)
        try:
            await asyncio.wait([self.closed], timeout=CLOSE_SECONDS_MAX)
        finally:
            if not self.closed.done():
                self._cut()

    async def negotiate(self, deadline: float, highest: Versions) -> None:
        """Ask what the other end speaks, and agree on versions. Raises ConnectionLost, RequestExpired."""
        answer = await self.request(ApiVersionsRequest(), deadline=deadline, version=API_VERSIONS_FIRST)
        self.versions = agree(answer, highest)

    # -- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "writelines")
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are not subclasses
        sock = transport.get_extra_info("socket")
        if sock is not None and getattr(sock, "family", None) in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _probe_when_idle(sock)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._splitter.room()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._splitter.received(nbytes):
                self._answered(frame)
        except Malformed as trouble:
            log.warning("response_malformed", broker=self.address, reason=str(trouble))
            self._abort(Unreadable(f"{self.address} sent a malformed response: {trouble}"))

    def connection_lost(self, exc: Exception | None) -> None:
        self._lose(
            self._cause or ConnectionLost(f"{self.address} closed the connection ({exc or 'end of stream'})")
        )
        if not self.closed.done():
            self.closed.set_result(None)

    # -- what happens to requests

    def _answered(self, frame: memoryview) -> None:
        _, response = self._end.receive(frame)
        if not self._waiting:
            return
        future, _, _ = self._waiting.popleft()
        if not future.done():
            future.set_result(response)

    def _look_what_left(self, pause: float) -> None:
        """Nobody tells how much of what was written has gone to the system: look, less and less often."""
        if self._transport is None or not self._leaving:
            return
        gone = self._written - self._transport.get_write_buffer_size()
        while self._leaving and self._leaving[0][2] <= gone:
            future, _, _ = self._leaving.popleft()
            if not future.done():
                future.set_result(None)
        if self._leaving:
            self._loop.call_later(pause, self._look_what_left, min(2 * pause, LOOK_SECONDS_MAX))

    def _watch(self, deadline: float) -> None:
        if self._timer is not None:
            if self._timer.when() <= deadline:
                return
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        deadlines = [deadline for _, deadline, _ in (*self._waiting, *self._leaving)]
        if not deadlines:
            return
        earliest = min(deadlines)
        if earliest <= self._loop.time():
            self._abort(RequestExpired(f"{self.address} did not answer in time"))
        else:
            self._watch(earliest)

    def _abort(self, cause: BaseException) -> None:
        self._cause = self._cause or cause
        if not self._lost:
            self._cut()
        self._lose(self._cause)

    def _cut(self) -> None:
        if self._transport is not None:
            _drop_unsent(self._transport.get_extra_info("socket"))
            self._transport.abort()

    def _lose(self, cause: BaseException) -> None:
        if self._lost:
            return
        self._lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        waiting, self._waiting = [*self._waiting, *self._leaving], deque()
        self._leaving.clear()
        for future, _, _ in waiting:
            if not future.done():
                future.set_exception(cause)
                future.exception()  # seen here: a caller that went away must not cause a warning
        if self.on_lost is not None:
            self.on_lost(self)


def agree(offered: ApiVersionsResponse, highest: Versions) -> dict[int, int]:
    """For each API that both ends know, the highest common version that is not above `highest`."""
    agreed: dict[int, int] = {}
    for row in offered.api_keys:
        spec = APIS.get(row.api_key)  # type: ignore[call-overload]
        if spec is None:
            continue
        known = spec_of(spec.request).versions
        version = min(known[-1], row.max_version, highest.get(row.api_key, known[-1]))
        if version >= max(known[0], row.min_version):
            agreed[row.api_key] = version
    return agreed


def _drop_unsent(sock: socket.socket | None) -> None:
    """What the system has not delivered yet must not arrive later: whoever sent it asks somebody else now, or
    asks again, and may have gone on to something that the late request would undo.
    """
    if sock is not None and getattr(sock, "family", None) in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)


def _probe_when_idle(sock: socket.socket) -> None:
    """Notice within half a minute that a host is gone, even if a request may take longer."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE.items():
        if (option := getattr(socket, name, None)) is not None:  # not on every system
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
