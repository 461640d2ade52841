"""WebServer: HTTP on the broker's event loop, by aiohttp, within limits.

The broker comes first: connections, sizes and times are bounded, so that neither many clients nor slow ones
cost it more than that. A connection is aborted when no request began on it for CONNECTION_S: this covers idle
clients, requests that never end, and clients that do not read what they asked for. What has come and is not
answered yet is bounded in all: 64 headers of 8 KiB, in each of 32 requests sent ahead, would be 16 MiB.
This is the only file that imports aiohttp. Left to others: the port (listener.py), who may ask (guard.py),
what is answered (routes.py).
"""

import asyncio
import logging
import socket
from collections import deque
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from . import routes
from .answer import Answer, Asked, refused
from .guard import Headers, why_refused
from .view import View

logger = structlog.get_logger(__name__)

CONNECTIONS_MAX = 64
BODY_BYTES_MAX = 64 << 10
LINE_BYTES_MAX = 8 << 10  # of the request line
HEADERS_MAX, HEADER_BYTES_MAX = 64, 8 << 10  # a browser sends all cookies of its machine in one
UNREAD_BYTES_MAX = 128 << 10  # that came on a connection since its last request began: headers and a body
ANSWER_S = 5.0  # for a handler
CONNECTION_S = 60.0  # between the beginnings of two requests
IDLE_S = 30.0  # a connection without a request is closed in good order
TICK_S = 1.0
TICKS_KEPT = 10  # for which the event loop's lateness is told
COMPLAINT_INTERVAL_S = 1.0
LINGER_S = 1.0  # for a client that sends more than is read to read its answer
STOP_S = 1.0

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'",  # text that comes from records stays text
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class WebServer:
    """The HTTP server of one broker."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._machine = socket.gethostname().lower()
        self._loop = asyncio.get_running_loop()
        self._connections = _Connections(self._answer, self._loop)
        self._lateness: deque[float] = deque(maxlen=TICKS_KEPT)
        self._due = self._loop.time() + TICK_S
        self._timer = self._loop.call_at(self._due, self._tick)

    def protocol(self) -> web.RequestHandler:
        """What reads a new connection."""
        return self._connections()

    async def stop(self) -> None:
        """Let the answers under way leave for a moment, then close every connection."""
        self._timer.cancel()
        await self._connections.shutdown(STOP_S)
        await self._view.peers.stop()

    def _tick(self) -> None:
        now = self._loop.time()
        self._lateness.append(now - self._due)
        self._view.late_s = max(self._lateness)
        self._connections.expire(now)
        self._view.connections = len(self._connections.connections)
        self._due = now + TICK_S
        self._timer = self._loop.call_at(self._due, self._tick)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        self._connections.began(request.protocol)
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._within_limits(request)
        except TimeoutError:
            answer = refused(503, f"no answer within {ANSWER_S:g} s")
        headers = {**HEADERS, **answer.headers}
        if "ETag" in headers and request.headers.get("If-None-Match") == headers["ETag"]:
            return web.Response(status=304, headers=headers)
        response = web.Response(body=answer.body, status=answer.status, headers=headers)
        response.headers["Content-Type"] = answer.content_type
        return response

    async def _within_limits(self, request: web.BaseRequest) -> Answer:
        given = request.headers
        headers = Headers(
            given.get("Host", ""),
            given.get("Origin", ""),
            given.get("Sec-Fetch-Site", ""),
            given.get("Sec-Fetch-Mode", ""),
        )
        broker = self._view.broker
        names = (self._view.config if broker is None else broker.config).web_hosts
        why = why_refused(headers, names | {self._machine})
        if why is not None:
            return refused(403, why)
        body = b""
        if request.method == "POST":
            if (request.content_length or 0) > BODY_BYTES_MAX:
                return refused(413, f"a request may have {BODY_BYTES_MAX} bytes")
            body = await _body(request)
            if len(body) > BODY_BYTES_MAX:
                return refused(413, f"a request may have {BODY_BYTES_MAX} bytes")
        asked = Asked(query=dict(request.query), accept=given.get("Accept", ""), body=body)
        return await routes.answer(self._view, request.method, request.rel_url.raw_path, asked)


async def _body(request: web.BaseRequest) -> bytes:
    """At most a little more than is allowed."""
    found = bytearray()
    while len(found) <= BODY_BYTES_MAX and (chunk := await request.content.readany()):
        found += chunk
    return bytes(found)


class _Connections(web.Server):
    """The connections, and until when each must have begun a request."""

    def __init__(self, answer: Any, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            answer, handler_cancellation=True, loop=loop, access_log=None, logger=_complaints(loop),
            keepalive_timeout=IDLE_S, lingering_time=LINGER_S, max_line_size=LINE_BYTES_MAX,
            max_headers=HEADERS_MAX, max_field_size=HEADER_BYTES_MAX, read_bufsize=BODY_BYTES_MAX,
            auto_decompress=False,  # no client has to, and a little may become much
        )  # fmt: skip
        self._open: dict[web.RequestHandler, tuple[asyncio.Transport, float]] = {}

    def __call__(self) -> web.RequestHandler:
        """What reads a new connection."""
        return _Reader(self, loop=self._loop, **self._kwargs)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        """If there are too many, the one that has been without a new request for longest makes room: whoever
        holds many connections must not keep a probe out, lest a supervisor ends a broker that works.
        """
        super().connection_made(handler, transport)
        if len(self._open) >= CONNECTIONS_MAX:
            oldest = min(self._open, key=lambda each: self._open[each][1])
            self._open.pop(oldest)[0].abort()
        self._open[handler] = transport, self._loop.time() + CONNECTION_S

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Make room for another."""
        super().connection_lost(handler, exc)
        self._open.pop(handler, None)

    def began(self, handler: web.RequestHandler) -> None:
        """A request has come on this connection."""
        assert isinstance(handler, _Reader), "made here"
        known = self._open.get(handler)
        if known is not None and not handler.spilt:
            self._open[handler] = known[0], self._loop.time() + CONNECTION_S
            handler.unread = 0

    def spilt(self, handler: web.RequestHandler) -> None:
        """It has sent more than is kept: it is soon aborted. An answer under way may still leave."""
        known = self._open.get(handler)
        if known is not None:
            known[0].pause_reading()
            self._open[handler] = known[0], min(known[1], self._loop.time() + LINGER_S)

    def expire(self, now: float) -> None:
        """Abort the connections whose time is over."""
        for transport, deadline in list(self._open.values()):
            if now >= deadline:
                transport.abort()


