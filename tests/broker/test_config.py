"""What a broker is told: from which source, what is refused, and in which words."""

import pytest

from strandline.broker.config.broker import OPTIONS, BrokerConfig
from strandline.broker.config.document import render
from strandline.broker.config.files import (
    NO_EFFECT,
    OPTIONS_WITHOUT_EFFECT,
    OTHER_NAMES,
    from_properties,
    load,
)
from strandline.broker.errors import BrokerConfigError
from strandline.controller.requests.election_requests import ElectionPolicy
from strandline.replication.profiles import PROFILES, TODAY

BASE = "broker.id=1\nlog.dirs=/data/a\nzookeeper.connect=127.0.0.1:2181/kafka\n"

KAFKAS_OWN = """
# The id of the broker. This must be set to a unique integer for each broker.
broker.id=0
#listeners=PLAINTEXT://:9092
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kafka-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.retention.check.interval.ms=300000
zookeeper.connect=localhost:2181
zookeeper.connection.timeout.ms=18000
group.initial.rebalance.delay.ms=0
"""

OLDEST = "strandline.semantics.profile=0.8\nstrandline.semantics.accept.loss=true\n"


def test_replicas_outside_of_the_isr_are_waited_for_as_in_kip_966() -> None:
    """They may be late after a loss of power, with records that nobody else has."""
    assert load(BASE).config.controller.unclean_recovery_timeout_ms == 300_000
    assert ElectionPolicy().recovery_timeout_s == 300


def mistakes(text: str, **sources: object) -> tuple[str, ...]:
    with pytest.raises(BrokerConfigError) as caught:
        load(text, **sources)  # type: ignore[arg-type]
    return caught.value.sentences


def test_kafkas_own_server_properties_starts_a_broker() -> None:
    config, warnings = load(KAFKAS_OWN)
    assert (config.broker_id, config.directories) == (0, ("/tmp/kafka-logs",))
    assert config.storage.retention_ms == 168 * 3_600_000
    assert config.groups.offsets_replication_factor == 1
    assert config.transactions.log_replication_factor == config.transactions.log_min_isr == 1
    assert [w.split(" ")[0] for w in warnings] == [
        "num.network.threads",
        "num.io.threads",
        "socket.send.buffer.bytes",
        "socket.receive.buffer.bytes",
    ]
    assert all(w.endswith("has no effect here") for w in warnings)


def test_no_option_is_told_to_have_no_effect() -> None:
    assert NO_EFFECT.isdisjoint({*OPTIONS, *OTHER_NAMES})


def test_the_later_source_wins() -> None:
    text = BASE + "log.segment.bytes=1000\nnum.partitions=2\nlog.roll.ms=5"
    environment = {"STRANDLINE_LOG_SEGMENT_BYTES": "2000", "STRANDLINE_NUM_PARTITIONS": "3", "HOME": "/"}
    config = load(text, environment, ["log.segment.bytes=3000"]).config
    assert (config.storage.segment_bytes, config.controller.num_partitions, config.storage.segment_ms) == (
        3000,
        3,
        5,
    )


@pytest.mark.parametrize(
    "name",
    [
        "replication.quota.window.size.seconds", "controller.quota.window.size.seconds",
        "max.connections.per.ip.overrides", "kafka.metrics.reporters",
    ],
)  # fmt: skip
def test_what_only_kafka_has_an_effect_of_is_taken_with_a_warning(name: str) -> None:
    _, warnings = load(f"{KAFKAS_OWN}\n{name}=5\n")
    assert [warning for warning in warnings if warning.startswith(name)]


def test_properties_are_read_as_java_reads_them() -> None:
    text = "! note\nbroker.id : 7\nlog.dirs = /a,\\\n   /b\n\nzookeeper.connect z1:2181,z2:2181/root/\n"
    config = load(text).config
    assert (config.broker_id, config.directories) == (7, ("/a", "/b"))
    assert (config.zookeeper.hosts, config.zookeeper.chroot) == ("z1:2181,z2:2181", "/root")


@pytest.mark.parametrize("end", ["\\", "\\\n", "\\\n\n"])
def test_a_setting_that_the_end_of_the_file_cuts_short_counts(end: str) -> None:
    """Java takes it; here it was dropped without a word."""
    found = list(from_properties(f"broker.id=1\nmin.insync.replicas=2{end}", "f"))
    assert [(one.name, one.text, one.source) for one in found] == [
        ("broker.id", "1", "f line 1"),
        ("min.insync.replicas", "2", "f line 2"),
    ]


