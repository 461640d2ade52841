"""Partitions move under real controllers and a real ZooKeeper; the brokers record what they are told.

The test is the leader: it writes ISRs. A controller that dies after each of its steps is succeeded by one
that ends the move.
"""

import asyncio
import json
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import control, reassignments, topics
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import Create, NoNode, SetData
from tests.controller.cluster_harness import cluster, ruler, until
from tests.patience import HANG_S

T0 = TopicPartition("t", 0)


async def until_read(ask: Any, wanted: Any, seconds: float = HANG_S) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while (found := await ask()) != wanted:
        assert asyncio.get_running_loop().time() < deadline, f"{found}, not {wanted}"
        await asyncio.sleep(0.01)


async def create(broker: Any, *assignments: list[int]) -> None:
    chosen = [
        topics.CreatableReplicaAssignment(partition_index=i, broker_ids=a) for i, a in enumerate(assignments)
    ]
    topic = topics.CreatableTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=chosen)
    answer = await broker.controller.ask(topics.CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    assert answer.topics[0].error_code == 0


async def move(broker: Any, targets: dict[int, list[int] | None], topic: str = "t") -> list[tuple[int, str]]:
    partitions = [
        reassignments.ReassignablePartition(partition_index=i, replicas=r) for i, r in targets.items()
    ]
    request = reassignments.AlterPartitionReassignmentsRequest(
        topics=[reassignments.ReassignableTopic(name=topic, partitions=partitions)]
    )
    answer = await broker.controller.ask(request)
    return [(one.error_code, one.error_message or "") for one in answer.responses[0].partitions]


async def moving(broker: Any) -> dict[int, tuple[list[int], list[int], list[int]]]:
    answer = await broker.controller.ask(reassignments.ListPartitionReassignmentsRequest())
    return {
        one.partition_index: (one.replicas, one.adding_replicas, one.removing_replicas)
        for topic in answer.topics
        for one in topic.partitions
    }


async def node(zk: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((await zk.get("/brokers/topics/t"))[0])
    return document


async def join(zk: Any, *members: int) -> None:
    """As the leader does: the ISR with these."""
    state, version = await znodes.read_state(zk, T0)
    joined = dict.fromkeys(members, 1)
    written = state.model_copy(update={"isr": list(members), "isr_epochs": joined})
    await zk.multi([SetData(documents.state_path(T0), written.data(), version)])


def deleted(broker: Any) -> list[str]:
    return [
        f"{topic.topic_name}-{one.partition_index}@{one.leader_epoch}"
        for request in broker.requests
        if isinstance(request, control.StopReplicaRequest)
        for topic in request.topic_states
        for one in topic.partition_states
        if one.delete_partition
    ]


async def test_a_partition_moves_and_old_replicas_are_deleted_when_all_new_ones_are_in_sync(
    fake_broker: Any,
) -> None:
    async with cluster(fake_broker, 1, 2, 3) as brokers:
        one, two, three = brokers.values()
        await create(one, [1, 2], [2, 1])
        assert await move(one, {0: [2, 3]}) == [(0, "")]
        assert await moving(one) == {0: ([2, 3, 1], [3], [1])}
        assert await node(one.zk) | {"topic_id": ""} == {
            "version": 3,
            "topic_id": "",
            "partitions": {"0": [2, 3, 1], "1": [2, 1]},
            "adding_replicas": {"0": [3]},
            "removing_replicas": {"0": [1]},
            "origin_replicas": {"0": [1, 2]},
        }
        assert ("t-0", 1) in three.heard_at, "all have been told before the answer came"
        told = next(
            state
            for request in reversed(three.requests)
            if isinstance(request, control.LeaderAndIsrRequest)
            for topic in request.topic_states
            for state in topic.partition_states
        )
        assert (told.replicas, told.adding_replicas, told.removing_replicas) == ([2, 3, 1], [3], [1])
        assert deleted(one) == []
        await join(two.zk, 1, 2, 3)
        await until_read(lambda: moving(one), {})
        state, _ = await znodes.read_state(one.zk, T0)
        assert (state.leader, state.leader_epoch, state.isr) == (2, 2, [2, 3])
        await until(lambda: deleted(one) == ["t-0@2"])
        assert deleted(two) == deleted(three) == []
        found = await node(one.zk)
        assert found["partitions"] == {"0": [2, 3], "1": [2, 1]}
        assert (found["adding_replicas"], found["removing_replicas"]) == ({}, {})
        assert "origin_replicas" not in found


async def test_a_move_is_cancelled_and_its_additions_are_deleted(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1, 2, 3) as brokers:
        one, _, three = brokers.values()
        await create(one, [1, 2])
        assert await move(one, {0: [3]}) == [(0, "")]
        await join(one.zk, 1, 2)
        assert await move(one, {0: None}) == [(0, "")]
        assert await moving(one) == {}, "it is over when the answer comes"
        assert (await node(one.zk))["partitions"] == {"0": [1, 2]}, "in the order that it had"
        await until(lambda: deleted(three) == ["t-0@2"])
        ((code, message),) = await move(one, {0: None})
        assert code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS and "nothing to cancel" in message


@pytest.mark.parametrize(
    ("target", "code", "why"),
    [
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "empty"),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "twice"),
        ([-1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "negative"),
        ([1, 9], ErrorCode.INVALID_REPLICA_ASSIGNMENT, "[9] are not available"),
    ],
)
async def test_what_cannot_be_is_refused(
    fake_broker: Any, target: list[int], code: ErrorCode, why: str
) -> None:
    async with cluster(fake_broker, 1) as brokers:
        await create(brokers[1], [1])
        ((refused, message),) = await move(brokers[1], {0: target})
        assert refused == code and why in message
        assert [c for c, _ in await move(brokers[1], {5: [1]})] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        for name in ("u", "", ".", "..", "../t", "t/partitions", "a\0", "x" * 30_000):
            answers = await move(brokers[1], {0: [1]}, name)
            assert [c for c, _ in answers] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("step", ["asked", "announced", "in sync", "out of the state"])
async def test_a_new_controller_ends_what_the_dead_one_began(fake_broker: Any, step: str) -> None:
    """As it stands in ZooKeeper after each step; the first controller never sees it."""

    async with cluster(fake_broker, 1, 2, 3) as brokers:
        one, two, three = brokers.values()
        await create(one, [1, 2])
        await until(lambda: all(b.controller.watches_controller for b in (two, three)))
        await one.controller.halt()  # it sees nothing of what follows
        document = documents.parse(documents.TopicDocument, (await two.zk.get("/brokers/topics/t"))[0])
        moved = document.model_copy(
            update={
                "partitions": {0: [2, 3, 1]},
                "adding_replicas": {0: [3]},
                "removing_replicas": {0: [1]},
            }
        )
        _, stat = await two.zk.get("/brokers/topics/t")
        await two.zk.multi([SetData("/brokers/topics/t", moved.data(), stat.version)])
        state, version = await znodes.read_state(two.zk, T0)
        changes: dict[str, dict[str, Any]] = {
            "asked": {},
            "announced": {"leader_epoch": 1},
            "in sync": {"leader_epoch": 1, "isr": [1, 2, 3], "isr_epochs": {1: 1, 2: 1, 3: 1}},
            "out of the state": {
                "leader": 2, "leader_epoch": 2, "isr": [2, 3], "isr_epochs": {2: 1, 3: 1},
            },
        }  # fmt: skip
        left = state.model_copy(update=changes[step])
        await two.zk.multi([SetData(documents.state_path(T0), left.data(), version)])
        one.dead.add(1)
        await one.die()
        await until(lambda: ruler(brokers) is not None)
        new = ruler(brokers)
        if step in ("asked", "announced"):
            await until(lambda: any(p == "t-0" for p, _ in three.heard_at))
            assert [*(await moving(new))] == [0]
            await until_read(lambda: leader_of(two), 2)  # broker 1 is dead
            await join(two.zk, 2, 3)
        await until_read(lambda: moving(new), {})
        state, _ = await znodes.read_state(two.zk, T0)
        assert (state.leader, sorted(state.isr)) == (2, [2, 3])
        assert state.leader_epoch > left.leader_epoch


async def leader_of(broker: Any) -> int:
    return (await znodes.read_state(broker.zk, T0))[0].leader


async def test_old_tools_ask_in_the_node_that_the_controller_watches(fake_broker: Any) -> None:
    async with cluster(fake_broker, 1, 2, 3) as brokers:
        one, two, _ = brokers.values()
        await create(one, [1, 2], [1, 2])
        asked = {
            "version": 1,
            "partitions": [
                {"topic": "t", "partition": 0, "replicas": [2, 3]},
                {"topic": "t", "partition": 1, "replicas": [9]},
                {"topic": "u", "partition": 0, "replicas": [1]},
            ],
        }
        path = "/admin/reassign_partitions"
        await two.zk.multi([Create(path, json.dumps(asked).encode())])
        await until_read(lambda: moving(one), {0: ([2, 3, 1], [3], [1])})

        async def left() -> Any:
            try:
                data, _ = await one.zk.get(path)
            except NoNode:
                return None
            return [e["partition"] for e in json.loads(data)["partitions"]] if data[1:2] == b'"' else data

        await until_read(left, [0])  # the others cannot be done
        await join(one.zk, 1, 2, 3)
        await until_read(left, None)
        assert (await node(one.zk))["partitions"]["0"] == [2, 3]
        for nothing in (b"{not JSON", b'{"version":1,"partitions":[]}'):
            await two.zk.multi([Create(path, nothing)])
            await until_read(left, None)
