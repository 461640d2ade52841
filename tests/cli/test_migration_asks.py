"""What `doctor --migration` reads: the first batches of logs, files of this machine, nodes of ZooKeeper."""

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.base.types import TopicPartition
from strandline.cli.console import WrongUsage
from strandline.cli.doctor.facts import PartitionFacts
from strandline.cli.doctor.migration.ask_cluster import (
    ask_broker_settings,
    ask_heads,
    ask_topic_settings,
    head_of,
)
from strandline.cli.doctor.migration.ask_files import look_into, read_config
from strandline.cli.doctor.migration.ask_znodes import Reading
from strandline.cli.doctor.migration.collect import _settings
from strandline.cli.doctor.migration.facts import OF_ALL, Head, Registered
from strandline.client.admin.configs import ConfigSource
from strandline.protocol.errors import ApiError
from strandline.protocol.records import BatchBuilder
from strandline.zookeeper.client import NoNode, ZkError
from tests.cli.conftest import Shell
from tests.storage.test_old_formats import message

ORDERS, GONE, EMPTY, MOVED = (TopicPartition("orders", number) for number in range(4))


def batch(codec: int = 0) -> bytes:
    """One of format v2; of a codec that nobody knows only the attributes tell."""
    builder = BatchBuilder()
    builder.append(1_000, b"k", b"v", [])
    data = bytearray(builder.build())
    data[22] |= codec
    return bytes(data)


# --- first batches ---------------------------------------------------------------------------------


def test_a_batch_tells_its_format_and_its_codec() -> None:
    assert head_of(batch(4)) == Head(2, 4)
    assert head_of(message(0, 0)) == Head(0, 0) and head_of(message(0, 1)) == Head(1, 0)
    assert head_of(b"") is None and head_of(batch()[:16]) is None


def probe(answer: Callable[[Any], Any]) -> Any:
    """A broker that answers so."""

    async def ask(request: Any, version: int | None = None) -> Any:
        return answer(request)

    return SimpleNamespace(ask=ask, connection=SimpleNamespace(versions={}))


def partition(number: int, **what: Any) -> SimpleNamespace:
    return SimpleNamespace(partition_index=number, **{"error_code": 0, **what})


async def test_each_leader_is_asked_what_its_partitions_begin_with() -> None:
    """An empty one has no format; what is not answered, or with an error, is named."""

    def answer(request: Any) -> Any:
        if type(request).__name__ == "ListOffsetsRequest":
            asked = [
                partition(0, offset=7),
                partition(1, offset=-1, error_code=6),
                partition(2, offset=0),
                partition(3, offset=0),
            ]
            return SimpleNamespace(topics=[SimpleNamespace(name="orders", partitions=asked)])
        (one,) = request.topics[0].partitions
        assert one.partition_max_bytes == 1 and request.max_bytes == 1, "the first batch alone"
        assert one.fetch_offset == {0: 7, 2: 0, 3: 0}[one.partition]
        records, error = message(7, 1) if one.partition == 0 else b"", 6 if one.partition == 3 else 0
        return SimpleNamespace(
            responses=[
                SimpleNamespace(partitions=[partition(one.partition, records=records, error_code=error)])
            ]
        )

    led = {tp: PartitionFacts(1, 0, (1,), (1,)) for tp in (ORDERS, GONE, EMPTY, MOVED)}
    led[TopicPartition("far", 0)] = PartitionFacts(2, 0, (2,), (2,))
    heads, silent = await ask_heads({1: probe(answer)}, led)
    assert heads == {ORDERS: Head(1, 0)} and silent == ["far-0", "orders-1", "orders-3"]


async def test_a_leader_that_does_not_answer_is_no_end() -> None:
    def answer(request: Any) -> Any:
        raise TimeoutError("no answer within 3 s")

    heads, silent = await ask_heads({1: probe(answer)}, {ORDERS: PartitionFacts(1, 0, (1,), (1,))})
    assert (heads, silent) == ({}, ["orders-0"])


# --- settings --------------------------------------------------------------------------------------


def configured(name: str, value: str | None, source: ConfigSource, *synonyms: Any) -> SimpleNamespace:
    return SimpleNamespace(name=name, value=value, config_source=source, synonyms=list(synonyms))


def synonym(name: str, value: str | None, source: ConfigSource) -> SimpleNamespace:
    return SimpleNamespace(name=name, value=value, source=source)


def described(*configs: SimpleNamespace, error: int = 0) -> Callable[[Any], Any]:
    result = SimpleNamespace(resource_name="orders", configs=configs, error_code=error, error_message=None)
    return lambda request: SimpleNamespace(results=[result])


