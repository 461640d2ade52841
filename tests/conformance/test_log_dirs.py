"""Stock tools look at log directories: kafka-log-dirs.sh of Kafka 3.9, and kafka-python's administrator."""

import json
import subprocess
from pathlib import Path

import kafka
from kafka_peer import java

from strandline.client.admin.admin import NewTopic
from strandline.client.sync import Admin, Producer
from strandline.local.cluster import LocalCluster

TOPIC, SIZE = "sized", 20_000


def test_kafkas_own_tool_and_kafka_python_read_the_sizes(zookeeper: str, tmp_path: Path) -> None:
    broker = LocalCluster(tmp_path, 1, zookeeper=f"{zookeeper}/{tmp_path.name}")
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
