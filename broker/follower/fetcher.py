"""Replica fetchers: one task and one connection per leader, which fetch for all our followers of that leader.

A round first asks OffsetForLeaderEpoch for partitions that may have to truncate, then fetches for the others.
It handles only partitions that may have changed, and a few of the rest in turn; a fetch session keeps the
others at the leader. The next round begins when the records of this one are written (and flushed, with
log.flush.before.ack), because a fetch from x says "I hold everything before x". A slow log directory holds up
only its own partitions. A partition that is added while a fetch is parked at the leader does not wait for it:
an empty fetch (a nudge) makes the leader answer at once.
Left to others: what an answer means (replication/follower.py), the messages of a round (round.py).
"""

import asyncio
import posixpath
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from typing import Any

import structlog

from ...base.tasks import Tasks
from ...base.types import BrokerId
from ...client.network.connection import Connection
from ...protocol.apis import Api
from ...protocol.messages.fetch import FetchResponse
from ...protocol.messages.offsets import ListOffsetsResponse, OffsetForLeaderEpochResponse
from ..config.sections import ReplicationConfig
from ..replicas.flushing import Flushing
from ..replicas.partition import Partition
from ..replicas.per_directory import by_directory
from ..replicas.shared import ReplicaShared
from ..replicas.truncation import PendingTruncation, carry_out
from ..throttle import UNLIMITED, Throttle
from .round import (
    EPOCH_VERSION,
    FETCH_VERSION,
    NAMED_MAX,
    PART,
    START_VERSION,
    EpochRound,
    Failed,
    FetchRound,
    FollowerSession,
    Outcome,
    SessionLost,
    StartRound,
    Strayed,
    nudge,
)

logger = structlog.get_logger(__name__)

VERSIONS: dict[int, int] = {
    Api.FETCH: FETCH_VERSION,
    Api.OFFSET_FOR_LEADER_EPOCH: EPOCH_VERSION,
    Api.LIST_OFFSETS: START_VERSION,
}
FIRST_RETRY_SECONDS = 0.02  # a leader often learns its role just after its followers
CONNECT_SECONDS_MAX = 3.0
IDLE_SECONDS = 10.0  # the pause while all partitions wait for the controller
GOODBYE_SECONDS_MAX = 1.0
MEDIUM_SECONDS_MAX = 1.0  # how long a round waits for one slow log directory
LOOK_ROUND_SECONDS, LOOKED_AT = 0.25, 250  # how often, and how many, others are compared with the session

Work = Callable[[], Awaitable[Failed]]


class Backoff:
    """How long to wait after failures in a row: short at first, doubling up to a limit."""

    __slots__ = ("_max", "_next")

    def __init__(self, seconds_max: float) -> None:
        self._max = seconds_max
        self._next = FIRST_RETRY_SECONDS

    def failed(self) -> float:
        """The seconds to wait now."""
        wait, self._next = min(self._next, self._max), min(self._next * 2, self._max)
        return wait

    def succeeded(self) -> None:
        """Reset: the next failure counts as the first."""
        self._next = FIRST_RETRY_SECONDS


