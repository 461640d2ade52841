"""A broker is told other addresses while it runs: clients and brokers come there, nothing else changes."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.client import KazooClient

from strandline.client import AlterConfigOp, ConfigChange, ConfigSource
from strandline.client.sync import Admin
from strandline.local.cluster import LocalCluster
from strandline.protocol.errors import ApiError, InvalidConfig
from strandline.testing.workload import Workload
from tests.integration.support import DURABLE, assert_kept, assert_no_traceback, create, revive, until

SETTINGS = {
    **DURABLE,
    "zookeeper.session.timeout.ms": "6000",
    "auto.leader.rebalance.enable": "false",  # a new controller looks five seconds after its election
}
ADVERTISED = "advertised.listeners"
MOVED = 2


class Cluster:
    """Three brokers; one of them is given other names for the addresses that it has."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self.zk = KazooClient(local.zookeeper)
        self.zk.start()

    def close(self) -> None:
        self.zk.stop()
        self.zk.close()

    def at(self, host: str, broker: int = MOVED) -> str:
        """All addresses of a broker, by this host."""
        it = self.local.brokers[broker]
        return f"CLIENT://{host}:{it.port},INTERNAL://{host}:{it.internal_port}"

    def advertise(self, text: str | None, **of: Any) -> None:
        operation = AlterConfigOp.DELETE if text is None else AlterConfigOp.SET
        with Admin(self.local.bootstrap) as admin:
            admin.incremental_alter_configs([ConfigChange(ADVERTISED, text, operation)], **of)

    def told_by(self, broker: int) -> str | None:
        """The host by which clients of this broker are told to reach the one that has moved."""
        try:
            with Admin(self.local.brokers[broker].address) as admin:
                return next(b.host for b in admin.describe_cluster().brokers if b.node_id == MOVED)
        except (ApiError, OSError, StopIteration):
            return None

    def wait_told(self, host: str) -> None:
        until(
            lambda: [self.told_by(broker) for broker in self.local.brokers] == [host] * 3,
            20,
            f"every broker tells that {MOVED} is at {host}",
        )

    def registered(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.zk.get(f"/brokers/ids/{MOVED}")[0])
        return found

    def states(self, topic: str) -> list[tuple[bytes, int]]:
        """What the partitions' znodes say, and how often they have been written."""
        paths = (f"/brokers/topics/{topic}/partitions/{number}/state" for number in range(3))
        return [(data, stat.version) for data, stat in map(self.zk.get, paths)]


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., LocalCluster]) -> Iterator[Cluster]:
    running = Cluster(start_cluster(3, SETTINGS))
    yield running
    running.close()


def test_everybody_follows_and_nobody_leaves(cluster: Cluster) -> None:
    """Under load: leaders, epochs, ISRs and the incarnation stay. A restart keeps the addresses."""
    local = cluster.local
    with create(local, "t", (1, 2, 3)) as view:
        before, born = cluster.states("t"), cluster.registered()
        load = Workload(local.bootstrap, "t", 3)
        with load:
            load.wait_acknowledged(100)
            cluster.advertise(cluster.at("localhost"), broker=MOVED)
            cluster.wait_told("localhost")
            load.wait_acknowledged(100)
            found = cluster.registered()
            assert found["endpoints"] == cluster.at("localhost").split(",")
            assert (found["host"], found["port"]) == ("localhost", local.brokers[MOVED].port)
            assert found["incarnation"] == born["incarnation"]
            assert found["intact_since"] == born["intact_since"]
            assert cluster.states("t") == before, "nobody was elected, nobody left an ISR"
            with Admin(local.bootstrap) as admin:
                entry = next(e for e in admin.describe_configs(broker=MOVED) if e.name == ADVERTISED)
            assert (entry.value, entry.source) == (
                cluster.at("localhost"), ConfigSource.DYNAMIC_BROKER_CONFIG,
            )  # fmt: skip
            local.brokers[MOVED].kill()
            revive(local)
            view.wait_full_isr()
            assert cluster.told_by(1) == "localhost"
            assert cluster.registered()["incarnation"] == born["incarnation"] + 1
            load.wait_acknowledged(100)
            before = cluster.states("t")
            cluster.advertise(None, broker=MOVED)
            cluster.wait_told("127.0.0.1")
            load.wait_acknowledged(100)
            assert cluster.registered()["endpoints"] == cluster.at("127.0.0.1").split(",")
            assert cluster.states("t") == before
        assert_kept(load)
    assert_no_traceback(local)


def test_addresses_that_cannot_be_are_refused(cluster: Cluster) -> None:
    before = cluster.registered()
    for wrong, why in (
        ("nonsense", "expected NAME://host:port"),
        ("", "is empty"),
        (cluster.at("localhost") + ",OTHER://h:1", "a listener that is not in `listeners`: OTHER"),
        (f"CLIENT://localhost:{cluster.local.brokers[MOVED].port}", "add an address for listener INTERNAL"),
        (cluster.at("0.0.0.0"), "which no client can reach"),
        (cluster.at("127.0.0.1", broker=3), "is where broker 3 is reached"),
    ):
        with pytest.raises(InvalidConfig, match=why):
            cluster.advertise(wrong, broker=MOVED)
    with pytest.raises(InvalidConfig, match="set it for each of them, by its id"):
        cluster.advertise(cluster.at("localhost"), all_brokers=True)
    assert cluster.registered() == before


def test_a_wrong_address_for_clients_is_taken_back(cluster: Cluster) -> None:
    """Nobody reaches the broker there, so any other one takes the change."""
    it = cluster.local.brokers[MOVED]
    here = cluster.registered()["endpoints"]
    cluster.advertise(f"CLIENT://127.0.0.9:1,INTERNAL://127.0.0.1:{it.internal_port}", broker=MOVED)
    cluster.wait_told("127.0.0.9")
    cluster.advertise(None, broker=MOVED)
    cluster.wait_told("127.0.0.1")
    assert cluster.registered()["endpoints"] == here
