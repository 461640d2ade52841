"""A node below /admin in which somebody asks for something, as old tools do: read, answered, and removed.

The controller alone watches it. Whoever writes it meanwhile is not overlooked: what was read is removed or
replaced in the version in which it was read, else it is time to look again.
Left to others: what is asked for (elections.py, znode_reassignments.py).
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
    """What stands in the node; no document if it cannot be understood."""

    document: N | None
    version: int


class RequestNode(Generic[N]):
    """One such node; `due` is set when it is time to look at it."""

    def __init__(
        self, registry: ZkClient, reign: ControllerTerm, path: str, kind: type[N], due: asyncio.Event
    ) -> None:
        self._registry = registry
        self._reign = reign
        self._path = path
        self._kind = kind
        self._due = due
        self._watches = Watches(lambda _: due.set())

    def reconnected(self) -> None:
        """Look again, with a new watch."""
        self._watches.forget()
        self._due.set()

    async def read(self) -> Found[N] | None:
        """What stands there; None if there is no such node."""
        if await self._watches.arm(self._path, self._registry.exists) is None:
            return None
        try:
            data, stat = await self._registry.get(self._path)
        except NoNode:
            self._due.set()
            return None
        try:
            return Found(documents.parse(self._kind, data), stat.version)
        except documents.BadDocument as bad:
            logger.error("bad_document", path=self._path, reason=str(bad))
            return Found(None, stat.version)

    async def remove(self, version: int) -> None:
        """All is done that was asked for in this version."""
        await self._write(Delete(self._path, version))

    async def replace(self, document: N, version: int) -> None:
        """So much is left of what was asked for in this version."""
        await self._write(SetData(self._path, document.data(), version))

    async def _write(self, op: Op) -> None:
        try:
            await fenced(self._registry, self._reign, [op])
        except MultiFailed:  # somebody has asked for something else meanwhile
            self._due.set()
