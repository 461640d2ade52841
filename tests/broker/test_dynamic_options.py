"""Options that change while a broker runs: which they are, what is refused and how, whose word counts."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from strandline.base.options import InvalidOption
from strandline.broker.config.broker import OPTIONS, BrokerConfig
from strandline.broker.config.controller import controller_config
from strandline.broker.config.dynamic import (
    INTS,
    KnownOptions,
    check_broker_setting,
    check_topic_setting,
    overlaid,
    type_of,
)
from strandline.broker.config.groups import GROUP_OPTIONS
from strandline.broker.config.live import LiveConfig
from strandline.controller.requests.config_changes import Kind
from strandline.protocol.errors import InvalidConfig
from strandline.storage.config import DEFAULT_FROM, TOPIC_OPTIONS, StorageConfig, TopicConfig, text_of
from strandline.storage.idle_settings import IDLE
from strandline.zookeeper.config_nodes import NOTHING, Overrides
from strandline.zookeeper.documents import (
    ALL_BROKERS,
    CONFIG_CHANGE_PREFIX,
    ConfigChangeDocument,
    ConfigDocument,
    Endpoint,
    parse,
)
from tests.broker.cluster_harness import config

INHERITED = {name for name, place in OPTIONS.items() if place.option.field in DEFAULT_FROM.values()}
READ_WHERE_USED = {  # each time it is needed: from Logs.config, Broker.config, or the controller's defaults
    "log.cleaner.threads", "log.cleaner.dedupe.buffer.size", "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.max.bytes.per.second", "log.cleaner.backoff.ms", "producer.id.expiration.ms",
    "strandline.log.producer.ids.max", "log.validate.records", "num.partitions", "default.replication.factor",
    "auto.leader.rebalance.enable", "leader.imbalance.check.interval.seconds",
    "leader.imbalance.per.broker.percentage", "unclean.recovery.timeout.ms",
    "transaction.partition.verification.enable", "advertised.listeners",
    "strandline.web.metrics.partitions.max",
    "leader.replication.throttled.rate", "follower.replication.throttled.rate",
}  # fmt: skip


def test_every_dynamic_option_has_a_way_to_take_effect() -> None:
    """Who declares `restart=False` says how: topics inherit it, or it is read where it counts."""
    dynamic = {name for name, place in OPTIONS.items() if not place.option.restart}
    assert dynamic == INHERITED | READ_WHERE_USED


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("log.dirs", "/x", "needs a restart"),
        ("broker.id", "7", "needs a restart"),
        (
            "log.retention.hours",
            "1",
            "cannot be changed while a broker runs: change log.retention.ms instead",
        ),
        ("num.io.threads", "8", "no effect here"),
        ("log.retention.mss", "1", "did you mean log.retention.ms?"),
        ("log.segment.bytes", "13", "must be a whole number from 14 to 2147483647"),
        ("log.segment.bytes", "1_000", "must be a whole number"),
        ("log.cleaner.min.cleanable.ratio", "1.5", "must be a number, at least 0, at most 1"),
        ("log.cleaner.min.cleanable.ratio", "nan", "must be a number"),
        ("log.cleaner.io.buffer.load.factor", "0", "more than 0"),
        ("compression.type", "brotli", "must be one of producer, uncompressed"),
        ("log.cleanup.policy", "compost", "must be a list of delete, compact"),
        ("log.cleanup.policy", "delete,", "must be a list of delete, compact"),
        ("unclean.leader.election.enable", "yes", "must be true or false"),
    ],
)
def test_what_a_running_broker_refuses(name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        check_broker_setting(name, text)
    assert why in refused.value.reason and refused.value.name == name
    with pytest.raises(InvalidConfig) as answered:
        KnownOptions().check(Kind.BROKER, "3", {name: text}, [name])
    assert answered.value.message and answered.value.message.startswith(f"broker 3: {name} = {text!r}: ")


@pytest.mark.parametrize("name", sorted(TOPIC_OPTIONS))
def test_the_default_of_every_setting_may_be_set(name: str) -> None:
    option = TOPIC_OPTIONS[name]
    text = str(option.default).lower() if option.type is bool else str(option.default)
    check_topic_setting(name, text)


@pytest.mark.parametrize("name", sorted(name for name, place in OPTIONS.items() if not place.option.restart))
def test_what_is_set_while_brokers_run_has_the_type_of_its_option(name: str) -> None:
    """Else whoever calculates with it ends the broker: a number with a fraction was a text there."""
    place = OPTIONS[name]
    if place.option.default is None:
        return
    now, refused = overlaid(config(), {name: text_of(place.option.default)})
    assert not refused
    assert (place.value(now), type(place.value(now))) == (place.option.default, type(place.option.default))


@pytest.mark.parametrize("text", [" 5000", "5000 ", "\t5000\n"])
def test_blanks_around_a_value_are_nothing_as_in_kafka(text: str) -> None:
    """Kafka takes it and keeps it so; it counted here, and yet was refused, and told to be ignored."""
    check_topic_setting("retention.ms", text)
    assert TopicConfig.from_names({"retention.ms": text}, StorageConfig()).retention_ms == 5000
    changed, refused = overlaid(config(), {"log.retention.ms": text})
    assert changed.storage.retention_ms == 5000 and not refused


def test_what_others_left_there_is_not_held_against_a_client() -> None:
    settings = {"remote.storage.enable": "*", "retention.ms": "5"}
    KnownOptions().check(Kind.TOPIC, "t", settings, ["retention.ms"])
    with pytest.raises(InvalidConfig, match=r"topic t: remote\.storage"):
        KnownOptions().check(Kind.TOPIC, "t", settings, settings)


@pytest.mark.parametrize("name", sorted(IDLE))
def test_a_setting_that_does_nothing_may_have_its_default(name: str) -> None:
    check_topic_setting(name, IDLE[name].default)


@pytest.mark.parametrize(
    ("name", "good", "wrong"),
    [
        ("preallocate", "TRUE", "yes"),
        ("message.format.version", "0.10.2-IV0", "newest"),
        ("message.downconversion.enable", "false", "0"),
        ("remote.storage.enable", "false", "true"),
        ("remote.log.copy.disable", "false", "true"),
        ("local.retention.ms", "3600000", "-3"),
        ("local.retention.bytes", "-1", "9223372036854775808"),
        ("message.timestamp.difference.max.ms", "9223372036854775807", "1000"),
        ("message.format.version", "2.8.2", "9.9"),
        ("message.format.version", "3.0-IV1", "3.0-IV7"),
        ("leader.replication.throttled.replicas", "0:1,1:2", "0-1"),
        ("leader.replication.throttled.replicas", "*", "none"),
        ("follower.replication.throttled.replicas", "", "٣:١"),
    ],
)
def test_a_setting_that_does_nothing_is_taken_unless_it_would_promise_something(
    name: str, good: str, wrong: str
) -> None:
    KnownOptions().check(Kind.TOPIC, "t", {name: good}, [name])
    assert TopicConfig.from_names({name: good}, StorageConfig()) == TopicConfig.of(StorageConfig())
    with pytest.raises(InvalidConfig, match="must be"):
        KnownOptions().check(Kind.TOPIC, "t", {name: wrong}, [name])
    with pytest.raises(InvalidOption):
        TopicConfig.from_names({name: wrong}, StorageConfig())


def test_replicas_are_added_to_a_throttle_as_to_any_list() -> None:
    assert KnownOptions().list_default(Kind.TOPIC, "leader.replication.throttled.replicas") == ""


@pytest.mark.parametrize("kind", [Kind.TOPIC, Kind.BROKER, Kind.GROUP])
def test_only_to_a_list_of_its_own_something_is_added(kind: Kind) -> None:
    """The names of topics' settings and of brokers' are easily taken for one another."""
    lists = {Kind.TOPIC: "cleanup.policy", Kind.BROKER: "log.cleanup.policy"}
    every = {*OPTIONS, *TOPIC_OPTIONS, *GROUP_OPTIONS, *IDLE, "", "no.such"}
    found = {name: KnownOptions().list_default(kind, name) for name in every}
    assert found.get(lists.get(kind, "")) == ("delete" if kind in lists else None)
    others = {"retention.ms", "log.retention.ms", *lists.values()} - {lists.get(kind)}
    assert [name for name in others if found[name] is not None] == []


@pytest.mark.parametrize("name", ["retention.ms", "delete.retention.ms", "min.compaction.lag.ms"])
def test_no_number_is_larger_than_brokers_of_kafka_can_read(name: str) -> None:
    most, more = str((1 << 63) - 1), str(1 << 63)
    KnownOptions().check(Kind.TOPIC, "t", {name: most}, [name])
    with pytest.raises(InvalidConfig, match="must be a whole number"):
        KnownOptions().check(Kind.TOPIC, "t", {name: more}, [name])
    of_broker = next(
        n for n, p in OPTIONS.items() if p.option.field == DEFAULT_FROM[TOPIC_OPTIONS[name].field]
    )
    with pytest.raises(InvalidConfig, match="must be a whole number"):
        KnownOptions().check(Kind.BROKER, "", {of_broker: more}, [of_broker])
    with pytest.raises(InvalidOption, match=f"{name}.*must be at most {most}"):
        TopicConfig.from_names({name: more}, StorageConfig())


def test_throttles_of_tools_that_move_partitions_are_taken() -> None:
    replicas = {
        "leader.replication.throttled.replicas": "0:1",
        "follower.replication.throttled.replicas": "*",
    }
    KnownOptions().check(Kind.TOPIC, "t", replicas, replicas)
    assert TopicConfig.from_names(replicas, StorageConfig()) == TopicConfig.of(StorageConfig())
    rates = {
        "leader.replication.throttled.rate": "1000", "follower.replication.throttled.rate": "2000",
        "replica.alter.log.dirs.io.max.bytes.per.second": "3000",
    }  # fmt: skip
    KnownOptions().check(Kind.BROKER, "3", rates, rates)
    changed, refused = overlaid(config(), rates)
    assert not refused, "the last one does nothing here"
    replication = changed.replication
    assert (replication.leader_throttled_rate, replication.follower_throttled_rate) == (1000, 2000)


def test_settings_that_contradict_each_other_are_refused() -> None:
    settings = {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms = 9: must not exceed"):
        KnownOptions().check(Kind.TOPIC, "t", settings, ["max.compaction.lag.ms"])
    with pytest.raises(InvalidConfig, match=r"topic t: .*'soon'.* min\.compaction\.lag\.ms"):
        KnownOptions().check(
            Kind.TOPIC, "t", {**settings, "min.compaction.lag.ms": "soon"}, ["max.compaction.lag.ms"]
        )
    KnownOptions().check(Kind.TOPIC, "t", {**settings, "segment.ms": "5"}, ["segment.ms"])


def test_types_are_kafkas() -> None:
    assert {*OPTIONS, *GROUP_OPTIONS} >= INTS
    of = {name: type_of(name, place.option) for name, place in OPTIONS.items()}
    assert (of["log.segment.bytes"], of["log.retention.ms"], of["min.insync.replicas"]) == (3, 5, 3)
    assert (of["offsets.topic.replication.factor"], of["log.cleaner.min.cleanable.ratio"]) == (4, 6)
    assert (of["log.cleanup.policy"], of["log.dirs"], of["log.cleaner.enable"]) == (7, 2, 1)


def test_what_cannot_be_understood_is_left_out() -> None:
    started = config()
    changed, refused = overlaid(
        started, {"log.segment.bytes": "77", "log.dirs": "/x", "log.roll.ms": "soon", "made.up": "1"}
    )
    assert [error.name for error in refused] == ["log.dirs", "log.roll.ms", "made.up"]
    assert changed.storage == started.storage.model_copy(update={"segment_bytes": 77})
    assert started.storage.segment_bytes != 77


def test_this_broker_goes_before_all_brokers_and_both_before_the_file() -> None:
    live = LiveConfig(config(storage={"segment_bytes": 50}))
    told: list[int] = []
    live.on_change.subscribe(lambda: told.append(live.current.storage.segment_bytes))
    live.learn("1", Overrides({"log.segment.bytes": "100", "log.dirs": "/x"}, 5, 0))
    live.learn(ALL_BROKERS, Overrides({"log.segment.bytes": "200", "log.roll.ms": "9"}, 6, 0))
    assert (live.current.storage.segment_bytes, live.current.storage.segment_ms) == (100, 9)
    assert live.of_this == {"log.segment.bytes": "100"} and "log.roll.ms" in live.of_all
    live.learn("1", Overrides({}, 5, 1))
    assert live.current.storage.segment_bytes == 200
    live.learn(ALL_BROKERS, Overrides({"made.up": "1"}, 6, 1))
    assert live.current == live.started_with
    assert told == [100, 100, 200, 50], "the same configuration is no news"
    assert live.concerns("1") and live.concerns(ALL_BROKERS) and not live.concerns("2")


LISTENERS = "INTERNAL://127.0.0.1:5000,CLIENT://127.0.0.1:9092"
MOVED = "INTERNAL://127.0.0.1:5000,CLIENT://kafka.example:19092"


def two_listeners(**changes: Any) -> BrokerConfig:
    return config(
        listeners=LISTENERS,
        listener_security_protocol_map="INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT",
        inter_broker_listener_name="INTERNAL",
        **changes,
    )


def test_a_broker_is_told_other_addresses() -> None:
    """By itself: what one advertises is no other's. The address in the file comes back in the end."""
    live = LiveConfig(two_listeners(advertised_listeners="INTERNAL://127.0.0.1:5000,CLIENT://old.example:1"))
    ports = {"INTERNAL": 5000, "CLIENT": 9092}

    def told() -> list[tuple[str, int]]:
        return [(each.host, each.port) for each in live.current.advertised(ports)]

    live.learn("1", Overrides({"advertised.listeners": MOVED}, 5, 0))
    assert told() == [("127.0.0.1", 5000), ("kafka.example", 19092)]
    live.learn(ALL_BROKERS, Overrides({"advertised.listeners": LISTENERS}, 6, 0))
    assert told()[1] == ("kafka.example", 19092) and not live.of_all, "it cannot be that of all brokers"
    for wrong in ("CLIENT://h:1", MOVED + ",OTHER://h:2", "nonsense", "", MOVED.replace("kafka.example", "")):
        live.learn("1", Overrides({"advertised.listeners": wrong}, 5, live._told["1"].version + 1))
        assert told()[1] == ("old.example", 1) and not live.of_this, wrong
    live.learn("1", NOTHING)
    assert live.current == live.started_with


