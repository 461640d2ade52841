"""Settings as clients read them: values, sources, types; and how changes go to the controller."""

import asyncio
import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from strandline.base import log_levels
from strandline.broker.config.broker import OPTIONS
from strandline.broker.config.groups import GroupSettings
from strandline.broker.config.live import LiveConfig
from strandline.broker.handlers import configs
from strandline.broker.replicas.topic_configs import TopicSettings
from strandline.cli.log_format import to_stderr
from strandline.protocol.errors import RequestTimedOut, UnsupportedVersion
from strandline.protocol.messages.cluster import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
)
from strandline.protocol.messages.config_changes import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlteredResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalConfig,
    IncrementalResource,
)
from strandline.protocol.schema import encode
from strandline.zookeeper.config_nodes import NOTHING, Overrides
from strandline.zookeeper.documents import ALL_BROKERS
from tests.broker.cluster_harness import config

NO_EXCHANGE: Any = None


class FakeBroker:
    """As much of a broker as these handlers look at."""

    def __init__(self, **changes: Any) -> None:
        self.live = LiveConfig(config(**changes))
        self.id = 1
        self.metadata = SimpleNamespace(topics={"u": None, "t": None}, brokers={2: None, 1: None})
        logs: Any = SimpleNamespace(config=self.live.current.storage)
        self.settings = TopicSettings(logs, {})
        self.forwarder = self
        self.forwarded: list[Any] = []
        self.refreshed = 0
        self.controller = SimpleNamespace(active=False, alter_own=self._alter_own)
        self.roles = SimpleNamespace(gate=SimpleNamespace(is_kafkas=False))
        self.own: list[tuple[str, bool]] = []
        self.announced: list[Callable[[], None]] = []
        self.group_settings = GroupSettings(self.live.current.groups)
        self.live.on_change.subscribe(lambda: setattr(logs, "config", self.live.current.storage))
        self.live.on_change.subscribe(self.settings._resolved.clear)

    @property
    def config(self) -> Any:
        return self.live.current

    async def submit(self, request: Any, timeout_ms: int) -> Any:
        self.forwarded.append(request)
        rows = [
            AlteredResource(resource_type=r.resource_type, resource_name=r.resource_name)
            for r in request.resources
        ]
        return IncrementalAlterConfigsResponse(responses=rows)

    async def _alter_own(self, wanted: Any, validate_only: bool) -> None:
        self.own.append((wanted.name, validate_only))

    async def refresh(self) -> None:
        self.refreshed += 1
        while self.announced:
            self.announced.pop()()

    def describe(self, type: int, name: str, *keys: str) -> Any:
        asked = DescribeConfigsResource(
            resource_type=type, resource_name=name, configuration_keys=list(keys) or None
        )
        request = DescribeConfigsRequest(resources=[asked], include_synonyms=True, include_documentation=True)
        asked_of: Any = self
        response = asyncio.run(configs.describe_configs_afresh(asked_of, NO_EXCHANGE, request))
        for version in (1, 3, 4):
            encode(response, version)
        return response.results[0]

    def one(self, type: int, name: str, key: str) -> Any:
        (setting,) = self.describe(type, name, key).configs
        return setting


def sources(setting: Any) -> list[tuple[str, str | None, int]]:
    return [(s.name, s.value, s.source) for s in setting.synonyms]


