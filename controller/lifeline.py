"""A connection kept open only to notice that its far end has died.

When it ends, it is opened again at once, and then every 100 ms. If that does not succeed within 300 ms,
for whatever reason, the peer counts as dead; a peer that is merely silent, its connection open, does not.
A peer that this process never heard of, not even as a refusal, may be merely out of its reach:
`is_proved` tells that from a death. Nor does one count whose answer this process was too busy to look at.
Left to others: what a death means (`announcer.py`, `service.py`), requests on the connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ..client.connection import Connection
from .orders import VERSIONS

STALL_S = 0.02  # a deadline that is served later than this was not served: this loop stood still


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a peer may be away."""

    suspect_after_s: float = 0.3
    retry_every_s: float = 0.1
    retry_every_s_max: float = 1.0  # once it counts as dead
    answer_within_s: float = 30.0


class Lifeline:
    """Keeps one connection. `run` is a task of the owner.

    `on_dead` is called once per absence, and again if it is proved only later.
    """

    def __init__(
        self, place: tuple[str, int], patience: Patience, on_dead: Callable[[], None], *, dead: bool = False
    ) -> None:
        self._place = place
        self._patience = patience
        self._on_dead = on_dead
        self.is_dead = dead
        self.is_proved = False  # the peer was there, or its host said that it is not
        self._opened_at = float("-inf")

    async def open(self) -> Connection:
        """A new connection, however long it takes."""
        loop = asyncio.get_running_loop()
        patience = self._patience
        pause_s = patience.retry_every_s
        verdict_at = loop.time() + patience.suspect_after_s
        await _sleep_until(self._opened_at + pause_s)  # a peer that closes every connection at once
        while True:
            attempt_at = loop.time()
            limit = attempt_at + 1.0 if self.is_dead else verdict_at
            try:
                connection = await Connection.open(
                    *self._place, client_id="controller", deadline=limit, versions=VERSIONS
                )
            except OSError as error:
                if isinstance(error, ConnectionRefusedError) and not self.is_proved:
                    self.is_proved = True
                    if self.is_dead:
                        self._on_dead()
                if isinstance(error, TimeoutError) and loop.time() > limit + STALL_S:
                    verdict_at = loop.time() + patience.suspect_after_s
                elif not self.is_dead and loop.time() + pause_s / 2 >= verdict_at:
                    await _sleep_until(verdict_at)
                    self.is_dead = True
                    self._on_dead()
            else:
                self._opened_at = loop.time()
                self.is_proved = True
                return connection
            if self.is_dead:
                pause_s = min(pause_s * 1.5, patience.retry_every_s_max)
            await _sleep_until(attempt_at + pause_s)

    async def run(self) -> None:
        """Keep the connection; nothing is sent on it."""
        while True:
            connection = await self.open()
            self.is_dead = False
            try:
                await asyncio.shield(connection.closed)
            finally:
                await connection.close()


async def _sleep_until(when: float) -> None:
    await asyncio.sleep(max(0.0, when - asyncio.get_running_loop().time()))
