"""The bundled client on three brokers of Apache Kafka 3.9: what it does on Strandline, unchanged.

Every test here is one of the modules beside it, with this module's cluster; `driver` and `administrator` are
the bundled client. Run with `make conformance-long`.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from drive_aiokafka import AioKafka
from drive_confluent import Confluent
from drive_kafka_python import KafkaPython
from drive_strandline import Strandline
from kafka_peer import KafkaBroker
from test_bundled_client import *  # noqa: F403
from test_failover import test_nothing_acknowledged_is_lost  # noqa: F401
from test_groups import (  # noqa: F401
    test_clients_of_two_kinds_in_one_group,
    test_groups_are_listed_and_described,
    test_two_members_share_commit_and_go_on,
)
from test_record_deletion import *  # noqa: F403
from test_round_trips import *  # noqa: F403
from test_sticky import stack, story  # noqa: F401

from strandline.client.sync import Admin
from strandline.local.embedded_zookeeper import Zookeeper
from strandline.local.ports import free_ports

pytestmark = pytest.mark.long
BROKERS = 3
THREE = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "min.insync.replicas": "2",
    "auto.create.topics.enable": "true",
    "default.replication.factor": "3",
    "zookeeper.session.timeout.ms": "6000",
}
START_MAX_S = 120


class Broker(KafkaBroker):
    """As the stories know a broker of ours."""

    @property
    def alive(self) -> bool:
        return self.child is not None and self.child.poll() is None

    def start(self, wait_s: float = START_MAX_S) -> None:
        """Return at once, as ours does."""
        self.launch()


class KafkaCluster:
    """As the stories know a cluster of ours."""

    def __init__(self, folder: Any) -> None:
        self._zookeeper = Zookeeper(folder / "zookeeper", free_ports(1)[0])
        self.brokers: dict[int, Broker] = {}
        for id in range(1, BROKERS + 1):
            home = folder / f"broker-{id}"
            settings = {**THREE, "broker.id": str(id)}
            self.brokers[id] = Broker(home, [home / "data"], self._zookeeper.address, settings)

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> None:
        self._zookeeper.start()
        for broker in self.brokers.values():
            broker.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        for broker in self.brokers.values():
            broker.wait(START_MAX_S, BROKERS)

    def leader(self, topic: str, partition: int) -> int:
        with Admin(self.bootstrap) as admin:
            (described,) = admin.describe_topics([topic])
            return next(one.leader for one in described.partitions if one.partition == partition)

    def kill(self) -> None:
        for broker in self.brokers.values():
            broker.kill()
        self._zookeeper.kill()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """Three brokers of Kafka 3.9."""
    cluster = KafkaCluster(tmp_path_factory.mktemp("kafka"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.kill()


@pytest.fixture
def healed(running: KafkaCluster) -> Iterator[KafkaCluster]:
    """The cluster; whatever was killed runs again afterwards."""
    yield running
    for broker in running.brokers.values():
        if not broker.alive:
            broker.start()
    running.wait_ready()


@pytest.fixture(scope="module")
def drivers(running: KafkaCluster) -> dict[str, Any]:
    """The clients; the bundled one is the one that is tested."""
    return {one.name: one(running.bootstrap) for one in (Strandline, Confluent, AioKafka, KafkaPython)}


@pytest.fixture
def driver(ours: Any) -> Any:
    """The bundled client."""
    return ours


@pytest.fixture
def administrator(ours: Any) -> Any:
    """The bundled client."""
    return ours


@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
def test_sticky_members_of_our_own(running: Any, stack: ExitStack, strategy: str) -> None:  # noqa: F811
    story(running, strategy, "bundled", "bundled", stack)