def test_what_programs_escape_that_write_properties_is_read_as_java_reads_it() -> None:
    """Java's own writer escapes each colon, and all that is not ASCII."""
    text = (
        "broker.id=\\u0037\nzookeeper.connect=z1\\:2181/root\nlog.dirs=/a\\ b,/c\\\\d\n"
        "listeners=PLAINTEXT\\://kafka-1\\:9092\n"
    )
    config = load(text).config
    assert (config.broker_id, config.directories) == (7, ("/a b", "/c\\d"))
    assert config.zookeeper.connect == "z1:2181/root"
    assert config.listeners == "PLAINTEXT://kafka-1:9092"


def test_all_mistakes_are_told_at_once_with_their_place() -> None:
    text = (
        "broker.id=x\nlog.segment.byte=5\nlog.segment.bytes=3\nauto.create.topics.enable=maybe\nlog.dirs=/a"
    )
    found = mistakes(text, overrides=["compression.type=rar"])
    assert found == (
        "broker.id = 'x' (server.properties line 1): must be a whole number from 0 to 2147483647",
        "unknown configuration 'log.segment.byte' (server.properties line 2); "
        "did you mean log.segment.bytes?",
        "log.segment.bytes = '3' (server.properties line 3): must be a whole number from 14 to 2147483647",
        "auto.create.topics.enable = 'maybe' (server.properties line 4): must be true or false",
        "compression.type = 'rar' (--override compression.type=rar): "
        "must be one of producer, uncompressed, gzip, snappy, lz4, zstd",
        "zookeeper.connect is missing: host:port,host:port with an optional /chroot at the end, "
        "which is created if missing.",
    )


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    (found,) = mistakes(BASE, environment={"STRANDLINE_LOG_SEGMENT_BITES": "1"})
    assert found == (
        "unknown configuration 'log.segment.bites' (environment STRANDLINE_LOG_SEGMENT_BITES); "
        "did you mean log.segment.bytes?"
    )


def test_a_variable_of_the_record_kernels_is_no_option() -> None:
    assert load(BASE, {"STRANDLINE_DECODER": "numpy", "STRANDLINE_ENCODER": "python"}) == load(BASE)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("ssl.keystore.location=/k", "TLS is not supported"),
        ("process.roles=broker", "KRaft is not supported"),
        ("authorizer.class.name=A", "access control is not supported"),
        ("listeners=SSL://127.0.0.1:1", "SSL: only PLAINTEXT is supported"),
        ("listeners=CLIENT://127.0.0.1:1", "add CLIENT:PLAINTEXT to listener.security.protocol.map"),
        ("listeners=PLAINTEXT://127.0.0.1", "expected NAME://host:port"),
        ("listeners=PLAINTEXT://0.0.0.0:9092", "give its address in advertised.listeners"),
        ("listeners=PLAINTEXT://h:1,PLAINTEXT://h:2", "PLAINTEXT is listed twice"),
        ("advertised.listeners=OTHER://h:1", "has a listener that is not in `listeners`"),
        ("inter.broker.listener.name=OTHER", "expected one of the listeners PLAINTEXT"),
        ("replica.lag.time.max.ms=400", "must be less than replica.lag.time.max.ms"),
        ("log.dirs=/a,/a", "a directory is listed twice"),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(line: str, words: str) -> None:
    (found,) = mistakes(BASE + line)
    assert words in found
    assert "\n" not in found


@pytest.mark.parametrize("name", ["replica.lag.max.messages", "replica.lag.max.message"])
def test_lag_in_messages_is_accepted_and_counts_only_under_the_oldest_profile(name: str) -> None:
    (warning,) = load(BASE + f"{name}=40").warnings
    assert warning.startswith("replica.lag.max.messages has no effect under strandline.semantics.profile")
    config, warnings = load(BASE + f"{name}=40\n" + OLDEST)
    assert config.replication.lag_messages_max == 40
    assert not any("has no effect" in warning for warning in warnings)


def test_without_log_dirs_it_is_kafkas_default_and_said() -> None:
    config, warnings = load("broker.id=1\nzookeeper.connect=h:1")
    assert config.directories == ("/tmp/kafka-logs",)
    assert any("log.dirs is not set: using /tmp/kafka-logs" in warning for warning in warnings)
    assert not load("broker.id=1\nzookeeper.connect=h:1\nlog.dir=/a").warnings


def test_a_profile_sets_the_defaults_of_its_time_and_nothing_that_is_given() -> None:
    config = load(BASE + OLDEST).config
    assert (config.storage.unclean_leader_election_enable, config.replication.lag_time_max_ms) == (
        True,
        10_000,
    )
    given = "replica.lag.time.max.ms=20000\nunclean.leader.election.enable=false"
    config = load(BASE + OLDEST + given).config
    assert (config.storage.unclean_leader_election_enable, config.replication.lag_time_max_ms) == (
        False,
        20_000,
    )
    assert load(BASE + "strandline.semantics.profile=3.9").config.replication.strict_min_isr
    assert load(BASE).config.semantics is TODAY
    consent = "strandline.semantics.accept.loss=true\n"
    for name in PROFILES:
        config = load(BASE + consent + f"strandline.semantics.profile={name}").config
        wanted = "balanced" if name == "strandline" else "manual"
        assert config.storage.unclean_recovery_strategy == wanted, "no version of Kafka compares logs"


