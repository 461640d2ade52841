"""Throttle: how fast a broker copies replicas that are being moved to it (KIP-73, the follower's side).

A topic names replicas in `follower.replication.throttled.replicas`, a broker has a rate in
`follower.replication.throttled.rate`; both are set by tools that move partitions. What such a replica fetches
counts, and once more has come than the rate allows, replicas that lag wait until the debt is paid. A
replica that is in sync never waits, so no throttle takes a member out of the ISR, or holds acks=all up.
One response may bring more than a second's worth: the rate is kept on average.
Left to others: asking for the pause (fetcher.py), what settings may be (storage/idle_settings.py).
"""

from collections.abc import Callable
from functools import lru_cache

from ...base.types import BrokerId, TopicPartition

UNLIMITED = (1 << 63) - 1
NAMES = "follower.replication.throttled.replicas"
EVERY, NONE = "*", ("", "none")


class Throttle:
    """The debt of one broker. `named` tells the setting of a topic."""

    def __init__(self, me: BrokerId, rate: int, named: Callable[[str], str]) -> None:
        """`rate` is in bytes a second."""
        self.rate = rate
        self._me = me
        self._named = named
        self._paid_at = 0.0

    def took(self, partition: TopicPartition, nbytes: int, now: float) -> bool:
        """Count what a replica has fetched. Whether it is throttled at all."""
        if self.rate == UNLIMITED or not _has(self._named(partition.topic), partition.partition, self._me):
            return False
        self._paid_at = max(self._paid_at, now) + nbytes / self.rate
        return True

    def wait_s(self, now: float) -> float:
        """Seconds until lagging replicas may fetch again; 0 if they may at once."""
        return max(self._paid_at - now, 0.0)

    def set_rate(self, rate: int, now: float) -> None:
        """A new rate, at which the rest of the debt is paid."""
        if rate != self.rate:
            left = self.wait_s(now) * self.rate if self.rate != UNLIMITED else 0.0
            self._paid_at = now + (0.0 if rate == UNLIMITED else left / rate)
            self.rate = rate


@lru_cache(1024)
def _has(names: str, partition: int, broker: BrokerId) -> bool:
    """Whether `partition:broker,…` has this replica."""
    if names in NONE:
        return False
    return names == EVERY or f"{partition}:{broker}" in names.split(",")
