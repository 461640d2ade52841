"""A znode below /admin that holds a request, as old tools write it: read, carried out, and removed.

Only the controller watches it. It removes or replaces the znode in the version that it read. If another
client has written it meanwhile, that fails and the controller looks again.
Left to others: what is asked for (election_requests.py, znode_reassignments.py).
"""

from __future__ import annotations

import asyncio
from typing import Generic, NamedTuple, TypeVar

import structlog

from ...zookeeper import documents
from ...zookeeper.client import Delete, MultiFailed, NoNode, Op, SetData, ZkClient
from ...zookeeper.znodes import ControllerTerm, fenced
from ..watches import Watches

logger = structlog.get_logger(__name__)

N = TypeVar("N", bound=documents.Document)


class Found(NamedTuple, Generic[N]):
    """What the znode holds; no document if it cannot be parsed."""

    document: N | None
    version: int


class RequestNode(Generic[N]):
    """One such znode. `due` is set when it is time to look at it."""

    def __init__(
        self, zk: ZkClient, term: ControllerTerm, path: str, kind: type[N], due: asyncio.Event
    ) -> None:
        self._zk = zk
        self._term = term
        self._path = path
        self._kind = kind
        self._due = due
        self._watches = Watches(lambda _: due.set())

    def reconnected(self) -> None:
        """Look again, with a new watch."""
        self._watches.forget()
        self._due.set()

    async def read(self) -> Found[N] | None:
        """What the znode holds; None if there is none."""
        if await self._watches.arm(self._path, self._zk.exists) is None:
            return None
        try:
            data, stat = await self._zk.get(self._path)
        except NoNode:
            self._due.set()
            return None
        try:
            return Found(documents.parse(self._kind, data), stat.version)
        except documents.BadDocument as bad:
            logger.error("znode_malformed", path=self._path, reason=str(bad))
            return Found(None, stat.version)

    async def remove(self, version: int) -> None:
        """Remove the znode: everything asked for in this version is done."""
        await self._write(Delete(self._path, version))

    async def replace(self, document: N, version: int) -> None:
        """Write what is left of the request in this version."""
        await self._write(SetData(self._path, document.data(), version))

    async def _write(self, op: Op) -> None:
        try:
            await fenced(self._zk, self._term, [op])
        except MultiFailed:  # the request has changed meanwhile
            self._due.set()