def test_every_source_is_told_and_the_first_counts() -> None:
    broker = FakeBroker(storage={"retention_ms": 4000})
    broker.settings.learn("t", Overrides({"retention.ms": "1000"}, 1, 0))
    broker.live.learn("1", Overrides({"log.retention.ms": "2000"}, 1, 0))
    broker.live.learn(ALL_BROKERS, Overrides({"log.retention.ms": "3000"}, 1, 0))
    setting = broker.one(2, "t", "retention.ms")
    assert (setting.value, setting.config_source, setting.config_type) == ("1000", 1, 5)
    assert (setting.read_only, setting.is_sensitive) == (False, False) and setting.documentation
    assert sources(setting) == [
        ("retention.ms", "1000", 1),
        ("log.retention.ms", "2000", 2),
        ("log.retention.ms", "3000", 3),
        ("log.retention.ms", "4000", 4),
        ("log.retention.ms", "604800000", 5),
    ]
    broker.settings.learn("t", Overrides({}, 1, 1))
    assert broker.one(2, "t", "retention.ms").value == "2000"
    setting = broker.one(4, "1", "log.retention.ms")
    assert (setting.value, setting.config_source, setting.read_only) == ("2000", 2, False)
    broker.live.learn("1", Overrides({}, 1, 1))
    assert broker.one(4, "1", "log.retention.ms").config_source == 3
    broker.live.learn(ALL_BROKERS, Overrides({}, 1, 1))
    assert broker.one(4, "1", "log.retention.ms").config_source == 4


def test_all_settings_of_a_broker_and_what_was_set_for_all() -> None:
    broker = FakeBroker()
    of_broker = {c.name: c for c in broker.describe(4, "1").configs}
    assert set(of_broker) == {*OPTIONS, "inter.broker.protocol.version"}
    assert of_broker["broker.id"].value == "1" and of_broker["broker.id"].read_only
    assert not of_broker["log.retention.ms"].read_only
    assert (of_broker["num.partitions"].config_source, of_broker["log.dirs"].config_source) == (5, 4)
    assert sources(of_broker["broker.id"]) == [("broker.id", "1", 4)], "what must be given has no default"
    assert broker.describe(4, "").configs == []
    broker.live.learn(ALL_BROKERS, Overrides({"log.roll.ms": "9", "made.up": "1"}, 1, 0))
    assert [(c.name, c.value, c.config_source) for c in broker.describe(4, "").configs] == [
        ("log.roll.ms", "9", 3)
    ]


def test_a_throttle_that_does_nothing_here_is_told_as_it_was_set() -> None:
    """Kafka's tools set it, for one broker or for all, and ask for it again."""
    broker, name = FakeBroker(), "replica.alter.log.dirs.io.max.bytes.per.second"
    broker.live.learn(ALL_BROKERS, Overrides({name: "7", "log.roll.ms": "9"}, 1, 0))
    told = [(c.name, c.value, c.config_source, c.config_type) for c in broker.describe(4, "").configs]
    assert told == [("log.roll.ms", "9", 3, 5), (name, "7", 3, 5)]
    assert sources(broker.one(4, "1", name)) == [(name, "7", 3)]
    broker.live.learn("1", Overrides({name: "8"}, 1, 0))
    setting = broker.one(4, "1", name)
    assert (setting.value, setting.config_source, setting.read_only) == ("8", 2, False)
    assert sources(setting) == [(name, "8", 2), (name, "7", 3)] and setting.documentation


def test_what_there_is_not_cannot_be_described() -> None:
    broker = FakeBroker()
    codes = [
        broker.describe(*asked).error_code
        for asked in ((4, "2"), (2, "none"), (2, "a/b"), (16, "1"), (8, ""), (8, "2"), (32, ""), (2, "t"))
    ]
    assert codes == [42, 3, 17, 42, 42, 42, 42, 0]


def test_a_group_has_settings_of_its_own_or_those_of_the_brokers() -> None:
    broker = FakeBroker(groups={"consumer_heartbeat_interval_ms": 6000})
    broker.group_settings.learn("g", Overrides({"consumer.session.timeout.ms": "50000"}, 1, 0))
    session, interval = broker.describe(32, "g").configs
    assert (session.name, session.value, session.config_source) == ("consumer.session.timeout.ms", "50000", 8)
    assert (session.config_type, session.read_only) == (3, False) and session.documentation
    assert sources(session) == [
        ("consumer.session.timeout.ms", "50000", 8),
        ("group.consumer.session.timeout.ms", "45000", 5),
    ]
    assert (interval.name, interval.value, interval.config_source) == (
        "consumer.heartbeat.interval.ms", "6000", 4,
    )  # fmt: skip
    assert [c.value for c in broker.describe(32, "never-seen").configs] == ["45000", "6000"]
    assert [c.name for c in broker.describe(32, "g", "consumer.session.timeout.ms").configs] == [session.name]


