"""The controller's ZooKeeper watches: brokers, topics, deletions and notifications become events.

Each `look` sets its watches before it reads, so no change is missed. A watch that fires, and every
reconnection, only says that it is time to look again.
Left to others: what follows from what is seen (`planning/planner.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Generic, TypeVar
from uuid import UUID

import structlog

from ..base.types import KAFKAS, TopicPartition
from ..zookeeper import documents
from ..zookeeper.client import (
    TOGETHER_MAX,
    Delete,
    MultiFailed,
    NoNode,
    SetData,
    Stat,
    Watch,
    ZkClient,
    ZkError,
)
from ..zookeeper.config_nodes import NOTHING, Overrides, read_overrides
from ..zookeeper.znodes import ControllerTerm, failed_dirs, fenced
from .assignment_nodes import assignment_of
from .planning import plans
from .planning.state import Broker, PartitionState, Topic

logger = structlog.get_logger(__name__)

WHOLE_TOPIC = -1  # as a partition number: the whole topic cannot be parsed

T = TypeVar("T")


class Watches:
    """Sets one watch for each path, until it fires or the connection ends.

    After a read that fails it is unknown whether the watch was set. The path counts as unwatched: two watches
    do no harm.
    """

    def __init__(self, fired: Callable[[str], None]) -> None:
        self._fired = fired
        self._standing: set[str] = set()

    async def arm(self, path: str, read: Callable[[str, Watch | None], Awaitable[T]]) -> T:
        """What `read` finds at the path. It also sets a watch, unless there is one already."""
        if path in self._standing:
            return await read(path, None)
        self._standing.add(path)
        try:
            return await read(path, self._fire)
        except BaseException:
            self._standing.discard(path)
            raise

    def forget(self) -> None:
        """The connection has ended: all watches are gone."""
        self._standing.clear()

    def _fire(self, path: str) -> None:
        self._standing.discard(path)
        self._fired(path)


class BrokerWatch:
    """Watches all registered brokers. A registration may also be replaced without being removed."""

    def __init__(self, zk: ZkClient) -> None:
        self.due = asyncio.Event()
        self._zk = zk
        self._watches = Watches(lambda _: self.due.set())

    def reconnected(self) -> None:
        """Look again, with new watches."""
        self._watches.forget()
        self.due.set()

    async def look(self) -> dict[int, Broker]:
        """The brokers registered now. One whose registration cannot be parsed is left out."""
        names = await self._watches.arm(documents.BROKER_IDS, self._zk.children)
        found = await asyncio.gather(*(self._read(int(name)) for name in names if name.isdigit()))
        return {broker.id: broker for broker in found if broker is not None}

    async def _read(self, broker: int) -> Broker | None:
        path = documents.broker_path(broker)
        try:
            data, stat = await self._watches.arm(path, self._zk.get)
            known = broker_of(broker, documents.parse(documents.RegistrationDocument, data), stat)
            if known.is_kafkas:  # what one of ours has reported under this id says nothing of it
                return known
            return replace(known, has_failed_dirs=bool(await failed_dirs(self._zk, broker)))
        except NoNode:
            return None
        except documents.BadDocument as bad:
            logger.error("znode_malformed", path=path, reason=str(bad))
        return None


def broker_of(broker: int, registration: documents.RegistrationDocument, stat: Stat) -> Broker:
    """A registration as the planner sees it. Raises `BadDocument`."""
    return Broker(
        id=broker,
        incarnation=KAFKAS + stat.czxid if registration.is_kafkas else registration.incarnation,
        intact_since=registration.intact_since,
        intact_since_of=dict(registration.intact_since_of),
        endpoints=tuple(registration.listeners()),
        rack=registration.rack,
        leaving=bool(registration.leaving),
        born=stat.czxid,
    )


class TopicWatch:
    """Topics that come, grow and go, and the topics to be deleted. One that an old tool has made is given the
    id that it lacks, as by Kafka's controllers (KIP-516): followers ask for topics by their ids. One whose
    node such a tool has written anew gets the id back that it had, or its logs would be another topic's.

    Old tools ask for a deletion by a node, without asking a broker. Where topics must not be deleted such a
    request is removed, as by Kafka's controllers, and nothing else happens.
    """

    def __init__(
        self,
        zk: ZkClient,
        term: ControllerTerm,
        random_bytes: Callable[[int], bytes],
        deletes_topics: bool = True,
    ) -> None:
        self.due = asyncio.Event()
        self._zk = zk
        self._term = term
        self._random_bytes = random_bytes
        self._deletes_topics = deletes_topics
        self._watches = Watches(self._touched)
        self._known: set[str] = set()
        self._ids: dict[str, tuple[int, str]] = {}  # of known topics, by path: czxid and id of the node
        self._touched_topics: set[str] = set()
        self._removed: set[str] = set()

    def reconnected(self) -> None:
        """Look at everything again, with new watches."""
        self._watches.forget()
        self._touched_topics |= self._known
        self.due.set()

    def removed(self, topic: str) -> None:
        """This controller has removed the topic's znodes: look, and report it."""
        self._removed.add(topic)
        self.due.set()

    def configured(self, topics: Iterable[str]) -> None:
        """The settings of these topics have changed. Their znodes have no watches, so look."""
        self._touched_topics |= self._known.intersection(topics)
        self.due.set()

    def _touched(self, path: str) -> None:
        if path.startswith(documents.TOPICS + "/"):
            self._touched_topics.add(path.removeprefix(documents.TOPICS + "/"))
        self.due.set()

    async def look(self) -> list[plans.Event]:
        """Events since the last look. Deletions are read first, so that their topics are read after them."""
        touched, self._touched_topics = self._touched_topics, set()
        removed, self._removed = self._removed, set()
        try:
            return await self._look(touched, removed)
        except ZkError:
            self._touched_topics |= touched
            self._removed |= removed
            raise

    async def _look(self, touched: set[str], removed: set[str]) -> list[plans.Event]:
        doomed = await self._watches.arm(documents.DELETE_TOPICS, self._zk.children)
        names = set(await self._watches.arm(documents.TOPICS, self._zk.children))
        gone = (self._known | removed) - names
        wanted = sorted((names - self._known) | (touched & names))
        found = await asyncio.gather(*(self._read(name) for name in wanted))
        self._known = names
        for name in gone:
            self._ids.pop(documents.topic_path(name), None)
        events: list[plans.Event] = []
        topics = {topic.name: topic for topic in found if isinstance(topic, Topic)}
        if topics or gone:
            events.append(plans.TopicsRead(topics, frozenset(gone)))
        if broken := frozenset(one for one in found if isinstance(one, TopicPartition)):
            events.append(plans.StatesRead({}, broken))
        deleting = frozenset(doomed) & names
        if deleting and not self._deletes_topics:
            logger.warning("topic_deletion_disabled", topics=sorted(deleting))
            deleting = frozenset()
        if deleting:
            events.append(plans.DeletionsWanted(deleting))
        for name in sorted(frozenset(doomed) - deleting):
            await self._forget_request(name)
        return events

    async def _read(self, name: str) -> Topic | TopicPartition | None:
        path = documents.topic_path(name)
        try:
            document, stat = await self._with_id(path)
            overrides = await self._overrides(name)
            return topic_of(name, document, stat.version, overrides)
        except NoNode:
            return None
        except documents.BadDocument as bad:
            logger.error("znode_malformed", path=path, reason=str(bad))
            return TopicPartition(name, WHOLE_TOPIC)

    async def _with_id(self, path: str) -> tuple[documents.TopicDocument, Stat]:
        """The topic's document. If it lacks an id, it is given one first: a topic whose id changes counts as
        another topic.
        """
        while True:
            data, stat = await self._watches.arm(path, self._zk.get)
            document = documents.parse(documents.TopicDocument, data)
            if document.topic_id is not None:
                self._ids[path] = stat.czxid, document.topic_id
                return document, stat
            born, id = self._ids.get(path, (-1, ""))
            if born != stat.czxid:
                id = documents.uuid_to_text(UUID(bytes=self._random_bytes(16)))
            named = document.model_copy(update={"version": documents.TOPIC_VERSION, "topic_id": id})
            try:
                (written,) = await fenced(self._zk, self._term, [SetData(path, named.data(), stat.version)])
            except MultiFailed:
                continue  # it has changed meanwhile
            assert isinstance(written, Stat)
            self._ids[path] = stat.czxid, id
            logger.info("topic_id_given", path=path, id=id)
            return named, written

    async def _overrides(self, name: str) -> Overrides:
        """A document that cannot be parsed counts as none."""
        path = documents.topic_config_path(name)
        try:
            return await read_overrides(self._zk, path)
        except documents.BadDocument as bad:
            logger.error("znode_malformed", path=path, reason=str(bad))
            return NOTHING

    async def _forget_request(self, name: str) -> None:
        """Remove a request to delete a topic that does not exist, or must not be deleted."""
        path = documents.delete_topic_path(name)
        stat = await self._zk.exists(path)
        if stat is not None:
            try:
                await fenced(self._zk, self._term, [Delete(path, stat.version)])
            except MultiFailed:
                self.due.set()


