"""Each invariant can fail: a rule is broken in a scripted world, and the check for it says so."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.replicas.partition import Partition
from strandline.broker.roles.controller_fence import ControlGate
from strandline.protocol.errors import ErrorCode
from strandline.simulation.cluster import BROKERS
from strandline.simulation.families import FAMILIES
from strandline.simulation.world import World
from strandline.storage.log.log import Log
from strandline.zookeeper.client import Check, SetData
from strandline.zookeeper.documents import state_path

T0 = TopicPartition("numbers", 0)
Story = Callable[[World], Awaitable[None]]


def said(story: Story, *, family: str = "plain", seed: int = 5) -> str:
    """What a world says of a story in which something is wrong."""
    world = World(seed, replace(FAMILIES[family], groups=0.0))

    async def scripted() -> None:
        for id in BROKERS:
            world.cluster.start(id)
        await world.workload.begin()
        world.checks.begin()
        await asyncio.sleep(3)
        await story(world)
        await asyncio.sleep(1)

    world.story = scripted  # type: ignore[method-assign]
    return world.run().violation or ""


def follower(world: World) -> tuple[int, Partition]:
    """One of partition 0."""
    id = next(id for id in BROKERS if id != world.checks.leader(T0))
    return id, world.cluster.nodes[id].broker.replicas.partitions[T0]


def write_state(world: World, **changes: object) -> None:
    """As a controller would, with its fence."""
    nodes = world.cluster.zookeeper.nodes
    node, fence = nodes[state_path(T0)], nodes["/controller_epoch"]
    data = json.dumps({**json.loads(node.data), **changes}).encode()
    ops = [Check("/controller_epoch", fence.version), SetData(state_path(T0), data, node.version)]
    world.cluster.zookeeper.multi(ops, 0)


def register_anew(world: World, id: int, incarnation: int) -> None:
    """As the broker itself would, in its session."""
    path = f"/brokers/ids/{id}"
    node = world.cluster.zookeeper.nodes[path]
    data = json.dumps({**json.loads(node.data), "incarnation": incarnation}).encode()
    world.cluster.zookeeper.multi([SetData(path, data, node.version)], 0)


async def nothing(world: World) -> None:
    """All rules are kept."""


def test_a_world_without_faults_says_nothing() -> None:
    assert said(nothing) == ""


async def cut_below_the_watermark(world: World) -> None:
    _, partition = follower(world)
    id, _ = follower(world)

    async def cut() -> None:
        partition.log.truncate_to(partition.high_watermark - 1)

    await world.loop.spawn(world.cluster.hosts[id], cut())


def test_a_cut_below_the_watermark_is_told_as_it_is_made() -> None:
    assert "I11" in said(cut_below_the_watermark)


async def begin_elsewhere(world: World) -> None:
    id, partition = follower(world)

    async def begin() -> None:
        partition.log.move_start(partition.log.start_offset + 2)

    await world.loop.spawn(world.cluster.hosts[id], begin())


def test_a_log_begins_where_retention_has_let_it() -> None:
    assert "I21" in said(begin_elsewhere)


def test_retention_leaves_what_it_must() -> None:
    async def retire(world: World) -> None:
        id, partition = follower(world)
        partition.log.configure(partition.log.config.model_copy(update={"retention_bytes": 1 << 20}))

        async def too_much() -> None:
            partition.log.retire(1, world.cluster.clock.wall_ms())

        await world.loop.spawn(world.cluster.hosts[id], too_much())

    assert "I21" in said(retire)


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_each_member_has_an_incarnation_noted(missing: int) -> None:
    async def forget(world: World) -> None:
        epochs = world.checks.states.latest[T0]["isr_epochs"]
        write_state(world, isr_epochs={k: v for k, v in epochs.items() if k != str(missing)})

    assert "I12" in said(forget)


def test_who_lost_its_data_is_not_let_in_by_what_it_was() -> None:
    async def let_in(world: World) -> None:
        id, _ = follower(world)
        state = world.checks.states.latest[T0]
        isr = [member for member in state["isr"] if member != id]
        epochs = dict(state["isr_epochs"])
        joined = epochs.pop(str(id))
        write_state(world, isr=isr, isr_epochs=epochs, leader_epoch=state["leader_epoch"] + 1)
        world.checks.states.lossy_until[id] = joined
        register_anew(world, id, joined + 1)
        state = world.checks.states.latest[T0]
        write_state(world, isr=[*isr, id], isr_epochs={**epochs, str(id): joined})

    assert "has lost data since it joined in incarnation 1" in said(let_in)


def test_who_has_not_come_back_since_it_lost_its_data_may_still_be_named() -> None:
    """Nobody can know; it is dead, and what it registers when it comes back takes it out."""

    async def name_the_dead(world: World) -> None:
        id, _ = follower(world)
        world.cluster.crash(id)
        world.checks.lost_data(id)
        state = world.checks.states.latest[T0]
        write_state(world, leader=id, leader_epoch=state["leader_epoch"] + 1)

    assert "I10" not in said(name_the_dead)


def test_who_lost_its_data_does_not_lead_on() -> None:
    async def lead_on(world: World) -> None:
        world.checks.lost_data(world.checks.leader(T0))

    assert "I10" in said(lead_on)


def test_no_life_of_a_broker_goes_back_to_an_earlier_epoch() -> None:
    async def go_back(world: World) -> None:
        id, partition = follower(world)
        world.checks.epochs[id, T0, partition.log.topic_id] = partition.leader_epoch + 1

    assert "I7" in said(go_back)


def test_nobody_obeys_an_earlier_term(monkeypatch: pytest.MonkeyPatch) -> None:
    def admit(gate: ControlGate, controller_epoch: int, *_: object) -> ErrorCode:
        gate.controller_epoch = controller_epoch
        return ErrorCode.NONE

    monkeypatch.setattr(ControlGate, "admit", admit)

    async def go_back(world: World) -> None:
        gate = world.cluster.nodes[1].broker.roles.gate
        gate.admit(gate.controller_epoch - 1, 0, 0, 0)

    assert "I7" in said(go_back)


def test_what_lies_in_older_segments_is_compared_too() -> None:
    """A batch of a closed segment differs on one replica: no read that ends with a segment would meet it."""

    async def differ(world: World) -> None:
        id, partition = follower(world)
        path = f"{partition.log.directory}/{0:020d}.log"
        world.cluster.disks[id].files[path].data[66] ^= 1  # of its first record
        world.checks.committed[T0]._compared.clear()

    assert "differs" in said(differ)


def test_all_segments_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks read on where a segment ends; the logs of this world have several."""
    rolls: list[int] = []
    roll = Log._roll

    def counted(log: Log, *more: int) -> object:
        rolls.append(1)
        return roll(log, *more)

    monkeypatch.setattr(Log, "_roll", counted)

    async def wait(world: World) -> None:
        await asyncio.sleep(10)
        await world.workload.finish()
        await world.judging.judge()

    assert said(wait, seed=6) == ""
    assert len(rolls) > 6


