"""Kafka's own command line and ZooKeeper's, as the descriptions of Kafka use them, against our brokers.

The commands stand here as they are printed there: `kafka-topics.sh --create … --topic secondTopic`, `ls` of a
partition's directory, `get /brokers/topics/secondTopic/partitions/1/state` in `zkCli.sh`,
`kafka-run-class.sh kafka.tools.DumpLogSegments`. The scripts only find Java and name a class.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kafka_peer import SMALL, java

from strandline.client.sync import Producer
from strandline.local.cluster import LocalCluster
from strandline.local.embedded_zookeeper import jars as zookeeper_jars

KAFKA_TOPICS = "org.apache.kafka.tools.TopicCommand"


def run(line: list[str], given: str | None = None) -> str:
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, input=given)
    assert done.returncode == 0, f"{line[-8:]}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done.stdout


def strandline(*arguments: str) -> str:
    return run([sys.executable, "-m", "strandline.cli.main", *arguments])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, zookeeper: str) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("tools")
    local = LocalCluster(directory, 2, zookeeper=f"{zookeeper}/{directory.name}")
    local.start()
    yield local
    local.kill()


def test_kafka_topics_creates_lists_describes_grows_and_deletes(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    def topics(*arguments: str) -> str:
        return run(java(tmp_path, KAFKA_TOPICS, "--bootstrap-server", cluster.bootstrap, *arguments))

    made = topics("--create", "--replication-factor", "2", "--partitions", "3", "--topic", "secondTopic")
    assert "Created topic secondTopic" in made
    assert "secondTopic" in topics("--list").split()
    told = topics("--describe", "--topic", "secondTopic")
    assert "PartitionCount: 3" in told and "ReplicationFactor: 2" in told
    assert told.count("Leader: ") == 3 and "none" not in told
    topics("--alter", "--topic", "secondTopic", "--partitions", "4")
    assert "PartitionCount: 4" in topics("--describe", "--topic", "secondTopic")
    topics("--delete", "--topic", "secondTopic")
    assert "secondTopic" not in topics("--list").split()


def test_a_command_of_old_with_zookeeper_and_what_zookeepers_shell_shows(cluster: LocalCluster) -> None:
    """`./kafka-topics.sh --create --zookeeper host:2181 …`, then `get …/state` in a stock zkCli."""
    old = "--create --zookeeper {} --replication-factor 2 --partitions 3 --topic oldTopic"
    strandline("topics", *old.format(cluster.zookeeper).split())
    address, _, chroot = cluster.zookeeper.partition("/")
    shell = [
        *("java", *SMALL, "-cp", f"{zookeeper_jars()[0].parent}/*"),
        *("org.apache.zookeeper.ZooKeeperMain", "-server", address),
    ]
    told = run([*shell, "get", f"/{chroot}/brokers/topics/oldTopic/partitions/1/state"])
    (line,) = [each for each in told.splitlines() if each.startswith("{")]
    state = json.loads(line)
    assert {"controller_epoch", "leader", "version", "leader_epoch", "isr"} <= state.keys()
    assert state["version"] == 1 and state["leader"] in (1, 2) and sorted(state["isr"]) == [1, 2]
    ids = run([*shell, "ls", f"/{chroot}/brokers/ids"])
    assert "[1, 2]" in ids


def test_a_partitions_directory_and_the_dump_of_its_segment(cluster: LocalCluster) -> None:
    """`ls /tmp/kafka-logs/firstTopic-1/`, then DumpLogSegments by its class, with one dash."""
    strandline(
        *("topics", "create", "firstTopic", "--partitions", "2", "--replication-factor", "2"),
        *("-b", cluster.bootstrap),
    )
    with Producer(cluster.bootstrap) as producer:
        for number in range(3):
            producer.send("firstTopic", b"message_%d" % number, partition=1).result(10)
    place = cluster.brokers[1].directory / "data" / "firstTopic-1"
    names = {path.name for path in place.iterdir()}
    zero = "0" * 20
    assert names >= {f"{zero}.log", "leader-epoch-checkpoint", "partition.metadata"}
    cluster.brokers[1].stop()
    names = {path.name for path in place.iterdir()}
    assert names >= {f"{zero}.log", f"{zero}.index", f"{zero}.timeindex"}, "after a clean stop, all of them"
    told = strandline(
        *("kafka-run-class", "kafka.tools.DumpLogSegments", "-files", str(place / f"{zero}.log")),
        *("--print-data-log", "--format", "0.11"),
    )
    assert f"Dumping {place / f'{zero}.log'}" in told
    first = next(line for line in told.splitlines() if line.startswith("offset: 0 position: 0"))
    assert first.endswith("payload: message_0") and "valuesize: 9 magic: 2" in first
    for name in ("org.apache.kafka.tools.DumpLogSegments", "kafka.tools.DumpLogSegments"):
        assert strandline(name, "-files", str(place / f"{zero}.log")).startswith("Dumping")
    cluster.brokers[1].start()
    cluster.wait_ready()