class _Reader(web.RequestHandler):
    """Reads one connection, and keeps no more of it than UNREAD_BYTES_MAX."""

    __slots__ = ("_server", "spilt", "unread")

    def __init__(self, server: _Connections, **options: Any) -> None:
        super().__init__(server, **options)
        self._server = server
        self.unread, self.spilt = 0, False

    def data_received(self, data: bytes) -> None:
        """Bytes have come; no bytes: those that are kept may be parsed."""
        self.unread += len(data)
        self.spilt = self.spilt or self.unread > UNREAD_BYTES_MAX
        if self.spilt and data:
            self._server.spilt(self)
        else:
            super().data_received(data)


def _complaints(loop: asyncio.AbstractEventLoop) -> logging.Logger:
    """Where aiohttp reports requests that failed."""
    told = logging.Logger("strandline.web")
    told.addHandler(_ToOurLog(loop))
    return told


class _ToOurLog(logging.Handler):
    """At most one line a second: clients must not be able to fill the log."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(logging.WARNING)
        self._loop = loop
        self._told_at = -COMPLAINT_INTERVAL_S
        self._times = 0

    def emit(self, record: logging.LogRecord) -> None:
        self._times += 1
        now = self._loop.time()
        if now - self._told_at < COMPLAINT_INTERVAL_S:
            return
        failure = record.exc_info[1] if record.exc_info else None
        is_theirs = failure is None or isinstance(failure, HttpProcessingError)
        why = f"{record.getMessage()}: {failure}" if is_theirs else record.getMessage()
        logger.warning(
            "web_request_failed", why=why, times=self._times, exc_info=None if is_theirs else failure
        )
        self._told_at, self._times = now, 0