def test_the_http_server_is_asked_by_the_names_of_now() -> None:
    live = LiveConfig(two_listeners(advertised_listeners="INTERNAL://127.0.0.1:5000,CLIENT://old.example:1"))
    assert "old.example" in live.current.web_hosts
    live.learn("1", Overrides({"advertised.listeners": MOVED}, 5, 0))
    assert "kafka.example" in live.current.web_hosts and "old.example" not in live.current.web_hosts


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("nonsense", "expected NAME://host:port"),
        ("", "is empty"),
        ("CLIENT://h:99999", "a port from 0 to 65535"),
        (f"CLIENT://h:{'9' * 5000}", "a port from 0 to 65535"),
        ("CLIENT://bad host:1", "is not a host name"),
        ("CLIENT://h:1", "add an address for listener INTERNAL"),
        (f"{MOVED},OTHER://h:2", "a listener that is not in `listeners`: OTHER"),
        (f"{MOVED},CLIENT://h:2", "CLIENT is listed twice"),
        (MOVED.replace("kafka.example", "0.0.0.0"), "which no client can reach"),
        (MOVED.replace("kafka.example:19092", "127.0.0.1:9093"), "CLIENT://127.0.0.1:9093 is where broker 2"),
    ],
)
def test_addresses_that_a_broker_cannot_have_are_refused(text: str, why: str) -> None:
    registered = {
        1: [Endpoint("INTERNAL", "127.0.0.1", 5000), Endpoint("CLIENT", "127.0.0.1", 9092)],
        2: [Endpoint("INTERNAL", "127.0.0.1", 5001), Endpoint("CLIENT", "127.0.0.1", 9093)],
    }
    options, settings = KnownOptions(), {"advertised.listeners": text}
    with pytest.raises(InvalidConfig, match=re.escape(why)):
        options.check(Kind.BROKER, "1", settings, list(settings))
        options.check_addresses(1, settings, registered)
    options.check_addresses(1, {"advertised.listeners": MOVED}, registered)
    options.check_addresses(1, {"advertised.listeners": LISTENERS}, registered)  # its own
    options.check_addresses(1, {"log.roll.ms": "9"}, registered)


