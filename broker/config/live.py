"""LiveConfig: the configuration in force, from the start and from what was changed since.

`current` is immutable; a change replaces it. No other code may keep a copy of what may change. For each
option this broker's own setting wins over the one for all brokers, which wins over the file at the start.
Left to others: reading ZooKeeper (broker/config_watch.py), which values are good (dynamic.py).
"""

from collections.abc import Mapping

import structlog

from ...base.event import Event
from ...zookeeper.config_nodes import NOTHING, Overrides
from ...zookeeper.documents import ALL_BROKERS
from .broker import BrokerConfig
from .dynamic import overlaid

logger = structlog.get_logger(__name__)

POLICY = "log.cleanup.policy"
KEEPS_BY_DEFAULT = (
    "topics without a cleanup.policy of their own keep every record until the disk is full: set it to "
    "delete, compact or both"
)


class LiveConfig:
    """The one holder of a broker's configuration."""

    def __init__(self, started_with: BrokerConfig) -> None:
        self.started_with = started_with
        self.current = started_with
        self.on_change = Event[[]]()
        self._told = {ALL_BROKERS: NOTHING, str(started_with.broker_id): NOTHING}
        self._in_force: dict[str, Mapping[str, str]] = {}
        if started_with.storage.keeps_everything:
            self._warn_of_full_disks()

    @property
    def of_all(self) -> Mapping[str, str]:
        """Settings for all brokers; invalid ones are left out."""
        return self._in_force.get(ALL_BROKERS, {})

    @property
    def of_this(self) -> Mapping[str, str]:
        """Settings for this broker; invalid ones are left out."""
        return self._in_force.get(str(self.started_with.broker_id), {})

    def concerns(self, entity: str) -> bool:
        """Whether settings of this entity (`<default>`, or a broker's id) apply to this broker."""
        return entity in self._told

    def learn(self, entity: str, told: Overrides) -> None:
        """Apply what ZooKeeper has for this broker, or for all brokers."""
        if told == self._told[entity]:
            return
        self._told[entity] = told
        before, self.current = self.current, self._combined(entity)
        if self.current != before:
            logger.info(
                "config_changed",
                broker=self.started_with.broker_id,
                entity=entity,
                settings=sorted(told.names),
            )
            if self.current.storage.keeps_everything and not before.storage.keeps_everything:
                self._warn_of_full_disks()
            self.on_change()

    def _warn_of_full_disks(self) -> None:
        """An empty cleanup policy is allowed, as in Kafka, but it is more often a slip."""
        me = self.started_with.broker_id
        where = f"broker {me}, its configuration at the start"
        if POLICY in self.of_this:
            where = f"broker {me}"
        elif POLICY in self.of_all:
            where = "all brokers"
        logger.warning("nothing_is_deleted", entity=where, setting=f"{POLICY} =", reason=KEEPS_BY_DEFAULT)

    def _combined(self, news_of: str) -> BrokerConfig:
        config = self.started_with
        for entity, told in self._told.items():
            config, refused = overlaid(config, told.names, of_all=entity == ALL_BROKERS)
            left_out = {error.name for error in refused}
            self._in_force[entity] = {n: text for n, text in told.names.items() if n not in left_out}
            for error in refused if entity == news_of else ():
                logger.error("config_ignored", entity=entity, name=error.name, reason=str(error))
        return config