@pytest.mark.parametrize("name", [each.name for each in PROFILES.values() if each.loses])
def test_a_profile_that_loses_records_needs_consent_and_is_loud(name: str) -> None:
    text = BASE + f"strandline.semantics.profile={name}\n"
    (refusal,) = mistakes(text)
    assert "loses acknowledged records" in refusal and "strandline.semantics.accept.loss=true" in refusal
    warnings = load(text + "strandline.semantics.accept.loss=true").warnings
    assert any("ACKNOWLEDGED RECORDS WILL BE LOST" in warning for warning in warnings)


def test_an_unknown_profile_is_refused() -> None:
    assert mistakes(BASE + "strandline.semantics.profile=2.0") == (
        "strandline.semantics.profile = '2.0': must be one of 0.8, 0.10, 0.11, 3.6, 3.9, strandline",
    )


def test_a_risky_pair_is_warned_about() -> None:
    (warning,) = load(BASE + "default.replication.factor=3").warnings
    assert "with 2 it survives the loss of any broker" in warning


def test_listeners_have_their_own_addresses() -> None:
    text = BASE + (
        "listeners=INTERNAL://127.0.0.1:0,CLIENT://0.0.0.0:9092\n"
        "listener.security.protocol.map=INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT\n"
        "advertised.listeners=INTERNAL://127.0.0.1:0,CLIENT://kafka.example:19092\n"
        "inter.broker.listener.name=INTERNAL\n"
    )
    config = load(text).config
    assert config.inter_broker_listener == "INTERNAL"
    assert [(e.host, e.port) for e in config.endpoints] == [("127.0.0.1", 0), ("0.0.0.0", 9092)]
    known = config.advertised({"INTERNAL": 5000, "CLIENT": 9092})
    assert [(e.listener, e.host, e.port) for e in known] == [
        ("INTERNAL", "127.0.0.1", 5000),
        ("CLIENT", "kafka.example", 19092),
    ]


def test_defaults_are_kafkas() -> None:
    config = load(BASE).config
    assert config.auto_create_topics_enable
    assert (config.controller.num_partitions, config.storage.min_insync_replicas) == (1, 1)
    assert (config.zookeeper.session_timeout_ms, config.replication.lag_time_max_ms) == (18_000, 30_000)
    assert (config.socket_request_max_bytes, config.queued_max_requests) == (100 << 20, 500)


def test_every_option_is_documented_with_its_default() -> None:
    page = render()
    for name, place in OPTIONS.items():
        assert f"| `{name}` |" in page
        assert place.option.help, name
    assert "| `broker.id` | `required` |" in page


def test_a_configuration_does_not_change() -> None:
    config: BrokerConfig = load(BASE).config
    with pytest.raises(Exception, match="frozen"):
        config.broker_id = 2


def test_an_option_without_effect_is_taken_with_a_warning_and_says_so_itself() -> None:
    _, warnings = load(BASE + "max.request.partition.size.limit=7")
    assert [w.split(" ")[0] for w in warnings] == [*OPTIONS_WITHOUT_EFFECT]
    without = {name for name, place in OPTIONS.items() if "without effect" in place.option.help.lower()}
    assert without == OPTIONS_WITHOUT_EFFECT


def test_the_balance_of_leaders_is_configured_without_a_warning() -> None:
    """It has an effect: whoever turns it off must not be told that it goes on."""
    text = "auto.leader.rebalance.enable=false\nleader.imbalance.check.interval.seconds=7"
    config, warnings = load(BASE + text)
    assert not config.controller.auto_leader_rebalance_enable and not warnings


@pytest.mark.parametrize(
    ("text", "retention_ms", "segment_ms"),
    [
        ("log.retention.hours=2\nlog.roll.hours=3", 2 * 3_600_000, 3 * 3_600_000),
        ("log.retention.minutes=5\nlog.retention.hours=2", 300_000, 7 * 24 * 3_600_000),
        ("log.retention.hours=2\nlog.retention.minutes=5", 300_000, 7 * 24 * 3_600_000),
        ("log.retention.ms=7\nlog.retention.hours=2\nlog.retention.minutes=5", 7, 7 * 24 * 3_600_000),
        ("log.retention.hours=-1\nlog.roll.hours=1\nlog.roll.ms=9", -1, 9),
    ],
)
def test_the_finer_of_kafkas_names_wins(text: str, retention_ms: int, segment_ms: int) -> None:
    storage = load(BASE + text).config.storage
    assert (storage.retention_ms, storage.segment_ms) == (retention_ms, segment_ms)