def test_addresses_are_given_to_one_broker_that_runs() -> None:
    options, settings = KnownOptions(), {"advertised.listeners": MOVED}
    with pytest.raises(InvalidConfig, match="set it for each of them, by its id"):
        options.check(Kind.BROKER, "", settings, list(settings))
    with pytest.raises(InvalidConfig, match="broker 1 does not run, so its listeners are not known"):
        options.check_addresses(1, settings, {})


EMPTY = Overrides({"log.cleanup.policy": ""}, 6, 0)


def test_an_empty_cleanup_policy_is_taken_with_a_warning() -> None:
    """At the start, or when it changes; it says where it comes from. Not again while it stays."""
    with capture_logs() as told:
        LiveConfig(config())
        LiveConfig(config(storage={"cleanup_policy": ""}))
        live = LiveConfig(config())
        live.learn(ALL_BROKERS, EMPTY)
        live.learn("1", Overrides({"log.roll.ms": "9"}, 5, 0))
        live.learn("1", Overrides({"log.cleanup.policy": "compact"}, 5, 1))
        live.learn("1", Overrides({"log.cleanup.policy": " "}, 5, 2))
    told = [one for one in told if one["log_level"] == "warning"]
    assert [(one["event"], one["setting"], one["entity"]) for one in told] == [
        ("nothing_is_deleted", "log.cleanup.policy =", "broker 1, its configuration at the start"),
        ("nothing_is_deleted", "log.cleanup.policy =", "all brokers"),
        ("nothing_is_deleted", "log.cleanup.policy =", "broker 1"),
    ]
    assert all("set it to delete, compact or both" in one["reason"] for one in told)
    assert live.current.storage.keeps_everything


