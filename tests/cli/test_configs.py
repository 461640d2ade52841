"""`strandline configs`, and settings by `topics alter`: in our spelling and in Kafka's."""

from typing import Any

import pytest


def settings(strandline: Any, *of: str) -> dict[str, Any]:
    return {row["name"]: row for row in strandline("configs", "describe", *of, "--json").json}


def test_settings_of_a_topic(strandline: Any) -> None:
    strandline("topics", "create", "tuned")
    done = strandline(
        "configs", "alter", "--topic", "tuned", "--set", "retention.ms=5000", "--set", "segment.ms=70"
    )
    assert done.out == "topic tuned: 2 settings changed.\n"
    table = strandline("configs", "describe", "--topic", "tuned").out
    assert "retention.ms" in table and "5000" in table and "flush.ms" not in table
    assert "flush.ms" in strandline("configs", "describe", "--topic", "tuned", "--all").out
    found = settings(strandline, "--topic", "tuned")
    assert (
        found["retention.ms"]["source"] == "DYNAMIC_TOPIC_CONFIG" and found["retention.ms"]["type"] == "LONG"
    )
    assert found["retention.ms"]["documentation"]
    assert [each["name"] for each in found["retention.ms"]["synonyms"]] == [
        "retention.ms",
        "log.retention.ms",
    ]
    told = strandline(
        "configs", "alter", "--topic", "tuned", "--set", "flush.ms=9", "--delete", "segment.ms", "--json"
    ).json
    assert told == {
        "topic": "tuned", "set": {"flush.ms": "9"}, "deleted": ["segment.ms"], "validate_only": False,
    }  # fmt: skip
    assert settings(strandline, "--topic", "tuned")["segment.ms"]["source"] == "DEFAULT_CONFIG"
    tried = strandline("configs", "alter", "--topic", "tuned", "--set", "flush.ms=8", "--validate-only")
    assert tried.out == "topic tuned: 1 setting can be changed (nothing was: --validate-only).\n"
    assert settings(strandline, "--topic", "tuned")["flush.ms"]["value"] == "9"


def test_settings_of_brokers(strandline: Any) -> None:
    strandline("configs", "alter", "--default", "--set", "log.roll.ms=123456")
    strandline("configs", "alter", "--broker", 2, "--set", "log.roll.ms=654321")
    assert settings(strandline, "--broker", "2")["log.roll.ms"]["source"] == "DYNAMIC_BROKER_CONFIG"
    table = strandline("configs", "describe", "--broker", 2).out
    assert "this broker" in table and "configuration file" in table
    assert settings(strandline, "--default").keys() == {"log.roll.ms"}
    strandline("configs", "alter", "--broker", 2, "--delete", "log.roll.ms")
    strandline("configs", "alter", "--default", "--delete", "log.roll.ms")
    assert strandline("configs", "describe", "--default").out == "all brokers\n(none)\n"


def test_settings_of_a_consumer_group(strandline: Any) -> None:
    assert strandline("configs", "list").out == "(none)\n"
    own = "consumer.session.timeout.ms=50000"
    assert (
        strandline("configs", "alter", "--group", "g/1", "--set", own).out
        == "group g/1: 1 setting changed.\n"
    )
    assert strandline("configs", "list", "--json").json == [{"group": "g/1"}]
    found = settings(strandline, "--group", "g/1")
    assert found["consumer.session.timeout.ms"]["source"] == "DYNAMIC_GROUP_CONFIG"
    assert found["consumer.heartbeat.interval.ms"]["value"] == "5000"
    lines = strandline("configs", "describe", "--group", "g/1").lines
    assert lines[0] == "group g/1" and lines[-1].split() == [
        "consumer.session.timeout.ms",
        "50000",
        "group",
        "no",
    ]
    strandline("configs", "alter", "--group", "g/1", "--delete", "consumer.session.timeout.ms")
    assert strandline("configs", "list").out == "(none)\n"


def test_settings_by_topics_alter(strandline: Any) -> None:
    strandline("topics", "create", "altered", "--partitions", 1)
    done = strandline("topics", "alter", "altered", "--config", "retention.ms=5", "--partitions", 2)
    assert done.lines == ["altered: 1 setting changed.", "altered now has 2 partitions."]
    kafkas = "--alter --zookeeper {} --topic altered --config flush.ms=7 --delete-config retention.ms"
    strandline("topics", *kafkas.format(strandline.zookeeper).split())
    found = settings(strandline, "--topic", "altered")
    assert (found["flush.ms"]["value"], found["retention.ms"]["source"]) == ("7", "DEFAULT_CONFIG")


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        ("configs alter --topic t", 2, "nothing to change"),
        ("configs alter --set a=b", 2, "expected exactly one of --topic"),
        ("configs alter --topic t --broker 1 --set a=b", 2, "expected exactly one of --topic"),
        ("configs alter --topic t --set a=b --delete a", 2, "choose one"),
        ("configs alter --topic t --set retention.ms", 2, "expected name=value"),
        ("configs describe", 2, "expected exactly one of --topic"),
        ("configs alter --group g --topic t --set a=b", 2, "--default, --group G"),
        ("configs alter --group g --set consumer.session.timeout.ms=1", 1, "from 45000"),
        ("configs alter --group g --set share.isolation.level=1", 1, "share groups, which are not supported"),
        ("configs alter --broker 1 --set log.dirs=/x", 1, "needs a restart"),
        ("configs alter --topic none-such --set retention.ms=5", 1, "topic 'none-such' does not exist"),
        ("configs describe --topic none-such", 1, "none-such does not exist"),
        ("configs describe --broker 99", 1, "no broker 99 is running: the cluster has 1, 2, 3"),
        ("topics alter t", 2, "nothing to change"),
    ],
)
def test_mistakes_are_told_in_one_sentence(strandline: Any, words: str, status: int, why: str) -> None:
    done = strandline(*words.split(), expect=status)
    assert why in done.err and len(done.err.strip().splitlines()) == 1
