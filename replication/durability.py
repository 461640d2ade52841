"""Copies: when the replicas of a partition got the records before one offset. Pure.

Made only for a producer that asks who had its records when they were acknowledged. A follower's fetch tells
that it has everything before its offset; so its time is when that fetch came, not when it wrote.
Left to others: when a batch is acknowledged (leader.py), the answer (broker/handlers/produce.py).
Why: docs/decisions/0061-an-acknowledgement-may-tell-who-had-it.md
"""

from ..base.types import BrokerId, Offset
from .effects import Seconds

BEFORE: Seconds = float("-inf")  # it had them before anybody asked: a batch that was sent again


class Copies:
    """Who has the records before `required`, and when that was seen."""

    __slots__ = ("appended_at", "required", "seen_at")

    def __init__(self, required: Offset, appended_at: Seconds) -> None:
        self.required = required
        self.appended_at = appended_at
        self.seen_at: dict[BrokerId, Seconds] = {}

    def fetched(self, follower: BrokerId, offset: Offset, now: Seconds) -> None:
        """A follower has everything before `offset`."""
        if offset >= self.required and follower not in self.seen_at:
            self.seen_at[follower] = now

    def after(self, follower: BrokerId) -> Seconds | None:
        """How long after the append it was seen to have them; -1 if it had them before, None if not."""
        at = self.seen_at.get(follower)
        if at is None:
            return None
        return -1.0 if at == BEFORE else max(at - self.appended_at, 0.0)
