"""Settings of single groups: what is refused, what is ignored, and what is in force."""

import re
from typing import Any

import pytest

from strandline.broker.config.dynamic import KnownOptions
from strandline.broker.config.groups import GROUP_OPTIONS, GroupSettings
from strandline.broker.config.sections import GroupsConfig
from strandline.controller.requests.config_changes import Kind
from strandline.protocol.errors import InvalidConfig
from strandline.zookeeper.config_nodes import NOTHING, Overrides
from tests.broker.cluster_harness import config

SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
CLOSE = GroupsConfig(consumer_session_timeout_ms_min=10_000)  # in which the two may contradict each other


def check(settings: dict[str, str], *changed: str, bounds: GroupsConfig | None = None) -> None:
    known = KnownOptions() if bounds is None else KnownOptions(lambda: bounds)
    known.check(Kind.GROUP, "g", settings, changed or settings.keys())


def test_kafkas_two_settings_of_a_consumer_group_there_are() -> None:
    assert list(GROUP_OPTIONS) == [SESSION, INTERVAL]
    assert KnownOptions().list_default(Kind.GROUP, SESSION) is None


@pytest.mark.parametrize(
    "good",
    [{SESSION: "45000"}, {SESSION: "60000"}, {INTERVAL: "5000"}, {SESSION: "46000", INTERVAL: "15000"}],
)
def test_values_within_the_brokers_bounds_are_taken(good: dict[str, str]) -> None:
    check(good)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({SESSION: "44999"}, "from 45000 (group.consumer.min.session.timeout.ms) to 60000"),
        ({SESSION: "60001"}, "(group.consumer.max.session.timeout.ms)"),
        ({INTERVAL: "4999"}, "from 5000 (group.consumer.min.heartbeat.interval.ms) to 15000"),
        ({INTERVAL: "15001"}, "(group.consumer.max.heartbeat.interval.ms)"),
        ({SESSION: "soon"}, "must be a whole number"),
        ({SESSION: ""}, "must be a whole number"),
        ({"consumer.session.timeout": "50000"}, "did you mean consumer.session.timeout.ms?"),
        ({"retention.ms": "50000"}, "unknown group configuration"),
        ({"share.session.timeout.ms": "50000"}, "a setting of share groups, which are not supported"),
        ({"streams.num.standby.replicas": "1"}, "a setting of streams groups, which are not supported"),
    ],
)
def test_what_a_group_cannot_have_is_refused_with_the_reason(wrong: dict[str, str], why: str) -> None:
    with pytest.raises(InvalidConfig, match="group g: ") as refused:
        check(wrong)
    assert why in str(refused.value)


def test_a_session_is_longer_than_the_time_between_heartbeats() -> None:
    check({SESSION: "15000", INTERVAL: "14999"}, bounds=CLOSE)
    with pytest.raises(InvalidConfig, match=r"consumer\.session\.timeout\.ms \(15000\) must be more than"):
        check({SESSION: "15000", INTERVAL: "15000"}, INTERVAL, bounds=CLOSE)
    slow = CLOSE.model_copy(update={"consumer_heartbeat_interval_ms": 12_000})
    with pytest.raises(InvalidConfig, match="must be more than"):
        check({SESSION: "11000"}, bounds=slow)
    with pytest.raises(InvalidConfig, match="must be more than"):  # the other setting is deleted
        KnownOptions(lambda: slow).check(Kind.GROUP, "g", {SESSION: "11000"}, [])


def test_what_is_not_set_is_the_brokers() -> None:
    settings = GroupSettings(GroupsConfig(consumer_heartbeat_interval_ms=6000))
    heard: list[str] = []
    settings.on_change.subscribe(heard.append)
    settings.learn("g", Overrides({SESSION: "50000"}, 5, 3))
    assert settings.terms("g") == (50_000, 6_000) and settings.terms("h") == (45_000, 6_000)
    settings.learn("g", Overrides({SESSION: "51000"}, 5, 2))
    assert settings.terms("g") == (50_000, 6_000), "an older reading"
    settings.learn("g", Overrides({SESSION: "51000"}, 5, 4))
    settings.learn("g", Overrides({SESSION: "51000"}, 5, 4))
    assert settings.terms("g") == (51_000, 6_000)
    settings.learn("g", Overrides({SESSION: "51000"}, 5, 6))
    settings.learn("g", Overrides({SESSION: "52000"}, 5, 5))
    assert settings.terms("g") == (51_000, 6_000), "older than what says the same again"
    settings.learn("g", NOTHING)
    settings.learn("g", NOTHING)
    assert settings.terms("g") == (45_000, 6_000) and not settings.names and settings.of("g") == {}
    assert heard == ["g", "g", "g"]


@pytest.mark.parametrize(
    ("told", "understood", "terms"),
    [
        ({SESSION: "1", INTERVAL: "7000"}, {INTERVAL: "7000"}, (45_000, 7_000)),
        ({SESSION: "x", INTERVAL: "y"}, {}, (45_000, 5_000)),
        ({"share.session.timeout.ms": "1", SESSION: "50000"}, {SESSION: "50000"}, (50_000, 5_000)),
        ({SESSION: "12000", INTERVAL: "13000"}, {SESSION: "12000"}, (12_000, 5_000)),
    ],
)
def test_what_a_tool_wrote_and_cannot_be_is_ignored(told: Any, understood: Any, terms: Any) -> None:
    bounds = CLOSE if terms[0] == 12_000 else GroupsConfig()
    settings = GroupSettings(bounds)
    settings.learn("g", Overrides(told, 1, 0))
    assert (settings.of("g"), settings.terms("g")) == (understood, terms)
    assert list(settings.names) == ["g"], "it has settings, if bad ones"


@pytest.mark.parametrize(
    ("groups", "wrong"),
    [
        ({"consumer_session_timeout_ms": 30_000}, "session.timeout.ms = 30000: must be from"),
        (
            {"consumer_session_timeout_ms_max": 44_000},
            "session.timeout.ms = 45000: must be from",
        ),
        ({"consumer_heartbeat_interval_ms": 500}, "heartbeat.interval.ms = 500: must be from"),
        (
            {"consumer_heartbeat_interval_ms_min": 6_000},
            "group.consumer.min.heartbeat.interval.ms = 6000 to",
        ),
    ],
)
def test_the_brokers_own_values_are_within_their_bounds(groups: dict[str, int], wrong: str) -> None:
    with pytest.raises(ValueError, match=re.escape(wrong)):
        config(groups=groups)
    config()
