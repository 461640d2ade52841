"""A topic is made while the controller does not reach one broker. That broker becomes coordinator all the
same, by what it reads in ZooKeeper, and has never heard of the topic. What was committed for it stays.
"""

import asyncio
from collections.abc import Callable, Mapping

from strandline.base.types import TopicPartition
from strandline.broker.groups.offsets import GroupOffset
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from strandline.simulation.cluster import BROKERS
from strandline.simulation.families import FAMILIES
from strandline.simulation.world import World

PLACE, UNHEARD = TopicPartition("__consumer_offsets", 0), TopicPartition("meanwhile", 0)
GROUP, WITHIN_S = "g", 60.0


class Unheard(World):
    """Nothing else happens in it."""

    def __init__(self) -> None:
        super().__init__(3, FAMILIES["transactions"])
        self.has_heard = True
        self.kept: Mapping[TopicPartition, int] = {}  # what its successor finds of what was committed

    async def story(self) -> None:
        for id in BROKERS:
            self.cluster.start(id)
        self.checks.begin()
        await self.until(lambda: any(node.broker.controller.active for node in self.cluster.nodes.values()))
        await asyncio.sleep(5)
        ruler = next(id for id, node in self.cluster.nodes.items() if node.broker.controller.active)
        first, heir = (id for id in BROKERS if id != ruler)
        await self.make(ruler, PLACE.topic, [first, heir])
        await self.until(lambda: self.leads(first) and self.in_sync(first) == 2)
        self.loop.network.cut(f"b{ruler}", f"b{heir}")
        await asyncio.sleep(2)
        await self.make(ruler, UNHEARD.topic, [ruler, first])
        await self.until(lambda: self.knows(first))
        await self.commit(first)
        self.cluster.crash(first)
        await self.until(lambda: self.leads(heir))
        await asyncio.sleep(5)
        self.has_heard = self.knows(heir)
        held = self.cluster.nodes[heir].broker.groups.find(GROUP)
        if held is not None:
            self.kept = {tp: one.offset for tp in held.offsets if (one := held.offsets.get(tp)) is not None}

    async def until(self, condition: Callable[[], object]) -> None:
        deadline = self.loop.now + WITHIN_S
        while not condition():
            assert self.loop.now < deadline, "waited in vain"
            await asyncio.sleep(0.1)

    async def make(self, ruler: int, topic: str, replicas: list[int]) -> None:
        chosen = [CreatableReplicaAssignment(partition_index=0, broker_ids=replicas)]
        wanted = CreatableTopic(name=topic, num_partitions=-1, replication_factor=-1, assignments=chosen)
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=1000)
        answer = await self.cluster.nodes[ruler].broker.controller.ask(request)
        assert answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT)

    def leads(self, id: int) -> bool:
        partition = self.cluster.nodes[id].broker.replicas.find(PLACE)
        return partition is not None and partition.leading is not None

    def in_sync(self, id: int) -> int:
        partition = self.cluster.nodes[id].broker.replicas.find(PLACE)
        return 0 if partition is None or partition.leading is None else len(partition.leading.isr.members)

    def knows(self, id: int) -> bool:
        return UNHEARD.topic in self.cluster.nodes[id].broker.metadata.topics

    async def commit(self, id: int) -> None:
        told: list[ErrorCode] = []
        offset = GroupOffset(7, -1, "", self.cluster.clocks[id].wall_ms())
        groups = self.cluster.nodes[id].broker.groups
        await self.until(lambda: not groups.is_loading)
        groups.commit(GROUP, ("", None, -1), {UNHEARD: offset}, told.append)
        await self.until(lambda: told)
        assert told == [ErrorCode.NONE]


def test_a_coordinator_keeps_what_was_committed_for_topics_that_it_has_not_heard_of() -> None:
    world = Unheard()
    outcome = world.run()
    assert outcome.violation is None, outcome.violation
    assert not world.has_heard, "the story was not told"
    assert world.kept == {UNHEARD: 7}
