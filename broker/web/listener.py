"""WebListener: the HTTP port of a broker. Bound early, so that a port in use ends the start at once; served
as soon as the HTTP library is loaded, while logs are still being recovered.

The library takes a third of a second and ten megabytes, so it is loaded in a thread, and only if there is an
HTTP port. Left to others: requests (server.py), which routes there are (routes.py).
"""

import asyncio
import errno
import importlib.util
from functools import partial
from typing import TYPE_CHECKING

import structlog

from ...base.tasks import Tasks
from ..config.addresses import ListenerAddress
from ..config.broker import BrokerConfig
from ..errors import StartFailed
from .view import View

if TYPE_CHECKING:
    from .server import WebServer

logger = structlog.get_logger(__name__)

OPTION = "strandline.web.listener"
BACKLOG = 32


class WebListener:
    """The HTTP port of one broker. Without the option, every call does nothing."""

    def __init__(self, config: BrokerConfig) -> None:
        self.view = View(config)
        self.place: tuple[str, int] | None = None  # that is bound
        self._tasks = Tasks("web")
        self._listening: asyncio.Server | None = None
        self._server: WebServer | None = None
        self._loading: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Bind the port, and begin to load the server. Raises StartFailed."""
        endpoint = self.view.config.web_endpoint
        if endpoint is None:
            return
        for package in ("aiohttp", "prometheus_client"):
            if importlib.util.find_spec(package) is None:
                raise StartFailed(f"{OPTION} needs {package}: pip install aiohttp prometheus-client")
        loop = asyncio.get_running_loop()
        try:
            self._listening = await loop.create_server(
                self._protocol, endpoint.host, endpoint.port, backlog=BACKLOG, start_serving=False
            )
            port: int = self._listening.sockets[0].getsockname()[1]
        except OSError as error:
            raise StartFailed(_why_not_bound(endpoint, error)) from error
        self.place = endpoint.host, endpoint.port or port
        self._loading = self._tasks.spawn(self._serve(endpoint), "load")

    async def opened(self) -> None:
        """Return when requests are answered."""
        if self._loading is not None:
            try:
                await self._loading
            except StartFailed as error:
                self._tasks.forgive(error)
                raise

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._listening is not None:
            self._listening.close()
        await self._tasks.stop()
        if self._server is not None:
            await self._server.stop()

    async def _serve(self, endpoint: ListenerAddress) -> None:
        loop = asyncio.get_running_loop()
        load = partial(importlib.import_module, ".server", __package__)
        module = await loop.run_in_executor(None, load)
        self._server = module.WebServer(self.view)
        assert self._listening is not None, "bound by open()"
        try:
            await self._listening.start_serving()
        except OSError as error:
            raise StartFailed(_why_not_bound(endpoint, error)) from error
        logger.info("web_listening", place=self.place)

    def _protocol(self) -> asyncio.Protocol:
        assert self._server is not None, "nothing is accepted before start_serving()"
        protocol: asyncio.Protocol = self._server.protocol()
        return protocol


def _why_not_bound(endpoint: ListenerAddress, error: OSError) -> str:
    place = f"{endpoint.host}:{endpoint.port}"
    if error.errno == errno.EADDRINUSE:
        return f"{OPTION}: {place} is in use by another process: stop it, or change the port"
    return f"{OPTION}: cannot listen on {place} ({error.strerror or error})"
