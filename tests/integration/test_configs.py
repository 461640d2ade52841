"""Settings of a live cluster: what is changed is in force on all brokers, and still is after everything."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from strandline.client import AlterConfigOp, ConfigChange, ConfigSource
from strandline.client.sync import Admin, Producer
from strandline.local.cluster import LocalCluster
from strandline.protocol.errors import ApiError, InvalidConfig, UnknownTopicOrPartition
from tests.integration.support import assert_no_traceback, until
from tests.patience import HANG_S

SETTINGS = {"default.replication.factor": "3", "zookeeper.session.timeout.ms": "6000"}
SEGMENT = 50_000


class Cluster:
    """Three brokers, an administrator, and what each broker keeps on its disk."""

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self.admin = Admin(local.bootstrap)

    def logs(self, topic: str) -> list[Path]:
        return sorted(self.local.directory.glob(f"**/{topic}-0"))

    def kept(self, topic: str, name: str) -> list[Any]:
        """A setting as each replica's log has it: what its next start would begin with."""
        return [
            json.loads((log / "topic-config.json").read_text())["config"][name] for log in self.logs(topic)
        ]

    def everywhere(self, topic: str, name: str, value: Any) -> None:
        until(lambda: self.kept(topic, name) == [value] * 3, HANG_S, f"{name} = {value} on three brokers")

    def entry(self, name: str, **of: Any) -> Any:
        return next(e for e in self.admin.describe_configs(**of) if e.name == name)

    def set(self, name: str, value: str | None, **of: Any) -> None:
        operation = AlterConfigOp.DELETE if value is None else AlterConfigOp.SET
        self.admin.incremental_alter_configs([ConfigChange(name, value, operation)], **of)

    def in_force(self, name: str, value: str, broker: int) -> None:
        def holds() -> bool:
            try:
                return bool(self.entry(name, broker=broker).value == value)
            except (ApiError, OSError):
                return False

        until(holds, 20, f"{name} = {value} at broker {broker}")


@pytest.fixture(scope="module")
def cluster(start_cluster: Callable[..., LocalCluster]) -> Iterator[Cluster]:
    running = Cluster(start_cluster(3, SETTINGS))
    yield running
    running.admin.close()


@pytest.fixture
def zk(cluster: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.local.zookeeper)
    client.start()
    yield client
    client.stop()
    client.close()


def test_a_live_topic_changes_on_every_replica(cluster: Cluster) -> None:
    cluster.admin.create_topic("live", 1, 3)
    with Producer(cluster.local.bootstrap, linger_ms=0) as producer:
        for _ in range(5):
            producer.send("live", b"x" * 20_000, partition=0).result(HANG_S)
        assert all(len(list(log.glob("*.log"))) == 1 for log in cluster.logs("live"))
        cluster.set("segment.bytes", str(SEGMENT), topic="live")
        cluster.set("retention.ms", "3600000", topic="live")
        cluster.everywhere("live", "segment_bytes", SEGMENT)
        cluster.everywhere("live", "retention_ms", 3_600_000)
        for _ in range(6):
            producer.send("live", b"x" * 20_000, partition=0).result(HANG_S)
        until(
            lambda: all(len(list(log.glob("*.log"))) >= 3 for log in cluster.logs("live")), HANG_S,
            "small segments on three brokers",
        )  # fmt: skip
    told = cluster.entry("segment.bytes", topic="live")
    assert (told.value, told.source) == (str(SEGMENT), ConfigSource.DYNAMIC_TOPIC_CONFIG)
    cluster.set("segment.bytes", None, topic="live")
    cluster.everywhere("live", "segment_bytes", 1 << 30)


