"""Fetch sessions of followers, on the leader (KIP-227): each side sends only what has changed.

Without them, every fetch would name thousands of quiet partitions. With a session the fetch names none of
them, which means for each: "I still hold everything before the offset that I named last". That costs no work
per partition: the leader reads the session's pulse when it needs to know (replication/progress.py). A fetch
handles only partitions that were named, that have news, or whose ISR the follower is not in, because its
fetches may let it join.
A follower has one session, until it begins another.
Left to others: consumers, who get no session (handlers/fetch.py), reading (read.py), the follower's side
(follower/round.py).
Why: docs/decisions/0042-brokers-tell-each-other-what-has-changed.md
"""

from collections.abc import Callable, Iterator
from itertools import count
from uuid import UUID

from ...base.types import BrokerId, TopicPartition
from ...protocol.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch
from ...protocol.messages.fetch import FetchPartition, FetchRequest, PartitionData
from ...protocol.primitives import Slices
from ...replication.progress import Pulse
from ..replicas.partition import Partition
from ..replicas.shared import ReplicaShared
from ..turn import Woken
from .read import FetchItem, FetchSource, Found, Reading

FIRST_EPOCH, NO_SESSION_EPOCH = 0, -1
EPOCH_MAX = (1 << 31) - 1
OUTSIDE_AGAIN_S = 0.1  # how often a quiet follower outside an ISR is checked again
ROUND = 64  # partitions per fetch whose log start is compared: retention moves it silently

Find = Callable[[TopicPartition], Partition]
NameOf = Callable[[UUID], str | None]
Key = tuple[UUID, int]
Told = tuple[int, int]  # high watermark and log start


class Followed(FetchItem):
    """One partition of a session: what was last asked for, and what was last sent."""

    __slots__ = ("_session", "told")

    def __init__(self, session: "FetchSession", topic: str, topic_id: UUID, asked: FetchPartition) -> None:
        super().__init__(topic, topic_id, asked)
        self._session = session
        self.told: Told | None = None  # None: send whatever there is

    def news(self, grown: bool, risen: bool) -> None:
        """The partition has changed. Only growth wakes the fetch: a new high watermark is not urgent."""
        self._session.stirred[self] = None
        if grown and self._session.waiting is not None:
            self._session.shared.turn.notify(self._session.waiting)


