"""Roles that a broker of Apache Kafka has refused, and when they may be given anew. Pure.

A broker whose ZooKeeper session ends while it makes a new replica notes the leader epoch, makes no log, and
answers that all went well. The next LeaderAndIsr that names the partition in the same epoch it refuses as a
whole, and so each one after that. A new leader epoch is obeyed. It costs a write for each partition, and the
cause may be another one that no epoch mends, so it is tried at growing intervals, and so often only.
Left to others: the new epoch (planning/planner.py), the clock (broker_channels.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from ..base.types import TopicPartition
from ..base.values import dataclass

FIRST_S, LONGEST_S = 1.0, 60.0
ROUNDS_MAX = 10
QUIET_S = 600.0  # after which a refusal counts as a first one


@dataclass(slots=True)
class Refusals:
    """What one start of a broker has refused and nobody has been told of yet."""

    rounds: int = 0
    _is_abandoned: bool = False  # and somebody was told so
    _roles: dict[TopicPartition, int] = field(default_factory=dict)
    _last_s: float = float("-inf")

    def refused(self, roles: Mapping[TopicPartition, int], now_s: float) -> float | None:
        """These, in these leader epochs. How long to wait before they are taken up; None: a wait has begun
        already, or this has been tried often enough.
        """
        if now_s > self._last_s + QUIET_S:
            self.rounds, self._is_abandoned = 0, False
        self._last_s = now_s
        waits = bool(self._roles)
        if not waits and self.rounds >= ROUNDS_MAX:
            return None
        self._roles |= roles  # in the order of requests, so the newest epoch stays
        if waits:
            return None
        self.rounds += 1
        return min(FIRST_S * (1 << (self.rounds - 1)), LONGEST_S)

    def abandon(self) -> bool:
        """Whether it has been tried often enough, unless that was said before."""
        is_news = self.rounds >= ROUNDS_MAX and not self._roles and not self._is_abandoned
        self._is_abandoned = self._is_abandoned or is_news
        return is_news

    def take(self) -> dict[TopicPartition, int]:
        """All that were refused since the last time."""
        taken, self._roles = self._roles, {}
        return taken