async def test_a_brokers_file_is_seen_under_what_was_set_while_running() -> None:
    dynamic, static = ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.STATIC_BROKER_CONFIG
    name = "log.cleaner.threads"
    both = (synonym(name, "4", dynamic), synonym(name, "2", static))
    secret = synonym("ssl.key.password", None, static)
    default = synonym("num.io.threads", "8", ConfigSource.DEFAULT_CONFIG)
    asked = described(
        configured(name, "4", dynamic, *both),
        configured("ssl.key.password", None, static, secret),
        configured("num.io.threads", "8", ConfigSource.DEFAULT_CONFIG, default),
    )
    assert await ask_broker_settings(probe(asked), 1) == {name: "2", "ssl.key.password": None}
    ids = [configured(id, "1", static, synonym(id, "1", static)) for id in ("broker.id", "node.id")]
    assert await ask_broker_settings(probe(described(*ids)), 1) == {"broker.id": "1"}, "the other is Kafka's"
    ids.append(configured("process.roles", "broker", static, synonym("process.roles", "broker", static)))
    assert "node.id" in await ask_broker_settings(probe(described(*ids)), 1)
    with pytest.raises(ApiError):
        await ask_broker_settings(probe(described(error=42)), 1)


async def test_a_broker_that_gives_us_no_right_to_its_settings_is_noted() -> None:
    cluster: Any = SimpleNamespace(brokers={1: SimpleNamespace(is_strandline=False)})
    for error, denied in ((31, (1,)), (42, ())):
        not_seen: list[str] = []
        probes: Any = {1: probe(described(error=error))}
        assert await _settings(cluster, probes, not_seen) == ({}, denied)
        assert "settings of broker 1" in not_seen[0]


