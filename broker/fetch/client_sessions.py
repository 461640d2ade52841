"""Fetch sessions of clients (KIP-227): a consumer of many partitions names those that have moved on.

There are so many slots (`max.incremental.fetch.session.cache.slots`). If none is free, a session that was not
used for two minutes gives way, or else the smallest of those that are older than that, to one that is no
smaller; who gets none is answered session 0 and names everything each time. A session ends with its
connection, as clients begin a new one with a new connection.
Left to others: what any session does (sessions.py).
Why: docs/decisions/0012-fetch-sessions-end-with-their-connection.md
"""

from collections.abc import Callable, Iterator
from itertools import count

from ...protocol.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from ...protocol.messages.fetch import FetchRequest, PartitionData
from ..network.exchange import Channel, Exchange
from ..replicas.partition import Partition
from ..replicas.shared import ReplicaShared
from .read import CONSUMER, READ_COMMITTED
from .sessions import (
    EPOCH_MAX,
    FIRST_EPOCH,
    NO_SESSION_EPOCH,
    FetchSession,
    Find,
    Followed,
    Key,
    NameOf,
)

SERVED_FROM = 10  # before, each fetch must be checked for zstd, which such clients cannot read
TOPIC_IDS_FROM = 13
ID_MAX = (1 << 31) - 1
UNUSED_S = 120.0  # unused or as old as that, a session may be evicted
EVICTABLE_AGAIN_S = 1.0  # how often all sessions are searched for a small one


class ClientSession(FetchSession):
    """The session of one client at one connection."""

    def __init__(self, id: int, channel: Channel, uses_ids: bool, shared: ReplicaShared) -> None:
        super().__init__(id, CONSUMER, shared)
        self.channel = channel
        self.uses_ids = uses_ids
        self.born = self.used = shared.loop.time()

    def take(self, request: FetchRequest, find: Find, name_of: NameOf) -> None:
        """Process the next fetch. Partitions that were not here may be here by now."""
        self.finish_waiting()
        if request.isolation_level != self.isolation_level:
            self.isolation_level = request.isolation_level
            self.stirred.update(dict.fromkeys(self._entries.values()))
        super().take(request, find, name_of)
        for (topic_id, topic, _), entry in self._missing():
            self._find(entry, name_of(topic_id, topic), find)

    def finish_waiting(self) -> None:
        """Answer its parked fetch: its next one has come, or its end."""
        if self.waiting is not None:
            self.waiting.finish()

    def stirred_places(self) -> Iterator[tuple[str, int]]:
        """The partitions that its next fetch will read though it does not name them."""
        return ((entry.topic, entry.asked.partition) for entry in self.stirred)

    def _missing(self) -> list[tuple[Key, Followed]]:
        return [
            ((entry.topic_id, "" if self.uses_ids else entry.topic, entry.asked.partition), entry)
            for entry in self.stirred
            if entry.partition is None or entry.partition.offline is not None
        ]

    def _end_of(self, partition: Partition, data: PartitionData) -> int:
        return data.last_stable_offset if self.isolation_level == READ_COMMITTED else data.high_watermark


class ClientSessions:
    """The sessions of all clients, the one used least recently first."""

    def __init__(self, shared: ReplicaShared, slots: int) -> None:
        self._shared = shared
        self._slots = slots
        self._ids = count()
        self._sessions: dict[int, ClientSession] = {}
        self._search_at = 0.0

    def __len__(self) -> int:
        return len(self._sessions)

    def held(self, exchange: Exchange, id: int) -> ClientSession | None:
        """The session of this id, if it is this connection's."""
        session = self._sessions.get(id)
        return session if session is not None and session.channel is exchange.channel else None

    def of(self, exchange: Exchange, request: FetchRequest) -> ClientSession | None:
        """The session of this fetch; None if it wants none, or there is no room for it. Raises if its session
        is unknown, at another epoch, or of the other way to name topics.
        """
        held = self.held(exchange, request.session_id)
        if request.session_epoch in (FIRST_EPOCH, NO_SESSION_EPOCH):
            if held is not None:
                self._end(held)
            return None if request.session_epoch == NO_SESSION_EPOCH else self._begun(exchange, request)
        if held is None:
            raise FetchSessionIdNotFound()
        if request.session_epoch != held.next_epoch:
            raise InvalidFetchSessionEpoch()
        if held.uses_ids != (exchange.version >= TOPIC_IDS_FROM):
            raise FetchSessionTopicIdError()
        self._sessions[held.id] = self._sessions.pop(held.id)
        held.used = self._shared.loop.time()
        held.next_epoch = held.next_epoch % EPOCH_MAX + 1
        return held

    def end_if_empty(self, session: ClientSession) -> bool:
        """End a session that has forgotten all its partitions, as in Kafka."""
        if len(session) == 0:
            self._end(session)
        return len(session) == 0

    def _begun(self, exchange: Exchange, request: FetchRequest) -> ClientSession | None:
        size = sum(len(topic.partitions) for topic in request.topics)
        if exchange.version < SERVED_FROM or size == 0 or not self._has_room(size):
            return None
        id = next(each for n in self._ids if (each := n % ID_MAX + 1) not in self._sessions)
        channel, uses_ids = exchange.channel, exchange.version >= TOPIC_IDS_FROM
        session = self._sessions[id] = ClientSession(id, channel, uses_ids, self._shared)
        session.next_epoch = FIRST_EPOCH + 1
        channel.at_end = self._closing(channel)
        return session

    def _has_room(self, size: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        now = self._shared.loop.time()
        longest_unused = next(iter(self._sessions.values()), None)
        if longest_unused is not None and now - longest_unused.used > UNUSED_S:
            self._end(longest_unused)
            return True
        if now < self._search_at:
            return False
        old = [each for each in self._sessions.values() if now - each.born > UNUSED_S]
        smallest = min(old, key=len, default=None)
        if smallest is None or len(smallest) > size:
            self._search_at = now + EVICTABLE_AGAIN_S
            return False
        self._end(smallest)
        return True

    def _end(self, session: ClientSession) -> None:
        del self._sessions[session.id]
        session.finish_waiting()
        session.close()

    def _closing(self, channel: Channel) -> Callable[[], None]:
        def close() -> None:
            for session in [each for each in self._sessions.values() if each.channel is channel]:
                self._end(session)

        return close