def test_what_another_broker_has_changed_just_now_is_told() -> None:
    broker = FakeBroker()
    changed = Overrides({"retention.ms": "5"}, 1, 0)
    broker.announced.append(lambda: broker.settings.learn("t", changed))
    asked: Any = broker
    resource = DescribeConfigsResource(
        resource_type=2, resource_name="t", configuration_keys=["retention.ms"]
    )
    request = DescribeConfigsRequest(resources=[resource])
    response = asyncio.run(configs.describe_configs_afresh(asked, NO_EXCHANGE, request))
    assert [setting.value for setting in response.results[0].configs] == ["5"]


def test_who_asks_for_very_many_topics_does_not_hold_up_the_others() -> None:
    """Tools that watch a cluster ask for the settings of all its topics at once, again and again."""

    async def story() -> None:
        broker: Any = FakeBroker()
        resources = [DescribeConfigsResource(resource_type=2, resource_name="t") for _ in range(500)]
        described = asyncio.ensure_future(
            configs.describe_configs_afresh(broker, NO_EXCHANGE, DescribeConfigsRequest(resources=resources))
        )
        turns = 0
        while not described.done():
            await asyncio.sleep(0)
            turns += 1
        assert len(described.result().results) == 500
        assert turns > 40

    asyncio.run(story())


def listed(broker: FakeBroker, version: int, *types: int) -> list[tuple[int, str]]:
    request, exchange = (
        ListConfigResourcesRequest(resource_types=list(types)),
        SimpleNamespace(version=version),
    )
    asked: Any = broker
    response = asyncio.run(configs.list_config_resources(asked, exchange, request))
    encode(response, version)
    return [(one.resource_type, one.resource_name) for one in response.config_resources]


def test_what_has_settings_is_listed() -> None:
    broker = FakeBroker()
    for name in ("h", "g", "gone"):
        broker.group_settings.learn(name, Overrides({"consumer.session.timeout.ms": "50000"}, 1, 0))
    broker.group_settings.learn("gone", NOTHING)
    assert listed(broker, 1, 32) == [(32, "g"), (32, "h")]
    assert broker.refreshed == 1, "as ZooKeeper has it: the client may have asked another broker before"
    assert listed(broker, 1, 8, 4, 8) == [(8, "1"), (8, "2"), (4, "1"), (4, "2")]
    assert listed(broker, 1) == [
        (2, "t"), (2, "u"), (4, "1"), (4, "2"), (8, "1"), (8, "2"), (32, "g"), (32, "h"),
    ]  # fmt: skip
    assert listed(broker, 0) == listed(broker, 1, 16) == [], "there are no settings of client metrics"
    with pytest.raises(UnsupportedVersion):
        listed(broker, 1, 32, 3)


def test_a_client_that_changes_a_group_sees_its_change() -> None:
    broker = FakeBroker()
    asked: Any = broker
    group = IncrementalResource(
        resource_type=32, resource_name="g", configs=[change("consumer.session.timeout.ms", 0, "50000")]
    )
    for validate_only in (True, False):
        request = IncrementalAlterConfigsRequest(resources=[group], validate_only=validate_only)
        asyncio.run(configs.incremental_alter_configs(asked, NO_EXCHANGE, request))
        assert broker.refreshed == (not validate_only)
    assert len(broker.forwarded) == 2


def test_tools_find_which_kafka_this_is_like() -> None:
    """Kafka UI shows it, and without it asks for less than it could."""
    version = FakeBroker().one(4, "1", "inter.broker.protocol.version")
    assert (version.value, version.read_only, version.config_source) == ("3.9", True, 5)
    assert float(version.value) > 2.3, "as Kafka UI reads it"