class FetchSession:
    """The session of one follower: all that it fetches from this broker."""

    def __init__(self, id: int, fetcher: FetchSource, shared: ReplicaShared) -> None:
        self.id = id
        self.fetcher = fetcher
        self.shared = shared
        self.next_epoch = FIRST_EPOCH
        self.waiting: Woken | None = None  # its fetch, if parked
        self.stirred: dict[Followed, None] = {}  # partitions to read, longest waiting first
        self._entries: dict[Key, Followed] = {}
        self._outside: dict[Followed, None] = {}  # partitions whose ISR the follower is not in
        self._outside_at = 0.0  # when to check these again
        self._sent: list[Followed] = []  # the last response has records of these
        self._pulse = Pulse(shared.loop.time())
        self._round: Iterator[Followed] = iter(())

    def __len__(self) -> int:
        return len(self._entries)

    def take(self, request: FetchRequest, find: Find, name_of: NameOf) -> None:
        """Process the next fetch: the partitions that it names, forgets, and implies."""
        now = self.shared.loop.time()
        sent, self._sent = self._sent, []
        self.stirred.update(dict.fromkeys(sent))  # if the records arrived, this fetch names them
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                self._forget((gone.topic_id, index))
        for topic in request.topics:
            name = name_of(topic.topic_id)
            for asked in topic.partitions:
                key = (topic.topic_id, asked.partition)
                entry = self._entries.get(key)
                if entry is None:
                    entry = self._entries[key] = Followed(self, name or "", topic.topic_id, asked)
                entry.asked, entry.told = asked, None
                self._find(entry, name, find)
        for entry in list(self.stirred):
            self._acknowledge(entry)
        if self._pulse.is_dropped:
            self._pulse.is_dropped = False
            self._outside.update(dict.fromkeys(each for each in self._entries.values() if self._is_out(each)))
        if now >= self._outside_at:
            self._outside_at = now + OUTSIDE_AGAIN_S
            for entry in [each for each in self._outside if each not in self.stirred]:
                self._acknowledge(entry)
        self._pulse.at = now
        self._compare_starts()

    def close(self) -> None:
        """The session ends."""
        for key in list(self._entries):
            self._forget(key)

    def told(self, wanted: list[FetchItem], found: list[PartitionData]) -> Found:
        """What of the read is news. An error stays news until the follower asks for something else."""
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
            now = (data.high_watermark, data.log_start_offset)
            if has_records or now != entry.told:
                entry.told = now
                told.append((entry, data))
            if has_records:
                self._sent.append(entry)
            if has_records or entry.partition.log.end_offset <= entry.asked.fetch_offset:
                self.stirred.pop(entry, None)
        return [entry for entry, _ in told], [data for _, data in told]

    def _find(self, entry: Followed, name: str | None, find: Find) -> None:
        self.stirred.pop(entry, None)
        self.stirred[entry] = None
        before = entry.partition
        if before is not None and before.offline is None:
            entry.warm_up()
            return  # it is still here: a removed one counts as offline
        entry.look_up(name, find)
        if before is not None and before is not entry.partition:
            before.parked.pop(entry, None)
        if entry.partition is not None and entry not in entry.partition.parked:
            entry.partition.park(entry)

    def _acknowledge(self, entry: Followed) -> None:
        """Record the progress from the offset named last. From then on, the session's pulse repeats it."""
        partition = entry.partition
        if partition is None:
            return
        entry.acknowledge(self.fetcher)
        replica = self.fetcher.replica
        leader = partition.leading
        progress = None if leader is None else leader.progress_of(replica)
        self._outside.pop(entry, None)
        if leader is None or progress is None:
            return
        counts = not entry.error and entry.parting is None
        if counts and progress.incarnation == self.fetcher.incarnation:
            progress.pulse = self._pulse
            if replica not in leader.isr.members:
                self._outside[entry] = None
        elif progress.pulse is self._pulse:
            progress.pulse = None

    def _is_out(self, entry: Followed) -> bool:
        leader = entry.partition.leading if entry.partition is not None else None
        return leader is not None and self.fetcher.replica not in leader.isr.members

    def _forget(self, key: Key) -> None:
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self.stirred.pop(entry, None)
        self._outside.pop(entry, None)
        entry.told = None
        if entry.partition is None:
            return
        entry.partition.parked.pop(entry, None)
        leader = entry.partition.leading
        progress = None if leader is None else leader.progress_of(self.fetcher.replica)
        if progress is not None and progress.pulse is self._pulse:
            progress.pulse = None

    def _compare_starts(self) -> None:
        for _ in range(ROUND):
            entry = next(self._round, None)
            if entry is None:
                self._round = iter(tuple(self._entries.values()))
                return
            if entry.told is None or entry.partition is None:
                continue
            if entry.told[1] != entry.partition.log.start_offset:
                self.stirred[entry] = None


class SessionReading(Reading):
    """What one fetch of a session reads: the partitions that have news."""

    __slots__ = ("_session",)

    def __init__(self, session: FetchSession, bytes_max: int) -> None:
        super().__init__(session.fetcher, [], bytes_max, 0)
        self._session = session

    @property
    def parks_at(self) -> list[Partition]:
        return []  # the session is parked there itself

    @property
    def session_id(self) -> int:
        return self._session.id

    def read(self) -> list[PartitionData]:
        self.wanted = list(self._session.stirred)
        return super().read()

    def told(self, found: list[PartitionData]) -> Found:
        return self._session.told(self.wanted, found)


class FetchSessions:
    """The session of each follower."""

    def __init__(self, shared: ReplicaShared) -> None:
        self._shared = shared
        self._of: dict[BrokerId, FetchSession] = {}
        self._ids = count(1)
        shared.on_brokers.subscribe(self.keep_only)

    def of(self, fetcher: FetchSource, request: FetchRequest) -> FetchSession | None:
        """The session of this fetch, a new one if it asks for that, None if it wants none. Raises if the
        follower's session is unknown or its epoch is not the next.
        """
        held = self._of.get(fetcher.replica)
        if request.session_epoch in (FIRST_EPOCH, NO_SESSION_EPOCH):
            if held is not None and (request.session_epoch == FIRST_EPOCH or held.id == request.session_id):
                self._of.pop(fetcher.replica).close()
            if request.session_epoch == NO_SESSION_EPOCH:
                return None
            held = self._of[fetcher.replica] = FetchSession(next(self._ids), fetcher, self._shared)
        elif held is None or held.id != request.session_id or held.fetcher != fetcher:
            raise FetchSessionIdNotFound()
        elif request.session_epoch != held.next_epoch:
            raise InvalidFetchSessionEpoch()
        held.next_epoch = held.next_epoch % EPOCH_MAX + 1
        return held

    def keep_only(self, brokers: frozenset[BrokerId]) -> None:
        """Close the sessions of brokers that are not registered; one that returns begins a new session."""
        for broker in [each for each in self._of if each not in brokers]:
            self._of.pop(broker).close()
