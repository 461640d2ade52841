"""A controller that cannot reach most of the living, and how long it leaves its seat alone after that.

Those who answer challenges (`challenges.py`) live, whether or not a connection leads to them. If for a second
at least half of the living, this broker counted among them, cannot be reached from here, others are better
placed to rule: their orders would arrive. Until that second is over it moves no leadership away from whoever
it does not reach: one that is isolated would take it all to itself. Whoever gives the seat up for that does
not stand again for a session timeout, unless the seat stays empty: then nobody is better placed, and whoever
takes it so keeps it for a session timeout before it doubts again, or the seat would go round.
So does one whose reign has failed in a way that nobody foresaw.
Left to others: who is reached (`broker_channels.py`), giving the seat up (`controller.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import field

from ..base.values import dataclass

DOUBTED_S = 1.0  # how long they must be out of reach
EMPTY_S = 2.0  # how long the seat must be empty, for one who has doubted


class Doubt:
    """Of one reign. `doubts` is called once, with the reason; not before `from_s` (loop time).

    `wavers` hears when it looks like that, and when it does not any more.
    """

    def __init__(
        self,
        doubts: Callable[[str], None],
        wavers: Callable[[bool], None],
        from_s: float = float("-inf"),
    ) -> None:
        self._doubts = doubts
        self._wavers = wavers
        self._from_s = from_s
        self._is_wavering = False
        self._cut: list[int] = []
        self._timer: asyncio.TimerHandle | None = None

    def judge(self, reached: int, cut: list[int]) -> None:
        """So many others are reached from here, and these live out of our reach."""
        self._cut = cut
        if not cut or len(cut) < reached + 1:
            self.end()
            self._waver(False)
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            when = max(loop.time() + DOUBTED_S, self._from_s)
            self._timer = loop.call_at(when, self._over)
            self._waver(loop.time() >= self._from_s)

    def _waver(self, wavers: bool) -> None:
        if wavers is not self._is_wavering:
            self._is_wavering = wavers
            self._wavers(wavers)

    def end(self) -> None:
        """There is nothing to doubt (any more)."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _over(self) -> None:
        named = ", ".join(map(str, self._cut))
        self._doubts(f"brokers {named} live, and cannot be reached from here")


@dataclass(slots=True)
class Abstention:
    """When one who has doubted may stand for election again."""

    session_timeout_s: float
    until: float = field(default=float("-inf"))
    _empty_since: float | None = field(default=None)

    def begin(self, now: float) -> None:
        """The seat has been given up."""
        self.until = now + self.session_timeout_s
        self._empty_since = None

    def taken(self) -> None:
        """Somebody sits there, and lives."""
        self._empty_since = None

    def stands_at(self, now: float) -> float:
        """The seat is empty, or its broker dead: from when on we may take it, if it still is."""
        if now >= self.until:
            return now
        if self._empty_since is None:
            self._empty_since = now
        return min(self._empty_since + EMPTY_S, self.until)

    def is_reluctant(self, now: float) -> bool:
        """Whether, standing now, we would stand only because nobody else does."""
        return now < self.until
