"""Parked fetches (Kafka's DelayedFetch): a fetch that found too little waits for news or its deadline.

When a partition has news, the fetch is woken. At the end of the loop turn it reads again, once, however many
of its partitions have changed. A follower has at most one parked fetch: its next fetch completes this one.
One of Apache Kafka has one for each of its connections.
A follower that gets much data in every response is answered at most every few milliseconds (`Pace`), because
each round costs both brokers the same, however much it carries.
A follower that gets nothing because of the leader's throttle is woken when that lets more through.
Left to others: how much is enough (read.py), the timing wheel of deadlines (replicas/purgatory.py).
Why: docs/decisions/0041-followers-in-bulk-are-paced.md
"""

import asyncio
from collections.abc import Callable

from ...base.types import BrokerId
from ...protocol.messages.fetch import FetchResponse, PartitionData
from ..network.exchange import Channel, Exchange
from ..replicas.purgatory import Waiter
from ..replicas.shared import ReplicaShared
from .read import Reading

Respond = Callable[[list[PartitionData]], FetchResponse]

BULK_BYTES = 32 << 10  # after a response of this size, the next one may wait to gather more
VAIN_MAX = 8  # the score of pauses in vain from which on they are left out
TRY_EVERY = 32  # responses: then a pause is tried all the same
TIMER_SLACK_S = 0.0005  # uvloop's timers are up to a millisecond early or late
THROTTLE_SLACK_S = 0.001  # so none is early enough to find that it must wait still


class ParkedFetch(Waiter):
    """One parked fetch."""

    __slots__ = (
        "_bytes_min", "_exchange", "_pace", "_reading", "_respond", "_shared", "_throttled", "_timer",
    )  # fmt: skip

    def __init__(
        self,
        exchange: Exchange,
        reading: Reading,
        bytes_min: int,
        respond: Respond,
        pace: "Pace | None" = None,
    ) -> None:
        super().__init__()
        self._exchange = exchange
        self._reading = reading
        self._bytes_min = bytes_min
        self._respond = respond
        self._pace = pace
        self._shared: ReplicaShared | None = None
        self._timer: asyncio.TimerHandle | None = None  # for the end of a pause, once there is news
        self._throttled: asyncio.TimerHandle | None = None  # for when the throttle lets more through

    @property
    def is_replica(self) -> bool:
        """Whether it is a follower's: that waits for the log end, a consumer for the high watermark."""
        return self._reading.fetcher.is_replica

    def park(self, shared: ReplicaShared, deadline: float) -> bool:
        """Wait for news of the partitions. False if the purgatory is full."""
        if not shared.deadlines.add(self, deadline):
            return False
        self._shared = shared
        for partition in self._reading.parks_at:
            partition.park(self)
        if self._reading.held_until:
            self._wait_for_throttle()
        return True

    def news(self, grown: bool, risen: bool) -> None:
        """Followers are woken when the log grows, consumers when the high watermark rises."""
        if self._shared is not None and (grown if self.is_replica else risen):
            self._shared.turn.notify(self)

    def look_again(self) -> None:
        """A partition has news: read again, and answer if there is enough."""
        if self.slot is None:
            return
        if self._pace is not None and self._pauses(self._pace):
            return
        found = self._reading.read()
        if self._reading.nbytes >= self._bytes_min or self._reading.must_be_told:
            self._finish(found)
        elif self._reading.held_until:
            self._wait_for_throttle()

    def _wait_for_throttle(self) -> None:
        """Look again when the throttle lets more through; if others have taken that, when it next does."""
        assert self._shared is not None, "the fetch is parked"
        if self._throttled is None:
            at = self._reading.held_until + THROTTLE_SLACK_S
            self._throttled = self._shared.loop.call_at(at, self._throttle_eased)

    def _throttle_eased(self) -> None:
        self._throttled = None
        self._notify()

    def _pauses(self, pace: "Pace") -> bool:
        """Whether this news must wait until the pause ends."""
        assert self._shared is not None, "the fetch is parked"
        loop = self._shared.loop
        if self._timer is not None:
            pace.more_came()
            return True
        if not pace.holds_back(loop.time()):
            return False
        self._timer = loop.call_at(pace.until, self._pause_ended)
        return True

    def _pause_ended(self) -> None:
        self._timer = None
        self._notify()

    def _notify(self) -> None:
        assert self._shared is not None, "the fetch is parked"
        self._shared.turn.notify(self)
        self._shared.turn.wake()

    def expire(self) -> None:
        self._finish(self._reading.read())

    def finish(self) -> None:
        """Answer now with whatever there is."""
        if self.slot is not None:
            self._finish(self._reading.read())

    def _finish(self, found: list[PartitionData]) -> None:
        assert self._shared is not None, "the fetch is parked"
        self._shared.deadlines.remove(self)
        self._shared.turn.forget(self)
        for timer in (self._timer, self._throttled):
            if timer is not None:
                timer.cancel()
        for partition in self._reading.parks_at:
            partition.parked.pop(self, None)
        self._exchange.answer(self._respond(found))