def test_settings_that_do_nothing_here_are_told_as_they_were_set() -> None:
    broker = FakeBroker()
    broker.settings.learn("t", Overrides({"preallocate": "true", "remote.storage.enable": "true"}, 1, 0))
    told = broker.one(2, "t", "preallocate")
    assert (told.value, told.config_source, told.config_type) == ("true", 1, 1)
    assert told.documentation and sources(told) == [("preallocate", "true", 1)]
    told = broker.one(2, "t", "remote.storage.enable")
    assert (told.value, told.config_source, sources(told)) == ("false", 5, []), "what is not so is not told"
    assert broker.one(2, "t", "leader.replication.throttled.replicas").config_type == 7


@pytest.fixture
def levels() -> Iterator[None]:
    """All loggers as before at the end."""
    before = dict(log_levels.LEVELS._set)
    yield
    for name in log_levels.LEVELS._set.keys() - before:
        log_levels.LEVELS.set(name, None)
    for name, level in before.items():
        log_levels.LEVELS.set(name, level)


def change(name: str, operation: int, value: str | None = None) -> IncrementalConfig:
    return IncrementalConfig(name=name, config_operation=operation, value=value)


def alter_loggers(broker: FakeBroker, *changes: IncrementalConfig, of: str = "1", **more: Any) -> Any:
    asked: Any = broker
    loggers = IncrementalResource(resource_type=8, resource_name=of, configs=list(changes))
    request = IncrementalAlterConfigsRequest(resources=[loggers], **more)
    (row,) = asyncio.run(configs.incremental_alter_configs(asked, NO_EXCHANGE, request)).responses
    return row.error_code, row.error_message


def test_loggers_are_listed_and_their_levels_changed_at_this_broker(levels: None) -> None:
    broker, mine = FakeBroker(), "strandline.broker.config.live"
    found = {each.name: (each.value, each.config_source) for each in broker.describe(8, "1").configs}
    assert found["root"] == found[mine] == found["strandline.broker"] == ("INFO", 6)
    assert "strandline.broker.config.sections" not in found, "it writes nothing"
    assert alter_loggers(broker, change("strandline.broker", 0, "ERROR"), validate_only=True) == (0, None)
    assert broker.one(8, "1", mine).value == "INFO"
    assert alter_loggers(broker, change("strandline.broker", 0, "ERROR")) == (0, None)
    assert broker.one(8, "1", mine).value == "ERROR", "a package sets what is in it"
    alter_loggers(broker, change(mine, 0, "DEBUG"), change("root", 0, "WARN"))
    assert [broker.one(8, "1", n).value for n in (mine, "strandline.broker", "root")] == [
        "DEBUG", "ERROR", "WARN",
    ]  # fmt: skip
    alter_loggers(broker, change(mine, 1), change("strandline.broker", 1))
    assert broker.one(8, "1", mine).value == "WARN"
    assert broker.forwarded == [], "no other broker is concerned"


def test_levels_and_loggers_that_there_are_not_change_nothing(levels: None) -> None:
    broker = FakeBroker()
    good = change("strandline.broker", 0, "ERROR")
    for wrong, code, why in (
        (change("strandline.brocker", 0, "ERROR"), 40, "there is no logger"),
        (change("root", 0, "LOUD"), 40, "expected one of TRACE, DEBUG"),
        (change("root", 1), 42, "not deleted"),
        (change("root", 2, "DEBUG"), 42, "set or deleted only"),
        (change("root", 9, "DEBUG"), 42, "unknown operation"),
    ):
        refused, reason = alter_loggers(broker, good, wrong)
        assert refused == code and why in reason
    assert alter_loggers(broker, good, of="2")[0] == alter_loggers(broker, good, of="")[0] == 42
    assert broker.one(8, "1", "strandline.broker").value == "INFO", "all changes of a request, or none"


