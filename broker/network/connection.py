"""One connection: frames are executed as they arrive, answers leave in order.

The frames behind a parked exchange are executed; those behind a running coroutine handler or a held request
(exchange.py) wait. We stop reading a connection while its peer does not read, while too many of its exchanges
are open, or while a coroutine handler runs. Malformed bytes close it.
Left to others: receive memory (receive_buffer.py), what a request does (handlers/table.py and handlers/),
the end of the turn (broker/turn.py), which connections there are (admission.py).
"""

import asyncio
from collections import deque
from collections.abc import Callable
from struct import Struct
from typing import Any, cast

import structlog

from ...protocol.apis import Api
from ...protocol.connection import RequestHead, parse_head
from ...protocol.errors import ApiError, ErrorCode
from ...protocol.primitives import Buffer, Malformed
from ...protocol.schema import decode
from ..turn import Turn
from .admission import Admission
from .api_ranges import unknown_version
from .exchange import HELD_S_MAX, NEVER, Exchange, Held, Listener
from .receive_buffer import START_BYTES, Arena
from .routes import Route, Service

logger = structlog.get_logger(__name__)

FAILED = "the broker met an error that it did not expect, and has logged it"
UNSENT_BYTES_MAX = 1 << 20  # answered but not written; beyond it we execute nothing more for this peer
SMALL_FRAME_BYTES_MAX = 4 << 20  # for requests without records: decoded they may take forty times as much
WRITE_HIGH_WATER_BYTES = 256 << 10
MEMORY_IDLE_S = 10.0
LINGER_S = 5.0  # for the last answers to leave, once we close a connection
# librdkafka reserves four bytes for the count of topics and fills only one when it asks for all topics in a
# flexible version. Kafka ignores bytes after the end of a request, so nobody has noticed.
TRAILING_BYTES_MAX = {Api.METADATA: 3}

_size_at = Struct(">i").unpack_from


