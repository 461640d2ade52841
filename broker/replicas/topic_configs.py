"""TopicSettings: each topic's config overrides, applied to the replicas here.

The contents of a topic's znode arrive in two ways: the controller sends them together with roles, and this
broker reads them after a change notification, or because a controller of Apache Kafka has not sent them.
The newer version counts, in whatever order they arrive. When the broker's own defaults change, what topics
inherit is computed again. While a topic's settings are still being read, the defaults are not believed to be
its settings: a role waits for them a moment, and nothing of it is deleted.
Left to others: reading ZooKeeper (broker/config_watch.py), what a replica does with its settings
(partition.py).
Why: docs/decisions/0011-controller-pushes-topic-configs.md
"""

import asyncio
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

import structlog

from ...base.event import Event
from ...base.types import TopicPartition
from ...protocol.messages.control import LeaderAndIsrTopicState, UpdateMetadataTopicState
from ...protocol.primitives import NO_UUID
from ...storage.config import InvalidOption, TopicConfig
from ...storage.directories.log_manager import Logs
from ...zookeeper.config_nodes import NOTHING, UNKNOWN, Overrides

if TYPE_CHECKING:
    from .partition import Partition

logger = structlog.get_logger(__name__)

Resolved = tuple[TopicConfig, Mapping[str, str]]  # and the overrides it was made from

BREATH = 50  # replicas reconfigured between two yields to the event loop


class TopicSettings:
    """The only holder of topics' overrides. `hosted` are the replicas to configure."""

    def __init__(self, logs: Logs, hosted: Mapping[TopicPartition, "Partition"]) -> None:
        self._logs = logs
        self._hosted = hosted
        self._told: dict[str, Overrides] = {}
        self._ids: dict[str, UUID] = {}  # of the topics that controllers have named, by name
        self._by_kafkas = False  # the controller sends no settings
        self._unread: set[str] = set()  # topics whose settings are being read for the first time
        self._read = asyncio.Event()
        self._resolved: dict[str, Resolved] = {}
        self.unsaid = Event[str]()  # the overrides of this topic must be read

    def of(self, topic: str) -> Overrides:
        """The topic's overrides."""
        return self._told.get(topic, NOTHING)

    def names_of(self, topic: str) -> Mapping[str, str]:
        """The topic's overrides, by their names."""
        return self.of(topic).names

    @property
    def unsent(self) -> list[str]:
        """The topics whose settings this broker has to read itself."""
        return sorted(self._told) if self._by_kafkas else []

    def told(self, state: LeaderAndIsrTopicState | UpdateMetadataTopicState, by_kafkas: bool = False) -> None:
        """Learn the overrides that the controller has sent. One of Apache Kafka sends none: those of a topic
        that is new here are to be read (`unsaid`). What was read of an earlier topic of this name is void.
        """
        name, self._by_kafkas = state.topic_name, by_kafkas
        known = self._ids.get(name, NO_UUID)
        is_another = known != state.topic_id and NO_UUID not in (known, state.topic_id)
        if state.topic_id != NO_UUID:
            self._ids[name] = state.topic_id
        if by_kafkas and not state.configs and state.configs_born == UNKNOWN:
            if name not in self._told:
                self._told[name] = NOTHING
            elif is_another:
                self.learn(name, self._told[name].voided())
            else:
                return
            if self.unsaid.is_heard:
                self._unread.add(name)
            self.unsaid(name)
            return
        names = {config.name: config.value for config in state.configs}
        self.learn(state.topic_name, Overrides(names, state.configs_born, state.configs_version))

    def learn(self, topic: str, told: Overrides, instead_of: Overrides | None = None) -> None:
        """Take the contents of the topic's znode, unless they are older than what is known. What was known
        before a reading that is certain (`instead_of`) does not stand in its way: the settings of the present
        topic may have been read before the controller named it, and were void with the earlier one's.
        """
        known = self._told.get(topic)
        if topic in self._unread:
            self._unread.discard(topic)
            self._read.set()
        if known is not None and told.edition < known.edition and known != instead_of:
            return
        self._told[topic] = told
        if known is None or known.names != told.names:
            self._resolved.pop(topic, None)
            for partition in [each for tp, each in self._hosted.items() if tp.topic == topic]:
                self._configure(partition)

    def are_read(self, topic: str) -> bool:
        """Whether its settings are not being read for the first time."""
        return topic not in self._unread

    async def until_read(self, topics: Collection[str], within_s: float) -> None:
        """Wait for the settings of these topics, if they are being read, but not for long. One at a time."""
        left = self._unread.intersection(topics)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while left := left & self._unread:
                    self._read.clear()
                    await self._read.wait()

    def forget_others(self, topics: Collection[str]) -> None:
        """Forget all topics but these, and those with replicas here, which metadata may not name yet."""
        if len(self._told) > len(topics):
            for topic in self._told.keys() - set(topics) - {tp.topic for tp in self._hosted}:
                del self._told[topic]
                self._unread.discard(topic)
                self._ids.pop(topic, None)
                self._resolved.pop(topic, None)

    def config_of(self, topic: str) -> TopicConfig:
        """The topic's settings. Invalid overrides are left out, so that the replica runs."""
        return self._resolve(topic)[0]

    def understood(self, topic: str) -> Mapping[str, str]:
        """The topic's overrides without the invalid ones."""
        return self._resolve(topic)[1]

    async def defaults_changed(self) -> None:
        """The broker's configuration has changed: every replica takes the defaults it inherits."""
        self._resolved.clear()
        for place, partition in enumerate(list(self._hosted.values()), 1):
            if self._hosted.get(partition.tp) is partition:  # else it was removed meanwhile
                self._configure(partition)
            if place % BREATH == 0:
                await asyncio.sleep(0)

    def _configure(self, partition: "Partition") -> None:
        config = self.config_of(partition.tp.topic)
        if config != partition.topic_config and partition.offline is None:
            partition.configure(config)

    def _resolve(self, topic: str) -> Resolved:
        found = self._resolved.get(topic)
        names = self.of(topic).names
        while found is None:
            try:
                found = self._resolved[topic] = TopicConfig.from_names(names, self._logs.config), names
            except InvalidOption as error:
                logger.error("topic_config_invalid", topic=topic, reason=str(error))
                assert error.name in names, "the broker's own defaults are valid"
                names = {name: value for name, value in names.items() if name != error.name}
        return found
