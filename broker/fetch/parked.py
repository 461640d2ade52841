"""A fetch that found too little: one entry at each of its partitions, and one deadline.

News of a partition put it among the woken ones; at the end of the turn it reads again, once, however many
of its partitions have changed. A follower has at most one: its next fetch makes this one answer first.
A follower that takes much in every answer is answered at most every few milliseconds (`Pace`): each round
costs both brokers the same, however much it carries.
Why: docs/decisions/0041-followers-in-bulk-are-paced.md
"""

import asyncio
from collections.abc import Callable

from ...base.types import BrokerId
from ...protocol.messages.fetch import FetchResponse, PartitionData
from ..network.exchange import Exchange
from ..replicas.purgatory import Waiter
from ..replicas.shared import ReplicaShared
from .read import Reading

Respond = Callable[[list[PartitionData]], FetchResponse]

BULK_BYTES = 32 << 10  # an answer that carries as much is one of many: the next one may gather more
VAIN_MAX = 8
TRY_EVERY = 32  # answers, when pauses have been in vain
TIMER_SLACK_S = 0.0005  # uvloop's timers are exact to a millisecond, either way


class ParkedFetch(Waiter):
    """One such fetch."""

    __slots__ = ("_bytes_min", "_exchange", "_host", "_pace", "_reading", "_respond", "_timer")

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
        self._host: ReplicaShared | None = None
        self._timer: asyncio.TimerHandle | None = None  # at the end of a pause, if there was news in it

    @property
    def is_replica(self) -> bool:
        """Whether a follower waits here: it looks at the end of the log, not at the watermark."""
        return self._reading.fetcher.is_replica

    def park(self, host: ReplicaShared, deadline: float) -> bool:
        """Wait for news of the partitions. False if there is no room."""
        if not host.deadlines.add(self, deadline):
            return False
        self._host = host
        for partition in self._reading.parks_at:
            partition.park(self)
        return True

    def news(self, grown: bool, risen: bool) -> None:
        """A follower waits for the log to grow, a consumer for the watermark to rise."""
        if self._host is not None and (grown if self.is_replica else risen):
            self._host.woken[self] = None

    def look_again(self) -> None:
        """One of the partitions has news."""
        if self.slot is None:
            return
        if self._pace is not None and self._pauses(self._pace):
            return
        found = self._reading.read()
        if self._reading.nbytes >= self._bytes_min or self._reading.must_be_told:
            self._finish(found)

    def _pauses(self, pace: "Pace") -> bool:
        """Whether this news must wait; it is looked at when the pause ends."""
        assert self._host is not None, "it was parked"
        loop = self._host.loop
        if self._timer is not None:
            pace.more_came()
            return True
        if not pace.holds_back(loop.time()):
            return False
        self._timer = loop.call_at(pace.until, self._pause_ended)
        return True

    def _pause_ended(self) -> None:
        assert self._host is not None, "it was parked"
        self._timer = None
        self._host.woken[self] = None
        self._host.wake()

    def expire(self) -> None:
        self._finish(self._reading.read())

    def finish(self) -> None:
        """Answer now, with what there is."""
        if self.slot is not None:
            self._finish(self._reading.read())

    def _finish(self, found: list[PartitionData]) -> None:
        assert self._host is not None, "it was parked"
        self._host.deadlines.remove(self)
        self._host.woken.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._reading.parks_at:
            partition.parked.pop(self, None)
        self._exchange.answer(self._respond(found))


class Pace:
    """How often one follower is answered while it takes much: not before `until`, `gather_s` after the last.

    A pause in which nothing more came was for nothing: a producer waits for each of its acknowledgements.
    When most pauses are such, they are left out, but for a try now and then. Pure; times are the loop's.
    """

    __slots__ = ("_answers", "_gather_s", "_held", "_more", "_vain", "until")

    def __init__(self, gather_s: float) -> None:
        self.until = 0.0
        self._gather_s = gather_s
        self._held = False  # news has been held back since the last answer
        self._more = False  # and more of it has come then
        self._vain = 0
        self._answers = 0

    def holds_back(self, now: float) -> bool:
        """Whether news must wait until `until`."""
        held = self.until - now > TIMER_SLACK_S
        self._held = self._held or held
        return held

    def more_came(self) -> None:
        """News has come to news that is held back."""
        self._more = True

    def answered(self, nbytes: int, now: float) -> None:
        """An answer of so many bytes of records leaves."""
        if self._held:
            self._vain = max(self._vain - 2, 0) if self._more else min(self._vain + 1, VAIN_MAX)
        self._held = self._more = False
        self._answers += 1
        worthwhile = self._vain < VAIN_MAX or self._answers % TRY_EVERY == 0
        self.until = now + self._gather_s if nbytes >= BULK_BYTES and worthwhile else 0.0


class ParkedReplicas:
    """The parked fetch of each follower, and its pace."""

    __slots__ = ("_gather_s", "_paces", "_parked")

    def __init__(self, gather_s: float) -> None:
        self._gather_s = gather_s
        self._parked: dict[BrokerId, ParkedFetch] = {}
        self._paces: dict[BrokerId, Pace] = {}

    def pace_of(self, follower: BrokerId) -> Pace:
        """The pace that `follower` keeps, over all its fetches."""
        pace = self._paces.get(follower)
        if pace is None:
            pace = self._paces[follower] = Pace(self._gather_s)
        return pace

    def put(self, follower: BrokerId, parked: ParkedFetch) -> None:
        """`follower` waits with this one."""
        self._parked[follower] = parked

    def supersede(self, follower: BrokerId) -> None:
        """A newer fetch of the same follower has come: the one that waits is answered."""
        parked = self._parked.pop(follower, None)
        if parked is not None:
            parked.finish()
