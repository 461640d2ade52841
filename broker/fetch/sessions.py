"""Fetch sessions (KIP-227), at the leader: each side tells the other only what has changed.

Without them, every fetch would name thousands of quiet partitions. With a session the fetch names none of
them, which means for each: "I still want what comes after the offset that I named last". A quiet partition
costs nothing: its news is noted when it comes (`stirred`), and a fetch handles only partitions that were
named or have news. What the leader's throttle holds back is put aside (`held`) until that lets more through,
for it would be looked at with every fetch.
Left to others: whose session it is and what else a fetch means (follower_sessions.py, client_sessions.py),
reading (read.py).
Why: docs/decisions/0042-brokers-tell-each-other-what-has-changed.md
"""

from collections.abc import Callable, Iterator
from uuid import UUID

from ...base.types import TopicPartition
from ...protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from ...protocol.primitives import Slices
from ..replicas.partition import Partition
from ..replicas.shared import ReplicaShared
from ..throttle import Throttle
from .parked import ParkedFetch
from .read import FetchItem, FetchSource, Found, Reading

FIRST_EPOCH, NO_SESSION_EPOCH = 0, -1
EPOCH_MAX = (1 << 31) - 1
ROUND = 64  # partitions per fetch whose log start is compared: retention moves it silently

Find = Callable[[TopicPartition], Partition]
NameOf = Callable[[UUID, str], str | None]  # of a topic's id and the name in the request, which may be ""
Key = tuple[UUID, str, int]
Told = tuple[int, int, int]  # high watermark, last stable offset, log start


class Followed(FetchItem):
    """One partition of a session: what was last asked for, and what was last sent."""

    __slots__ = ("_session", "told")

    def __init__(self, session: "FetchSession", topic: str, topic_id: UUID, asked: FetchPartition) -> None:
        super().__init__(topic, topic_id, asked)
        self._session = session
        self.told: Told | None = None  # None: send whatever there is

    def news(self, grown: bool, risen: bool) -> None:
        """The partition has changed: its log has grown, its high watermark has risen, or whatever else."""
        session = self._session
        session.stirred[self] = None
        if session.waiting is not None and (grown if session.fetcher.is_replica else risen):
            session.shared.turn.notify(session.waiting)


