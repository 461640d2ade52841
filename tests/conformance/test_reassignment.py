"""Partitions move at the request of kafka-python, and of Kafka's own tool, with its throttles."""

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from driving import Row
from kafka import KafkaAdminClient, TopicPartition
from kafka_peer import java

from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster

WITHIN_S = 20
TOOL = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


def replicas(running: LocalCluster, topic: str) -> list[tuple[int, ...]]:
    with Admin(running.bootstrap) as admin:
        (described,) = admin.describe_topics([topic])
        return [one.replicas for one in described.partitions]


def wait_moved(running: LocalCluster) -> None:
    with Admin(running.bootstrap) as admin:
        deadline = time.monotonic() + WITHIN_S
        while moving := admin.list_partition_reassignments():
            assert time.monotonic() < deadline, moving
            time.sleep(0.02)


def test_kafka_python_moves_cancels_and_lists(running: LocalCluster, ours: Any, topic: str) -> None:
    rows = [Row(None, str(i).encode()) for i in range(50)]
    ours.produce(topic, rows, "none", idempotent=True)
    places = [TopicPartition(topic, number) for number in range(3)]
    admin = KafkaAdminClient(bootstrap_servers=running.bootstrap.split(","))
    try:
        asked = admin.alter_partition_reassignments({places[0]: [2], places[1]: [3, 1], places[2]: [9]})
        assert [error and error.errno for error in map(asked.get, places)] == [None, None, 39]
        wait_moved(running)
        assert admin.list_partition_reassignments() == {}
        told = admin.alter_partition_reassignments({places[0]: None}, timeout_ms=10_000)
        assert [error.errno for error in told.values()] == [85]
    finally:
        admin.close()
    found = replicas(running, topic)
    assert found[:2] == [(2,), (3, 1)] and sorted(found[2]) == [1, 2, 3]
    assert len(ours.read(topic, range(3), 50)) == 50


def test_kafkas_tool_moves_with_throttles_and_clears_them(
    running: LocalCluster, topic: str, tmp_path: Path
) -> None:
    plan = tmp_path / "plan.json"
    entries = [{"topic": topic, "partition": n, "replicas": [n + 1, 3 if n < 2 else 1]} for n in range(3)]
    plan.write_text(json.dumps({"version": 1, "partitions": entries}))
    common = ["--bootstrap-server", running.bootstrap, "--reassignment-json-file", str(plan)]
    done = tool(tmp_path, *common, "--execute", "--throttle", "1000000")
    assert "Successfully started partition reassignments" in done
    wait_moved(running)
    done = tool(tmp_path, *common, "--verify")
    for number in range(3):
        assert f"Reassignment of partition {topic}-{number} is completed." in done
    assert "Clearing topic-level throttles" in done
    assert replicas(running, topic) == [(1, 3), (2, 3), (3, 1)]


def tool(folder: Path, *arguments: str) -> str:
    line = java(folder, TOOL, *arguments)
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr
