"""Stories that a seed once told, as worlds that tell them whatever the timing: what was wrong, and is not."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.replicas.partition import Partition
from strandline.simulation.cluster import BROKERS
from strandline.simulation.environment.zk_client import ADDRESS
from strandline.simulation.families import FAMILIES
from strandline.simulation.world import World

T0 = TopicPartition("numbers", 0)
Story = Callable[[World], Awaitable[None]]


def play(story: Story, family: str = "parted", seed: int = 5) -> World:
    """Play it, heal, and judge."""
    world = World(seed, FAMILIES[family])

    async def scripted() -> None:
        for id in BROKERS:
            world.cluster.start(id)
        await world.workload.begin()
        world.checks.begin()
        world.liveness.begin()
        if world.readers is not None:
            world.readers.begin()
        while not world.checks.is_whole():
            await asyncio.sleep(0.1)
        await asyncio.sleep(2)
        await story(world)
        await world.faults.end()
        await world.judging.wait_healed(60)
        await world.workload.finish()
        if world.readers is not None:
            await world.readers.finish()
        await world.judging.judge()

    world.story = scripted  # type: ignore[method-assign]
    outcome = world.run()
    assert outcome.violation is None, outcome.violation
    return world


async def leader_without_zookeeper(world: World) -> None:
    """A leader is cut from ZooKeeper and from nobody else, and others are elected."""
    world.loop.network.cut(f"b{world.checks.leader(T0)}", ADDRESS)
    await asyncio.sleep(15)


def test_a_leader_that_others_have_replaced_sends_its_clients_away() -> None:
    """It had answered, as long as the cut lasted, that requests took too long: nobody looked elsewhere."""
    world = play(leader_without_zookeeper)
    assert world.ledger.history.longest_gap_s() < 8
    assert world.liveness.judged > 0


def test_without_that_rule_producers_stay_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "is_forsaken", False)
    with pytest.raises(AssertionError, match="has acknowledged nothing"):
        play(leader_without_zookeeper)


def test_a_leader_that_was_killed_does_not_lead_on_as_if_nothing_had_happened() -> None:
    """Killed and started again at once, with the controller: the next one finds it in its incarnation."""
    epochs: list[tuple[int, int]] = []

    async def bounce(world: World) -> None:
        tp = next(tp for tp in world.ledger.partitions if world.checks.leader(tp) != controller(world))
        before, leader = world.checks.states.latest[tp]["leader_epoch"], world.checks.leader(tp)
        world.cluster.crash(controller(world))
        world.cluster.crash(leader)
        world.cluster.start(leader)
        await asyncio.sleep(8)
        epochs.append((before, world.checks.states.latest[tp]["leader_epoch"]))

    play(bounce, "plain")
    assert all(before < after for before, after in epochs)


@pytest.mark.parametrize("lost_after_s", [0.0, 0.2])
def test_a_start_without_zookeeper_ends_in_a_sentence_and_is_tried_again(lost_after_s: float) -> None:
    async def start(world: World) -> None:
        world.cluster.crash(1)
        await asyncio.sleep(0.5)
        world.cluster.start(1)
        await asyncio.sleep(lost_after_s)
        world.loop.network.cut("b1", ADDRESS)
        await asyncio.sleep(70)

    world = play(start, "plain")
    told = [line for line in world.trace.lines if "b1 does not start: " in line]
    assert told or any("b1 serves" in line for line in world.trace.lines)
    assert not any("Traceback" in line for line in world.trace.lines)


async def coordinator_vanishes_under_a_join(world: World) -> None:
    """Its machine is off while members wait in line, and back at once under its old name, all forgotten."""
    readers = world.readers
    assert readers is not None
    while not all(readers.shares()):
        await asyncio.sleep(0.01)
    readers.churn()
    while (coordinator := where_joins_wait(world)) is None:
        await asyncio.sleep(0.001)
    world.cluster.crash(coordinator, vanishes=True)
    await asyncio.sleep(0.1)
    world.cluster.start(coordinator)


def where_joins_wait(world: World) -> int | None:
    groups = [(id, node.broker.groups.all_groups()) for id, node in sorted(world.cluster.nodes.items())]
    waits = (id for id, found in groups for group in found if any(each.joining for each in group.members))
    return next(waits, None)


def test_members_that_waited_for_a_machine_that_is_gone_are_let_in_again() -> None:
    """They had waited as long as the slowest member may take, 305 s, for an answer of a process long dead."""
    play(coordinator_vanishes_under_a_join, "groups")


TOLD_WITHIN_S = 25.0
"""An order that is not answered for ten seconds is given up, and somebody else is elected and followed."""


async def elected_and_never_told(world: World) -> None:
    """A leader dies while nothing passes between the controller and its heir, which all others reach."""
    me = controller(world)
    tp, heir = next(
        (tp, heir)
        for tp in world.ledger.partitions
        if (leader := world.checks.leader(tp)) != me
        and (heir := next(id for id in replicas(world, tp) if id != leader)) != me
    )
    leader = world.checks.leader(tp)
    world.loop.network.cut(f"b{me}", f"b{heir}")
    world.cluster.crash(leader)
    while world.checks.leader(tp) == leader:
        await asyncio.sleep(0.01)
    assert world.checks.leader(tp) == heir, "it is elected, and is not told"
    world.cluster.start(leader)
    since = world.loop.now
    before = sum(place == tp for place, _ in world.ledger.acknowledged)
    while sum(place == tp for place, _ in world.ledger.acknowledged) == before:
        assert world.loop.now - since < TOLD_WITHIN_S, "nobody leads"
        await asyncio.sleep(0.1)


def replicas(world: World, tp: TopicPartition) -> tuple[int, ...]:
    view = world.cluster.nodes[controller(world)].broker.controller.view
    assert view is not None
    return view.replicas(tp)


def test_a_leader_that_cannot_be_told_of_its_election_makes_room() -> None:
    """Its partition had no leader for as long as the path from the controller to it was broken."""
    play(elected_and_never_told)


def controller(world: World) -> int:
    return next(id for id, node in world.cluster.nodes.items() if node.broker.controller.active)


async def a_directory_while_a_disk_is_full(world: World) -> None:
    """The one whose directory fails would soon be alone in the ISRs, and nobody could take over from it."""
    world.cluster.disks[2].is_full = True
    for _ in range(20):
        await world.faults.disks.break_dir()
    assert not any(disk.broken or disk.flawed for disk in world.cluster.disks.values())
    world.cluster.disks[2].is_full = False
    await asyncio.sleep(10)
    await world.faults.disks.break_dir()


def test_no_directory_breaks_while_a_disk_is_full() -> None:
    world = play(a_directory_while_a_disk_is_full, "disks")
    assert sum("fails, and all links heal" in line for line in world.trace.lines) == 1


async def a_restart_between_two_looks(world: World) -> None:
    """Links stay as they are, and yet it is not the world of before."""
    before = world.liveness.hindrances()
    node, host = world.cluster.nodes[1], world.cluster.hosts[1]
    stopping = world.loop.spawn(host, node.stop())
    host.is_leaving = True
    leaving = world.liveness.hindrances()
    assert leaving != before
    assert not world.liveness.is_well(1)
    await stopping
    world.cluster.crash(1)
    world.cluster.start(1)
    while 1 not in world.cluster.nodes:
        await asyncio.sleep(0.01)
    assert world.liveness.hindrances() not in (before, leaving)


def test_who_stops_and_starts_again_is_another_one() -> None:
    play(a_restart_between_two_looks)