def topic_of(name: str, document: documents.TopicDocument, version: int, overrides: Overrides) -> Topic:
    """A topic as the planner sees it."""
    each = {number: assignment_of(document, number) for number in document.partitions}
    return Topic(
        name,
        document.uuid,
        {number: assignment.replicas for number, assignment in each.items()},
        overrides.names,
        overrides.edition,
        moves={number: assignment for number, assignment in each.items() if assignment.is_moving},
        version=version,
    )


N = TypeVar("N", bound=documents.Document)


class NotificationWatch(Generic[N]):
    """Notifications, each a znode below one path: read, handled, and only then removed.

    Removed before it was handled, a notification could get lost together with the answer to its removal.
    """

    def __init__(self, zk: ZkClient, term: ControllerTerm, parent: str, kind: type[N]) -> None:
        self.due = asyncio.Event()
        self._zk = zk
        self._term = term
        self._parent = parent
        self._kind = kind
        self._watches = Watches(lambda _: self.due.set())
        self._read: list[Delete] = []

    def reconnected(self) -> None:
        """Look again, with a new watch."""
        self._watches.forget()
        self.due.set()

    async def read(self) -> list[N]:
        """All notifications there are now. One that is not removed is read again at the next look."""
        names = await self._watches.arm(self._parent, self._zk.children)
        found = await asyncio.gather(*(self._get(f"{self._parent}/{name}") for name in names))
        self._read = [removal for removal, _ in filter(None, found)]
        return [document for _, document in filter(None, found) if document is not None]

    async def handled(self) -> None:
        """Remove what was read last: it has been handled. Raises ZkError, ControllerMoved."""
        removals, self._read = self._read, []
        outcomes = await asyncio.gather(*(self._remove(one) for one in removals), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _get(self, path: str) -> tuple[Delete, N | None] | None:
        try:
            data, stat = await self._zk.get(path)
        except NoNode:
            return None
        try:
            return Delete(path, stat.version), documents.parse(self._kind, data)
        except documents.BadDocument as bad:
            logger.error("znode_malformed", path=path, reason=str(bad))
            return Delete(path, stat.version), None

    async def _remove(self, removal: Delete) -> None:
        try:
            await fenced(self._zk, self._term, [removal])
        except MultiFailed:  # it has gone, or it says something else now
            self.due.set()


class IsrWatch(NotificationWatch[documents.IsrChangeDocument]):
    """Notifications by leaders that have written new ISRs."""

    def __init__(self, zk: ZkClient, term: ControllerTerm) -> None:
        super().__init__(zk, term, documents.ISR_CHANGES, documents.IsrChangeDocument)

    async def look(self) -> list[plans.Event]:
        """The partitions concerned."""
        reported = await self.read()
        changed = sorted({TopicPartition(c.topic, c.partition) for one in reported for c in one.partitions})
        return [plans.IsrsChanged(tuple(changed))] if changed else []


class LogDirWatch(NotificationWatch[documents.LogDirEventDocument]):
    """Notifications by brokers with a log directory that has failed, is full, or has room again."""

    def __init__(self, zk: ZkClient, term: ControllerTerm) -> None:
        super().__init__(zk, term, documents.LOG_DIR_EVENTS, documents.LogDirEventDocument)

    async def look(self) -> list[plans.Event]:
        """The brokers concerned."""
        brokers = frozenset(one.broker for one in await self.read())
        return [plans.LogDirsChanged(brokers)] if brokers else []


async def read_states(
    zk: ZkClient, partitions: Iterable[TopicPartition], watches: Watches | None = None
) -> plans.StatesRead:
    """The state znodes of these partitions, read in groups. With `watches` each is read by itself."""
    wanted = list(partitions)
    read: dict[TopicPartition, PartitionState | documents.BadDocument | None] = {}
    if watches is not None:
        found = await asyncio.gather(*(_read_watched(zk, partition, watches) for partition in wanted))
        read.update(zip(wanted, found, strict=True))
    else:
        groups = [wanted[first : first + TOGETHER_MAX] for first in range(0, len(wanted), TOGETHER_MAX)]
        for some in await asyncio.gather(*(_read_group(zk, group) for group in groups)):
            read.update(some)
    broken = frozenset(q for q, s in read.items() if isinstance(s, documents.BadDocument))
    states = {q: s for q, s in read.items() if not isinstance(s, documents.BadDocument)}
    return plans.StatesRead(states, broken)


async def _read_group(
    zk: ZkClient, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, PartitionState | documents.BadDocument | None]:
    nodes = await zk.get_many([documents.state_path(partition) for partition in partitions])
    return {q: None if node is None else _state(q, *node) for q, node in zip(partitions, nodes, strict=True)}


async def _read_watched(
    zk: ZkClient, partition: TopicPartition, watches: Watches
) -> PartitionState | documents.BadDocument | None:
    path = documents.state_path(partition)
    try:
        return _state(partition, *await watches.arm(path, zk.get))
    except NoNode:
        return None


def _state(partition: TopicPartition, data: bytes, stat: Stat) -> PartitionState | documents.BadDocument:
    try:
        document = documents.parse(documents.StateDocument, data)
    except documents.BadDocument as bad:
        logger.error("znode_malformed", path=documents.state_path(partition), reason=str(bad))
        return bad
    if not document.isr or document.leader_epoch < 0:
        return documents.BadDocument(f"{partition}: the ISR is empty or the leader epoch negative")
    return PartitionState.of(document, stat.version, stat.czxid)
