"""One request and its answer: what a handler is given, and the row it has in the table.

A handler returns the response (answered at once), or None (parked: somebody calls `exchange.answer`
later), or is an `async def`, for which the server runs a task and holds back the later frames of that
connection. A memoryview inside a request is borrowed from the connection's arena and is valid only while a
plain handler runs; what must live longer is copied.
Left to others: which handler serves what (dispatch.py), in which order answers leave (server.py).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from ..protocol.apis import Api
from ..protocol.connection import frame_response
from ..protocol.errors import ApiError
from ..protocol.primitives import Buffer

if TYPE_CHECKING:
    from .context import Broker

NO_RESPONSE: tuple[Buffer, ...] = ()


@dataclass(frozen=True, slots=True)
class Listener:
    """A named way in, and whether brokers may speak to each other through it."""

    name: str
    internal: bool


class Channel(Protocol):
    """The connection, as seen by an exchange."""

    def answered(self, exchange: "Exchange") -> None:
        """The exchange has its answer; it leaves when all before it have left."""

    def close(self) -> None:
        """End the connection; exchanges without an answer are dropped."""


class Exchange:
    """A request's way back: its connection, the words of its header, and its answer once there is one."""

    __slots__ = ("api", "channel", "client_id", "correlation_id", "listener", "parts", "version")

    def __init__(
        self,
        channel: Channel,
        listener: Listener,
        api: Api,
        version: int,
        correlation_id: int,
        client_id: str | None,
    ) -> None:
        self.channel = channel
        self.listener = listener
        self.api = api
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.parts: Sequence[Buffer] | None = None

    @property
    def internal(self) -> bool:
        """Whether it came in through the listener on which brokers speak to each other."""
        return self.listener.internal

    def answer(self, response: Any) -> None:
        """Encode `response` and put it in its place; it leaves at the end of this turn of the loop."""
        assert self.parts is None, "an exchange is answered once"
        self.parts = frame_response(self.api, self.version, self.correlation_id, response)
        self.channel.answered(self)

    def skip(self) -> None:
        """There is no response to this one (acks=0)."""
        assert self.parts is None, "an exchange is answered once"
        self.parts = NO_RESPONSE
        self.channel.answered(self)

    def close(self) -> None:
        """End the connection instead of an answer."""
        self.channel.close()


Handler = Callable[["Broker", Exchange, Any], Any]
Refuse = Callable[[Any, ApiError], Any]


@dataclass(frozen=True, slots=True)
class HandlerEntry:
    """A row of the table: who handles a request, and how it is refused when an ApiError is raised."""

    handle: Handler
    refuse: Refuse
