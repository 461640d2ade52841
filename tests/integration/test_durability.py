"""Durability receipts of three real brokers: three names, two while one stands still, one alone."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from structlog.testing import capture_logs

from strandline.client.admin.configs import ConfigChange
from strandline.client.sync import Admin, Producer
from strandline.local.cluster import LocalCluster
from tests.integration.support import create, revive

SETTINGS = {
    "default.replication.factor": "3",
    "replica.lag.time.max.ms": "2000",
    "zookeeper.session.timeout.ms": "6000",
    "offsets.topic.num.partitions": "1",
}


@pytest.fixture(scope="module")
def cluster(start_cluster: Any) -> LocalCluster:
    started: LocalCluster = start_cluster(3, SETTINGS)
    return started


@pytest.fixture(autouse=True)
def whole(cluster: LocalCluster) -> Iterator[None]:
    """All brokers run again after each story."""
    yield
    for broker in cluster.brokers.values():
        broker.signal(signal.SIGCONT)
    revive(cluster)


def brokers_of(cluster: LocalCluster, topic: str) -> tuple[int, ...]:
    with Producer(cluster.bootstrap, ask_durability=True) as producer:
        durability = producer.send(topic, b"a", partition=0).result(60).durability
    assert durability is not None and durability.replicas == 3
    assert durability.copies[0].after_us == 0, "the leader"
    assert all(one.after_us is not None and one.after_us > 0 for one in durability.copies[1:])
    return durability.brokers


def test_three_names_then_two_then_one_with_a_warning(cluster: LocalCluster) -> None:
    with create(cluster, "held", [1]) as view:
        view.wait_full_isr()
        assert brokers_of(cluster, "held") == (1, 2, 3)
        cluster.brokers[3].signal(signal.SIGSTOP)
        # the batch waits for broker 3 until it has left the ISR, and then was on two
        assert brokers_of(cluster, "held") == (1, 2)
        cluster.brokers[2].kill()
        with capture_logs() as logs:
            assert brokers_of(cluster, "held") == (1,)
        (line,) = [one for one in logs if one["event"] == "single_replica_acknowledged"]
        assert (line["topic"], line["broker"], line["replicas"], line["min_isr"]) == ("held", 1, 3, 1)


def test_the_command_prints_them(cluster: LocalCluster) -> None:
    with create(cluster, "printed", [2]) as view, Admin(cluster.bootstrap) as admin:
        view.wait_full_isr()
        admin.incremental_alter_configs([ConfigChange("flush.messages", "1")], topic="printed")

        def produced(*words: str) -> str:
            line = [sys.executable, "-m", "strandline.cli.main", "produce", "printed", *words]
            done = subprocess.run(
                [*line, "-b", cluster.bootstrap], input="a\n", capture_output=True, text=True, timeout=120
            )
            assert done.returncode == 0, done.stderr
            return done.stdout

        text = produced("--receipts")
        assert text.startswith("printed-0@0: broker 2, 1 (+") and "3 of 3 replicas, flushed" in text
        told = json.loads(produced("--receipts", "--json").splitlines()[0])
        assert [one["broker"] for one in told["durability"]["copies"]] == [2, 1, 3]
        assert told["offset"] == 1