def test_after_all_have_lost_power_everything_counts_again() -> None:
    """What is lost is forgiven by name; what is committed afterwards is compared as before."""
    world = World(3, FAMILIES["dark"])

    async def scripted() -> None:
        for id in BROKERS:
            world.cluster.start(id)
        await world.workload.begin()
        world.checks.begin()
        await asyncio.sleep(5)
        await world.faults.disks.blackout()
        await world.faults.end()
        await world.judging.wait_healed(60)
        for committed in world.checks.committed.values():
            assert committed.unproven is None and committed.whole == set(BROKERS), "all count again"
        await asyncio.sleep(3)
        assert all(committed.end > 0 for committed in world.checks.committed.values()), "and are compared"
        await world.workload.finish()
        await world.judging.judge()

    world.story = scripted  # type: ignore[method-assign]
    assert world.run().violation is None


def test_a_leader_without_proof_may_not_lack_what_was_flushed() -> None:
    """What is promised after the lights went out had reached a medium; whoever is elected then has it."""

    async def elect_the_shorter(world: World) -> None:
        id, partition = follower(world)
        held = world.checks.committed[T0]

        def cut() -> None:
            assert partition.following is not None
            partition.following.high_watermark -= 1  # type: ignore[assignment]
            partition.log.truncate_to(partition.high_watermark)

        world.checks.look()
        while held.end != partition.high_watermark:  # its leader tells it with the next fetch
            await asyncio.sleep(0.001)
            world.checks.look()
        await world.loop.spawn(world.cluster.hosts[id], asyncio.to_thread(cut))
        state = world.checks.states.latest[T0]
        write_state(
            world, leader=id, leader_epoch=state["leader_epoch"] + 1, isr=[id],
            isr_epochs={str(id): state["isr_epochs"][str(id)]}, leader_recovery_state=1,
        )  # fmt: skip

    assert "I16" in said(elect_the_shorter)
