"""A fetch that found too little: one entry at each of its partitions, and one deadline.

News of a partition put it among the woken ones; at the end of the turn it reads again, once, however many
of its partitions have changed. A follower has at most one: its next fetch makes this one answer first.
"""

from collections.abc import Callable

from ..protocol.kinds import BrokerId
from ..protocol.messages.fetch import FetchResponse, PartitionData
from .exchange import Exchange
from .fetch_read import Reading
from .host import Host
from .waiting import Waiting

Respond = Callable[[list[PartitionData]], FetchResponse]


class ParkedFetch(Waiting):
    """One such fetch."""

    __slots__ = ("_bytes_min", "_exchange", "_host", "_reading", "_respond")

    def __init__(self, exchange: Exchange, reading: Reading, bytes_min: int, respond: Respond) -> None:
        super().__init__()
        self._exchange = exchange
        self._reading = reading
        self._bytes_min = bytes_min
        self._respond = respond
        self._host: Host | None = None

    @property
    def is_replica(self) -> bool:
        """Whether a follower waits here: it looks at the end of the log, not at the watermark."""
        return self._reading.fetcher.is_replica

    def park(self, host: Host, deadline: float) -> bool:
        """Wait for news of the partitions. False if there is no room."""
        if not host.deadlines.add(self, deadline):
            return False
        self._host = host
        for item in self._reading.wanted:
            if item.partition is not None:
                item.partition.park(self)
        return True

    def look_again(self) -> None:
        """One of the partitions has news."""
        if self.slot is None:
            return
        found = self._reading.read()
        if self._reading.nbytes >= self._bytes_min or self._reading.must_be_told:
            self._finish(found)

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
        for item in self._reading.wanted:
            if item.partition is not None:
                item.partition.parked.pop(self, None)
        self._exchange.answer(self._respond(found))


class ParkedReplicas:
    """The parked fetch of each follower."""

    __slots__ = ("_parked",)

    def __init__(self) -> None:
        self._parked: dict[BrokerId, ParkedFetch] = {}

    def put(self, follower: BrokerId, parked: ParkedFetch) -> None:
        """`follower` waits with this one."""
        self._parked[follower] = parked

    def supersede(self, follower: BrokerId) -> None:
        """A newer fetch of the same follower has come: the one that waits is answered."""
        parked = self._parked.pop(follower, None)
        if parked is not None:
            parked.finish()
