"""Throttle: how fast replicas that are being moved are copied (KIP-73), at the leader and at the follower.

A topic names replicas in `leader.replication.throttled.replicas`, by the broker that sends, and in
`follower.replication.throttled.replicas`, by the one that copies; a broker has a rate for each side. Tools
that move partitions set them. What passes for such a replica counts, and once it is more than the rate
allows, replicas that lag wait until the debt is paid. A replica that is in sync, or about to be, never waits:
no throttle takes a member out of the ISR, or holds acks=all up. What it takes counts, too, but leaves at most
a second's debt: else whoever fell behind under a throttle that somebody forgot would wait for hours.
One response may bring more than a second's worth: the rate is kept on average.
What has counted is told as Kafka's `byte-rate`, and as a total. Nothing counts while there is no rate.
Left to others: to wait (fetch/read.py, follower/fetcher.py), what settings may be (storage/idle_settings.py),
the page of metrics (web/metrics/replicas.py).
"""

from collections import deque
from collections.abc import Callable, Container, Mapping
from functools import lru_cache

from ..base.types import BrokerId, TopicPartition

UNLIMITED = (1 << 63) - 1
LEADERS = "leader.replication.throttled.replicas"
FOLLOWERS = "follower.replication.throttled.replicas"
EVERY, NONE = "*", ("", "none")
IN_SYNC_S = 1.0  # the most that replicas in sync leave to be paid
PARTITIONS = range(1 << 31)
RATE_S = 10  # `byte_rate` is of so many whole seconds and the one that has begun, as in Kafka


class Throttle:
    """The debt of one side of a broker. `names` is the setting that names replicas; `settings` tells a
    topic's.
    """

    def __init__(
        self, me: BrokerId, rate: int, names: str, settings: Callable[[str], Mapping[str, str]]
    ) -> None:
        """`rate` is in bytes a second."""
        self.rate = rate
        self._me = me
        self._names = names
        self._settings = settings
        self._paid_at = 0.0
        self.nbytes = 0  # that have counted, since the start
        self._seconds: deque[tuple[int, int]] = deque()  # the second, and `nbytes` when it began

    def took(self, partition: TopicPartition, nbytes: int, now: float, *, lags: bool) -> bool:
        """Count what a replica has got. Whether it is throttled at all."""
        if self.rate == UNLIMITED or not self._has(partition):
            return False
        self._count(nbytes, now)
        paid_at = max(self._paid_at, now) + nbytes / self.rate
        self._paid_at = paid_at if lags else min(paid_at, max(self._paid_at, now + IN_SYNC_S))
        return True

    def wait_s(self, now: float) -> float:
        """Seconds until lagging replicas may go on; 0 if they may at once."""
        return max(self._paid_at - now, 0.0)

    def held_until(self, partition: TopicPartition, now: float) -> float:
        """When a replica of `partition` that lags may go on; 0 if it need not wait."""
        return self._paid_at if self._paid_at > now and self._has(partition) else 0.0

    def set_rate(self, rate: int, now: float) -> None:
        """A new rate, at which the rest of the debt is paid."""
        if rate != self.rate:
            left = self.wait_s(now) * self.rate if self.rate != UNLIMITED else 0.0
            self._paid_at = now + (0.0 if rate == UNLIMITED else left / rate)
            self.rate = rate

    def byte_rate(self, now: float) -> float:
        """Bytes a second that have counted lately."""
        self._forget(now)
        if not self._seconds:
            return 0.0
        return (self.nbytes - self._seconds[0][1]) / (now - int(now) + RATE_S)

    def _count(self, nbytes: int, now: float) -> None:
        if not self._seconds or self._seconds[-1][0] < int(now):
            self._forget(now)
            self._seconds.append((int(now), self.nbytes))
        self.nbytes += nbytes

    def _forget(self, now: float) -> None:
        while self._seconds and self._seconds[0][0] < int(now) - RATE_S:
            self._seconds.popleft()

    def _has(self, partition: TopicPartition) -> bool:
        names = self._settings(partition.topic).get(self._names, "")
        return partition.partition in _named(names, self._me)


@lru_cache(1024)
def _named(names: str, broker: BrokerId) -> Container[int]:
    """The partitions of whose replicas `partition:broker,…` names this broker's."""
    if names in NONE:
        return ()
    if names == EVERY:
        return PARTITIONS
    pairs = (name.partition(":") for name in names.split(","))
    return frozenset(int(index) for index, _, of in pairs if of == str(broker) and index.isdecimal())
