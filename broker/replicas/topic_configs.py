"""TopicSettings: what each topic overrides, and what follows for the replicas here.

Readings of a topic's znode come on two ways, pushed by the controller together with roles and read by this
broker after a notification; the newer one holds, whichever comes last. When the broker's own defaults change,
all that topics inherit is worked out anew.
Left to others: reading ZooKeeper (broker/config_watch.py), what a replica does with its settings
(partition.py).
Why: docs/decisions/0011-controller-pushes-topic-configs.md
"""

import asyncio
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import structlog

from ...base.types import TopicPartition
from ...protocol.messages.control import LeaderAndIsrTopicState, UpdateMetadataTopicState
from ...storage.config import InvalidOption, TopicConfig
from ...storage.directories.log_manager import Logs
from ...zookeeper.config_nodes import NOTHING, Overrides

if TYPE_CHECKING:
    from .partition import Partition

logger = structlog.get_logger(__name__)

Resolved = tuple[TopicConfig, Mapping[str, str]]  # and the overrides that it is made of

BREATH = 50  # so many replicas are told of new defaults before others get a turn


class TopicSettings:
    """The one holder of topics' overrides; `hosted` are the replicas that they are for."""

    def __init__(self, logs: Logs, hosted: Mapping[TopicPartition, "Partition"]) -> None:
        self._logs = logs
        self._hosted = hosted
        self._told: dict[str, Overrides] = {}
        self._resolved: dict[str, Resolved] = {}

    def of(self, topic: str) -> Overrides:
        """What the topic overrides."""
        return self._told.get(topic, NOTHING)

    def told(self, state: LeaderAndIsrTopicState | UpdateMetadataTopicState) -> None:
        """What the controller says."""
        names = {config.name: config.value for config in state.configs}
        self.learn(state.topic_name, Overrides(names, state.configs_born, state.configs_version))

    def learn(self, topic: str, told: Overrides) -> None:
        """A reading of the topic's znode. One that is older than what is known already changes nothing."""
        known = self._told.get(topic)
        if known is not None and told.edition < known.edition:
            return
        self._told[topic] = told
        if known is None or known.names != told.names:
            self._resolved.pop(topic, None)
            for partition in [each for tp, each in self._hosted.items() if tp.topic == topic]:
                self._configure(partition)

    def forget_others(self, topics: Collection[str]) -> None:
        """These are all topics there are. One that is only on its way may have replicas here already."""
        if len(self._told) > len(topics):
            for topic in self._told.keys() - set(topics) - {tp.topic for tp in self._hosted}:
                del self._told[topic]
                self._resolved.pop(topic, None)

    def config_of(self, topic: str) -> TopicConfig:
        """The topic's settings; what cannot be understood is left out, so that the replica runs."""
        return self._resolve(topic)[0]

    def understood(self, topic: str) -> Mapping[str, str]:
        """What the topic overrides, without what cannot be understood."""
        return self._resolve(topic)[1]

    async def defaults_changed(self) -> None:
        """The broker's configuration is another one: every replica takes over what it inherits of it."""
        self._resolved.clear()
        for place, partition in enumerate(list(self._hosted.values()), 1):
            if self._hosted.get(partition.tp) is partition:  # else it was let go in an earlier breath
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
                assert error.name in names, "the broker's own defaults are good"
                names = {name: value for name, value in names.items() if name != error.name}
        return found
