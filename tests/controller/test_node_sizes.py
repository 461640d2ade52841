"""What would be more than ZooKeeper keeps in a node is refused in words: moves, new partitions, settings."""

from typing import Any, cast
from uuid import UUID

import pytest

from strandline.base.types import TopicPartition
from strandline.controller.planning.state import Broker, ClusterState
from strandline.controller.requests import node_sizes
from strandline.controller.requests.config_changes import (
    Alteration,
    AnySettings,
    Kind,
    Operation,
    SettingChange,
)
from strandline.controller.requests.configs import ConfigRequests, settings_of
from strandline.controller.requests.reach import Reach
from strandline.controller.requests.reassignments import ReassignmentWriter
from strandline.controller.requests.topics import Defaults, TopicRequests
from strandline.controller.watches import topic_of
from strandline.protocol.errors import ErrorCode, InvalidConfig
from strandline.protocol.messages import topics
from strandline.protocol.messages.config_changes import (
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalResource,
)
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper import documents
from strandline.zookeeper.client import Create
from strandline.zookeeper.config_nodes import NOTHING
from strandline.zookeeper.znodes import ControllerTerm
from tests.controller.memory_zk_client import MemoryZkClient

ID = UUID(int=7)
OTHERS = (4, 5, 6)
BROKERS = {id: Broker(id, incarnation=1, intact_since=1, born=9) for id in (1, 2, 3, 4, 5, 6)}


def document(partitions: int) -> documents.TopicDocument:
    return documents.TopicDocument(
        topic_id=documents.uuid_to_text(ID), partitions={number: [1, 2, 3] for number in range(partitions)}
    )


class Term:
    """A term of a controller that knows one topic, in a ZooKeeper that must not get more than it takes."""

    def __init__(self, partitions: int) -> None:
        self.zk = MemoryZkClient(SimZooKeeper())
        self.largest = 0
        told = document(partitions)
        paths = "/brokers", documents.TOPICS, "/config", documents.TOPIC_CONFIGS
        ops = [Create(path, b"") for path in paths]
        ops += [Create(documents.topic_path("t"), told.data()), Create(documents.CONTROLLER_EPOCH, b"5")]
        self.zk.server.multi(ops, self.zk.session_id)
        self.zk.loses = self.measured
        self.state = ClusterState(5, BROKERS, topics={"t": topic_of("t", told, 0, NOTHING)})
        self.reach = Reach(
            cast(Any, self.zk), ControllerTerm(5, 0), lambda: self.state, lambda _: None, self.until,
            self.nothing, lambda _: None,
        )  # fmt: skip

    def measured(self, ops: Any) -> bool:
        self.largest = max(self.largest, sum(len(getattr(op, "data", b"")) for op in ops))
        return False

    async def until(self, condition: Any) -> None:
        return None

    async def nothing(self) -> None:
        return None

    async def node(self) -> documents.TopicDocument:
        data, _ = await self.zk.get(documents.topic_path("t"))
        return documents.parse(documents.TopicDocument, data)

    def requests(self) -> TopicRequests:
        return TopicRequests(self.reach, Defaults, lambda name, settings: None, bytes)

    async def move(self, targets: dict[int, Any]) -> dict[TopicPartition, Any]:
        mover = ReassignmentWriter(self.reach)
        return await mover.move({TopicPartition("t", number): to for number, to in targets.items()})


async def test_more_moves_at_once_than_a_node_can_hold_are_refused() -> None:
    """Such a topic takes a quarter of a node, and moving all of it more than a whole one: ZooKeeper
    would end the session's connection, again with each attempt.
    """
    term = Term(15_000)
    refused = await term.move(dict.fromkeys(range(15_000), OTHERS))
    assert len(refused) == 15_000
    error = refused[TopicPartition("t", 0)]
    assert error.code == ErrorCode.INVALID_REQUEST
    assert error.message == (
        "15000 partitions of 't' that move at once are more than ZooKeeper can keep for one topic: move "
        "fewer, and the others when these are done"
    )
    assert await term.node() == document(15_000), "nothing has begun"
    assert term.largest == 0

    assert await term.move(dict.fromkeys(range(5_000), OTHERS)) == {}
    assert 0 < term.largest <= node_sizes.NODE_BYTES_MAX
    assert len((await term.node()).adding_replicas) == 5_000


