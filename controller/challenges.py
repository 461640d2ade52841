"""Challenges: is a broker alive that we cannot reach? ZooKeeper carries the question and the answer.

One broken path proves nothing about a broker: one that is cut off from its peers would count all of them as
dead. So before a broker counts as dead it is challenged. The challenger writes a nonce into
`/strandline/challenges/N`, which broker N watches; a living broker writes it back within some milliseconds.
The answer comes from the broker's event loop, which also serves its clients. Each write names the version
that it expects, so a late or repeated write changes nothing. Several may ask at once and wait for one answer.
A broker that does not know challenges has no such node, or one of another incarnation: nothing is learned.
Left to others: when to ask, and what follows (failure_detector.py).
Why: docs/decisions/0006-proof-of-death.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import NamedTuple

import structlog

from ..base.event import Event
from ..base.tasks import Tasks
from ..zookeeper import documents
from ..zookeeper.client import (
    Check,
    Create,
    MultiFailed,
    NoNode,
    Op,
    SessionEvent,
    SessionState,
    SetData,
    Watch,
    ZkClient,
    ZkError,
)
from ..zookeeper.znodes import create_if_absent
from .watches import Watches

logger = structlog.get_logger(__name__)

RETRY_S = 0.1
AGAIN_S = 0.01  # a lagging server may not show another client's write yet


class Word(Enum):
    """What ZooKeeper says of a broker that was challenged."""

    ALIVE = "alive"  # it has answered
    SILENT = "silent"  # it was asked, and has not answered in time
    UNKNOWN = "unknown"  # this incarnation does not know challenges: nothing is learned
    UNHEARD = "unheard"  # ZooKeeper itself did not answer


class _Standing(NamedTuple):
    """The node of a broker as it was read."""

    document: documents.ChallengeDocument
    version: int


class Challenger:
    """Challenges brokers, in the name of one session."""

    def __init__(self, zk: ZkClient) -> None:
        self._zk = zk

    async def ask(self, broker: int, incarnation: int, patience_s: float) -> Word:
        """Challenge this incarnation of a broker. It has `patience_s`, once ZooKeeper has the question.

        At most two writes: the question, and a check before silence is believed. ZooKeeper's leader makes the
        check: it never lags, and orders the check after an answer that has reached it.
        """
        loop, path = asyncio.get_running_loop(), documents.challenge_path(broker)
        try:
            asked = await self._put(path, incarnation)
            deadline = loop.time() + patience_s
            changed = asyncio.Event()
            while True:
                changed.clear()
                is_late = loop.time() >= deadline
                if is_late and await self._stands(path, asked):
                    return Word.SILENT
                _, version = await self._read(path, incarnation, lambda _: changed.set())
                if version != asked:
                    return (
                        Word.ALIVE
                    )  # while a question is open, only the broker writes the node or makes it again
                if is_late:
                    await asyncio.sleep(AGAIN_S)  # we read from a server that lags
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(deadline):
                        await changed.wait()
        except (_UnknownStart, NoNode, documents.BadDocument):
            return Word.UNKNOWN
        except ZkError as error:
            logger.info("challenge_interrupted", broker=broker, reason=repr(error))
            return Word.UNHEARD

    async def _put(self, path: str, incarnation: int) -> int:
        """Write the question, unless another one is open. Returns the version of the open one."""
        while True:
            document, version = await self._read(path, incarnation)
            if document.is_open:
                return version
            question = document.model_copy(update={"asked": f"{self._zk.session_id:x}-{version + 1}"})
            try:
                await self._zk.multi([SetData(path, question.data(), version)])
            except MultiFailed:  # somebody else has asked, or the broker has registered again
                await asyncio.sleep(AGAIN_S)
            else:
                return version + 1

    async def _read(self, path: str, incarnation: int, watch: Watch | None = None) -> _Standing:
        data, stat = await self._zk.get(path, watch)
        document = documents.parse(documents.ChallengeDocument, data)
        if document.incarnation != incarnation:
            raise _UnknownStart()
        return _Standing(document, stat.version)

    async def _stands(self, path: str, version: int) -> bool:
        try:
            await self._zk.multi([Check(path, version)])
        except MultiFailed:
            return False
        return True


class _UnknownStart(Exception):
    """The node was made by another incarnation of the broker."""


class Respondent:
    """Answers challenges to this broker, for as long as it serves."""

    def __init__(self, zk: ZkClient, broker: int, fail: Callable[[BaseException], None]) -> None:
        self._zk = zk
        self._path = documents.challenge_path(broker)
        self.on_answered = Event[[]]()
        self._incarnation: int | None = None
        self._due = asyncio.Event()
        self._watches = Watches(lambda _: self._due.set())
        self._tasks = Tasks("challenges", fail)
        self._stop_listening = zk.listen(self._session_changed)
        self._tasks.spawn(self._run(), "respondent")

    async def begin(self, incarnation: int) -> None:
        """Answer as this incarnation from now on, which is about to be registered. Raises ZkError."""
        await self._make_node(incarnation, lambda: True)
        self._incarnation = incarnation
        self._due.set()

    async def _make_node(self, incarnation: int, is_due: Callable[[], bool]) -> None:
        ready = documents.ChallengeDocument(incarnation=incarnation)
        while is_due():
            stat = await self._zk.exists(self._path)
            if stat is None:
                for parent in (documents.STRANDLINE, documents.CHALLENGES):
                    await create_if_absent(self._zk, parent, b"")
            op: Op = Create(self._path, ready.data())
            if stat is not None:
                op = SetData(self._path, ready.data(), stat.version)
            try:
                await self._zk.multi([op])
            except MultiFailed:  # somebody asks at this moment
                await asyncio.sleep(AGAIN_S)
            else:
                break

    async def stop(self) -> None:
        """Answer no more challenges: from now on this broker counts as silent."""
        self._incarnation = None
        self._stop_listening()
        await self._tasks.stop()

    def _session_changed(self, event: SessionEvent) -> None:
        """A new connection has no watch yet: set it again."""
        if event.state is SessionState.CONNECTED:
            self._watches.forget()
            self._due.set()

    async def _run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            if self._incarnation is None or not self._zk.connected:
                continue
            try:
                await self._look(self._incarnation)
            except ZkError as error:
                logger.info("challenge_read_failed", reason=repr(error))
                self._due.set()
                await asyncio.sleep(RETRY_S)

    async def _look(self, incarnation: int) -> None:
        try:
            data, stat = await self._watches.arm(self._path, self._zk.get)
            document = documents.parse(documents.ChallengeDocument, data)
        except (NoNode, documents.BadDocument) as error:  # somebody has removed or spoilt it
            logger.warning("challenge_node_recreated", reason=repr(error))
            await self._make_node(incarnation, lambda: self._incarnation == incarnation)
            self._due.set()
            return
        if document.incarnation == incarnation and document.is_open:
            with suppress(MultiFailed):  # it has been written meanwhile, which the watch tells
                await self._zk.multi([SetData(self._path, document.closed().data(), stat.version)])
                logger.info("challenge_answered", nonce=document.asked)
                self.on_answered()
