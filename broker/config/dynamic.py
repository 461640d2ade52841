"""Options that change while a broker runs: which values are valid, and the BrokerConfig with them. Pure.

A client's value is refused if it is not valid, or if its option needs a restart. An invalid value that some
tool has put into ZooKeeper already is ignored instead, so that the broker still runs. A topic's value must be
valid for Apache Kafka, too: its brokers do not start, and take no roles, while there is another.
Left to others: where the settings come from (broker/config_watch.py), who holds the result (live.py).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

import structlog

from ...base.options import InvalidOption, build
from ...controller.requests.config_changes import Kind
from ...protocol.errors import InvalidConfig
from ...storage.config import (
    DEFAULT_FROM,
    TOPIC_OPTIONS,
    Option,
    StorageConfig,
    TopicConfig,
    options,
    text_of,
)
from ...storage.idle_settings import IDLE
from ...zookeeper.documents import Endpoint
from ..errors import BrokerConfigError
from .addresses import ADVERTISED, parse_endpoints, wrong_for_running
from .broker import OPTIONS, SECTIONS, BrokerConfig, contradictions
from .files import NO_EFFECT, NO_EFFECT_PREFIXES, OTHER_NAMES, nearest, parse, within
from .groups import check_group_settings
from .sections import GroupsConfig

logger = structlog.get_logger(__name__)

BOOLEAN, STRING, INT, SHORT, LONG, DOUBLE, LIST = range(1, 8)
INT32_MAX = (1 << 31) - 1
INT16_MAX = (1 << 15) - 1
POLICIES = frozenset(("cleanup.policy", "log.cleanup.policy"))
LISTS = POLICIES | {"group.consumer.assignors", "group.coordinator.rebalance.protocols"}
THROTTLED_REPLICAS = frozenset(
    ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
)
INTS = frozenset(
    (  # Kafka's, though no bound of ours says so
        "controlled.shutdown.max.retries", "controller.socket.timeout.ms", "default.replication.factor",
        "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms",
        "fetch.max.bytes", "group.consumer.heartbeat.interval.ms",
        "group.consumer.max.heartbeat.interval.ms", "group.consumer.max.session.timeout.ms",
        "group.consumer.max.size", "group.consumer.min.heartbeat.interval.ms",
        "group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms",
        "group.initial.rebalance.delay.ms",
        "group.max.session.timeout.ms",
        "group.max.size", "group.min.session.timeout.ms", "leader.imbalance.per.broker.percentage",
        "log.cleaner.threads", "log.flush.offset.checkpoint.interval.ms", "max.connections",
        "max.incremental.fetch.session.cache.slots", "max.request.partition.size.limit",
        "min.insync.replicas", "num.partitions",
        "num.recovery.threads.per.data.dir", "offset.metadata.max.bytes", "offsets.commit.timeout.ms",
        "offsets.retention.minutes", "offsets.topic.num.partitions", "offsets.topic.segment.bytes",
        "producer.id.expiration.ms", "queued.max.requests", "replica.fetch.backoff.ms",
        "replica.fetch.max.bytes", "replica.fetch.min.bytes", "replica.fetch.response.max.bytes",
        "replica.fetch.wait.max.ms", "replica.socket.timeout.ms", "request.timeout.ms",
        "zookeeper.connection.timeout.ms", "zookeeper.session.timeout.ms",
    )
)  # fmt: skip
DIRECTORIES_RATE = (
    "replica.alter.log.dirs.io.max.bytes.per.second"  # set by Kafka's tool that moves partitions
)
NO_THROTTLE = "moves between the directories of a broker are not throttled"
KEEPS_ALL = "every record is kept until the disk is full: set it to delete, compact or both"
OF_EACH_BROKER = frozenset((ADVERTISED,))
SET_FOR_EACH = "differs from broker to broker: set it for each of them, by its id"
LAGS = frozenset(("min.compaction.lag.ms", "max.compaction.lag.ms"))
STORAGE_OPTIONS: dict[str, Option] = {option.field: option for option in options(StorageConfig)}


def type_of(name: str, option: Option) -> int:
    """Kafka's number for the type of an option."""
    if name in LISTS:
        return LIST
    if option.type is bool:
        return BOOLEAN
    if option.type is float:
        return DOUBLE
    if option.type is not int:
        return STRING
    if name in INTS:
        return INT
    most = option.bounds.get("le", 1 << 63)
    return SHORT if most <= INT16_MAX else INT if most <= INT32_MAX else LONG