async def test_who_is_refused_a_move_can_still_take_others_back() -> None:
    term = Term(15_000)
    assert await term.move(dict.fromkeys(range(8_000), OTHERS)) == {}
    asked: dict[int, Any] = dict.fromkeys(range(8_000, 15_000), OTHERS)
    refused = await term.move(asked | {0: None})
    assert {q.partition for q in refused} == set(asked)
    node = await term.node()
    assert node.adding_replicas.keys() == set(range(1, 8_000)), "0 is on its way back"
    assert node.removing_replicas[0] == [4, 5, 6]


async def test_a_topic_that_is_moving_does_not_grow_past_what_its_node_can_hold() -> None:
    term = Term(15_000)
    assert await term.move(dict.fromkeys(range(9_000), OTHERS)) == {}
    term.state = ClusterState(5, BROKERS, topics={"t": topic_of("t", document(15_000), 1, NOTHING)})
    wanted = topics.CreatePartitionsTopic(name="t", count=45_000, assignments=None)
    answer = await term.requests().create_partitions(
        topics.CreatePartitionsRequest(topics=[wanted], timeout_ms=1000)
    )
    assert answer.results[0].error_code == ErrorCode.INVALID_PARTITIONS
    assert "more than ZooKeeper can keep" in (answer.results[0].error_message or "")
    assert len((await term.node()).partitions) == 15_000
    assert term.largest <= node_sizes.NODE_BYTES_MAX


@pytest.mark.parametrize(
    ("partitions", "size", "says"),
    [
        (1, 1_000_001, "settings of 1000040 bytes are more than ZooKeeper can keep"),
        (30_000, 600_000, "together with a topic of 30000 partitions: create it without them, then set them"),
    ],
)
async def test_a_topic_is_not_made_with_more_settings_than_fit(partitions: int, size: int, says: str) -> None:
    term = Term(1)
    wanted = topics.CreatableTopic(
        name="u", num_partitions=partitions, replication_factor=3,
        configs=[topics.CreatableTopicConfig(name="throttled", value="x" * size)],
    )  # fmt: skip
    answer = await term.requests().create_topics(topics.CreateTopicsRequest(topics=[wanted], timeout_ms=1000))
    assert answer.topics[0].error_code == ErrorCode.INVALID_CONFIG
    assert says in (answer.topics[0].error_message or "")
    assert term.largest == 0


@pytest.mark.parametrize("kind", [Kind.TOPIC, Kind.BROKER, Kind.GROUP])
def test_settings_that_no_node_can_hold_are_refused(kind: Kind) -> None:
    """Each fits by itself."""

    def after(found: dict[str, str], *changes: SettingChange) -> dict[str, str]:
        return settings_of(AnySettings(), Alteration(kind, "1", changes), found, {})

    value = "x" * 30_000
    many = {f"a{number}": value for number in range(33)}
    assert after({}, *(SettingChange(name, Operation.SET, value) for name in many)) == many
    with pytest.raises(InvalidConfig, match="bytes are more than ZooKeeper can keep"):
        after(many, SettingChange("b", Operation.SET, value))
    full = many | {"b": value, "c": value}  # as another tool has left them
    assert after(full, *(SettingChange(name, Operation.DELETE) for name in "bc")) == many


async def test_who_changes_a_setting_leaves_one_that_nobody_can_be_told_of() -> None:
    """A tool of some time ago has written it; it is its owner's to remove."""
    term, path = Term(1), documents.topic_config_path("t")
    long = {"leader.replication.throttled.replicas": "0:1," * 10_000}
    nodes = {path: documents.ConfigDocument(config=long).data(), documents.CONFIG_CHANGES: b""}
    term.zk.server.multi([Create(node, data) for node, data in nodes.items()], term.zk.session_id)
    change = IncrementalConfig(name="retention.ms", config_operation=0, value="5")
    asked = IncrementalResource(resource_type=2, resource_name="t", configs=[change])
    request = IncrementalAlterConfigsRequest(resources=[asked])
    (answer,) = (await ConfigRequests(term.reach, AnySettings()).alter_incrementally(request)).responses
    assert answer.error_code == 0
    data, _ = await term.zk.get(path)
    assert documents.parse(documents.ConfigDocument, data).config == {**long, "retention.ms": "5"}
