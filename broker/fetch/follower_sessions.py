"""Fetch sessions of followers: what a fetch says by its silence, and who has a session.

Silence about a partition also means: "I still hold everything before the offset that I named last". That
costs no work per partition: the leader reads the session's pulse when it needs to know
(replication/progress.py). A fetch also handles partitions whose ISR the follower is not in, because its
fetches may let it join.
A follower has one session, until it begins another; one of Apache Kafka has one for each of its connections.
Left to others: what any session does (sessions.py), the follower's side (follower/round.py).
"""

from itertools import count

from ...base.types import BrokerId
from ...protocol.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch
from ...protocol.messages.fetch import FetchRequest, PartitionData
from ...replication.progress import Pulse
from ..network.exchange import Channel
from ..replicas.partition import Partition
from ..replicas.shared import ReplicaShared
from .read import FetchSource
from .sessions import EPOCH_MAX, FIRST_EPOCH, NO_SESSION_EPOCH, FetchSession, Find, Followed, NameOf

OUTSIDE_AGAIN_S = 0.1  # how often a quiet follower outside an ISR is checked again


class FollowerSession(FetchSession):
    """The session of one follower. It reads to the log end: a new high watermark alone is not urgent."""

    def __init__(self, id: int, fetcher: FetchSource, shared: ReplicaShared) -> None:
        super().__init__(id, fetcher, shared)
        self._outside: dict[Followed, None] = {}  # partitions whose ISR the follower is not in
        self._outside_at = 0.0  # when to check these again
        self._pulse = Pulse(shared.loop.time())

    def take(self, request: FetchRequest, find: Find, name_of: NameOf) -> None:
        """Process the next fetch: the partitions that it names, forgets, and implies."""
        now = self.shared.loop.time()
        super().take(request, find, name_of)
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

    @property
    def is_quiet(self) -> bool:
        """Whether it stands at the end of all logs: most fetches ask for what has not been produced yet."""
        return not self.held and all(map(_is_at_end, self.stirred))

    def _end_of(self, partition: Partition, data: PartitionData) -> int:
        return partition.log.end_offset

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
        if entry in self.held:
            if entry.error or entry.parting or leader.waits_for(replica, self.shared.loop.time()):
                self._unhold(entry)
            else:
                leader.held_back(replica)
        counts = not entry.error and entry.parting is None
        if counts and progress.incarnation == self.fetcher.incarnation:
            progress.pulse = self._pulse
            if replica not in leader.isr.members:
                self._outside[entry] = None
        elif progress.pulse is self._pulse:
            progress.pulse = None

    def _unhold(self, entry: Followed) -> None:
        """It is in sync from now on, or has an error to be told: no throttle holds that back."""
        del self.held[entry]
        self.stirred[entry] = None

    def _is_out(self, entry: Followed) -> bool:
        leader = entry.partition.leading if entry.partition is not None else None
        return leader is not None and self.fetcher.replica not in leader.isr.members

    def _left(self, entry: Followed, partition: Partition) -> None:
        self._outside.pop(entry, None)
        leader = partition.leading
        progress = None if leader is None else leader.progress_of(self.fetcher.replica)
        if progress is not None and progress.pulse is self._pulse:
            progress.pulse = None


def _is_at_end(entry: Followed) -> bool:
    partition, asked = entry.partition, entry.asked
    if partition is None or entry.error or entry.parting is not None:
        return False
    leader = partition.leading
    is_led = leader is not None and leader.epoch == asked.current_leader_epoch
    return is_led and asked.fetch_offset == partition.log.end_offset


Lane = tuple[BrokerId, Channel | None]  # a follower, and its connection if it is one of Apache Kafka


class FollowerSessions:
    """The session of each follower. One of Apache Kafka has one for each of its fetching threads, which ends
    with its connection: one thread's must not end another's.
    """

    def __init__(self, shared: ReplicaShared) -> None:
        self._shared = shared
        self._of: dict[Lane, FollowerSession] = {}
        self._tied: set[Lane] = set()  # those that end with their connections
        self._ids = count(1)
        shared.on_brokers.subscribe(self.keep_only)

    def __len__(self) -> int:
        return len(self._of)

    def of(self, fetcher: FetchSource, request: FetchRequest, channel: Channel) -> FollowerSession | None:
        """The session of this fetch, a new one if it asks for that, None if it wants none. Raises if the
        follower's session is unknown or its epoch is not the next.
        """
        lane: Lane = fetcher.replica, channel if fetcher.is_kafkas else None
        held = self._of.get(lane)
        if request.session_epoch in (FIRST_EPOCH, NO_SESSION_EPOCH):
            if held is not None and (request.session_epoch == FIRST_EPOCH or held.id == request.session_id):
                self._of.pop(lane).close()
            if request.session_epoch == NO_SESSION_EPOCH:
                return None
            self._end_other_kinds(lane)
            held = self._of[lane] = FollowerSession(next(self._ids), fetcher, self._shared)
            self._tie(lane)
        elif held is None or held.id != request.session_id or held.fetcher.incarnation != fetcher.incarnation:
            raise FetchSessionIdNotFound()
        elif request.session_epoch != held.next_epoch:
            raise InvalidFetchSessionEpoch()
        held.next_epoch = held.next_epoch % EPOCH_MAX + 1
        return held

    def _end_other_kinds(self, lane: Lane) -> None:
        """A broker id has become one of Kafka, or of ours: what the former process had is over."""
        for other in [each for each in self._of if each[0] == lane[0] and None in (each[1], lane[1])]:
            self._of.pop(other).close()

    def _tie(self, lane: Lane) -> None:
        channel = lane[1]
        if channel is None or lane in self._tied:
            return
        before = channel.at_end

        def end() -> None:
            before()
            self._tied.discard(lane)
            session = self._of.pop(lane, None)
            if session is not None:
                session.close()

        self._tied.add(lane)
        channel.at_end = end

    def keep_only(self, brokers: frozenset[BrokerId]) -> None:
        """Close the sessions of brokers that are not registered; one that returns begins a new session."""
        for lane in [each for each in self._of if each[0] not in brokers]:
            self._of.pop(lane).close()
