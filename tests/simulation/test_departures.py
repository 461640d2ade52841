"""Scripted worlds: what is not left to chance about controllers, stops and power."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from strandline.base.types import TopicPartition
from strandline.controller.active_controller import ActiveController
from strandline.controller.planning import plans
from strandline.controller.planning.preferred import imbalanced
from strandline.controller.requests.election_requests import FIRST_BALANCE_S
from strandline.controller.takeover_backoff import TakeoverBackoff
from strandline.simulation.cluster import BROKERS
from strandline.simulation.environment.zk_client import ADDRESS
from strandline.simulation.world import World


def play(story: Callable[[World], Awaitable[None]], seed: int = 5) -> World:
    world = World(seed)

    async def scripted() -> None:
        for id in BROKERS:
            world.cluster.start(id)
        await world.workload.begin()
        await asyncio.sleep(2)
        await story(world)

    world.story = scripted  # type: ignore[method-assign]
    outcome = world.run()
    assert outcome.violation is None, outcome.violation
    return world


def controller(world: World) -> int:
    return next(id for id, node in world.cluster.nodes.items() if node.broker.controller.active)


def count(world: World, what: str) -> int:
    return sum(f": {what}" in line for line in world.trace.lines)


def test_a_broker_that_cannot_reach_the_controller_does_not_take_its_seat() -> None:
    async def story(world: World) -> None:
        first = controller(world)
        other = next(id for id in BROKERS if id != first)
        world.cluster.crash(other)
        world.loop.network.cut(f"b{first}", f"b{other}")
        await asyncio.sleep(0.5)
        world.cluster.start(other)
        await asyncio.sleep(10)
        assert controller(world) == first

    assert count(play(story), "controller_taken_over") == 0


def test_a_dead_controller_has_a_successor_within_half_a_second() -> None:
    async def story(world: World) -> None:
        first = controller(world)
        world.cluster.crash(first)
        await asyncio.sleep(0.5)
        assert controller(world) != first

    assert count(play(story), "controller_taken_over") == 1


def test_two_brokers_that_reset_each_others_connections_do_not_fight_for_the_seat() -> None:
    async def story(world: World) -> None:
        first = controller(world)
        other = next(id for id in BROKERS if id != first)
        network = world.loop.network
        for _ in range(80):  # 8 s of a link that lets nothing stand and refuses everything
            network.refuse(f"b{first}", f"b{other}")
            await asyncio.sleep(0.1)

    world = play(story)
    assert count(world, "controller_taken_over") <= 3


def test_whoever_loses_the_controller_waits_longer_each_time() -> None:
    backoff = TakeoverBackoff(3.0)
    backoff.lost(10.0)
    assert backoff.until == 13.0
    backoff.lost(14.0)
    assert backoff.until == 20.0
    for _ in range(10):
        backoff.lost(backoff.until)
    held = backoff.until
    backoff.lost(held)
    assert backoff.until == held + 96.0
    backoff.lost(backoff.until + 97.0)
    assert backoff.until == held + 96.0 + 97.0 + 3.0


@pytest.mark.parametrize("waited_s", [0.1, 8.0])
@pytest.mark.parametrize("id", [1, 2])
def test_a_broker_that_reaches_nobody_stops_soon_and_clean(id: int, waited_s: float) -> None:
    async def story(world: World) -> None:
        for far in (ADDRESS, *(f"b{other}" for other in BROKERS if other != id)):
            world.loop.network.cut(f"b{id}", far)
        await asyncio.sleep(waited_s)
        began = world.loop.now
        await world.loop.spawn(world.cluster.hosts[id], world.cluster.nodes[id].stop())
        assert world.loop.now - began < 6
        assert world.cluster.disks[id].exists("/data/.kafka_cleanshutdown")
        world.cluster.nodes.pop(id)

    play(story)


def test_a_stopped_process_misses_nothing_and_goes_on() -> None:
    async def story(world: World) -> None:
        node = world.cluster.nodes[2]
        world.cluster.hosts[2].stopped = True
        turns = node.broker.replicas.high_watermarks()
        await asyncio.sleep(1.0)
        assert node.broker.replicas.high_watermarks() == turns
        world.loop.resume(world.cluster.hosts[2])
        await asyncio.sleep(1.0)
        assert node.broker.replicas.high_watermarks() != turns
        await world.judging.wait_healed(20)

    play(story)


def test_a_loss_of_power_is_seen_and_made_up_for() -> None:
    async def story(world: World) -> None:
        await world.faults.disks.power_loss()
        assert world.faults.disks.lossy is not None
        id, before = world.faults.disks.lossy
        world.cluster.start(id)
        await world.judging.wait_healed(20)
        assert world.cluster.nodes[id].broker.incarnation > before
        await world.workload.finish()
        await world.judging.judge()

    play(story)


@pytest.mark.parametrize("id", BROKERS)
def test_nobody_waits_for_a_broker_that_shuts_down(id: int) -> None:
    """KAFKA-15021: it had everything a moment ago, but it joins no ISR, so no watermark waits for it."""

    async def story(world: World) -> None:
        began = world.loop.now
        await world.loop.spawn(world.cluster.hosts[id], world.cluster.nodes[id].stop())
        world.cluster.nodes.pop(id)
        await asyncio.sleep(3.0)
        assert world.ledger.history.longest_gap_s(since_s=began) < 1.2, "that is a resting producer, at most"
        states = [world.checks.states.latest[tp] for tp in world.ledger.partitions]
        assert all(state["leader"] not in (-1, id) and id not in state["isr"] for state in states)

    play(story)


async def restart(world: World, id: int) -> None:
    await world.loop.spawn(world.cluster.hosts[id], world.cluster.nodes[id].stop())
    world.cluster.crash(id)
    world.cluster.start(id)
    await world.judging.wait_healed(20)


def test_an_isr_that_grows_while_leaders_are_balanced_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rolling restart. When the last controller reads which ISRs have grown, it has just begun to give
    leaderships back to the brokers before: one of two writes fails, and nobody was ever told of the other.
    """
    read = ActiveController._read

    due = [0]  # percent

    async def balanced(active: ActiveController, partitions: Iterable[TopicPartition]) -> None:
        if due and {*partitions}.intersection(imbalanced(active.state, 0)):
            active.post(plans.RebalanceDue(due.pop()))
        await read(active, partitions)

    async def story(world: World) -> None:
        replicas = world.cluster.topic("numbers")["partitions"].values()
        while not any(third == controller(world) for _, _, third in replicas):
            await restart(world, controller(world))
        await asyncio.sleep(FIRST_BALANCE_S)
        first, second, last = next(each for each in replicas if each[2] == controller(world))
        await restart(world, first)
        with monkeypatch.context() as patched:
            patched.setattr(ActiveController, "_read", balanced)
            await restart(world, last)
            await world.judging.wait_told(3)  # before the balance is looked at by itself
        assert controller(world) in (first, second) and not due

    play(story)
