"""One request and its answer: what a handler is given, and the row it has in the table.

A handler returns the response (answered at once), or None (parked: somebody calls `exchange.answer`
later), or is an `async def`, for which the server runs a task and holds back the later frames of that
connection. A memoryview inside a request is borrowed from the connection's arena and is valid only while a
plain handler runs; what must live longer is copied.
Left to others: which handler serves what (handlers/table.py), in which order answers leave (server.py).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ...base.values import dataclass
from ...protocol.apis import Api
from ...protocol.connection import frame_response
from ...protocol.errors import ApiError
from ...protocol.primitives import Buffer

if TYPE_CHECKING:
    from ..context import BrokerContext
    from ..replicas.recompression import Recoded

NO_RESPONSE: tuple[Buffer, ...] = ()
HELD_S_MAX = 0.5
NEVER = float("-inf")


class Held(Exception):
    """A request comes while what it asks for is changing, or before what it needs is there: it is executed
    again when `until` is done.

    Raised by a plain handler that has done nothing yet. The connection executes and reads nothing meanwhile,
    so that the order of requests is kept, and what the request borrows from the arena stays valid.
    """

    def __init__(self, until: "asyncio.Future[Any]", ends_by_itself: bool = False) -> None:
        """After HELD_S_MAX it is executed as things are, unless what it waits for `ends_by_itself`."""
        super().__init__()
        self.until = until
        self.ends_by_itself = ends_by_itself


@dataclass(frozen=True, slots=True)
class Listener:
    """A named way in, and whether brokers may speak to each other through it."""

    name: str
    internal: bool


class Channel(Protocol):
    """The connection, as seen by an exchange."""

    asked_at: float  # who leads, or coordinates; by the clock of the loop

    def answered(self, exchange: "Exchange") -> None:
        """The exchange has its answer; it leaves when all before it have left."""

    def close(self) -> None:
        """End the connection; exchanges without an answer are dropped."""


class Exchange:
    """A request's way back: its connection, the words of its header, and its answer once there is one."""

    __slots__ = (
        "api", "channel", "client_id", "correlation_id", "listener", "parts", "recoded", "version",
        "was_held",
    )  # fmt: skip

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
        self.was_held = False  # for a change of roles; a second time it is not
        self.recoded: Recoded | None = None  # batches in their topic's codec

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


Handler = Callable[["BrokerContext", Exchange, Any], Any]
Refuse = Callable[[Any, ApiError], Any]


@dataclass(frozen=True, slots=True)
class HandlerEntry:
    """A row of the table: who handles a request, and how it is refused when an ApiError is raised."""

    handle: Handler
    refuse: Refuse
