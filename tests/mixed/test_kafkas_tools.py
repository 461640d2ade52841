"""Kafka's own tools at a mixed cluster: a controller of either kind, whichever broker they are told of."""

import json
from pathlib import Path
from typing import Any

import pytest

from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.waiting import until
from tests.mixed.conftest import SETTINGS
from tests.mixed.test_mixed_cluster import jars

from kafka_tools import Tools  # isort: skip

FIRST, SECOND = 1, 2
WITHIN_S = 60.0
RECORDS = "".join(f"k{number}:v{number}\n" for number in range(10))
PAIRS = ("--property", "parse.key=true", "--property", "key.separator=:")
READ = ("--from-beginning", "--max-messages", "10", "--timeout-ms", "30000")


def written(path: Path, document: Any) -> str:
    path.write_text(json.dumps(document))
    return str(path)


def use_topics(tools: Tools, topic: str) -> None:
    tools("kafka-topics", "--create", "--topic", topic, "--replica-assignment", "1:2,2:1")

    def whole() -> str:
        return tools("kafka-topics", "--describe", "--topic", topic)

    until(lambda: whole().count("Leader: ") == 2, WITHIN_S, "all know the topic")
    tools("kafka-topics", "--alter", "--topic", topic, "--partitions", "3")
    until(lambda: "PartitionCount: 3" in whole(), WITHIN_S, "all know that it has grown")
    tools(
        *("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", topic),
        *("--add-config", "retention.ms=86400000,compression.type=lz4"),
    )
    until(lambda: "retention.ms=86400000" in whole(), WITHIN_S, "all know its settings")
    assert topic in tools("kafka-topics", "--list").split()


def use_records_and_groups(tools: Tools, topic: str) -> None:
    tools("kafka-console-producer", "--topic", topic, *PAIRS, given=RECORDS)
    group = f"of-{topic}"
    told = tools("kafka-console-consumer", "--topic", topic, "--group", group, *READ)
    assert sorted(told.split()) == [f"v{number}" for number in range(10)]
    assert group in tools("kafka-consumer-groups", "--list").split()
    reset = ("--group", group, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute")
    tools("kafka-consumer-groups", *reset)
    rows = tools("kafka-consumer-groups", "--describe", "--group", group).splitlines()
    assert sum(int(row.split()[5]) for row in rows if row.startswith(group)) == 10
    rows = tools("kafka-get-offsets", "--topic", topic).split()
    assert sum(int(row.rpartition(":")[2]) for row in rows) == 10


def use_transactions(tools: Tools, topic: str) -> None:
    ends = ("--transactional-id", f"in-{topic}", "--transaction-duration-ms", "20")
    load = ("--num-records", "100", "--record-size", "10", "--throughput", "-1")
    props = ("--producer-props", f"bootstrap.servers={tools.bootstrap}")
    tools.run("kafka-producer-perf-test", "--topic", topic, *load, *ends, *props)
    assert f"in-{topic}" in tools("kafka-transactions", "list")
    assert f"in-{topic}" in tools("kafka-transactions", "describe", "--transactional-id", f"in-{topic}")
    for number in ("0", "1", "2"):
        tools("kafka-transactions", "describe-producers", "--topic", topic, "--partition", number)
    for broker in (FIRST, SECOND):
        tools("kafka-transactions", "find-hanging", "--broker-id", str(broker))


def move_and_delete(tools: Tools, topic: str, folder: Path) -> None:
    moves = [{"topic": topic, "partition": 0, "replicas": [2, 1]}]
    plan = written(folder / f"{topic}-plan", {"version": 1, "partitions": moves})
    tools("kafka-reassign-partitions", "--execute", "--reassignment-json-file", plan, "--throttle", "1000000")
    verify = ("kafka-reassign-partitions", "--verify", "--reassignment-json-file", plan)
    until(lambda: "is completed" in tools(*verify), WITHIN_S, "it has moved")
    elect = ("kafka-leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    tools(*elect)
    described = ("kafka-topics", "--describe", "--topic", topic)
    until(lambda: "Partition: 0\tLeader: 2" in tools(*described), WITHIN_S, "the preferred one leads")
    dirs = json.loads(tools("kafka-log-dirs", "--describe", "--topic-list", topic).splitlines()[-1])
    assert {one["broker"] for one in dirs["brokers"] if one["logDirs"][0]["partitions"]} == {1, 2}
    ends = [each.rpartition(":") for each in tools("kafka-get-offsets", "--topic", topic).split()]
    cut = [{"topic": topic, "partition": int(n.rpartition(":")[2]), "offset": int(o)} for n, _, o in ends]
    file = written(folder / f"{topic}-records", {"version": 1, "partitions": cut})
    assert tools("kafka-delete-records", "--offset-json-file", file).count("low_watermark: ") == 3
    tools("kafka-topics", "--delete", "--topic", topic)
    until(lambda: topic not in tools("kafka-topics", "--list").split(), WITHIN_S, "it is deleted")


@pytest.mark.long
@pytest.mark.parametrize("ours", [FIRST, SECOND], ids=["our controller", "Kafka's controller"])
def test_kafkas_tools_work_at_either_kind(ours: int, tmp_path: Path) -> None:
    there = KafkaPlace(tmp_path, 2, SETTINGS, jars(), frozenset({ours}), FIRST)
    there.start()
    tools = Tools(tmp_path / "jvm", "3.9", "")
    try:
        for broker in (FIRST, SECOND):
            topic, tools.bootstrap = f"told-{broker}", there.cluster.brokers[broker].address
            use_topics(tools, topic)
            use_records_and_groups(tools, topic)
            use_transactions(tools, topic)
            move_and_delete(tools, topic, tmp_path)
            brokers = ("--alter", "--entity-type", "brokers", "--entity-name", str(broker))
            tools("kafka-configs", *brokers, "--add-config", "log.roll.ms=7654321")
            one = ("--describe", "--entity-type", "brokers", "--entity-name", str(broker))
            until(lambda one=one: "log.roll.ms=7654321" in tools("kafka-configs", *one), WITHIN_S, "set")
            tools("kafka-configs", *brokers, "--delete-config", "log.roll.ms")
            assert tools("kafka-broker-api-versions").count("Produce(0): ") == 2
            assert "Cluster ID: " in tools.run(
                "kafka-cluster", "cluster-id", "--bootstrap-server", tools.bootstrap
            )
    finally:
        tools.close()
        there.close()
