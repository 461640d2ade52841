"""ZkClient, the Protocol for ZooKeeper: reads, one-shot watches, and `multi`, the only way to write.

The real client is `kazoo_client.py`, the simulator has its own; all other code runs unchanged on both.
Every write is conditional: it names the version that it expects, or creates a node that must not exist.
Otherwise a request whose caller gave up could still be carried out later, and undo newer writes.
Left to others: what the paths and documents mean (`znodes.py`).
Why: docs/decisions/0005-registry.md
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from ..base.values import dataclass

TOGETHER_MAX = 200  # nodes in one request: far below ZooKeeper's limit of 1 MiB, and no long wait for others
ANY_VERSION = -1  # allowed in `Check` only, where it means that the node exists


class ZkError(Exception):
    """A request to ZooKeeper failed, or its result is unknown."""


class NoNode(ZkError):
    """The path does not exist."""


class NodeExists(ZkError):
    """The path exists already."""


class BadVersion(ZkError):
    """The node has another version than the write expected."""


class NotEmpty(ZkError):
    """A node with children cannot be deleted."""


class NotReached(ZkError):
    """This operation of a `multi` was good or never tried; another one failed."""


class Unknown(ZkError):
    """No answer came. A write may have been applied, or may still be: re-read before deciding."""


class SessionExpired(Unknown):
    """The session is over. Requests in flight when it ended are unknown, later ones were not sent."""


class ZkUnreachable(ZkError):
    """No session could be opened within the deadline."""


class MultiFailed(ZkError):
    """A `multi` changed nothing; `results` holds one error for each operation, in order."""

    def __init__(self, results: Sequence[ZkError]) -> None:
        self.results = tuple(results)
        super().__init__(", ".join(type(result).__name__ for result in self.results))

    @property
    def culprit(self) -> int:
        """The index of the operation that failed by itself."""
        return next(i for i, result in enumerate(self.results) if not isinstance(result, NotReached))


class Stat(NamedTuple):
    """A node's data version, creation (czxid), and owning session if it is ephemeral (else 0)."""

    version: int
    czxid: int
    owner: int


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node that must not exist; the result is its path (with the number if sequential)."""

    path: str
    data: bytes
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace the data of a node at exactly this version; the result is its new `Stat`."""

    path: str
    data: bytes
    version: int

    def __post_init__(self) -> None:
        assert self.version >= 0, "a write needs an expected version"


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node at exactly this version; the result is None."""

    path: str
    version: int

    def __post_init__(self) -> None:
        assert self.version >= 0, "a delete needs an expected version"


@dataclass(frozen=True, slots=True)
class Check:
    """Apply the other operations only if the node has this version (-1: exists); the result is None."""

    path: str
    version: int


Op: TypeAlias = Create | SetData | Delete | Check
OpResult: TypeAlias = Stat | str | None
Watch: TypeAlias = Callable[[str], None]


class SessionState(Enum):
    """The state of the session. A new session has a new generation; its events never mix with older ones."""

    CONNECTED = "connected"  # also after a reconnection: all watches are gone, re-read and set them again
    SUSPENDED = "suspended"  # no connection; the session may still be alive
    ASSUME_EXPIRED = "assume_expired"  # nothing heard for a session timeout: act as if it had ended
    EXPIRED = "expired"  # ended for certain


class SessionEvent(NamedTuple):
    """A change of the session, with the number of that session (the first one is 1)."""

    state: SessionState
    generation: int


Listener: TypeAlias = Callable[[SessionEvent], None]


class ZkClient(Protocol):
    """A session with ZooKeeper. Callbacks come on the event loop, in order, and must not block.

    A watch fires at most once, with its path, and is lost silently when the connection drops.
    """

    @property
    def session_id(self) -> int:
        """The `Stat.owner` of this session's ephemeral nodes; 0 without a session."""
        ...

    @property
    def generation(self) -> int:
        """Counts the sessions of this object; 0 before the first."""
        ...

    @property
    def connected(self) -> bool:
        """Whether requests are answered at the moment, as far as we know."""
        ...

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with session events; the returned function ends that."""
        ...

    def look(self) -> None:
        """Report ASSUME_EXPIRED at once if nothing was heard for a session timeout.

        For a caller that may have been suspended (SIGSTOP, a hung call) and is about to act on events that
        came meanwhile: no timer has run since.
        """
        ...

    def start(self) -> Awaitable[None]:
        """Open a session, or raise `ZkUnreachable`."""
        ...

    def close(self) -> Awaitable[None]:
        """End the session at once, and with it its ephemeral nodes."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """The data of a node. Raises NoNode (then no watch is set) or Unknown."""
        ...

    async def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        """The data of several nodes, None where there is none; at most `TOGETHER_MAX`. Raises Unknown."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """The stat of a node, or None if there is none; the watch is set in both cases."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> list[str]:
        """The names of the children, sorted. Raises NoNode or Unknown."""
        ...

    async def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """All or nothing, pipelined in order. Raises `MultiFailed` (nothing was changed) or `Unknown`."""
        ...
