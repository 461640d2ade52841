"""Checks of settings: which would keep a broker of ours from starting, and which would not count. Pure.

The tables are those that our brokers read their own settings by (broker/config/), so nothing is said here
that a start would not say. Settings that concern records or a quorum have checks of their own beside.
Left to others: what is not served because of security (checks_security.py).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from ipaddress import ip_address

from ....base.options import InvalidOption
from ....broker.config.addresses import parse_endpoints
from ....broker.config.broker import OPTIONS
from ....broker.config.dynamic import (
    DIRECTORIES_RATE,
    OF_EACH_BROKER,
    SET_FOR_EACH,
    check_broker_setting,
    check_topic_setting,
)
from ....broker.config.files import (
    NO_EFFECT,
    NO_EFFECT_PREFIXES,
    NOT_SERVED,
    Setting,
    config_of,
    precise,
    read,
)
from ....broker.errors import BrokerConfigError
from ....storage.idle_settings import IDLE
from ..findings import Finding, Fine, Severity, named, plural
from ..probe import place_of
from .facts import OF_ALL, MigrationFacts, Settings
from .remedies import OPEN, QUORUM, UNSECURE

FILE = "server.properties"
ID, CONNECT = "broker.id", "zookeeper.connect"
REMOTE = "remote.storage.enable"
CONTROL_PLANE = "control.plane.listener.name"
ZOOKEEPER_ACL = "zookeeper.set.acl"
NO_LISTENERS = "PLAINTEXT://:9092"  # what Kafka takes if none is given


def check_settings(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    """All that is to be said of settings of brokers and topics."""
    yield from _of_brokers(facts)
    yield from _not_by_a_file(facts)
    yield from _heard_here_only(facts)
    yield from _set_while_running(facts)
    yield from _of_topics(facts)


# --- of brokers ------------------------------------------------------------------------------------


class _Read:
    """What a broker of ours would say of these settings at its start."""

    def __init__(self, settings: Settings) -> None:
        self.not_served: dict[str, list[str]] = defaultdict(list)  # names, by reason
        self.refused: list[str] = []  # sentences
        self.without_effect: list[str] = []  # names
        taken = []
        for name, value in settings.items():
            reason = next((why for prefix, why in NOT_SERVED.items() if name.startswith(prefix)), None)
            if reason is not None:
                self.not_served[reason].append(name)
                continue
            if value is None and precise(name) in OPTIONS:
                continue  # a secret; whether it is good cannot be seen
            if name == ID and _is_generated(value):
                continue
            setting = Setting(name, value or "", FILE)
            warnings: list[str] = []
            try:
                read(setting, warnings)
            except BrokerConfigError as error:
                self.refused += error.sentences
                continue
            taken.append(setting)
            if warnings:
                self.without_effect.append(name)
        self.refused.extend(self._together(taken))

    def _together(self, taken: list[Setting]) -> tuple[str, ...]:
        """What is wrong between settings that are good by themselves; an id may be missing."""
        given = {setting.name for setting in taken}
        missing = [
            Setting(name, text, FILE) for name, text in ((ID, "1"), (CONNECT, "-")) if name not in given
        ]
        try:
            config_of([*missing, *taken])
        except BrokerConfigError as error:
            return error.sentences
        return ()


def _is_generated(id: str | None) -> bool:
    return (id or "-1").startswith("-")


def _of_brokers(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    not_served: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    refused: dict[str, list[str]] = defaultdict(list)
    without_effect: dict[str, list[str]] = defaultdict(list)
    for where, settings in facts.brokers.items():
        found = _Read(settings)
        for reason, names in found.not_served.items():
            not_served[reason, tuple(sorted(names))].append(where)
        for sentence in found.refused:
            refused[sentence].append(where)
        for name in found.without_effect:
            without_effect[name].append(where)
    for (reason, unwanted), brokers in not_served.items():
        yield Finding(
            Severity.CRITICAL,
            "setting_not_served",
            ", ".join(brokers),
            f"{named(brokers)}: {reason}, and the start would be refused because of {named(unwanted)}",
            _remedy(reason, unwanted),
            (),
            {"brokers": brokers, "settings": list(unwanted)},
        )
    for sentence, brokers in refused.items():
        yield Finding(
            Severity.CRITICAL,
            "setting_refused",
            ", ".join(brokers),
            f"{named(brokers)}: the start would be refused: {sentence}",
            f"correct it in {FILE}, or take it out, before the broker's first start as Strandline",
            (),
            {"brokers": brokers},
        )
    if without_effect:
        yield Finding(
            Severity.NOTE,
            "setting_without_effect",
            "brokers",
            f"{plural(len(without_effect), 'setting')} of brokers would have no effect here: "
            f"{named(sorted(without_effect))}",
            "nothing: they are taken with a warning (docs/configuration.md lists all such names)",
            (),
            {"settings": dict(sorted(without_effect.items()))},
        )
    if facts.brokers and not not_served and not refused:
        yield Fine("settings", f"a start with the settings of {named(facts.brokers)} would not be refused")


def _remedy(reason: str, unwanted: Sequence[str]) -> str:
    """What to do about settings of something that is not served."""
    if "KRaft" in reason:
        return QUORUM
    if reason == NOT_SERVED[ZOOKEEPER_ACL]:
        return UNSECURE
    if reason == NOT_SERVED[CONTROL_PLANE]:
        return (
            f"take it out of {FILE} of all of Kafka's brokers, one after another, and leave the listener "
            "itself: Kafka's controllers would look for it at our brokers, and its brokers at our controller"
        )
    return f"{OPEN}; then take {'it' if len(unwanted) == 1 else 'them'} out of {FILE}"


def _not_by_a_file(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    """Ids that Kafka has given out itself, and listeners by which brokers would not find each other."""
    lacking = [where for where, one in facts.brokers.items() if _is_generated(one.get(ID))]
    if lacking:
        yield Finding(
            Severity.CRITICAL,
            "broker_id_generated",
            ", ".join(lacking),
            f"{named(lacking)} {'has' if len(lacking) == 1 else 'have'} no {ID} in {FILE}: Kafka gave out an "
            "id, and Strandline gives out none",
            f"write the id into {FILE}, as meta.properties in the broker's log directories has it: {ID}=…",
            (),
            {"brokers": lacking},
        )
    meeting = defaultdict(list)
    for where, settings in facts.brokers.items():
        protocol = settings.get("security.inter.broker.protocol") or "PLAINTEXT"
        meeting[settings.get("inter.broker.listener.name") or protocol].append(where)
    if len(meeting) > 1:
        said = "; ".join(f"{named(brokers)}: {listener}" for listener, brokers in meeting.items())
        yield Finding(
            Severity.CRITICAL,
            "inter_broker_listeners_differ",
            "brokers",
            f"the brokers do not meet at the same listener ({said})",
            "give all of them the same inter.broker.listener.name first, by restarts of Kafka's brokers",
            (),
            {"listeners": dict(meeting)},
        )


def _heard_here_only(facts: MigrationFacts) -> Iterator[Finding]:
    """Where no host is named, as in the file that comes with Kafka, it listens at all addresses."""
    bare: dict[str, list[str]] = {}
    for where, settings in facts.brokers.items():
        try:
            places = parse_endpoints("listeners", settings.get("listeners") or NO_LISTENERS)
        except BrokerConfigError:
            continue  # the start would be refused, which is said
        names = [place.listener for place in places if not place.host]
        if names and not _is_on_loopback(facts, settings.get(ID) or where.removeprefix("broker ")):
            bare[where] = names
    if bare:
        listeners = named(sorted({name for names in bare.values() for name in names}))
        yield Finding(
            Severity.CRITICAL,
            "listener_without_host",
            ", ".join(bare),
            f"{named(bare)}: listeners without a host ({listeners}) are heard at all addresses of the "
            "machine by Kafka, and by Strandline at 127.0.0.1 only: no other machine would reach them",
            f"write into {FILE}, before its first start as Strandline, listeners=NAME://0.0.0.0:PORT and "
            "advertised.listeners=NAME://HOST:PORT, with the address by which others reach it now",
            (),
            {"listeners": bare},
        )


def _is_on_loopback(facts: MigrationFacts, id: str) -> bool:
    """Whether all that is told of this broker is an address for this machine alone."""
    known = facts.cluster.brokers.get(int(id)) if id.isascii() and id.isdigit() else None
    dials = () if known is None else (known.dial, *known.listeners.values())
    hosts = [place[0] for dial in dials if (place := place_of(dial.address)) is not None]
    return bool(hosts) and all(map(_is_loopback, hosts))


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _set_while_running(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    """Settings of brokers in ZooKeeper: what is not taken is ignored there, and the file's value counts."""
    if facts.znodes is None:
        return
    ignored: list[tuple[str, str]] = []  # who, name
    idle: set[str] = set()
    for id, settings in facts.znodes.dynamic.items():
        who = "all brokers" if id == OF_ALL else f"broker {id}"
        for name, text in settings.items():
            reason = _why_not_while_running(id, name, text or "")
            if reason is None:
                continue
            if name == DIRECTORIES_RATE or name in NO_EFFECT or name.startswith(NO_EFFECT_PREFIXES):
                idle.add(name)
                continue
            ignored.append((who, name))
            option = f"--default --delete {name}" if id == OF_ALL else f"--broker {id} --delete {name}"
            yield Finding(
                Severity.WARNING,
                "dynamic_setting_ignored",
                who,
                f"{name} was set for {who} while running, and would not count: it {reason}",
                f"write it into {FILE} if it can stand there; then strandline configs alter {option}",
                (),
                {"entity": who, "setting": name},
            )
    if idle:
        yield Finding(
            Severity.NOTE,
            "dynamic_setting_without_effect",
            "brokers",
            f"set for brokers while running, without effect here: {named(sorted(idle))}",
            "nothing: they are ignored",
            (),
            {"settings": sorted(idle)},
        )
    if not ignored:
        yield Fine("dynamic_settings", "no setting of brokers that was made while running would be lost")