class ServerConnection(asyncio.BufferedProtocol):
    """One connection: its arena, and its exchanges in the order in which their answers must leave."""

    __slots__ = (
        "admission", "arena", "asked_at", "at_end", "claims", "closed", "dirty", "exchanges", "exchanges_max",
        "heard_at", "listener", "metrics", "partial_since", "reading", "routes", "service", "task_runs",
        "transport", "turn", "unsent_bytes", "writable",
    )  # fmt: skip

    def __init__(self, turn: Turn, admission: Admission, service: Service, listener: Listener) -> None:
        self.turn = turn
        self.admission = admission
        self.service = service
        self.listener = listener
        self.metrics = admission.metrics
        self.routes = service.routes[listener.internal]
        self.arena = Arena(admission.config.socket_request_max_bytes)
        self.exchanges: deque[Exchange] = deque()
        self.transport: asyncio.Transport
        self.closed = False
        self.claims = False  # holds a claim of memory for the request that is arriving
        self.exchanges_max = admission.config.queued_max_requests
        self.heard_at = admission.now
        self.asked_at = NEVER
        self.at_end: Callable[[], None] = _nothing
        self.partial_since: float | None = None
        self.unsent_bytes = 0
        self.dirty = False
        self.reading = True
        self.writable = True
        self.task_runs = False

    @property
    def peer(self) -> str:
        """The peer's address, for the log."""
        name = self.transport.get_extra_info("peername")
        return f"{name[0]}:{name[1]}" if isinstance(name, tuple) else str(name)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=WRITE_HIGH_WATER_BYTES)
        if not self.admission.admit(self):
            self.transport.abort()
        elif not self.turn.is_open:
            self._stop_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self.exchanges.clear()
        self.admission.forget(self)
        self.at_end()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self.arena.room()

    def buffer_updated(self, nbytes: int) -> None:
        self.metrics.bytes_in += nbytes
        self.heard_at = self.admission.now
        self.arena.received(nbytes)
        turn = self.turn
        if not turn.is_awake:
            turn.before()
        self.run()

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        self.flush()

    def run(self) -> None:
        """Execute complete frames until none is left, or until this connection must wait."""
        with self.turn.fail_stop:
            try:
                if self._run(self._execute):
                    self.turn.wake()
            except Malformed as error:
                self.admission.complain(self, str(error))
                self.close()

    def _run(self, execute: Callable[[memoryview], None]) -> bool:
        """Returns whether a frame was executed; then the end of the turn must run."""
        frame_of, exchanges = self.arena.frame, self.exchanges
        fresh = False
        while not self.closed:
            if (
                self.task_runs
                or not self.writable
                or not self.turn.is_open
                or len(exchanges) >= self.exchanges_max
                or self.unsent_bytes >= UNSENT_BYTES_MAX
            ):
                self._stop_reading()
                break
            frame = frame_of()
            if frame is None:
                if self.arena.wanted > START_BYTES and not self._may_receive():
                    break
                if not self.arena.partial:
                    self.partial_since = None
                elif self.partial_since is None:
                    self.partial_since = self.admission.now
                if not self.reading:
                    self.start_reading()
                break
            fresh = True
            self.partial_since = None
            execute(frame)
            if self.claims and not self.task_runs:
                self._release()
        return fresh

    def _may_receive(self) -> bool:
        """Whether there is memory for the large frame that has begun. While it waits its deadline stops."""
        if self.listener.internal:
            return True
        self.claims = self.admission.intake.claim(self, self.arena.wanted)
        if not self.claims:
            self.partial_since = None
            self._stop_reading()
        return self.claims

    def _release(self) -> None:
        self.claims = False
        self.admission.intake.release(self)

    def _execute(self, frame: memoryview) -> None:
        head = parse_head(frame)
        route = self.routes.get(head.api_key << 16 | head.version)
        if route is None:
            return self._unserved(head)
        if len(frame) > SMALL_FRAME_BYTES_MAX and route.api != Api.PRODUCE and not self.listener.internal:
            raise Malformed(
                f"a request {route.api.name} of {len(frame)} bytes exceeds the limit of "
                f"{SMALL_FRAME_BYTES_MAX}"
            )
        request: Any
        request, end = decode(route.request, route.version, frame, head.body_at)
        if end != len(frame) and len(frame) - end > TRAILING_BYTES_MAX.get(route.api, 0):
            raise Malformed(f"{len(frame) - end} bytes are left after {route.api.name} v{route.version}")
        exchange = Exchange(
            self, self.listener, route.api, route.version, head.correlation_id, head.client_id
        )
        self.exchanges.append(exchange)
        route.calls.count += 1
        if route.is_coroutine:
            self.task_runs = True
            self.metrics.handler_tasks += 1
            self.service.tasks.spawn(self._execute_slowly(route, exchange, request), route.api.name)
            return None
        try:
            response = route.handle(self.service.broker, exchange, request)
        except ApiError as error:
            self.metrics.refuse(route.api, error.code)
            response = route.refuse(request, error)
        except Held as held:
            self.task_runs = True
            self.metrics.handler_tasks += 1
            self.service.tasks.spawn(self._execute_later(route, exchange, request, held), route.api.name)
            return None
        if response is not None:
            exchange.answer(response)
        return None

    async def _execute_later(self, route: Route, exchange: Exchange, request: Any, held: Held) -> None:
        response = None
        again: Held | None = held
        while again is not None:
            await asyncio.wait((again.until,), timeout=None if again.ends_by_itself else HELD_S_MAX)
            if self.closed:
                return None
            again = None
            try:
                response = route.handle(self.service.broker, exchange, request)
            except Held as once_more:
                again = once_more
            except ApiError as error:
                self.metrics.refuse(route.api, error.code)
                response = route.refuse(request, error)
            except Malformed as error:
                self.admission.complain(self, str(error))
                return self.close()
        if response is not None:
            exchange.answer(response)
        self.task_runs = False
        if self.claims:
            self._release()
        self.turn.wake()
        self.run()
        return None

    async def _execute_slowly(self, route: Route, exchange: Exchange, request: Any) -> None:
        try:
            try:
                response = await route.handle(self.service.broker, exchange, request)
            except ApiError as error:
                self.metrics.refuse(route.api, error.code)
                response = route.refuse(request, error)
            if response is not None and exchange.parts is None:
                exchange.answer(response)  # which may be one that cannot be written
        except Malformed as error:
            self.admission.complain(self, str(error))
            return self.close()
        except Exception as error:
            if not route.survives or isinstance(error, AssertionError):
                raise
            logger.error("request_failed", api=route.api.name, version=route.version, exc_info=error)
            self.metrics.refuse(route.api, ErrorCode.UNKNOWN_SERVER_ERROR)
            if exchange.parts is None:
                exchange.answer(route.refuse(request, ApiError(f"{FAILED}: {type(error).__name__}")))
        self.task_runs = False
        if self.claims:
            self._release()
        self.run()
        return None

    def _unserved(self, head: RequestHead) -> None:
        """As in Kafka: close the connection, except for ApiVersions, which gets our range and asks again."""
        if head.api_key != Api.API_VERSIONS:
            raise Malformed(
                f"api key {head.api_key} version {head.version} is not supported on listener "
                f"{self.listener.name}"
            )
        exchange = Exchange(self, self.listener, Api.API_VERSIONS, 0, head.correlation_id, None)
        self.exchanges.append(exchange)
        exchange.answer(unknown_version())

    def answered(self, exchange: Exchange) -> None:
        """An exchange has its answer, which leaves at the end of this turn if all before it are answered."""
        if self.closed:
            return
        if exchange.times is not None:
            exchange.times.answered()
        if exchange.parts:
            self.unsent_bytes += 4 + _size_at(exchange.parts[0])[0]
        if not self.dirty:
            self.dirty = True
            self.turn.answered(self)

    def flush(self) -> None:
        """Write the answers that may leave, then execute frames that had to wait."""
        self.dirty = False
        self._write_answered()
        if not self.reading and self.turn.is_open:
            self.run()

    def _write_answered(self) -> None:
        exchanges = self.exchanges
        if self.closed or not self.writable:
            return
        parts: list[Buffer] = []
        while exchanges and exchanges[0].parts is not None:
            exchange = exchanges.popleft()
            parts += exchange.parts or ()
            if exchange.times is not None:
                exchange.times.left(exchange)
        if parts:
            nbytes = sum(map(len, parts))
            self.unsent_bytes -= nbytes
            self.metrics.bytes_out += nbytes
            self.heard_at = self.admission.now  # what it asks next may come only now: it has waited for this
            self.transport.writelines(parts)

    def close(self) -> None:
        """Close the connection. Answers that may leave still do; exchanges without an answer are dropped."""
        if not self.closed:
            self._write_answered()
            self.closed = True
            self.heard_at = self.admission.now
            self.exchanges.clear()
            self.transport.close()

    def abort(self) -> None:
        """Close the connection without waiting for a peer that does not read."""
        self.closed = True
        self.transport.abort()

    def expire(self, now: float) -> None:
        """Check this connection's deadlines; called about once a second."""
        config = self.admission.config
        idle_s = now - self.heard_at
        if self.closed:
            if idle_s > LINGER_S:  # the peer does not read
                self.transport.abort()
        elif (
            self.partial_since is not None
            and (now - self.partial_since) * 1000 > config.partial_frame_timeout_ms
        ):
            self.admission.expired(self, "the rest of a request did not arrive in time")
        elif idle_s * 1000 > config.connections_max_idle_ms and (not self.exchanges or not self.writable):
            self.admission.expired(self, "idle")
        elif idle_s > MEMORY_IDLE_S and self.arena.capacity:
            self.arena.release()

    def _stop_reading(self) -> None:
        if self.reading and not self.closed:
            self.reading = False
            self.metrics.reading_paused += 1
            self.transport.pause_reading()

    def start_reading(self) -> None:
        """Resume reading, if the server is open."""
        if not self.closed and self.turn.is_open:
            self.reading = True
            self.transport.resume_reading()


def _nothing() -> None:
    """The default for `at_end`."""