class LeaderFetcher:
    """Fetches from one leader as long as any of our partitions follows it."""

    def __init__(
        self, shared: ReplicaShared, config: ReplicationConfig, leader: BrokerId, fetchers: "Fetchers"
    ) -> None:
        self.leader = leader
        self.partitions: dict[Partition, None] = {}
        self._shared = shared
        self._config = config
        self._fetchers = fetchers
        self._connection: Connection | None = None
        self._backoff = Backoff(config.fetch_backoff_ms / 1000)
        self._delays: dict[Partition, tuple[float, Backoff]] = {}  # partitions that wait after an error
        self._session = FollowerSession()
        self._touched: dict[Partition, None] = {}  # partitions that may have changed since the last fetch
        self._at_medium: dict[Partition, None] = {}  # being truncated or flushed: not fetched for
        self._look_round_at = 0.0
        self._rest_of_round: Iterator[Partition] = iter(())
        self._news = asyncio.Event()
        self._hope = asyncio.Event()  # set when an unreachable leader may be back
        self._nudge: asyncio.Future[FetchResponse] | None = None
        self._parked = False  # a fetch is at the leader, which may park it

    def add(self, partition: Partition) -> None:
        """Also fetch for `partition`, at once."""
        self.partitions[partition] = None
        self._touched[partition] = None
        self._delays.pop(partition, None)
        self._news.set()
        self._hope.set()
        connection = self._connection
        if self._parked and self._nudge is None and connection is not None and not connection.is_lost:
            self._nudge = connection.submit(nudge(self._shared), deadline=self._deadline())

    def remove(self, partition: Partition) -> None:
        """No longer fetch for `partition`. A response on its way is dropped by the follower rules."""
        if partition in self.partitions:
            del self.partitions[partition]
            self._touched[partition] = None
            self._delays.pop(partition, None)
            if not self.partitions:
                self._news.set()
                self._hope.set()

    def moved(self) -> None:
        """The leader has a new address: reconnect."""
        self._backoff.succeeded()
        self._hope.set()
        if self._connection is not None:
            self._connection.give_up("the leader's address has changed")

    async def run(self) -> None:
        """Round after round, until no partition is left."""
        try:
            while self.partitions:
                try:
                    connection = await self._connected()
                    if self.partitions:  # else the last one has gone meanwhile
                        await self._round(connection)
                    self._backoff.succeeded()
                except SessionLost as lost:
                    self._begin_session()
                    logger.info("fetch_session_lost", leader=self.leader, reason=str(lost))
                except (OSError, TimeoutError) as error:
                    self._shared.lost(self.leader)
                    self._shared.untold()
                    await self._disconnect()
                    wait = self._backoff.failed()
                    logger.info("leader_unreachable", leader=self.leader, reason=str(error), retry_in_s=wait)
                    self._hope.clear()
                    await asyncio.sleep(FIRST_RETRY_SECONDS)  # thousands of partitions may come one by one
                    await _wait_for(self._hope, wait - FIRST_RETRY_SECONDS)
        finally:
            self._shared.left(self.leader)
            self._fetchers.ended(self)
            await self._end_session()
            await self._disconnect()

    def _deadline(self) -> float:
        wait_ms = self._config.fetch_wait_max_ms + self._config.socket_timeout_ms
        return self._shared.loop.time() + wait_ms / 1000

    async def _connected(self) -> Connection:
        if self._connection is None or self._connection.is_lost:
            await self._disconnect()
            address = self._fetchers.addresses.get(self.leader)
            if address is None:
                raise ConnectionError("the leader's address is not known yet")
            self._connection = await Connection.open(
                *address,
                client_id=f"broker-{self._shared.me}-fetcher",
                deadline=self._shared.loop.time() + CONNECT_SECONDS_MAX,
                highest=VERSIONS,  # a broker of Apache Kafka may be of an earlier version
                on_lost=lambda _: self._shared.lost(self.leader),
            )
            self._shared.back(self.leader)
        return self._connection

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        self._nudge = None
        self._begin_session()
        if connection is not None:
            connection.on_lost = None
            await connection.close()

    async def _end_session(self) -> None:
        """Close the fetch session at the leader, which no partition follows any more."""
        connection, deadline = self._connection, self._shared.loop.time() + GOODBYE_SECONDS_MAX
        if connection is None or connection.is_lost or not self._session.is_open:
            return
        with suppress(OSError, TimeoutError):
            await connection.request(nudge(self._shared, self._session.id), deadline=deadline)

    def _begin_session(self) -> None:
        """Start a new session: the leader knows nothing of our fetches."""
        self._session = FollowerSession()
        self._touched = dict.fromkeys(self.partitions)

    def _look_round(self, now: float) -> tuple[list[Partition], list[Partition]]:
        """The partitions whose fetch may have changed, and those that must not be fetched for now.

        Some changes are silent, such as a log start that retention has moved. So all partitions get a turn.
        """
        if now >= self._look_round_at:
            self._look_round_at = now + LOOK_ROUND_SECONDS
            some = list(islice(self._rest_of_round, LOOKED_AT))
            if len(some) < LOOKED_AT:
                self._rest_of_round = iter(tuple(self.partitions))
            self._touched.update((p, None) for p in some if p in self.partitions)
        delays = self._delays
        if delays:
            self._touched.update((p, None) for p, (at, _) in delays.items() if at <= now)
        ready: list[Partition] = []
        silent: list[Partition] = []
        for partition in self._touched:
            waits = partition in self._at_medium or (partition in delays and delays[partition][0] > now)
            (silent if waits or partition not in self.partitions else ready).append(partition)
        return ready, silent

    async def _round(self, connection: Connection) -> None:
        self._news.clear()
        now = self._shared.loop.time()
        ready, silent = self._look_round(now)
        cutting = EpochRound(self._shared, ready)
        if cutting:
            answer: OffsetForLeaderEpochResponse = await connection.request(
                cutting.request(), deadline=self._deadline()
            )
            outcome = cutting.take(answer)
            await self._cut(ready, outcome.failed, outcome.cuts)
            return  # partitions added meanwhile then fetch in the same request
        if await self._flush(ready):
            return  # roles may have changed meanwhile
        wait_s = self._next_delay(now)  # a longer fetch would hold up delayed partitions
        fetching = FetchRound(self._shared, self._config, ready, self._session, silent, wait_s)
        self._touched = dict.fromkeys(fetching.left)
        if not fetching:
            await _wait_for(self._news, wait_s)
            return
        self._parked = True
        try:
            fetched: FetchResponse = await connection.request(fetching.request(), deadline=self._deadline())
        finally:
            self._parked = False
        if strayed := await self._take(fetching, fetched, ready):
            await self._find_starts(connection, strayed)
        if self._nudge is not None:
            nudged, self._nudge = self._nudge, None
            await nudged

    async def _take(
        self, fetching: FetchRound, fetched: FetchResponse, ready: list[Partition]
    ) -> list[Strayed]:
        """Write the records, in steps if there are many partitions, then make the truncations asked for.
        Returns who must find out where the leader's log begins.
        """
        asked = list(ready)
        failed: Failed = {}
        cuts: list[PendingTruncation] = []
        lagging: list[Partition] = []
        strayed: list[Strayed] = []
        is_throttled = self._fetchers.throttle.rate != UNLIMITED
        for outcome in fetching.take(fetched):
            self._touched.update(dict.fromkeys(outcome.partitions))
            asked += outcome.partitions
            failed.update(outcome.failed)
            cuts += outcome.cuts
            strayed += outcome.strayed
            if is_throttled:
                lagging += self._counted(outcome)
            if len(outcome.partitions) >= PART:
                await asyncio.sleep(0)
        await self._cut(asked, failed, cuts)
        if lagging:
            self._slow_down(lagging)
        return strayed

    async def _find_starts(self, connection: Connection, strayed: Sequence[Strayed]) -> None:
        """Ask a leader that has not said it where its logs begin."""
        for first in range(0, len(strayed), NAMED_MAX):
            starting = StartRound(self._shared, strayed[first : first + NAMED_MAX])
            answer: ListOffsetsResponse = await connection.request(
                starting.request(), deadline=self._deadline()
            )
            await self._cut((), {}, starting.take(answer).cuts)

    def _counted(self, outcome: Outcome) -> list[Partition]:
        """Count what throttled replicas have taken; those of them that still lag."""
        throttle, now = self._fetchers.throttle, self._shared.loop.time()
        copied = outcome.copied.items()
        return [p for p, (nbytes, lags) in copied if throttle.took(p.tp, nbytes, now, lags=lags) and lags]

    def _slow_down(self, lagging: Iterable[Partition]) -> None:
        """Throttled replicas that lag wait until the rate allows more."""
        now = self._shared.loop.time()
        wait_s = self._fetchers.throttle.wait_s(now)
        for partition in lagging if wait_s else ():
            if partition in self.partitions and partition not in self._delays:
                self._delays[partition] = now + wait_s, Backoff(self._config.fetch_backoff_ms / 1000)
                self._touched[partition] = None  # the session must not go on with it

    def _judge(self, asked: Iterable[Partition], failed: dict[Partition, str]) -> None:
        """Partitions that failed wait, longer each time; the delay of all others ends."""
        if not failed and not self._delays:
            return
        now, longest = self._shared.loop.time(), 0.0
        for partition in asked:
            if partition not in failed:
                self._delays.pop(partition, None)
            elif partition in self.partitions:
                known = self._delays.get(partition)
                backoff = Backoff(self._config.fetch_backoff_ms / 1000) if known is None else known[1]
                wait = backoff.failed()
                longest = max(longest, wait)
                self._delays[partition] = (now + wait, backoff)
        for reason, of in _by_reason(failed).items():  # thousands may fail for one reason
            logger.info(
                "fetch_refused", partition=str(of[0].tp), partitions=len(of), leader=self.leader,
                reason=reason, retry_in_s=longest,
            )  # fmt: skip

    def _next_delay(self, now: float) -> float:
        """Seconds until the first delayed partition may fetch again; `IDLE_SECONDS` if none is delayed."""
        if not self._delays:
            return IDLE_SECONDS
        return max(min(at for at, _ in self._delays.values()) - now, 0.0)

    async def _cut(
        self, asked: Iterable[Partition], failed: Failed, cuts: Sequence[PendingTruncation]
    ) -> None:
        """Make the truncations that responses ask for. All other partitions are judged at once."""
        if not cuts:
            self._judge(asked, failed)
            return
        cut = {each.partition for each in cuts}
        self._judge([partition for partition in asked if partition not in cut], failed)
        there = by_directory({each: each.directory for each in cuts}).values()
        await self._bring(([each.partition for each in some], partial(carry_out, some)) for some in there)

    async def _flush(self, ready: Iterable[Partition]) -> bool:
        """Flush what the next fetch would acknowledge. False if nothing needs it."""
        due = [p for p in ready if p.following is not None and p.following.must_flush]
        if not due:
            return False
        there = by_directory({p: posixpath.dirname(p.log.directory) for p in due}).values()
        await self._bring((some, partial(self._flushed, some)) for some in there)
        return True

    async def _flushed(self, partitions: Iterable[Partition]) -> Failed:
        await self._fetchers.flushing.until_flushed([partition.log for partition in partitions])
        return {}

    async def _bring(self, works: Iterable[tuple[list[Partition], Work]]) -> None:
        """Run this work per log directory. A slow directory delays only its own partitions."""
        tasks = []
        for partitions, work in works:
            self._at_medium.update(dict.fromkeys(partitions))
            tasks.append(self._fetchers.spawn(self._brought(partitions, work), f"medium-{self.leader}"))
        if tasks:
            await asyncio.wait(tasks, timeout=MEDIUM_SECONDS_MAX)

    async def _brought(self, partitions: list[Partition], work: Work) -> None:
        failed = await work()
        for partition in partitions:
            self._at_medium.pop(partition, None)
            self._touched[partition] = None
        self._judge(partitions, failed)
        self._news.set()