def _why_not_while_running(id: str, name: str, text: str) -> str | None:
    if id == OF_ALL and name in OF_EACH_BROKER:
        return SET_FOR_EACH
    try:
        check_broker_setting(name, text)
    except InvalidOption as error:
        return f"is an {error.reason}" if error.reason.startswith("unknown") else error.reason
    return None


# --- of topics -------------------------------------------------------------------------------------


def _of_topics(facts: MigrationFacts) -> Iterator[Finding | Fine]:
    if facts.topics is None:
        return
    ignored: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    idle: dict[str, list[str]] = defaultdict(list)
    for topic, settings in facts.topics.items():
        for name, text in settings.items():
            if text is None or name == REMOTE:
                continue
            try:
                check_topic_setting(name, text)
            except InvalidOption as error:
                ignored[name, text, error.reason].append(topic)
            else:
                if name in IDLE and not IDLE[name].has_effect and text != IDLE[name].default:
                    idle[name].append(topic)
    for (name, text, reason), topics in ignored.items():
        yield Finding(
            Severity.WARNING,
            "topic_setting_ignored",
            name,
            f"{_topics(topics)}: {name} = {text} would not count, and the default would: {reason}",
            f"strandline configs alter --topic {topics[0]} --set or --delete {name}, before the move",
            (),
            {"setting": name, "value": text, "topics": topics},
        )
    for name, topics in sorted(idle.items()):
        yield Finding(
            Severity.NOTE,
            "topic_setting_without_effect",
            name,
            f"{_topics(topics)}: {name} has no effect here. {IDLE[name].help}",
            "nothing: it is taken with a warning, and told back",
            (),
            {"setting": name, "topics": topics},
        )
    if not ignored:
        yield Fine(
            "topic_settings", f"the settings of {plural(len(facts.topics), 'topic')} would all be taken"
        )


def _topics(names: list[str]) -> str:
    return f"topic {names[0]}" if len(names) == 1 else f"{plural(len(names), 'topic')} ({named(names)})"