def test_what_brokers_share_and_what_one_has_alone(cluster: Cluster) -> None:
    cluster.admin.create_topic("inherits", 1, 3)
    cluster.set("log.index.interval.bytes", "777", all_brokers=True)
    told = [cluster.entry("log.index.interval.bytes", broker=number).value for number in (1, 2, 3)]
    assert told == ["777"] * 3, "whoever is asked has heard of it"
    cluster.everywhere("inherits", "index_interval_bytes", 777)
    cluster.set("log.index.interval.bytes", "888", broker=2)
    until(
        lambda: sorted(cluster.kept("inherits", "index_interval_bytes")) == [777, 777, 888],
        HANG_S,
        "one differs",
    )
    told = cluster.entry("log.index.interval.bytes", broker=2)
    assert (told.value, told.source) == ("888", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert [s.source for s in told.synonyms] == [2, 3, 5]
    cluster.set("index.interval.bytes", "999", topic="inherits")
    cluster.everywhere("inherits", "index_interval_bytes", 999)
    cluster.set("num.partitions", "3", all_brokers=True)
    cluster.admin.create_topic("as-many-as-usual")
    (made,) = cluster.admin.describe_topics(["as-many-as-usual"])
    assert len(made.partitions) == 3


def test_a_leader_follows_what_acks_all_needs_by_default(cluster: Cluster) -> None:
    """Within its epoch: nobody would be told anew only because a default has changed."""
    cluster.admin.create_topic("counted", 1, 3)
    (made,) = cluster.admin.describe_topics(["counted"])
    epoch, leader = made.partitions[0].leader_epoch, made.partitions[0].leader

    def needs(count: int) -> None:
        def is_followed() -> bool:
            replica = cluster.admin.inspect(leader, "partition", topic="counted", partition=0)["replica"]
            assert replica["epoch"] == epoch, "the test needs one leader epoch"
            return bool(replica["leading"]["min_isr"] == count)

        until(is_followed, HANG_S, f"the leader asks for {count}")

    needs(1)
    cluster.set("min.insync.replicas", "2", all_brokers=True)
    needs(2)
    cluster.set("min.insync.replicas", "3", broker=leader)
    needs(3)
    cluster.set("min.insync.replicas", "2", topic="counted")
    needs(2)
    cluster.set("min.insync.replicas", None, topic="counted")
    cluster.set("min.insync.replicas", None, broker=leader)
    cluster.set("min.insync.replicas", None, all_brokers=True)
    needs(1)


def test_what_is_refused_changes_nothing(cluster: Cluster) -> None:
    cluster.admin.create_topic("refuses", 1, 3)
    with pytest.raises(
        InvalidConfig, match=r"topic refuses: segment\.bytes = '3': must be a whole number from"
    ):
        cluster.set("segment.bytes", "3", topic="refuses")
    with pytest.raises(InvalidConfig, match=r"broker 1: log\.dirs = '/x': needs a restart"):
        cluster.set("log.dirs", "/x", broker=1)
    with pytest.raises(UnknownTopicOrPartition):
        cluster.set("segment.bytes", "3000", topic="never-made")
    change = [ConfigChange("segment.bytes", "3000")]
    cluster.admin.incremental_alter_configs(change, topic="refuses", validate_only=True)
    assert cluster.entry("segment.bytes", topic="refuses").source == ConfigSource.DEFAULT_CONFIG


def test_no_setting_that_brokers_do_not_have_ends_one(cluster: Cluster) -> None:
    """A list of topics, added to for brokers; and a throttle of Kafka's tools that is kept for them."""
    appended = [ConfigChange("cleanup.policy", "compact", AlterConfigOp.APPEND)]
    for whose in ({"broker": 1}, {"all_brokers": True}):
        with pytest.raises(InvalidConfig, match=r"cleanup\.policy: append needs an option that is a list"):
            cluster.admin.incremental_alter_configs(appended, **whose)
    throttle = "replica.alter.log.dirs.io.max.bytes.per.second"
    cluster.set(throttle, "7", all_brokers=True)
    assert cluster.entry(throttle, all_brokers=True).value == "7"
    cluster.in_force(throttle, "7", 3)
    cluster.set(throttle, None, all_brokers=True)
    assert throttle not in {e.name for e in cluster.admin.describe_configs(all_brokers=True)}
    assert_no_traceback(cluster.local)


def test_a_tool_that_writes_to_zookeeper_itself(cluster: Cluster, zk: KazooClient) -> None:
    """As `kafka-configs.sh --zookeeper` does: the node, then the notification."""
    cluster.admin.create_topic("by-tool", 1, 3)
    zk.set("/config/topics/by-tool", b'{"version":1,"config":{"segment.ms":"4321"}}')
    notice = {"path": "/config/changes/config_change_", "sequence": True}
    zk.create(value=b'{"version":2,"entity_path":"topics/by-tool"}', **notice)
    cluster.everywhere("by-tool", "segment_ms", 4321)
    zk.ensure_path("/config/brokers/3")  # it stands there if one of this broker's settings was ever changed
    zk.set("/config/brokers/3", b'{"version":1,"config":{"log.roll.jitter.ms":"12","log.dirs":"/x"}}')
    zk.create(value=b'{"version":1,"entity_type":"brokers","entity_name":"3"}', **notice)
    cluster.in_force("log.roll.jitter.ms", "12", 3)
    until(
        lambda: sorted(cluster.kept("by-tool", "segment_jitter_ms")) == [0, 0, 12],
        HANG_S,
        "replicas inherit it",
    )
    cluster.set(
        "cleanup.policy", "compact", topic="by-tool"
    )  # the controller starts from what the tool wrote
    assert json.loads(zk.get("/config/topics/by-tool")[0])["config"] == {
        "segment.ms": "4321",
        "cleanup.policy": "compact",
    }


def test_a_topic_that_a_tool_without_topic_ids_has_made(cluster: Cluster, zk: KazooClient) -> None:
    """As `kafka-topics.sh --zookeeper` of Kafka 2.8 does: its replicas follow as any other's."""
    zk.create("/brokers/topics/old", b'{"version":1,"partitions":{"0":[1,2,3]}}')
    until(lambda: cluster.admin.list_topics().count("old") == 1, HANG_S, "it is there")
    with Producer(cluster.local.bootstrap, linger_ms=0) as producer:
        producer.send("old", b"x" * 1000, partition=0).result(HANG_S)

    def is_alike() -> bool:
        sizes = {path.stat().st_size for log in cluster.logs("old") for path in log.glob("*.log")}
        return len(sizes) == 1 and sizes.pop() > 1000

    until(is_alike, HANG_S, "three replicas have it")


def test_settings_outlive_brokers_and_controllers(cluster: Cluster) -> None:
    cluster.admin.create_topic("outlives", 1, 3)
    cluster.set("retention.bytes", "123456", topic="outlives")
    cluster.set("log.cleaner.backoff.ms", "250", all_brokers=True)
    cluster.set("message.max.bytes", "5000", broker=1)
    dead: set[int] = set()

    def successor() -> int:
        controller = cluster.local.controller()
        return controller if controller > 0 and controller not in dead else 0

    for size in ("5001", "5002"):
        broker = cluster.local.brokers[until(successor, 30, "a controller")]
        broker.kill()
        dead.add(broker.id)
        until(successor, 30, "another controller")
        cluster.set("socket.request.max.bytes", None, all_brokers=True)  # nothing to delete: no harm
        cluster.set("message.max.bytes", size, all_brokers=True)  # changed while one is dead
        broker.start()
        dead.clear()
        cluster.local.wait_ready()
        cluster.in_force("log.cleaner.backoff.ms", "250", broker.id)
        cluster.in_force("message.max.bytes", "5000" if broker.id == 1 else size, broker.id)
    limits = [5000, 5002, 5002]
    until(
        lambda: sorted(cluster.kept("outlives", "max_message_bytes")) == limits, HANG_S, "replicas inherit it"
    )
    cluster.everywhere("outlives", "retention_bytes", 123_456)
    cluster.set("retention.bytes", "654321", topic="outlives")
    cluster.everywhere("outlives", "retention_bytes", 654_321)


def test_a_topic_may_lose_records_once_it_says_so(cluster: Cluster) -> None:
    cluster.admin.create_topic("careless", 1, 2)
    (described,) = cluster.admin.describe_topics(["careless"])
    first, second = described.partitions[0].replicas

    def partition() -> Any:
        try:
            return cluster.admin.describe_topics(["careless"])[0].partitions[0]
        except (ApiError, OSError):
            return None

    cluster.local.brokers[second].kill()
    until(lambda: (p := partition()) and p.isr == (first,), 30, "the dead one leaves the ISR")
    cluster.local.brokers[first].kill()
    until(lambda: (p := partition()) and p.leader == -1, 30, "nobody is left")
    cluster.local.brokers[second].start()
    until(lambda: (p := partition()) and second not in p.offline, 30, "the one that is behind is back")
    assert partition().leader == -1, "it may not lead by itself"
    cluster.set("unclean.leader.election.enable", "true", topic="careless")
    until(lambda: (p := partition()) and p.leader == second, 20, "it leads once that is allowed")
    cluster.local.brokers[first].start()
    cluster.local.wait_ready()