def test_an_empty_cleanup_policy_of_a_topic_is_taken_with_a_warning() -> None:
    options = KnownOptions()
    with capture_logs() as told:
        for text in ("", "delete"):
            options.check(Kind.TOPIC, "t", {"cleanup.policy": text}, ["cleanup.policy"])
        options.check(Kind.TOPIC, "t", {"cleanup.policy": "", "retention.ms": "1"}, ["retention.ms"])
        check_new = controller_config(LiveConfig(config())).check_configs
        for new in ({"cleanup.policy": ""}, {"cleanup.policy": "compact"}, {}):
            check_new("new", new)
    assert [(one["event"], one["entity"], one["setting"]) for one in told] == [
        ("nothing_is_deleted", "topic t", "cleanup.policy ="),
        ("nothing_is_deleted", "topic new", "cleanup.policy ="),
    ]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "604800000.0"),
        ("retention.ms", "604_800_000"),
        ("min.cleanable.dirty.ratio", "0.5_0"),
        ("min.insync.replicas", "2147483648"),
        ("leader.replication.throttled.replicas", "none"),
    ],
)
def test_a_topic_gets_no_setting_that_kafka_could_not_read(name: str, text: str) -> None:
    """A broker of Kafka does not start while a topic has it, and refuses each order that names it. Here
    it is read all the same where somebody else has set it.
    """
    with pytest.raises(InvalidConfig, match=f"topic t: {re.escape(name)} = "):
        controller_config(LiveConfig(config())).check_configs("t", {name: text})
    with pytest.raises(InvalidConfig, match=f"topic t: {re.escape(name)} = "):
        KnownOptions().check(Kind.TOPIC, "t", {name: text}, [name])


