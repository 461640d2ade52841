"""A controller that cannot reach most live brokers resigns, and does not stand again for a while.

A broker that answers challenges (`challenges.py`) is alive, whether or not we have a connection to it. If for
a second at least half of the live brokers, this one included, cannot be reached from here, another broker
should be controller: its requests would arrive. During that second no leadership moves away from brokers out
of reach: an isolated controller would take it all to itself.
A controller that resigns for this does not stand again for a session timeout, unless `/controller` stays
empty: then nobody is better placed. If it is elected that way it does not doubt again for a session timeout,
or the role would go round. A controller whose term failed because of a bug does not stand for that time,
either.
Left to others: who is reached (`broker_channels.py`), resigning (`controller.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import field

from ..base.values import dataclass

DOUBTED_S = 1.0  # how long they must be out of reach
EMPTY_S = 2.0  # how long `/controller` must be empty before one that has doubted takes it


class Doubt:
    """The doubt of one term. `doubts` is called once, with the reason; not before `from_s` (loop time).

    `wavers` is called with True when too few are reached, and with False when that is over.
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
        """`reached` others are reached from here; the brokers in `cut` live, and are out of reach."""
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
        self._doubts(f"brokers {named} are alive, but this broker cannot reach them")


@dataclass(slots=True)
class Abstention:
    """When a controller that has doubted may stand for election again."""

    session_timeout_s: float
    until: float = field(default=float("-inf"))
    _empty_since: float | None = field(default=None)

    def begin(self, now: float) -> None:
        """We have resigned."""
        self.until = now + self.session_timeout_s
        self._empty_since = None

    def taken(self) -> None:
        """There is a controller, and it lives."""
        self._empty_since = None

    def stands_at(self, now: float) -> float:
        """There is no controller, or it is dead: from when on we may take over, if that is still so."""
        if now >= self.until:
            return now
        if self._empty_since is None:
            self._empty_since = now
        return min(self._empty_since + EMPTY_S, self.until)

    def is_reluctant(self, now: float) -> bool:
        """Whether we would stand now only because nobody else does."""
        return now < self.until
