"""One request and its answer: what a handler gets, and its row in the table of handlers.

A handler returns the response (answered at once) or None (parked: `exchange.answer` is called later). Or it
is an `async def`: then it runs in a task, and later frames of that connection wait. A memoryview inside a
request is borrowed from the connection's arena and valid only while a plain handler runs: copy what must live
longer.
Left to others: which handler serves what (handlers/table.py), in which order answers leave (connection.py).
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from ...base.values import dataclass
from ...protocol.apis import Api
from ...protocol.connection import frame_response
from ...protocol.errors import ApiError
from ...protocol.primitives import Buffer

Place: TypeAlias = tuple[str, int]  # topic and partition of a produce request
Recoded: TypeAlias = dict[Place, memoryview | ApiError]

NO_RESPONSE: tuple[Buffer, ...] = ()
HELD_S_MAX = 0.5
NEVER = float("-inf")


class Held(Exception):
    """Raised by a plain handler that has done nothing yet: execute this request again when `until` is done.

    Its partition is changing roles, or something it needs is not there yet. Meanwhile the connection executes
    and reads nothing: requests keep their order, and what the request borrows from the arena stays valid.
    """

    def __init__(self, until: "asyncio.Future[Any]", ends_by_itself: bool = False) -> None:
        """After HELD_S_MAX the request is executed anyway, unless `until` surely `ends_by_itself`."""
        super().__init__()
        self.until = until
        self.ends_by_itself = ends_by_itself


@dataclass(frozen=True, slots=True)
class Listener:
    """A listener's name, and whether it is the one between brokers."""

    name: str
    internal: bool


class Channel(Protocol):
    """The connection, as seen by an exchange."""

    asked_at: float  # when it last asked who leads or coordinates, by the loop's clock
    at_end: Callable[[], None]  # called once it is lost
    closed: bool  # nobody hears an answer any more

    def answered(self, exchange: "Exchange") -> None:
        """The exchange has its answer; it leaves when all before it have left."""

    def close(self) -> None:
        """End the connection; exchanges without an answer are dropped."""


class Timed(Protocol):
    """The times of an exchange (timings.py)."""

    def answered(self) -> None:
        """It has its answer."""

    def left(self, exchange: "Exchange") -> None:
        """The answer is handed to the system."""


class Exchange:
    """A request's way back: its connection, the fields of its header, and its answer once there is one."""

    __slots__ = (
        "api", "channel", "client_id", "correlation_id", "is_follower", "listener", "parts", "recoded",
        "times", "verified", "version", "was_held",
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
        self.is_follower = False  # whether it is a fetch of a follower
        self.was_held = False  # for a change of roles; it is not held for one a second time
        self.times: Timed | None = None  # if it is in the sample
        self.recoded: Recoded | None = None  # batches in their topic's codec
        self.verified: Mapping[Place, Any] | None = None  # what coordinators have said of transactions

    @property
    def internal(self) -> bool:
        """Whether it came in through the listener between brokers."""
        return self.listener.internal

    @property
    def is_heard(self) -> bool:
        """Whether the connection is still there to take an answer."""
        return not self.channel.closed

    def answer(self, response: Any) -> None:
        """Encode `response`. It leaves at the end of this turn of the loop, after the answers before it."""
        assert self.parts is None, "a request is answered once"
        self.parts = frame_response(self.api, self.version, self.correlation_id, response)
        self.channel.answered(self)

    def skip(self) -> None:
        """This request gets no response (acks=0)."""
        assert self.parts is None, "a request is answered once"
        self.parts = NO_RESPONSE
        self.channel.answered(self)

    def close(self) -> None:
        """Close the connection instead of answering."""
        self.channel.close()


Context = TypeVar("Context")  # what handlers work on: the network hands it on, and does not look into it
Handler = Callable[[Context, Exchange, Any], Any]
Refuse = Callable[[Any, ApiError], Any]


@dataclass(frozen=True, slots=True)
class HandlerEntry(Generic[Context]):
    """A row of the table: what handles a request, and what makes the response when an ApiError is raised."""

    handle: Handler[Context]
    refuse: Refuse