async def test_a_topics_own_settings_are_those_that_were_set_for_it() -> None:
    own = configured("retention.ms", "5", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    inherited = configured("segment.bytes", "9", ConfigSource.STATIC_BROKER_CONFIG)
    assert await ask_topic_settings(probe(described(own, inherited)), ["orders"]) == {
        "orders": {"retention.ms": "5"}
    }
    assert await ask_topic_settings(probe(described(error=3)), ["orders"]) == {}, "it is gone meanwhile"


async def test_a_broker_whose_quotas_hold_us_back_is_asked_again() -> None:
    """Kafka answers a fetch that is over a quota without any partition."""
    refusals = 2

    def answer(request: Any) -> Any:
        nonlocal refusals
        if type(request).__name__ == "ListOffsetsRequest":
            return SimpleNamespace(
                topics=[SimpleNamespace(name="orders", partitions=[partition(0, offset=0)])]
            )
        refusals -= 1
        told = [SimpleNamespace(partitions=[partition(0, records=batch())])] if refusals < 0 else []
        return SimpleNamespace(responses=told, throttle_time_ms=1)

    led = {ORDERS: PartitionFacts(1, 0, (1,), (1,))}
    assert await ask_heads({1: probe(answer)}, led) == ({ORDERS: Head(2, 0)}, [])
    refusals = 1_000
    assert await ask_heads({1: probe(answer)}, led) == ({}, ["orders-0"])


# --- files -----------------------------------------------------------------------------------------


def test_a_log_directory(tmp_path: Path) -> None:
    """Every segment is looked at; a log that is being deleted counts no more, and foreign files neither."""
    (tmp_path / "meta.properties").write_text("#\nversion=0\nbroker.id=3\n")
    for name, files in {
        "orders-0": {
            "00000000000000000000.log": batch(),
            "00000000000000000009.log": message(9, 1),
            "x.log": b"",
        },
        "odd-0": {"00000000000000000000.log": batch(7), "00000000000000000005.log": b""},
        "old-0.abc-delete": {"00000000000000000000.log": message(0, 0)},
    }.items():
        (tmp_path / name).mkdir()
        for file, data in files.items():
            (tmp_path / name / file).write_bytes(data)
    found = look_into(tmp_path)
    assert found.segments == 4 and found.owner["broker.id"] == "3" and not found.is_quorums
    assert found.old == (str(tmp_path / "orders-0/00000000000000000009.log"),)
    assert found.codecs == {str(tmp_path / "odd-0/00000000000000000000.log"): 7}
    (tmp_path / "__cluster_metadata-0").mkdir()
    assert look_into(tmp_path).is_quorums
    (tmp_path / "meta.properties").write_bytes(b"\xff")
    assert str(tmp_path / "meta.properties") in look_into(tmp_path).unreadable


def test_a_configuration_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("broker.id=1\nbroker.id=2\nssl.keystore.password=x\n")
    assert read_config(path) == {"broker.id": "2", "ssl.keystore.password": "x"}


def test_what_is_not_there_is_wrong_usage(alone: Shell, tmp_path: Path) -> None:
    for ask in (read_config, look_into):
        with pytest.raises(WrongUsage, match="nowhere"):
            ask(tmp_path / "nowhere")
    alone("doctor", "--config", "server.properties", expect=2)
    alone("doctor", "--migration", "--log-dir", tmp_path / "nowhere", expect=2)


# --- nodes -----------------------------------------------------------------------------------------


class Tree:
    """Nodes by path; None is a node that may not be read."""

    def __init__(self, nodes: dict[str, Any]) -> None:
        self.nodes = nodes
        self.guarded: set[str] = set()

    async def is_open(self, path: str) -> bool:
        await self.get(path)
        return path not in self.guarded

    async def get(self, path: str) -> tuple[bytes, None]:
        if path not in self.nodes:
            raise NoNode(path)
        if self.nodes[path] is None:
            raise ZkError("NoAuth")
        return json.dumps(self.nodes[path]).encode() if self.nodes[path] != "" else b"", None

    async def children(self, path: str) -> list[str]:
        below = {
            each[len(path) + 1 :].partition("/")[0] for each in self.nodes if each.startswith(f"{path}/")
        }
        if path in self.nodes and self.nodes[path] is None:
            raise ZkError("NoAuth")
        if not below and path not in self.nodes:
            raise NoNode(path)
        return list(below)


def config(**settings: str) -> dict[str, Any]:
    return {"version": 1, "config": settings}


async def read(nodes: dict[str, Any]) -> Any:
    return await Reading(cast(Any, Tree(nodes))).all()


async def test_what_kafka_keeps_in_zookeeper() -> None:
    found = await read(
        {
            "/brokers/ids/1": {"endpoints": ["IN://h:1"], "listener_security_protocol_map": {"IN": "SSL"}},
            "/config/brokers/<default>": config(a="1"),
            "/config/brokers/2": config(b="2"),
            "/config/brokers/3": config(),
            "/config/users/al%20ice": config(**{"SCRAM-SHA-256": "salt=…", "producer_byte_rate": "5"}),
            "/config/users/bob": config(),
            "/config/users/bob/clients/app": config(request_percentage="1"),
            "/config/clients/<default>": config(consumer_byte_rate="7"),
            "/config/ips/10.0.0.1": config(connection_creation_rate="1"),
            "/kafka-acl/Topic/orders": {"version": 1, "acls": []},
            "/kafka-acl-extended/prefixed/Topic/ord": {"version": 1, "acls": []},
            "/delegation_token/tokens/t": {},
            "/controller": {"version": 2, "brokerid": 1, "timestamp": "0", "kraftControllerEpoch": -1},
            "/feature": {"version": 1, "status": 1, "features": {"metadata.version": {}}},
            "/admin/reassign_partitions": {"version": 1, "partitions": []},
            "/admin/delete_topics/old": "",
        }
    )  # fmt: skip
    assert found.brokers == {1: Registered({"IN": "SSL"})}
    assert found.dynamic == {OF_ALL: {"a": "1"}, "2": {"b": "2"}}
    assert found.quotas == {
        "user al ice": {"producer_byte_rate": "5"},
        "user bob, client app": {"request_percentage": "1"},
        "client <default>": {"consumer_byte_rate": "7"},
        "ip 10.0.0.1": {"connection_creation_rate": "1"},
    }
    assert found.scram == ("al ice",) and found.tokens == 1
    assert found.acls == ("Topic ord*", "Topic orders") and found.features == ("metadata.version",)
    assert found.pending == ("/admin/reassign_partitions", "/admin/delete_topics/old")
    assert found.quorum is None and not found.unreadable


async def test_an_empty_zookeeper_has_nothing() -> None:
    found = await read({})
    assert not any((found.dynamic, found.quotas, found.acls, found.pending, found.quorum, found.unreadable))


@pytest.mark.parametrize(
    "nodes",
    [
        {"/controller": {"version": 2, "brokerid": 3000, "kraftControllerEpoch": 4}},
        {"/migration": {"version": 0, "kraft_controller_id": 3000, "kraft_controller_epoch": 4}},
    ],
    ids=["it owns the controller", "it has begun to copy"],
)
async def test_a_quorum_that_has_a_hand_in_it(nodes: dict[str, Any]) -> None:
    assert "controller 3000 of a quorum" in (await read(nodes)).quorum
    (path,) = nodes
    nodes[path] |= {"kraftControllerEpoch": -1, "kraft_controller_id": -1}
    assert (await read(nodes)).quorum is None


async def test_nodes_that_not_everybody_may_write_are_named() -> None:
    """Kafka guards what it makes while zookeeper.set.acl holds: perhaps one topic only."""
    nodes = {
        "/brokers/topics/old": {},
        "/brokers/topics/new": {},
        "/brokers/topics/new/partitions/0/state": {},
    }
    tree = Tree({**nodes, "/controller_epoch": "", "/config/topics": None})
    tree.guarded = {"/brokers/topics/new", "/brokers/topics/new/partitions/0/state", "/controller_epoch"}
    found = await Reading(cast(Any, tree)).all()
    assert set(found.guarded) == tree.guarded and "/config/topics" in found.unreadable


async def test_nodes_that_cannot_be_read_are_named_and_end_nothing() -> None:
    found = await read({"/config/users": None, "/controller": None, "/config/ips/1.1.1.1": config(a="1")})
    assert found.unreadable.keys() == {"/config/users", "/controller"} and "ip 1.1.1.1" in found.quotas
    assert "/feature" in (await read({"/feature": "no features"})).unreadable