def type_of_idle(name: str) -> int:
    """Kafka's number for the type of a setting without effect."""
    if name in THROTTLED_REPLICAS:
        return LIST
    return {bool: BOOLEAN, int: LONG}.get(IDLE[name].type, STRING)


def expected(option: Option) -> str:
    """The values an option may have, as the end of a sentence."""
    if option.type is bool:
        return "true or false"
    if option.type is int:
        return "a whole number" + within(option)
    if option.type is float:
        low = f"more than {option.bounds['gt']:g}" if "gt" in option.bounds else "at least 0"
        return f"a number, {low}" + (f", at most {option.bounds['le']:g}" if "le" in option.bounds else "")
    if get_origin(option.type) is Literal:
        return f"one of {', '.join(get_args(option.type))}"
    return "a list of delete, compact" if option.kafka in POLICIES else "a string"


# --- one value -------------------------------------------------------------------------------------


def check_topic_setting(name: str, text: str) -> None:
    """Raises InvalidOption for an unknown topic option, or a value that is not valid."""
    option, idle = TOPIC_OPTIONS.get(name), IDLE.get(name)
    if idle is not None:
        if not idle.takes(text):
            raise InvalidOption(name, text, f"must be {idle.expected}")
        return
    if option is None:
        close = nearest(name, (*TOPIC_OPTIONS, *IDLE))
        raise InvalidOption(name, text, f"unknown topic configuration{close}")
    value = _read(name, option, text)
    if type_of(name, option) == INT and value > INT32_MAX:
        raise InvalidOption(name, text, f"must be at most {INT32_MAX}")
    try:
        TopicConfig.from_names({name: text}, StorageConfig())
    except InvalidOption:
        raise InvalidOption(name, text, f"must be {expected(option)}") from None


def check_broker_setting(name: str, text: str) -> Any:
    """The parsed value. Raises InvalidOption if it is not valid, or if the option needs a restart."""
    place = OPTIONS.get(name)
    if place is None:
        raise InvalidOption(name, text, _unknown(name))
    if place.option.restart:
        raise InvalidOption(
            name, text, "needs a restart: set it in the broker's configuration file and restart the broker"
        )
    value = _read(name, place.option, text)
    if name == ADVERTISED:
        return _check_addresses(text)
    try:
        section = build(SECTIONS[place.section], {**_required(place.section), place.option.field: value}, {})
    except InvalidOption:
        raise InvalidOption(name, text, f"must be {expected(place.option)}") from None
    return getattr(section, place.option.field)  # a number where `value` may still be a text


def _check_addresses(text: str) -> str:
    try:
        parse_endpoints(ADVERTISED, text)
    except BrokerConfigError as error:
        raise InvalidOption(ADVERTISED, text, str(error)) from None
    return text


def _required(section: str) -> dict[str, Any]:
    return {"connect": "-"} if section == "zookeeper" else {}


def _unknown(name: str) -> str:
    if name in OTHER_NAMES:
        return f"cannot be changed while a broker runs: change {OTHER_NAMES[name][0]} instead"
    if name in NO_EFFECT or name.startswith(NO_EFFECT_PREFIXES):
        return "is an option of Kafka that has no effect here"
    return f"unknown broker configuration{nearest(name)}"


def _read(name: str, option: Option, text: str) -> Any:
    try:
        return parse(option, text.strip(), name)  # as Kafka does; what is told back is what was set
    except BrokerConfigError:
        raise InvalidOption(name, text, f"must be {expected(option)}") from None


# --- all of them -----------------------------------------------------------------------------------


def overlaid(
    config: BrokerConfig, settings: Mapping[str, str], *, of_all: bool = False
) -> tuple[BrokerConfig, list[InvalidOption]]:
    """The configuration with these settings on top, and the settings that had to be ignored. `of_all`: they
    are those of all brokers.
    """
    refused: list[InvalidOption] = []
    for name in sorted(settings.keys() - {DIRECTORIES_RATE}):
        try:
            if of_all and name in OF_EACH_BROKER:
                raise InvalidOption(name, settings[name], SET_FOR_EACH)
            config = _with(config, name, settings[name])
        except InvalidOption as error:
            refused.append(error)
    return config, refused


