"""A port whose connections can all be cut, also one that was accepted a moment ago, and what comes to it."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from strandline.protocol.apis import APIS, Api
from strandline.protocol.connection import RequestHead, parse_head
from strandline.protocol.schema import decode

BACKLOG = 128

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """A port of 127.0.0.1. `serve` has a connection until it returns, or until `cut` or `close`.

    It accepts by itself. What `asyncio.start_server` has accepted is known to nobody at first, and stays open
    for good if the server is closed in that moment: `Server._attach` fails, and nobody closes the transport.
    """

    def __init__(self, serve: Serve) -> None:
        self.port = 0
        self._serve = serve
        self._socket: socket.socket | None = None
        self._cuts = 0
        self._running = set[asyncio.Task[None]]()
        self._open = set[asyncio.StreamWriter]()
        self._closing = WeakSet[asyncio.StreamWriter]()  # until all is sent, which nobody may ever read

    async def listen(self, port: int = 0) -> int:
        """Serve this port, or any free one; it is the one that is served after a `close`, too."""
        self._socket = socket.create_server(("127.0.0.1", port or self.port), backlog=BACKLOG)
        self._socket.setblocking(False)
        self.port = self._socket.getsockname()[1]
        asyncio.get_running_loop().add_reader(self._socket, self._accept, self._socket)
        return self.port

    def cut(self) -> None:
        """All connections end, also those that have just been accepted."""
        self._cuts += 1
        for writer in [*self._open, *self._closing]:
            writer.transport.abort()

    def close(self) -> None:
        """Nobody gets through any more, and all connections end."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
        self.cut()

    def _accept(self, listening: socket.socket) -> None:
        with suppress(BlockingIOError, ConnectionAbortedError):
            for _ in range(BACKLOG):
                connection, _ = listening.accept()
                connection.setblocking(False)
                running = asyncio.ensure_future(self._run(connection, self._cuts))
                self._running.add(running)
                running.add_done_callback(self._running.discard)

    async def _run(self, connection: socket.socket, cuts: int) -> None:
        try:
            reader, writer = await asyncio.open_connection(sock=connection)
        except OSError:  # it has ended already
            connection.close()
            return
        self._open.add(writer)
        try:
            if cuts != self._cuts:
                writer.transport.abort()
                return
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            self._open.discard(writer)
            self._closing.add(writer)
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> tuple[RequestHead, Any]:
    """The next request, as a broker gets it."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    frame = memoryview(await reader.readexactly(size))
    head = parse_head(frame)
    request, _ = decode(APIS[Api(head.api_key)].request, head.version, frame, head.body_at)
    return head, request
