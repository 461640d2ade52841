"""Loads a BrokerConfig from a properties file, the environment and overrides; the later wins.

All mistakes are collected in one BrokerConfigError, a sentence each, with where the setting was written.
Kafka's own server.properties is accepted: names without effect here give a warning, not an error.
Left to others: what the options are (broker.py), reading files and ending the process (cli/).
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import ValidationError

from ...base.options import TRUTH, Option
from ...protocol import kernel
from ...storage.config import INT64_MAX
from ..errors import BrokerConfigError
from . import profiles
from .broker import DEFAULT_LOG_DIRS, OPTIONS, BrokerConfig

ENVIRONMENT_PREFIX = "STRANDLINE_"
NOT_OPTIONS = frozenset((kernel.VARIABLE, kernel.ENCODER_VARIABLE))  # for every process with records
HOUR_MS = 3_600_000
ESCAPED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}

OTHER_NAMES: dict[str, tuple[str, int]] = {
    # Kafka's coarser names -> the precise one (which wins when both are given), the factor; finer ones first
    "log.dir": ("log.dirs", 0),
    "replica.lag.max.message": ("replica.lag.max.messages", 0),
    "log.retention.minutes": ("log.retention.ms", 60_000),
    "log.retention.hours": ("log.retention.ms", HOUR_MS),
    "log.roll.hours": ("log.roll.ms", HOUR_MS),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", HOUR_MS),
}
NO_EFFECT = frozenset(
    (
        "alter.log.dirs.replication.quota.window.num", "alter.log.dirs.replication.quota.window.size.seconds",
        "background.threads", "broker.heartbeat.interval.ms", "broker.id.generation.enable",
        "broker.session.timeout.ms", "client.quota.callback.class",
        "connection.failed.authentication.delay.ms", "controller.message.queue.size",
        "controller.quota.window.num", "controller.quota.window.size.seconds",
        "delete.records.purgatory.purge.interval.requests", "fetch.purgatory.purge.interval.requests",
        "initial.broker.registration.timeout.ms", "inter.broker.protocol.version",
        "kafka.metrics.polling.interval.secs", "kafka.metrics.reporters", "log.cleaner.io.buffer.size",
        "log.dir.failure.timeout.ms", "log.flush.start.offset.checkpoint.interval.ms",
        "log.initial.task.delay.ms", "log.message.downconversion.enable", "log.message.format.version",
        "log.preallocate", "max.connection.creation.rate", "max.connections.per.ip",
        "max.connections.per.ip.overrides", "metric.reporters", "metrics.num.samples",
        "metrics.recording.level", "metrics.sample.window.ms", "num.io.threads", "num.network.threads",
        "num.replica.alter.log.dirs.threads", "num.replica.fetchers", "offsets.commit.required.acks",
        "offsets.load.buffer.size", "offsets.topic.compression.codec",
        "producer.id.expiration.check.interval.ms", "producer.purgatory.purge.interval.requests",
        "replica.selector.class", "replica.socket.receive.buffer.bytes", "replication.quota.window.num",
        "replication.quota.window.size.seconds", "reserved.broker.max.id",
        "socket.connection.setup.timeout.max.ms", "socket.connection.setup.timeout.ms",
        "socket.listen.backlog.size", "socket.receive.buffer.bytes", "socket.send.buffer.bytes",
        "telemetry.max.bytes", "transaction.state.log.load.buffer.size", "zookeeper.max.in.flight.requests",
        "zookeeper.sync.time.ms",
    )
)  # fmt: skip
OPTIONS_WITHOUT_EFFECT = frozenset(("max.request.partition.size.limit",))  # told as they are, like Kafka's
NO_EFFECT_PREFIXES = ("quota.", "remote.log.", "group.coordinator.")  # but for those that are options
NOT_SERVED = {
    # refused, not just warned about: the user would believe to be protected, or to run in another mode
    "ssl.": "TLS is not supported",
    "sasl.": "SASL is not supported",
    "authorizer.": "access control is not supported",
    "super.users": "access control is not supported",
    "zookeeper.ssl.": "TLS to ZooKeeper is not supported",
    "zookeeper.set.acl": "access control in ZooKeeper is not supported",
    "process.roles": "KRaft is not supported: the controller is elected through ZooKeeper",
    "node.id": "KRaft is not supported: use broker.id",
    "controller.quorum.": "KRaft is not supported: the controller is elected through ZooKeeper",
    "controller.listener.names": "KRaft is not supported: the controller is elected through ZooKeeper",
    "control.plane.listener.name": "controllers reach brokers at inter.broker.listener.name only",
}


class Setting(NamedTuple):
    """A name, its value as text, and where it was written."""

    name: str
    text: str
    source: str


class LoadedConfig(NamedTuple):
    """A configuration, and warnings about it."""

    config: BrokerConfig
    warnings: tuple[str, ...]


def load(
    properties: str = "",
    environment: Mapping[str, str] | None = None,
    overrides: Sequence[str] = (),
    *,
    path: str = "server.properties",
) -> LoadedConfig:
    """The configuration from all sources together. BrokerConfigError lists everything that is wrong."""
    return config_of(
        [
            *from_properties(properties, path),
            *from_environment(environment or {}),
            *from_overrides(overrides),
        ]
    )


def config_of(settings: Sequence[Setting]) -> LoadedConfig:
    """The configuration that these settings make; the last of a name counts. Raises as `load` does."""
    wrong: list[str] = []
    warnings: list[str] = []
    values: dict[str, Any] = {}
    for setting in effective(settings):
        try:
            value = read(setting, warnings)
        except BrokerConfigError as error:
            wrong += error.sentences
        else:
            values.update(value)
    try:
        config = BrokerConfig.model_validate(nested(values))
    except ValidationError as error:
        wrong += sentences(error, {s.name for s in settings})
    if wrong:
        raise BrokerConfigError(*dict.fromkeys(wrong))
    warnings += doubtful(config)
    if "log.dirs" not in {precise(setting.name) for setting in settings}:
        warnings.append(
            f"log.dirs is not set: using {DEFAULT_LOG_DIRS} like Kafka, which many machines empty at boot"
        )
    warnings += profiles.warnings(config.semantics, {precise(s.name) for s in settings})
    return LoadedConfig(config, tuple(warnings))


def from_properties(text: str, path: str) -> Iterator[Setting]:
    """Java's format: `name=value`, `name:value` or `name value`; # and ! begin comments, \\ continues, and
    escapes what programs escape that write such files, as colons.
    """
    number, begun_at, line = 0, 0, ""
    for raw in [*text.splitlines(), ""]:  # its end ends what a backslash would continue
        number += 1
        if not line:
            begun_at = number
            if raw.lstrip()[:1] in ("#", "!", ""):
                continue
        line += raw.lstrip()
        if (len(line) - len(line.rstrip("\\"))) % 2:
            line = line[:-1]
            continue
        name, value = re.split(r"\s*[=:]\s*|\s+", line.strip() + "=", maxsplit=1)
        yield Setting(name, unescaped(value.removesuffix("=").strip()), f"{path} line {begun_at}")
        line = ""


def unescaped(value: str) -> str:
    """A value as Java reads it: `\\:` is a colon, `\\u00e9` a letter, `\\t` a tab."""

    def plain(found: re.Match[str]) -> str:
        letter = found[1]
        return chr(int(letter[1:], 16)) if len(letter) > 1 else ESCAPED.get(letter, letter)

    return re.sub(r"\\(u[0-9a-fA-F]{4}|.)", plain, value)


def from_environment(environment: Mapping[str, str]) -> Iterator[Setting]:
    """STRANDLINE_LOG_SEGMENT_BYTES is log.segment.bytes."""
    by_variable = {environment_name(name): name for name in (*OPTIONS, *OTHER_NAMES, *NO_EFFECT)}
    for variable in sorted(environment):
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in NOT_OPTIONS:
            guess = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
            yield Setting(by_variable.get(variable, guess), environment[variable], f"environment {variable}")


def environment_name(name: str) -> str:
    """The variable that sets an option."""
    return ENVIRONMENT_PREFIX + name.removeprefix("strandline.").replace(".", "_").upper()


def from_overrides(overrides: Iterable[str]) -> Iterator[Setting]:
    """`name=value`, as given on the command line."""
    for override in overrides:
        name, _, text = override.partition("=")
        yield Setting(name.strip(), text.strip(), f"--override {override}")


def effective(settings: Iterable[Setting]) -> list[Setting]:
    """The last setting of each name. A more precise name wins over a coarser one (ms over hours)."""
    last = {setting.name: setting for setting in settings}
    return [setting for setting in last.values() if not any(name in last for name in finer(setting.name))]


def finer(name: str) -> Iterator[str]:
    """More precise names of the same option."""
    if name in OTHER_NAMES:
        wanted = OTHER_NAMES[name][0]
        yield wanted
        for other, (meant, _) in OTHER_NAMES.items():
            if other == name:
                return
            if meant == wanted:
                yield other


def precise(name: str) -> str:
    """The name of the option that `name` sets."""
    return OTHER_NAMES[name][0] if name in OTHER_NAMES else name


def read(setting: Setting, warnings: list[str]) -> dict[str, Any]:
    """The value of one setting by option name; empty, with a warning, if it has no effect."""
    name, text, source = setting
    if name in OTHER_NAMES:
        name, factor = OTHER_NAMES[name]
        if factor and text.lstrip("-").isdigit():
            text = str(int(text) * factor) if int(text) >= 0 else "-1"
    place = OPTIONS.get(name)
    if place is not None:
        if name in OPTIONS_WITHOUT_EFFECT:
            warnings.append(f"{name} ({source}) has no effect here")
        return {name: parse(place.option, text, f"{setting.name} = {setting.text!r} ({source})")}
    for prefix, why in NOT_SERVED.items():
        if name.startswith(prefix):
            raise BrokerConfigError(f"{name} ({source}): {why}; remove it")
    if name == "security.inter.broker.protocol" and text != "PLAINTEXT":
        raise BrokerConfigError(f"{name} = {text!r} ({source}): only PLAINTEXT is supported")
    if name not in NO_EFFECT and not name.startswith((*NO_EFFECT_PREFIXES, "security.inter.broker.protocol")):
        raise BrokerConfigError(f"unknown configuration {name!r} ({source}){nearest(name)}")
    warnings.append(f"{name} ({source}) has no effect here")
    return {}


def parse(option: Option, text: str, where: str) -> Any:
    """`text` as a value of the option's type, within its bounds. Raises BrokerConfigError."""
    kind = option.type
    if kind is bool:
        if text.lower() not in TRUTH:
            raise BrokerConfigError(f"{where}: must be true or false")
        return TRUTH[text.lower()]
    if kind is int:
        if re.fullmatch(r"[+-]?[0-9]{1,30}", text) is None:
            raise BrokerConfigError(f"{where}: must be a whole number{within(option)}")
        number = int(text)
        if not option.bounds.get("ge", -INT64_MAX) <= number <= option.bounds.get("le", INT64_MAX):
            raise BrokerConfigError(f"{where}: must be a whole number{within(option)}")
        return number
    if kind is float and re.fullmatch(r"[0-9]{0,400}\.?[0-9]{1,400}([eE][+-]?[0-9]{1,3})?", text) is None:
        raise BrokerConfigError(f"{where}: must be a number")
    if get_origin(kind) is Literal and text not in get_args(kind):
        raise BrokerConfigError(f"{where}: must be one of {', '.join(get_args(kind))}")
    return text