class FetchSession:
    """The session of one client or follower: all that it fetches from this broker."""

    def __init__(self, id: int, fetcher: FetchSource, shared: ReplicaShared) -> None:
        self.id = id
        self.fetcher = fetcher
        self.shared = shared
        self.next_epoch = FIRST_EPOCH
        self.isolation_level = 0
        self.waiting: ParkedFetch | None = None  # its fetch, if parked
        self.stirred: dict[Followed, None] = {}  # partitions to read, longest waiting first
        self.held: dict[Followed, None] = {}  # partitions with records that the throttle holds back
        self._entries: dict[Key, Followed] = {}
        self._sent: list[Followed] = []  # the last response has records of these
        self._round: Iterator[Followed] = iter(())

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, request: FetchRequest, find: Find, name_of: NameOf) -> None:
        """Process the next fetch: the partitions that it names and forgets."""
        sent, self._sent = self._sent, []
        self.stirred.update(dict.fromkeys(sent))  # if the records arrived, this fetch names them
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                self._forget((gone.topic_id, gone.topic, index))
        for topic in request.topics:
            name = name_of(topic.topic_id, topic.topic)
            for asked in topic.partitions:
                key = (topic.topic_id, topic.topic, asked.partition)
                entry = self._entries.get(key)
                if entry is None:
                    entry = self._entries[key] = Followed(self, name or "", topic.topic_id, asked)
                entry.asked = asked
                if self.fetcher.is_replica:
                    entry.told = None  # a follower that names it wants to hear of it
                self._find(entry, name, find)
        self._compare_starts()

    def close(self) -> None:
        """The session ends."""
        for key in list(self._entries):
            self._forget(key)

    @property
    def is_quiet(self) -> bool:
        """Whether it is known without a read that no partition has anything for this fetcher."""
        return False

    def told(self, wanted: list[FetchItem], found: list[PartitionData]) -> Found:
        """What of the read is news. An error stays news until it is gone or something else is asked for."""
        self.waiting = None
        told: list[tuple[FetchItem, PartitionData]] = []
        for entry, data in zip(wanted, found, strict=True):
            assert isinstance(entry, Followed), "a session reads only its own partitions"
            if data.error_code or data.diverging_epoch is not None or entry.partition is None:
                entry.told = None
                told.append((entry, data))
                continue
            assert isinstance(data.records, Slices), "records are slices of a log"
            has_records = data.records.nbytes > 0
            now = (data.high_watermark, data.last_stable_offset, data.log_start_offset)
            if has_records or now != entry.told:
                entry.told = now
                told.append((entry, data))
            if has_records:
                self._sent.append(entry)
            if has_records or self._end_of(entry.partition, data) <= entry.asked.fetch_offset:
                self.stirred.pop(entry, None)
        return [entry for entry, _ in told], [data for _, data in told]

    def _end_of(self, partition: Partition, data: PartitionData) -> int:
        """The end of what can be read of a partition by this fetcher."""
        raise NotImplementedError

    def _find(self, entry: Followed, name: str | None, find: Find) -> None:
        self.stirred.pop(entry, None)
        self.stirred[entry] = None
        self.held.pop(entry, None)
        before = entry.partition
        if before is not None and before.offline is None:
            entry.warm_up()
            return  # it is still here: a removed one counts as offline
        entry.look_up(name, find)
        if before is not None and before is not entry.partition:
            before.parked.pop(entry, None)
        if entry.partition is not None and entry not in entry.partition.parked:
            entry.partition.park(entry)

    def _forget(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.stirred.pop(entry, None)
        self.held.pop(entry, None)
        entry.told = None
        if entry.partition is not None:
            entry.partition.parked.pop(entry, None)
            self._left(entry, entry.partition)

    def _left(self, entry: Followed, partition: Partition) -> None:
        """The partition was forgotten."""

    def _compare_starts(self) -> None:
        for _ in range(ROUND):
            entry = next(self._round, None)
            if entry is None:
                self._round = iter(tuple(self._entries.values()))
                return
            if entry.told is None or entry.partition is None:
                continue
            if entry.told[2] != entry.partition.log.start_offset:
                self.stirred[entry] = None


class SessionReading(Reading):
    """What one fetch of a session reads: the partitions that have news."""

    __slots__ = ("_session",)

    def __init__(self, session: FetchSession, bytes_max: int, throttle: Throttle | None) -> None:
        super().__init__(session.fetcher, [], bytes_max, session.isolation_level, throttle)
        self._session = session

    @property
    def parks_at(self) -> list[Partition]:
        return []  # the session is parked there itself

    @property
    def session_id(self) -> int:
        return self._session.id

    @property
    def is_vain(self) -> bool:
        return self._session.is_quiet

    def read(self) -> list[PartitionData]:
        session = self._session
        still_held = self._held_until() if session.held else 0.0
        self.wanted = list(session.stirred)
        found = super().read()
        self.held_until = self.held_until or still_held
        return found

    def _held_until(self) -> float:
        """When the throttle lets more through of what was put aside. That is read again if it does so now."""
        session, now = self._session, self._session.shared.loop.time()
        wait_s = self._throttle.wait_s(now) if self._throttle is not None else 0.0
        if wait_s:
            return now + wait_s
        session.stirred.update(session.held)
        session.held.clear()
        return 0.0

    def _put_aside(self, item: FetchItem) -> None:
        assert isinstance(item, Followed), "a session reads only its own partitions"
        self._session.stirred.pop(item, None)
        self._session.held[item] = None

    def told(self, found: list[PartitionData]) -> Found:
        return self._session.told(self.wanted, found)
