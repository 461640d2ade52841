"""Watches /config/changes in ZooKeeper, like Kafka's brokers: a notification names whose config has changed.

So it does not matter who writes: the controller for a client, or a tool that writes to ZooKeeper itself. Each
broker reads a notification once. Any broker that has known it for a quarter of an hour removes it: a broker
that was away for longer has lost its session and reads everything again (topics come from the controller,
unless it is one of Apache Kafka; the rest from the reading below). Who is asked for settings looks once more
before it answers, for another broker may have taken a change just now. Of more than NOTICES_MAX the oldest go
earlier, for with each look every broker reads all names; but not before a session that was away must have
ended.
Left to others: what the configs mean (config/live.py, replicas/topic_configs.py), what the
controller does then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress

import structlog

from ..base.tasks import FailureHook, Tasks
from ..controller.watches import Watches
from ..zookeeper import documents
from ..zookeeper.client import (
    Check,
    Delete,
    MultiFailed,
    NoNode,
    SessionEvent,
    SessionState,
    Stat,
    ZkClient,
    ZkError,
)
from ..zookeeper.config_nodes import NOTHING, Overrides, overrides_in, read_overrides
from .config.groups import GroupSettings
from .config.live import LiveConfig
from .replicas.topic_configs import TopicSettings

logger = structlog.get_logger(__name__)

RETRY_S = 0.2
REFRESH_S = 2.0
KEPT_S = 15 * 60.0
NOTICES_MAX = 1_000
KEPT_LEAST_S, KEPT_LEAST_SESSIONS = 120.0, 3
REMOVED_AT_ONCE = 100  # before it is looked for new ones
BROKERS, TOPICS, GROUPS = "brokers/", "topics/", "groups/"
NODES_AT_ONCE = 500
READS_AT_ONCE = 50  # nodes; after a lost session all topics are read that the controller does not tell of


class ConfigWatch:
    """Keeps the configs of this broker, of all topics and of all groups as they are in ZooKeeper."""

    def __init__(
        self,
        zk: ZkClient,
        config: LiveConfig,
        groups: GroupSettings,
        on_failure: FailureHook | None = None,
    ) -> None:
        self.topics: TopicSettings | None = None
        self._on_topic: Callable[[str], None] = lambda topic: None
        self._zk = zk
        self._config = config
        self._groups = groups
        self._tasks = Tasks("config-watch", on_failure)
        self._loop = asyncio.get_running_loop()
        self._due = asyncio.Event()
        self._watches = Watches(lambda _: self._due.set())
        self._seen: dict[str, tuple[float, int]] = {}  # notifications: when first seen, and the version
        self._pending: dict[str, None] = {}  # entities whose config must be read
        self._generation = zk.generation
        self._stop_listening: Callable[[], None] = lambda: None
        self._next_look = asyncio.Event()  # set when a look that begins from now on is over

    async def read_own(self) -> None:
        """Read the cluster-wide broker config and this broker's own. Raises ZkError."""
        for entity in (documents.ALL_BROKERS, str(self._config.started_with.broker_id)):
            await self._read(BROKERS + entity)

    async def read_groups(self) -> None:
        """Read the configs of all groups, and again those that are gone. Raises ZkError."""
        try:
            names = sorted(await self._zk.children(documents.GROUP_CONFIGS))
        except NoNode:  # no controller of ours has made it yet
            names = []
        gone = set(self._groups.names) - {self._name_of(name) for name in names}
        await self._read_group_nodes([*map(documents.quoted, gone), *names])

    async def refresh(self) -> None:
        """Return when all is known that has been announced by now: so a client sees what was changed before,
        by whichever broker. If ZooKeeper does not answer, what is known must do.
        """
        self._due.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(REFRESH_S):
                await self._next_look.wait()

    def start(self, topics: TopicSettings, on_topic: Callable[[str], None]) -> None:
        """Start to process notifications, including those that exist already. `on_topic`: the config of this
        topic may have changed.
        """
        self.topics = topics
        self._on_topic = on_topic
        topics.unsaid.subscribe(self._unsaid)
        self._stop_listening = self._zk.listen(self._session_changed)
        self._due.set()
        self._tasks.spawn(self._run(), "changes")

    async def stop(self) -> None:
        """Stop watching."""
        self._stop_listening()
        await self._tasks.stop()

    def _unsaid(self, topic: str) -> None:
        self._pending[TOPICS + topic] = None
        self._due.set()

    def _session_changed(self, event: SessionEvent) -> None:
        """All watches are lost. In a new session, notifications may have been missed, too."""
        if event.state is not SessionState.CONNECTED:
            return
        self._watches.forget()
        if event.generation != self._generation:
            self._generation = event.generation
            self._pending[BROKERS + documents.ALL_BROKERS] = None
            self._pending[f"{BROKERS}{self._config.started_with.broker_id}"] = None
            self._pending[GROUPS] = None
            if self.topics is not None:
                self._pending.update(dict.fromkeys(TOPICS + topic for topic in self.topics.unsent))
        self._due.set()

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout_at(self._expires_at()):
                    await self._due.wait()
            except TimeoutError:
                pass  # time to remove old notifications
            self._due.clear()
            looking, self._next_look = self._next_look, asyncio.Event()
            try:
                try:
                    await self._look()
                finally:
                    looking.set()
                await self._remove_old()
            except ZkError as error:
                logger.info("config_read_failed", reason=repr(error))
                self._due.set()
                await asyncio.sleep(RETRY_S)

    async def _look(self) -> None:
        names = await self._watches.arm(documents.CONFIG_CHANGES, self._zk.children)
        for name in self._seen.keys() - set(names):
            del self._seen[name]
        for some in _in_parts([name for name in sorted(names) if name not in self._seen]):
            for failure in (await _side_by_side(self._take, some)).values():
                raise failure
        for some in _in_parts(list(self._pending)):
            await self._read_pending(some)

    async def _take(self, name: str) -> None:
        path = f"{documents.CONFIG_CHANGES}/{name}"
        try:
            data, stat = await self._zk.get(path)
        except NoNode:
            return
        try:
            entity = documents.parse(documents.ConfigChangeDocument, data).path
            if not {".", ".."}.isdisjoint(entity.split("/")):
                raise documents.BadDocument(f"{entity!r} is no entity")
            self._pending[entity] = None
        except documents.BadDocument as bad:
            logger.error("znode_malformed", path=path, reason=str(bad))
        self._seen[name] = (self._loop.time(), stat.version)

    # --- settings ----------------------------------------------------------------------------------

    async def _read_pending(self, entities: Sequence[str]) -> None:
        """What cannot be read stays pending."""
        for entity in entities:
            del self._pending[entity]
        failed = await _side_by_side(self._read, entities)
        self._pending.update(dict.fromkeys(failed))
        for failure in failed.values():
            raise failure

    async def _read(self, entity: str) -> None:
        """Read the config if it concerns us; clients', users' and other brokers' configs do not."""
        if entity == GROUPS:
            return await self.read_groups()
        broker, topic = entity.removeprefix(BROKERS), entity.removeprefix(TOPICS)
        try:
            if broker != entity and self._config.concerns(broker):
                told = await read_overrides(self._zk, documents.broker_config_path(broker))
                self._config.learn(broker, told)
            elif topic != entity and self.topics is not None:
                known = self.topics.of(topic)
                self.topics.learn(topic, await self._overrides_of(topic, known), known)
                self._on_topic(topic)
            elif entity.startswith(GROUPS):
                await self._read_group_nodes([entity.removeprefix(GROUPS)])
        except documents.BadDocument as bad:
            logger.error("znode_malformed", path=f"/config/{entity}", reason=str(bad))
        return None

    async def _read_group_nodes(self, names: Sequence[str]) -> None:
        """A node that is gone for a server that lags behind is read again with the notification it lacks."""
        for start in range(0, len(names), NODES_AT_ONCE):
            some = names[start : start + NODES_AT_ONCE]
            paths = [f"{documents.GROUP_CONFIGS}/{name}" for name in some]
            for name, found in zip(some, await self._zk.get_many(paths), strict=True):
                if found is None:
                    self._groups.learn(self._name_of(name), NOTHING)
                else:
                    self._learn_group(name, *found)

    def _learn_group(self, name: str, data: bytes, stat: Stat) -> None:
        path = f"{documents.GROUP_CONFIGS}/{name}"
        try:
            told = overrides_in(data, stat, path)
        except documents.BadDocument as bad:
            logger.error("znode_malformed", path=path, reason=str(bad))
        else:
            self._groups.learn(self._name_of(name), told)

    @staticmethod
    def _name_of(name: str) -> str:
        """The group of a node. What is not spelt as we do is its own name."""
        try:
            return documents.unquoted(name)
        except documents.BadDocument:
            return name

    async def _overrides_of(self, topic: str, known: Overrides) -> Overrides:
        """The topic's overrides. That there is no node, or an older one, is believed only when it is certain:
        a controller of Kafka tells of a topic as soon as its leader has it.
        """
        path = documents.topic_config_path(topic)
        told = await read_overrides(self._zk, path)
        if told.exists and told.edition >= known.edition:
            return told
        try:
            await self._zk.multi([Check(path, -1)])  # goes to ZooKeeper's leader, which is never behind
        except MultiFailed:
            return known.voided() if known.exists else NOTHING
        return await read_overrides(self._zk, path)

    # --- removing ----------------------------------------------------------------------------------

    def _expiries(self) -> list[tuple[float, str]]:
        """When each notification is to be removed, the oldest first."""
        session_s = self._config.started_with.zookeeper.session_timeout_ms / 1000
        least_s = min(max(KEPT_LEAST_S, KEPT_LEAST_SESSIONS * session_s), KEPT_S)
        known = sorted((since, name) for name, (since, _) in self._seen.items())
        surplus = len(known) - NOTICES_MAX
        return [
            (since + (least_s if number < surplus else KEPT_S), name)
            for number, (since, name) in enumerate(known)
        ]

    def _expires_at(self) -> float | None:
        return min((at for at, _ in self._expiries()), default=None)

    async def _remove_old(self) -> None:
        now = self._loop.time()
        old = [name for at, name in self._expiries() if at <= now]
        for name in old[:REMOVED_AT_ONCE]:
            _, version = self._seen[name]
            self._seen[name] = (now, version)  # if it cannot be removed, not again at once
            try:
                await self._zk.multi([Delete(f"{documents.CONFIG_CHANGES}/{name}", version)])
            except MultiFailed:
                continue  # another broker was quicker
        if len(old) > REMOVED_AT_ONCE:
            self._due.set()


def _in_parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for first in range(0, len(names), READS_AT_ONCE):
        yield names[first : first + READS_AT_ONCE]


async def _side_by_side(
    deed: Callable[[str], Awaitable[None]], names: Sequence[str]
) -> dict[str, BaseException]:
    """Do it for each of them, and return what went wrong."""
    outcomes = await asyncio.gather(*map(deed, names), return_exceptions=True)
    return {name: failure for name, failure in zip(names, outcomes, strict=True) if failure is not None}
