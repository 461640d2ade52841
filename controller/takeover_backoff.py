"""How long a broker leaves the controller's seat alone after it has lost it while it was alive.

Whoever is unseated so knows one thing: between it and its successor a broken connection proves nothing.
If it struck back, the two would take the seat from each other for as long as the link between them is
broken. So it waits, a session timeout at first and twice as long each time; the end of the successor's
session goes on to be noticed by ZooKeeper meanwhile.
"""

from __future__ import annotations

from dataclasses import field

from ..base.values import dataclass

DOUBLINGS_MAX = 5


@dataclass(slots=True)
class TakeoverBackoff:
    """Counts such losses and says until when nothing is taken over."""

    session_timeout_s: float
    until: float = field(default=float("-inf"))
    _hold_s: float = field(default=0.0)

    def lost(self, now: float) -> None:
        """The seat was taken from us, and our session lives. After long it counts as a first."""
        longest_s = self.session_timeout_s * 2**DOUBLINGS_MAX
        is_first = now > self.until + longest_s
        self._hold_s = self.session_timeout_s if is_first else min(2 * self._hold_s, longest_s)
        self.until = now + self._hold_s