def within(option: Option) -> str:
    """The bounds of a number in words."""
    low, high = option.bounds.get("ge"), option.bounds.get("le")
    if low is not None and high is not None:
        return f" from {int(low)} to {int(high)}"
    if low is not None:
        return f", at least {int(low)}"
    return f", at most {int(high)}" if high is not None else ""


def nearest(name: str, known: Iterable[str] = (*OPTIONS, *OTHER_NAMES)) -> str:
    """A hint: the known name that is most like this one."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else "; docs/configuration.md lists all names"


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by option name, nested as BrokerConfig expects them."""
    tree: dict[str, Any] = {"zookeeper": {}}
    for name, value in values.items():
        place = OPTIONS[name]
        branch = tree.setdefault(place.section, {}) if place.section else tree
        branch[place.option.field] = value
    return tree


def sentences(error: ValidationError, given: set[str]) -> Iterator[str]:
    """Pydantic's errors as sentences of ours."""
    by_path: dict[tuple[int | str, ...], str] = {
        (p.section, p.option.field) if p.section else (p.option.field,): n for n, p in OPTIONS.items()
    }
    for found in error.errors():
        name = by_path.get(found["loc"])
        if found["type"] == "missing" and name is not None:
            other = [n for n, (meant, _) in OTHER_NAMES.items() if meant == name]
            if name not in given and not given.intersection(other):
                yield f"{name} is missing: {OPTIONS[name].option.help}"
        elif name is None:
            yield from found["msg"].removeprefix("Value error, ").split("\n")
        else:
            yield f"{name} = {found['input']!r}: {found['msg'].removeprefix('Value error, ')}"


def doubtful(config: BrokerConfig) -> Iterator[str]:
    """Warnings about settings that are allowed but probably not meant."""
    factor, least = config.controller.default_replication_factor, config.storage.min_insync_replicas
    if factor >= 3 and least == 1:
        yield (
            f"min.insync.replicas = 1 with default.replication.factor = {factor}: a record of "
            "acks=all may be on one replica only; with 2 it survives the loss of any broker"
        )
    transactions = config.transactions
    if transactions.log_min_isr > transactions.log_replication_factor:
        yield (
            f"transaction.state.log.min.isr = {transactions.log_min_isr} is more than "
            f"transaction.state.log.replication.factor = {transactions.log_replication_factor}: "
            "__transaction_state will be created with as many as it has replicas"
        )
    if config.storage.unclean_leader_election_enable:
        yield "unclean.leader.election.enable = true: acknowledged records may be lost"
