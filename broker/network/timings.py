"""How long requests take, phase by phase: plain counts in logarithmic buckets, read by /metrics.

The phases of a request: queue (its bytes have been read, requests before it are executed), local (decoded and
executed), remote (waiting for other replicas, for records or for a change of roles), send (answered, but
answers before it have not left, or the peer does not read). A request is counted when its answer leaves.
Timing costs a few microseconds, so a busy broker times a sample, and each of it counts for as many as it
stands for. What is sampled are reads of sockets, with all requests that came in one.
The place of a duration is its bit length, so each bucket is twice as wide as the one before.
Left to others: taking the times (timed_connection.py), their names and quantiles (broker/web/metrics/).
"""

from collections.abc import Callable

from ...protocol.apis import Api
from .exchange import Exchange

BUCKETS = 64  # bucket `i` ends at 2**i ns
TIMED_MAX = 1_000  # requests a second, about: of more, a sample is timed
EVERY_MAX = 100
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
    """The requests of one API: their durations by phase, each with its sum in nanoseconds.

    Flat, because each request adds to all of it: with an object for each phase that costs half as much again.
    """

    __slots__ = (
        "local", "local_ns", "queue", "queue_ns", "remote", "remote_ns", "send", "send_ns", "total",
    )  # fmt: skip

    def __init__(self) -> None:
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
        self.every = 1  # of so many reads one is timed, on average
        self.until_next = 1  # reads
        self._requests = 0
        self._timed = 0  # since `every` has changed
        self._drawn = 1

    def __missing__(self, api: Api) -> RequestTimes:
        times = self[api] = RequestTimes()
        return times

    def adapt(self, requests: int) -> None:
        """Called once a second with the number of all requests: so many more, so many fewer are timed."""
        rate, self._requests = requests - self._requests, requests
        self.every = min(max(rate // TIMED_MAX, 1), EVERY_MAX)
        self._timed = 0
        if self.every == 1:
            self.until_next = 1

    def draw(self) -> None:
        """Draw how many reads go by until the next that is timed. Every n-th might always be of one
        connection. A burst after a pause is not timed whole: it does not wait for `adapt`.
        """
        if self._timed >= TIMED_MAX:
            self._timed = 0
            self.every = min(2 * self.every, EVERY_MAX)
        self._drawn = (self._drawn * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
        self.until_next = 1 + (self._drawn >> 8) % (2 * self.every - 1)

    def of(self, exchange: Exchange) -> RequestTimes:
        """Where this exchange, which was timed, is counted."""
        self._timed += 1
        return self.of_followers if exchange.is_follower else self[exchange.api]


class Times:
    """When one request of the sample entered each phase. Counted once its answer leaves."""

    __slots__ = ("_answered", "_arrived", "_began", "_executed", "_ticks_ns", "_timings", "_weight")

    def __init__(self, timings: Timings, weight: int, arrived_ns: int) -> None:
        """It stands for `weight` requests, and is executed now."""
        self._timings = timings
        self._ticks_ns = timings.ticks_ns
        self._weight = weight
        self._arrived = arrived_ns
        self._began = timings.ticks_ns()

    def executed(self) -> None:
        """It has been decoded and executed, and may have its answer."""
        self._executed = self._answered = self._ticks_ns()

    def answered(self) -> None:
        """It has its answer only now."""
        self._answered = self._ticks_ns()

    def left(self, exchange: Exchange) -> None:
        """The answer is handed to the system."""
        now_ns, weight, times = self._ticks_ns(), self._weight, self._timings.of(exchange)
        ns = self._began - self._arrived
        times.queue[ns.bit_length()] += weight
        times.queue_ns += ns * weight
        ns = self._executed - self._began
        times.local[ns.bit_length()] += weight
        times.local_ns += ns * weight
        ns = self._answered - self._executed
        times.remote[ns.bit_length()] += weight
        times.remote_ns += ns * weight
        ns = now_ns - self._answered
        times.send[ns.bit_length()] += weight
        times.send_ns += ns * weight
        times.total[(now_ns - self._arrived).bit_length()] += weight