def test_what_is_new_is_checked_as_what_is_changed() -> None:
    """But for spaces around it, which Kafka does not mind."""
    check = controller_config(LiveConfig(config())).check_configs
    check("t", {"retention.ms": " 5 ", "preallocate": "true "})
    with pytest.raises(InvalidConfig, match=r"must not exceed max\.compaction\.lag\.ms"):
        check("t", {"min.compaction.lag.ms": "7", "max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfig, match="did you mean"):
        check("t", {"retention.m": "5"})


def test_settings_are_described_as_kafka_does() -> None:
    """Types and defaults are Kafka's; so is what needs a restart, but for what is said here."""
    kafkas = json.loads((Path(__file__).parents[1] / "fixtures/kafka/settings.json").read_text())
    for name, known in kafkas["topic"].items():
        option = TOPIC_OPTIONS[name]
        assert (type_of(name, option), text_of(option.default)) == (known["type"], known["default"]), name
        assert not known["read_only"]
    other = set()
    for name, known in kafkas["broker"].items():
        option = OPTIONS[name].option
        assert type_of(name, option) == known["type"], name
        if option.restart != known["read_only"]:
            other.add(name)
    assert other == {
        # Kafka's need a restart
        "num.partitions", "default.replication.factor", "auto.leader.rebalance.enable",
        "leader.imbalance.check.interval.seconds", "leader.imbalance.per.broker.percentage",
        # and ours
        "listeners", "listener.security.protocol.map", "max.connections",
        "num.recovery.threads.per.data.dir",
    }  # fmt: skip


def test_znodes_are_written_as_kafka_writes_them() -> None:
    kafkas = json.loads((Path(__file__).parents[1] / "fixtures/kafka/settings.json").read_text())["znodes"]
    changed = {
        "topics/t": "retention.ms",
        "brokers/1": "log.segment.bytes",
        "brokers/<default>": "log.roll.ms",
    }
    for node, name in changed.items():
        data = kafkas[f"/config/{node}"].encode()
        assert json.loads(
            ConfigDocument(config={name: parse(ConfigDocument, data).config[name]}).data()
        ) == json.loads(data)
    notices = [
        data.encode() for path, data in sorted(kafkas.items()) if path.startswith(CONFIG_CHANGE_PREFIX)
    ]
    assert [parse(ConfigChangeDocument, data).path for data in notices] == [*changed]
    assert [json.loads(ConfigChangeDocument(entity_path=node).data()) for node in changed] == [
        json.loads(data) for data in notices
    ]


KAFKAS_DEFAULTS = {  # of Kafka 3.9, from its documentation
    "log.segment.bytes": "1073741824",
    "log.retention.bytes": "-1",
    "log.retention.check.interval.ms": "300000",
    "log.segment.delete.delay.ms": "60000",
    "log.index.interval.bytes": "4096",
    "log.index.size.max.bytes": "10485760",
    "log.cleaner.enable": "true",
    "log.cleaner.threads": "1",
    "log.cleaner.dedupe.buffer.size": "134217728",
    "log.cleaner.backoff.ms": "15000",
    "log.cleaner.min.cleanable.ratio": "0.5",
    "log.cleaner.delete.retention.ms": "86400000",
    "log.cleanup.policy": "delete",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "replica.lag.time.max.ms": "30000",
    "replica.fetch.max.bytes": "1048576",
    "replica.fetch.wait.max.ms": "500",
    "replica.fetch.min.bytes": "1",
    "replica.high.watermark.checkpoint.interval.ms": "5000",
    "replica.socket.timeout.ms": "30000",
    "replica.fetch.backoff.ms": "1000",
    "num.partitions": "1",
    "default.replication.factor": "1",
    "auto.create.topics.enable": "true",
    "auto.leader.rebalance.enable": "true",
    "leader.imbalance.check.interval.seconds": "300",
    "leader.imbalance.per.broker.percentage": "10",
    "offsets.topic.num.partitions": "50",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.segment.bytes": "104857600",
    "offsets.retention.minutes": "10080",
    "offsets.retention.check.interval.ms": "600000",
    "offset.metadata.max.bytes": "4096",
    "offsets.commit.timeout.ms": "5000",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "group.initial.rebalance.delay.ms": "3000",
    "zookeeper.session.timeout.ms": "18000",
    "zookeeper.connection.timeout.ms": "18000",
    "message.max.bytes": "1048588",
    "socket.request.max.bytes": "104857600",
    "connections.max.idle.ms": "600000",
    "controlled.shutdown.enable": "true",
    "compression.type": "producer",
    "log.message.timestamp.type": "CreateTime",
    "producer.id.expiration.ms": "86400000",
    "log.flush.interval.messages": "9223372036854775807",
    "log.dirs": "/tmp/kafka-logs",
    "num.recovery.threads.per.data.dir": "1",
    "log.cleaner.io.buffer.load.factor": "0.9",
}


def test_what_is_not_given_is_as_in_kafka() -> None:
    ours = {name: text_of(OPTIONS[name].option.default) for name in KAFKAS_DEFAULTS}
    assert ours == KAFKAS_DEFAULTS
