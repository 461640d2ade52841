"""Detects that a peer has died: its connection breaks, and it does not answer through ZooKeeper either.

When the connection ends it is opened again at once, and then every 100 ms. At the same time the peer is
challenged through ZooKeeper (`challenges.py`). Without a connection, for whatever reason, and without an
answer for 300 ms it counts as dead. 100 ms are enough if the port that we were connected to refuses: then
only the answer has to come, for which a living broker needs some milliseconds.
If it answers, it lives, and only the path to it is broken. It is asked again now and then, since an answer is
true only for its moment. So is silence: otherwise a broker that paused while the path broke would count as
dead until the path is repaired. If ZooKeeper cannot tell, there is no verdict, and the session decides. A
peer whose connection is open is not judged for being silent, until it leaves a request unanswered.
Left to others: what a death means (`broker_channels.py`, `controller.py`), requests on the connection.
Why: docs/decisions/0006-proof-of-death.md
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum

from ..base.values import dataclass
from ..client.network.connection import Connection
from .challenges import Word
from .control_requests import VERSIONS

UNHURRIED_S = 0.02  # how long a first attempt may take before the peer is challenged
ATTEMPT_S_MAX = 1.0  # of one attempt, once the first has failed
ASK_AGAIN_S = 5.0  # before a peer is challenged again, once ZooKeeper has told what it knows

NEVER = float("-inf")

Ask = Callable[[float], Awaitable[Word]]


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a peer may be away."""

    suspect_after_s: float = 0.3  # without a connection, and without an answer to a challenge
    refused_after_s: float = 0.1  # the same, if a port that we were connected to now refuses
    retry_every_s: float = 0.1
    retry_every_s_max: float = 1.0  # once something is known of it
    answer_within_s: float = 30.0
    hear_within_s: float = 10.0  # for a request; a broker that takes longer is out of reach until it answers


class Standing(Enum):
    """What is known of a peer."""

    AWAY = "away"  # no connection yet, and no verdict
    REACHED = "reached"
    CUT = "cut"  # it answers through ZooKeeper, but cannot be reached
    DEAD = "dead"


class FailureDetector:
    """Keeps one connection. The owner runs `run` as a task.

    `ask` challenges the peer, with the patience in seconds. `changed` is called at each change of `standing`,
    also when a peer that counted as dead is heard of again.
    """

    def __init__(
        self,
        place: tuple[str, int],
        patience: Patience,
        ask: Ask,
        changed: Callable[[], None],
        *,
        dead: bool = False,
    ) -> None:
        self.standing = Standing.DEAD if dead else Standing.AWAY
        self._place = place
        self._patience = patience
        self._ask = ask
        self._changed = changed
        self._opened_at = NEVER
        self._refused = False  # by a port that we were connected to
        self._failed = asyncio.Event()  # an attempt to connect has failed
        self._word = asyncio.Event()  # a challenge has ended

    @property
    def is_dead(self) -> bool:
        """Whether it counts as dead until it is heard of again."""
        return self.standing is Standing.DEAD

    def now(self, standing: Standing) -> None:
        """Set what is known of the peer from now on."""
        if standing is not self.standing:
            self.standing = standing
            self._changed()

    async def open(self, *, doubtful: bool = False) -> Connection:
        """Open a connection, however long it takes. If the peer is `doubtful`, that alone proves nothing.

        Afterwards `standing` is DEAD if the peer counted as dead, else REACHED.
        """
        await _sleep_until(self._opened_at + self._patience.retry_every_s)  # if it always closes at once
        self._refused = False
        self._failed.clear()
        self._word.clear()
        connection: Connection | None = None
        try:
            async with asyncio.TaskGroup() as group:
                trial = group.create_task(self._try(doubtful))
                connection = await self._connect()
                if doubtful and not self.is_dead:
                    await self._word.wait()
                trial.cancel()
        except BaseException:
            if connection is not None:
                await connection.close()
            raise
        self._opened_at = asyncio.get_running_loop().time()
        if not self.is_dead:
            self.now(Standing.REACHED)
        return connection

    async def run(self) -> None:
        """Keep the connection; nothing is sent on it."""
        while True:
            connection = await self.open()
            self.now(Standing.REACHED)
            try:
                await asyncio.shield(connection.closed)
                self.now(Standing.AWAY)
            finally:
                await connection.close()

    async def _connect(self) -> Connection:
        loop, patience = asyncio.get_running_loop(), self._patience
        pause_s, limit_s = patience.retry_every_s, patience.suspect_after_s
        while True:
            attempt_at = loop.time()
            try:
                return await Connection.open(
                    *self._place, client_id="controller", deadline=attempt_at + limit_s, versions=VERSIONS
                )
            except OSError as error:
                self._refused = isinstance(error, ConnectionRefusedError) and self._opened_at > NEVER
                self._failed.set()
            limit_s = ATTEMPT_S_MAX
            if self.standing is not Standing.AWAY:
                pause_s = min(pause_s * 1.5, patience.retry_every_s_max)
            in_haste = self._refused and self.standing is Standing.AWAY
            await _sleep_until(attempt_at + (patience.refused_after_s / 3 if in_haste else pause_s))

    async def _try(self, doubtful: bool) -> None:
        """Challenge the peer again and again until the connection is there: silence is not final, either."""
        if self.is_dead:
            await asyncio.sleep(ASK_AGAIN_S)
        elif not doubtful:
            with suppress(TimeoutError):
                async with asyncio.timeout(UNHURRIED_S):
                    await self._failed.wait()
        while True:
            patience = self._patience
            word = await self._ask(patience.refused_after_s if self._refused else patience.suspect_after_s)
            if word is Word.SILENT:
                self.now(Standing.DEAD)
            elif word is Word.ALIVE:
                self.now(Standing.CUT)
            self._word.set()
            await asyncio.sleep(self._patience.retry_every_s if word is Word.UNHEARD else ASK_AGAIN_S)


async def _sleep_until(when: float) -> None:
    await asyncio.sleep(max(0.0, when - asyncio.get_running_loop().time()))