class Pace:
    """Paces the responses to one follower that takes much: none before `until`, `gather_s` after the last.

    A pause in which no more records came only delayed the producer's acknowledgement. If most pauses are like
    that, they are left out, but for a try now and then. Pure; times are the loop's.
    """

    __slots__ = ("_answers", "_gather_s", "_held", "_more", "_vain", "until")

    def __init__(self, gather_s: float) -> None:
        self.until = 0.0
        self._gather_s = gather_s
        self._held = False  # news was held back since the last response
        self._more = False  # and more news came meanwhile
        self._vain = 0
        self._answers = 0

    def holds_back(self, now: float) -> bool:
        """Whether news must wait until `until`."""
        held = self.until - now > TIMER_SLACK_S
        self._held = self._held or held
        return held

    def more_came(self) -> None:
        """More news came while some is held back."""
        self._more = True

    def answered(self, nbytes: int, now: float) -> None:
        """A response with so many bytes of records is sent."""
        if self._held:
            self._vain = max(self._vain - 2, 0) if self._more else min(self._vain + 1, VAIN_MAX)
        self._held = self._more = False
        self._answers += 1
        worthwhile = self._vain < VAIN_MAX or self._answers % TRY_EVERY == 0
        self.until = now + self._gather_s if nbytes >= BULK_BYTES and worthwhile else 0.0


class ParkedReplicas:
    """Each follower's parked fetch and pace. `channel`: the connection of a follower of Apache Kafka, whose
    threads wait independently; None for our own.
    """

    __slots__ = ("_gather_s", "_paces", "_parked")

    def __init__(self, gather_s: float) -> None:
        self._gather_s = gather_s
        self._parked: dict[BrokerId, dict[Channel | None, ParkedFetch]] = {}
        self._paces: dict[BrokerId, Pace] = {}

    def pace_of(self, follower: BrokerId) -> Pace:
        """The pace of `follower`, kept over all its fetches."""
        pace = self._paces.get(follower)
        if pace is None:
            pace = self._paces[follower] = Pace(self._gather_s)
        return pace

    def put(self, follower: BrokerId, parked: ParkedFetch, channel: Channel | None = None) -> None:
        """This is the parked fetch of `follower`."""
        there = self._parked.setdefault(follower, {})
        for gone in [each for each, other in there.items() if other.slot is None]:
            del there[gone]
        there[channel] = parked

    def next_came(self, follower: BrokerId, channel: Channel | None) -> None:
        """Answer the parked fetch of `follower`, if there is one: its next fetch has come."""
        parked = self._parked.get(follower, {}).pop(channel, None)
        if parked is not None:
            parked.finish()

    def supersede(self, follower: BrokerId) -> None:
        """Answer what `follower` has parked: there is news for it."""
        for parked in self._parked.pop(follower, {}).values():
            parked.finish()
