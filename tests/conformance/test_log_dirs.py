"""Log directories, as stock tools see them and move replicas between them (kafka-log-dirs.sh and
kafka-reassign-partitions.sh of Kafka 3.9, kafka-python's administrator), and as our own client does.
"""

import json
import subprocess
from pathlib import Path

import kafka
import pytest
from kafka_peer import java
from kafka_tools import Tools

from strandline.client import LogDirNotFound, TopicPartition
from strandline.client.admin.admin import NewTopic
from strandline.client.sync import Admin, Producer
from strandline.local.cluster import LocalCluster
from strandline.testing.nursery import forked
from tests.integration.support import until
from tests.patience import HANG_S

TOPIC, SIZE = "sized", 20_000


def test_sizes_are_read_and_a_replica_moves(zookeeper: str, tmp_path: Path) -> None:
    broker = forked(LocalCluster(tmp_path, 1, zookeeper=f"{zookeeper}/{tmp_path.name}"))
    directories = [str(tmp_path / "broker-1" / name) for name in ("data", "more")]
    broker.brokers[1].settings["log.dirs"] = ",".join(directories)
    with broker as cluster:
        with Admin(cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, 3, 1)])
        with Producer(cluster.bootstrap) as producer:
            sent = [producer.send(TOPIC, bytes(SIZE), partition=number) for number in range(3)]
            producer.flush()
            assert [receipt.result().offset for receipt in sent] == [0, 0, 0]
        tool = java(
            tmp_path / "tool", "org.apache.kafka.tools.LogDirsCommand",
            "--bootstrap-server", cluster.bootstrap, "--describe", "--topic-list", TOPIC,
        )  # fmt: skip
        done = subprocess.run(tool, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (told,) = json.loads(done.stdout.splitlines()[-1])["brokers"]
        assert told["broker"] == 1
        assert sorted(one["logDir"] for one in told["logDirs"]) == directories  # a hash map to the tool
        assert all(one["error"] is None for one in told["logDirs"])
        seen = {each["partition"]: each for one in told["logDirs"] for each in one["partitions"]}
        assert sorted(seen) == [f"{TOPIC}-{number}" for number in range(3)]
        assert all(SIZE < each["size"] < 2 * SIZE and each["offsetLag"] == 0 for each in seen.values())
        held = {one["logDir"]: len(one["partitions"]) for one in told["logDirs"]}
        assert held == dict(zip(directories, (2, 1), strict=True)), "the directory with the fewest is next"
        other = kafka.KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        try:
            (answer,) = other.describe_log_dirs()
            assert [one["log_dir"] for one in answer["log_dirs"]] == directories
        finally:
            other.close()
        with Admin(cluster.bootstrap) as admin:

            def where(number: int) -> list[tuple[str, bool]]:
                (found,) = admin.describe_log_dirs([1]).values()
                wanted = TopicPartition(TOPIC, number)
                return [(d.path, r.is_future) for d in found for r in d.replicas if r.partition == wanted]

            ((at, _),) = where(0)
            (other_one,) = set(directories) - {at}
            admin.alter_replica_log_dirs(1, {TopicPartition(TOPIC, 0): other_one})
            until(lambda: where(0) == [(other_one, False)], HANG_S, "the replica is there")
            with pytest.raises(LogDirNotFound, match=f"{TOPIC}-1 to /nowhere of broker 1"):
                wishes = {TopicPartition(TOPIC, 1): "/nowhere", TopicPartition(TOPIC, 0): at}
                admin.alter_replica_log_dirs(1, wishes)
            until(lambda: where(0) == [(at, False)], HANG_S, "the replica is back")


def test_kafkas_own_tool_moves_replicas_between_directories_and_brokers(
    zookeeper: str, tmp_path: Path
) -> None:
    """`kafka-reassign-partitions` with `log_dirs`, while records come and after a broker was killed."""
    cluster = forked(LocalCluster(tmp_path, 2, zookeeper=f"{zookeeper}/{tmp_path.name}"))
    places = {id: [str(tmp_path / f"broker-{id}" / name) for name in ("data", "more")] for id in (1, 2)}
    for id, broker in cluster.brokers.items():
        broker.settings["log.dirs"] = ",".join(places[id])
    count = 200
    with cluster:
        tools = Tools(tmp_path / "jvm", "3.9", cluster.bootstrap)
        tools("kafka-topics", "--create", "--topic", TOPIC, "--replica-assignment", "1")
        with Producer(cluster.bootstrap) as producer:

            def send(numbers: range) -> None:
                for number in numbers:
                    producer.send(TOPIC, b"%d" % number + bytes(SIZE), partition=0)
                producer.flush()

            def move(broker: int, directory: str) -> None:
                rows = [{"topic": TOPIC, "partition": 0, "replicas": [broker], "log_dirs": [directory]}]
                plan = tmp_path / "plan.json"
                plan.write_text(json.dumps({"version": 1, "partitions": rows}))
                tools("kafka-reassign-partitions", "--execute", "--reassignment-json-file", str(plan))
                told = ""
                while "is still in progress" in told or not told:
                    told = tools(
                        "kafka-reassign-partitions", "--verify", "--reassignment-json-file", str(plan)
                    )
                assert "completed" in told, told

            def where() -> dict[str, bool]:
                told = tools("kafka-log-dirs", "--describe", "--topic-list", TOPIC).splitlines()[-1]
                dirs = [one for broker in json.loads(told)["brokers"] for one in broker["logDirs"]]
                return {one["logDir"]: each["isFuture"] for one in dirs for each in one["partitions"]}

            send(range(count // 2))
            (at,) = where()
            (other,) = set(places[1]) - {at}
            move(1, other)
            assert where() == {other: False}
            send(range(count // 2, count))
            cluster.brokers[1].kill()
            cluster.brokers[1].start()
            cluster.wait_ready()
            assert where() == {other: False}
            move(1, at)
            move(2, places[2][1])
            assert where() == {places[2][1]: False}
        read = ("--from-beginning", "--max-messages", str(count), "--timeout-ms", "30000")
        told = tools("kafka-console-consumer", "--topic", TOPIC, *read)
        assert sorted(int(line.split("\0")[0]) for line in told.splitlines()) == list(range(count))
        tools.close()
