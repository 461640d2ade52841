"""How long a broker waits before it takes over again after it lost the controller role while alive.

Such a broker knows that a broken connection between it and its successor proves nothing. If it took over at
once, the two would unseat each other for as long as the link is broken. So it waits, a session timeout at
first and twice as long each time. Meanwhile ZooKeeper still notices if the successor's session ends.
"""

from __future__ import annotations

from dataclasses import field

from ..base.values import dataclass

DOUBLINGS_MAX = 5


@dataclass(slots=True)
class TakeoverBackoff:
    """Counts such losses, and says until when this broker takes nothing over."""

    session_timeout_s: float
    until: float = field(default=float("-inf"))
    _hold_s: float = field(default=0.0)

    def lost(self, now: float) -> None:
        """Another broker took over while our session lives. After a long time this counts as a first loss."""
        longest_s = self.session_timeout_s * 2**DOUBLINGS_MAX
        is_first = now > self.until + longest_s
        self._hold_s = self.session_timeout_s if is_first else min(2 * self._hold_s, longest_s)
        self.until = now + self._hold_s