async def _wait_for(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, at most this long."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def _by_reason(failed: Failed) -> dict[str, list[Partition]]:
    reasons: dict[str, list[Partition]] = {}
    for partition, reason in failed.items():
        reasons.setdefault(reason, []).append(partition)
    return reasons


class Fetchers:
    """The fetchers of one broker, by leader (Kafka's ReplicaFetcherManager)."""

    def __init__(
        self,
        shared: ReplicaShared,
        config: ReplicationConfig,
        tasks: Tasks,
        flushing: Flushing,
        throttle: Throttle,
    ) -> None:
        self.flushing = flushing
        self.throttle = throttle
        self.addresses: dict[BrokerId, tuple[str, int]] = {}  # on the inter-broker listener
        self._shared = shared
        self._config = config
        self._tasks = tasks
        self._by_leader: dict[BrokerId, LeaderFetcher] = {}
        self._stopped = False

    def know(self, brokers: Iterable[tuple[BrokerId, str, int]]) -> None:
        """Learn the inter-broker addresses of brokers."""
        for broker, name, port in brokers:
            before = self.addresses.get(broker)
            self.addresses[broker] = (name, port)
            fetcher = self._by_leader.get(broker)
            if fetcher is not None and before != (name, port):
                fetcher.moved()

    def follow(self, partition: Partition) -> None:
        """Begin to fetch for a partition that has just become a follower."""
        assert partition.following is not None, "only followers fetch"
        if self._stopped:
            return
        leader = partition.following.leader
        fetcher = self._by_leader.get(leader)
        if fetcher is None:
            fetcher = self._by_leader[leader] = LeaderFetcher(self._shared, self._config, leader, self)
            fetcher.add(partition)
            self._tasks.spawn(fetcher.run(), f"fetch-from-{leader}")
        else:
            fetcher.add(partition)

    def drop(self, partition: Partition) -> None:
        """No longer fetch for a partition, whichever leader it followed."""
        for fetcher in self._by_leader.values():
            fetcher.remove(partition)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[Any]:
        """Start a task that a fetcher runs beside its rounds."""
        return self._tasks.spawn(work, name)

    def of(self) -> Iterable[LeaderFetcher]:
        """All fetchers."""
        return self._by_leader.values()

    def ended(self, fetcher: LeaderFetcher) -> None:
        """A fetcher has no partition left and ends."""
        if self._by_leader.get(fetcher.leader) is fetcher:
            del self._by_leader[fetcher.leader]

    def stop(self) -> None:
        """Start no new fetcher. The tasks end with the `Tasks` that owns them."""
        self._stopped = True
        for fetcher in self._by_leader.values():
            fetcher.partitions.clear()
