"""How long requests take, phase by phase: plain counts in logarithmic buckets, read by /metrics.

The phases of a request: queue (its bytes have been read, requests before it are executed), local (decoded and
executed), remote (waiting for other replicas, for records or for a change of roles), send (answered, but
answers before it have not left, or the peer does not read). A request is counted when its answer leaves.
The place of a duration is its bit length, so each bucket is twice as wide as the one before.
Left to others: taking the times (timed_connection.py), their names and quantiles (broker/web/metrics/).
"""

from collections.abc import Callable

from ...protocol.apis import Api
from .exchange import Exchange

BUCKETS = 64  # bucket `i` ends at 2**i ns
VERSIONS_MAX = 32
PHASES = ("queue", "local", "remote", "send", "total")

TicksNs = Callable[[], int]  # a monotonic clock


class Durations:
    """Durations in nanoseconds, by bucket, since the start."""

    __slots__ = ("counts", "sum_ns")

    def __init__(self) -> None:
        self.counts = [0] * BUCKETS
        self.sum_ns = 0

    def add(self, ns: int) -> None:
        """One more."""
        self.counts[ns.bit_length()] += 1
        self.sum_ns += ns


class RequestTimes:
    """The requests of one API: by version, and their durations by phase, each with its sum in nanoseconds.

    Flat, because each request adds to all of it: with an object for each phase that costs half as much again.
    """

    __slots__ = (
        "local", "local_ns", "queue", "queue_ns", "remote", "remote_ns", "send", "send_ns", "total",
        "versions",
    )  # fmt: skip

    def __init__(self) -> None:
        self.versions = [0] * VERSIONS_MAX
        self.queue = [0] * BUCKETS
        self.local = [0] * BUCKETS
        self.remote = [0] * BUCKETS
        self.send = [0] * BUCKETS
        self.total = [0] * BUCKETS
        self.queue_ns = self.local_ns = self.remote_ns = self.send_ns = 0

    def phases(self) -> dict[str, tuple[list[int], int]]:
        """By phase: the counts of its buckets, and its sum in nanoseconds."""
        sums = (self.queue_ns, self.local_ns, self.remote_ns, self.send_ns)
        counts = (self.queue, self.local, self.remote, self.send, self.total)
        return dict(zip(PHASES, zip(counts, (*sums, sum(sums)), strict=True), strict=True))


class Timings(dict[Api, RequestTimes]):
    """All requests of one broker, by API; fetches of followers, and flushes of logs, apart."""

    def __init__(self, ticks_ns: TicksNs) -> None:
        super().__init__()
        self.ticks_ns = ticks_ns
        self.of_followers = RequestTimes()
        self.flushes = Durations()

    def __missing__(self, api: Api) -> RequestTimes:
        times = self[api] = RequestTimes()
        return times

    def left(self, exchange: Exchange, now_ns: int) -> None:
        """The answer of a timed exchange is handed to the system."""
        times = self.of_followers if exchange.is_follower else self[exchange.api]
        times.versions[exchange.version] += 1
        arrived, began = exchange.arrived_ns, exchange.began_ns
        executed, answered = exchange.executed_ns, exchange.answered_ns
        ns = began - arrived
        times.queue[ns.bit_length()] += 1
        times.queue_ns += ns
        ns = executed - began
        times.local[ns.bit_length()] += 1
        times.local_ns += ns
        ns = answered - executed
        times.remote[ns.bit_length()] += 1
        times.remote_ns += ns
        ns = now_ns - answered
        times.send[ns.bit_length()] += 1
        times.send_ns += ns
        times.total[(now_ns - arrived).bit_length()] += 1