def test_a_log_line_is_written_if_its_logger_has_the_level_now(
    levels: None, capsys: pytest.CaptureFixture[str]
) -> None:
    before = structlog.get_config()
    try:
        to_stderr("warning")
        logger = structlog.get_logger("strandline.broker.made_up")
        logger.info("quiet")
        log_levels.LEVELS.set("strandline.broker", "DEBUG")
        logger.debug("heard", by=1)
        structlog.get_logger("strandline.storage.made_up").info("quiet")
        log_levels.LEVELS.set("strandline.broker", "FATAL")
        logger.error("quiet")
        assert "strandline.broker.made_up" not in log_levels.loggers()
    finally:
        structlog.configure(**before)
    (line,) = capsys.readouterr().err.splitlines()
    assert (json.loads(line)["event"], json.loads(line)["by"]) == ("heard", 1)


def test_a_setting_that_cannot_be_understood_is_not_in_force() -> None:
    broker = FakeBroker()
    broker.settings.learn("t", Overrides({"retention.ms": "soon", "preallocate": "true"}, 1, 0))
    setting = broker.one(2, "t", "retention.ms")
    assert (setting.value, setting.config_source) == ("604800000", 5)


def test_changes_go_to_the_controller_but_for_names_that_no_topic_has() -> None:
    broker = FakeBroker()
    named = [(2, "a/b"), (2, "t"), (4, "1")]
    resources = [IncrementalResource(resource_type=t, resource_name=n, configs=[]) for t, n in named]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
    asked: Any = broker
    answer = asyncio.run(configs.incremental_alter_configs(asked, NO_EXCHANGE, request))
    assert [(r.resource_name, r.error_code) for r in answer.responses] == [("a/b", 17), ("t", 0), ("1", 0)]
    (forwarded,) = broker.forwarded
    assert forwarded.validate_only and [r.resource_name for r in forwarded.resources] == ["t", "1"]
    assert broker.refreshed == 0
    request = IncrementalAlterConfigsRequest(resources=resources[1:])
    asyncio.run(configs.incremental_alter_configs(asked, NO_EXCHANGE, request))
    assert broker.refreshed == 1, "a client finds what it has just changed"
    only = AlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=2, resource_name="..", configs=[])]
    )
    answer = asyncio.run(configs.alter_configs(asked, NO_EXCHANGE, only))
    assert [r.error_code for r in answer.responses] == [17] and len(broker.forwarded) == 2
    refused = configs.refuse_alter_configs(only, RequestTimedOut("late"))
    assert [(r.error_code, r.error_message) for r in refused.responses] == [(7, "late")]


def test_under_a_controller_of_kafka_a_broker_writes_its_own_settings() -> None:
    """It would refuse them: "Unexpected broker id". What is set for all brokers, or for topics, it takes."""
    broker = FakeBroker()
    broker.roles.gate.is_kafkas = True
    resources = [
        IncrementalResource(resource_type=kind, resource_name=name, configs=[])
        for kind, name in ((4, "1"), (4, ""), (2, "t"))
    ]
    asked: Any = broker
    request = IncrementalAlterConfigsRequest(resources=resources)
    answer = asyncio.run(configs.incremental_alter_configs(asked, NO_EXCHANGE, request))
    assert [(r.resource_name, r.error_code) for r in answer.responses] == [("1", 0), ("", 0), ("t", 0)]
    assert broker.own == [("1", False)] and broker.refreshed == 1
    assert [r.resource_name for r in broker.forwarded[0].resources] == ["", "t"]
    own = IncrementalAlterConfigsRequest(resources=resources[:1], validate_only=True)
    asyncio.run(configs.incremental_alter_configs(asked, NO_EXCHANGE, own))
    assert broker.own[1:] == [("1", True)] and len(broker.forwarded) == 1 and broker.refreshed == 1