def _with(config: BrokerConfig, name: str, text: str) -> BrokerConfig:
    value = check_broker_setting(name, text)
    place = OPTIONS[name]
    update = {place.option.field: value}
    if place.section:
        update = {place.section: getattr(config, place.section).model_copy(update=update)}
    changed = config.model_copy(update=update)
    for wrong in contradictions(changed):
        raise InvalidOption(name, text, wrong)
    return changed


def warn_if_all_is_kept(where: str, policy: str) -> None:
    """A topic gets this cleanup policy. Empty, it deletes nothing, as in Kafka; mostly it is a slip."""
    if not policy.strip():
        logger.warning("nothing_is_deleted", entity=where, setting="cleanup.policy =", reason=KEEPS_ALL)


def _check_lags(where: str, settings: Mapping[str, str]) -> None:
    """Refuses a min.compaction.lag.ms above max.compaction.lag.ms: no record could meet both."""
    try:
        together = TopicConfig.from_names({n: settings[n] for n in LAGS if n in settings}, StorageConfig())
    except InvalidOption as error:  # the other one, as some tool has put it into ZooKeeper
        raise InvalidConfig(f"{where}: {error}") from error
    least, most = together.min_compaction_lag_ms, together.max_compaction_lag_ms
    if least > most:
        raise InvalidConfig(
            f"{where}: min.compaction.lag.ms = {least}: must not exceed max.compaction.lag.ms = {most}"
        )


class KnownOptions:
    """The catalogue that the controller asks before it writes settings (controller/requests/configs.py).

    `groups`: the configuration that bounds the settings of groups.
    """

    def __init__(self, groups: Callable[[], GroupsConfig] = GroupsConfig) -> None:
        self._groups = groups

    def check(self, kind: Kind, name: str, settings: Mapping[str, str], changed: Collection[str]) -> None:
        """Raises InvalidConfig unless every changed value is valid. Values set earlier are not checked, but
        for those of groups, which bound each other.
        """
        if kind is Kind.GROUP:
            return check_group_settings(name, settings, changed, self._groups())
        check_one = check_topic_setting if kind is Kind.TOPIC else check_broker_setting
        where = f"topic {name}" if kind is Kind.TOPIC else f"broker {name}" if name else "all brokers"
        for setting in changed:
            text = settings[setting]
            if kind is Kind.BROKER and setting == DIRECTORIES_RATE:
                logger.warning("config_without_effect", entity=where, setting=setting, reason=NO_THROTTLE)
                continue
            try:
                if kind is Kind.BROKER and not name and setting in OF_EACH_BROKER:
                    raise InvalidOption(setting, text, SET_FOR_EACH)
                check_one(setting, text)
            except InvalidOption as error:
                raise InvalidConfig(f"{where}: {setting} = {text!r}: {error.reason}") from error
            if kind is Kind.TOPIC and setting in POLICIES:
                warn_if_all_is_kept(where, text)
            if kind is Kind.TOPIC and setting in IDLE and not IDLE[setting].has_effect:
                logger.warning(
                    "config_without_effect", entity=where, setting=setting, reason=IDLE[setting].help
                )
        if kind is Kind.TOPIC and not LAGS.isdisjoint(changed):
            _check_lags(where, settings)
        return None

    def check_addresses(
        self, broker: int, changed: Mapping[str, str], registered: Mapping[int, Sequence[Endpoint]]
    ) -> None:
        """Raises InvalidConfig if the broker cannot be told to have the addresses that it is given."""
        text = changed.get(ADVERTISED)
        for wrong in () if text is None else wrong_for_running(text, broker, registered):
            raise InvalidConfig(f"broker {broker}: {wrong}")

    def list_default(self, kind: Kind, setting: str) -> str | None:
        """The default of an option that is a list; None for any other option."""
        if kind is Kind.TOPIC and setting in THROTTLED_REPLICAS:
            return IDLE[setting].default
        if setting not in LISTS or kind is Kind.GROUP:
            return None
        place = OPTIONS.get(setting)  # None: it is a list of topics, not of brokers
        option = TOPIC_OPTIONS.get(setting) if kind is Kind.TOPIC else place.option if place else None
        return None if option is None else text_of(option.default)


def behind(option: Option) -> Option:
    """The broker's option that gives a topic's setting its default."""
    return STORAGE_OPTIONS[DEFAULT_FROM[option.field]]
