"""A port whose connections can all be cut, also one that was accepted a moment ago, and what comes to it."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from strandline.protocol.apis import APIS, Api
from strandline.protocol.connection import RequestHead, parse_head
from strandline.protocol.schema import decode

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """A port of 127.0.0.1. `serve` has a connection until it returns, or until `cut` or `close`.

    It knows a connection from its first moment: what `asyncio.start_server` gives a coroutine function is
    known to nobody until that coroutine first runs, and stays open for good if the loop ends before.
    """

    def __init__(self, serve: Serve) -> None:
        self.port = 0
        self._serve = serve
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}
        self._closing = WeakSet[asyncio.StreamWriter]()  # until all is sent, which nobody may ever read

    async def listen(self, port: int = 0) -> int:
        """Serve this port, or any free one; it is the one that is served after a `close`, too."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", port or self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self.port

    def cut(self) -> None:
        """All connections end."""
        for writer in [*self._open, *self._closing]:
            writer.transport.abort()

    def close(self) -> None:
        """Nobody gets through any more, and all connections end."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.cut()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._server is None:
            writer.transport.abort()
        else:
            self._open[writer] = asyncio.ensure_future(self._run(reader, writer))

    async def _run(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._serve(reader, writer)
        finally:
            del self._open[writer]
            self._closing.add(writer)
            writer.close()


async def read_request(reader: asyncio.StreamReader) -> tuple[RequestHead, Any]:
    """The next request, as a broker gets it."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    frame = memoryview(await reader.readexactly(size))
    head = parse_head(frame)
    request, _ = decode(APIS[Api(head.api_key)].request, head.version, frame, head.body_at)
    return head, request
