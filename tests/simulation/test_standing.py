"""Who acts in a role that is over is seen, whatever becomes of it: nothing comes of most such deeds."""

import asyncio
from collections.abc import Callable

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.replicas.partition import Partition
from strandline.protocol.batches import read_header
from strandline.protocol.records import BatchBuilder
from strandline.replication.leader import Leader
from strandline.simulation.cluster import BROKERS
from strandline.simulation.world import World
from strandline.zookeeper.client import Check, Op, SetData
from strandline.zookeeper.documents import CONTROLLER_EPOCH, incarnation_path, state_path

T0 = TopicPartition("numbers", 0)


Deed = Callable[[World, int, Partition, Leader], None]


def seen(deed: Deed, *, deposed: bool) -> list[str]:
    """What is said of a deed of partition 0's leader, which a failover has made a follower, or not."""
    world = World(5)

    async def scripted() -> None:
        for id in BROKERS:
            world.cluster.start(id)
        await world.workload.begin()
        await asyncio.sleep(2)
        id = world.checks.leader(T0)
        partition = world.cluster.nodes[id].broker.replicas.partitions[T0]
        held = partition.leading
        assert held is not None
        if deposed:
            world.cluster.zk_clients[id].lose_session()
            while partition.leading is held:
                await asyncio.sleep(0.01)
        assert not world.trace.violations
        deed(world, id, partition, held)

    world.story = scripted  # type: ignore[method-assign]
    outcome = world.run()
    return [] if outcome.violation is None else [outcome.violation]


def write(world: World, id: int, *, fence: Check, newer: int = 0) -> None:
    """The state of partition 0, once more as it is."""
    node = world.cluster.zookeeper.nodes[state_path(T0)]
    ops: list[Op] = [SetData(state_path(T0), node.data, node.version + newer), fence]
    world.standing.sends(world.cluster.nodes[id], ops)


def by_leader(world: World, id: int, newer: int = 0) -> None:
    incarnation = world.cluster.nodes[id].broker.incarnation
    write(world, id, fence=Check(incarnation_path(id), incarnation), newer=newer)


def by_controller(world: World, id: int, before: int = 0) -> None:
    version = world.cluster.zookeeper.nodes[CONTROLLER_EPOCH].version
    write(world, id, fence=Check(CONTROLLER_EPOCH, version - before))


def controller(world: World) -> int:
    return next(id for id, node in world.cluster.nodes.items() if node.broker.controller.active)


def test_a_leader_writes_its_state() -> None:
    assert not seen(lambda world, id, *_: by_leader(world, id), deposed=False)


def test_a_leader_writes_over_no_version_but_its_own() -> None:
    (told,) = seen(lambda world, id, *_: by_leader(world, id, newer=1), deposed=False)
    assert told.startswith("Violation: I19: b")


def test_a_former_leader_writes_no_state() -> None:
    (told,) = seen(lambda world, id, *_: by_leader(world, id), deposed=True)
    assert "I19" in told and "leading" not in told


def test_a_controller_writes_states() -> None:
    assert not seen(lambda world, *_: by_controller(world, controller(world)), deposed=False)


def test_an_ended_term_writes_no_state() -> None:
    (told,) = seen(lambda world, *_: by_controller(world, controller(world), before=1), deposed=False)
    assert "after it resigned" in told


@pytest.mark.parametrize("deposed", [False, True])
def test_a_leadership_that_has_ended_hears_of_nothing(deposed: bool) -> None:
    told = seen(lambda world, id, partition, held: _ignore(held.tick(world.loop.now)), deposed=deposed)
    assert bool(told) is deposed
    assert all("I19" in one for one in told)


def test_a_former_leader_appends_nothing() -> None:
    def append(world: World, id: int, partition: Partition, held: Leader) -> None:
        builder = BatchBuilder()
        builder.append(0, None, b"1000000")
        records = memoryview(builder.build())
        partition.log.append(records, read_header(records), held.epoch)

    assert not any("I19" in one for one in seen(append, deposed=False))
    (told,) = seen(append, deposed=True)
    assert "I19" in told and "was appended" in told


def _ignore(_: object) -> None:
    """What a rule answers is not of interest here."""
