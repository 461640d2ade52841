"""Settings of single consumer groups (KIP-848), as Kafka 4 has them: what they may be, and what is in force.

A group may have a session timeout and a heartbeat interval of its own, within bounds that the brokers'
configuration sets; what it has not is the brokers'. They are kept by name, whether such a group exists or
not. An invalid value that some tool has put into ZooKeeper is ignored.
Left to others: reading ZooKeeper (broker/config_watch.py), writing it (controller/requests/configs.py), what
a group does with them (broker/groups/coordinator.py).
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import structlog

from ...base.event import Event
from ...base.options import InvalidOption, Option, options
from ...protocol.errors import InvalidConfig
from ...zookeeper.config_nodes import NOTHING, Overrides
from ..errors import BrokerConfigError
from .files import nearest, parse
from .sections import GroupsConfig

logger = structlog.get_logger(__name__)

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
OTHER_KINDS = {"share.": "share groups", "streams.": "streams groups"}  # of groups, which there are not here
GROUP_OPTIONS: dict[str, Option] = {
    name: option
    for option in options(GroupsConfig)
    for name in (SESSION, INTERVAL)
    if option.kafka == f"group.{name}"
}
"""The settings of a group, each with the broker's option that gives its default."""


class GroupTerms(NamedTuple):
    """What holds for the members of one group."""

    session_ms: int
    interval_ms: int

    def by_name(self) -> dict[str, int]:
        """The same by the names of the settings."""
        return {SESSION: self.session_ms, INTERVAL: self.interval_ms}


def terms_of(settings: Mapping[str, str], config: GroupsConfig) -> GroupTerms:
    """What these settings of a group come to. Raises InvalidOption."""
    terms = GroupTerms(
        session_ms=_number(SESSION, settings, config.consumer_session_timeout_ms, *_session_bounds(config)),
        interval_ms=_number(
            INTERVAL, settings, config.consumer_heartbeat_interval_ms, *_interval_bounds(config)
        ),
    )
    if terms.interval_ms >= terms.session_ms:
        name = INTERVAL if INTERVAL in settings else SESSION
        raise InvalidOption(
            name,
            settings[name],
            f"{SESSION} ({terms.session_ms}) must be more than {INTERVAL} ({terms.interval_ms})",
        )
    return terms


def check_group_settings(
    group: str, settings: Mapping[str, str], changed: Collection[str], config: GroupsConfig
) -> None:
    """Raises InvalidConfig if a changed setting is none of a group, or if the group cannot have them all."""
    for name in changed:
        if name not in GROUP_OPTIONS:
            raise InvalidConfig(f"group {group}: {name}: {_unknown(name)}")
    try:
        terms_of(settings, config)
    except InvalidOption as error:
        raise InvalidConfig(f"group {group}: {error.name} = {error.value!r}: {error.reason}") from error


def _unknown(name: str) -> str:
    for prefix, kind in OTHER_KINDS.items():
        if name.startswith(prefix):
            return f"a setting of {kind}, which are not supported; expected {' or '.join(GROUP_OPTIONS)}"
    return f"unknown group configuration{nearest(name, GROUP_OPTIONS)}"


def _session_bounds(config: GroupsConfig) -> tuple[int, int]:
    return config.consumer_session_timeout_ms_min, config.consumer_session_timeout_ms_max


def _interval_bounds(config: GroupsConfig) -> tuple[int, int]:
    return config.consumer_heartbeat_interval_ms_min, config.consumer_heartbeat_interval_ms_max


def _number(name: str, settings: Mapping[str, str], default: int, least: int, most: int) -> int:
    text = settings.get(name)
    if text is None:
        return default
    try:
        number: int = parse(GROUP_OPTIONS[name], text, name)
    except BrokerConfigError:
        number = least - 1
    if not least <= number <= most:
        kind = name.removeprefix("consumer.")
        raise InvalidOption(
            name,
            text,
            f"must be a whole number from {least} (group.consumer.min.{kind}) to {most} "
            f"(group.consumer.max.{kind})",
        )
    return number


class GroupSettings:
    """The one holder of groups' settings. `on_change` tells which group has others now."""

    def __init__(self, config: GroupsConfig) -> None:
        self.on_change = Event[[str]]()
        self._config = config
        self._told: dict[str, Overrides] = {}
        self._understood: dict[str, Mapping[str, str]] = {}
        self._terms: dict[str, GroupTerms] = {}

    @property
    def names(self) -> Collection[str]:
        """The groups that have settings, as ZooKeeper has them."""
        return self._told.keys()

    def of(self, group: str) -> Mapping[str, str]:
        """The settings of a group, without the invalid ones."""
        return self._understood.get(group, {})

    def terms(self, group: str) -> GroupTerms:
        """What holds for the members of this group."""
        return self._terms.get(group) or terms_of({}, self._config)

    def learn(self, group: str, told: Overrides) -> None:
        """Take the contents of the group's znode, unless they are older than what is known."""
        known = self._told.get(group, NOTHING)
        if told.exists and told.edition < known.edition:
            return
        if told.names == known.names:
            if told.names:
                self._told[group] = told  # an older reading may have others
            return
        if told.names:
            self._told[group] = told
            self._understood[group], self._terms[group] = self._resolved(group, told.names)
        else:
            for kept in (self._told, self._understood, self._terms):
                kept.pop(group, None)
        logger.info("group_config_changed", group=group, settings=dict(told.names))
        self.on_change(group)

    def _resolved(self, group: str, told: Mapping[str, str]) -> tuple[Mapping[str, str], GroupTerms]:
        names = {name: text for name, text in told.items() if name in GROUP_OPTIONS}
        for name in told.keys() - names.keys():
            logger.error("config_ignored", entity=f"group {group}", name=name, reason=_unknown(name))
        while True:
            try:
                return names, terms_of(names, self._config)
            except InvalidOption as error:
                assert error.name in names, "the broker's own options are valid"
                logger.error("config_ignored", entity=f"group {group}", name=error.name, reason=str(error))
                del names[error.name]
