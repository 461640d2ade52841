"""More checks that can fail: of groups, retention, waits of the loop, exceptions that nobody expects.

As in `test_invariants.py` a rule is broken in a scripted world, and the check for it says so.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from strandline.base.tasks import Tasks
from strandline.base.types import TopicPartition
from strandline.broker.handlers.groups import offsets
from strandline.broker.metadata.cache import Picture
from strandline.broker.replicas.partition import Partition
from strandline.client.consumer.consumer import Consumer
from strandline.client.results import ConsumerRecord
from strandline.simulation.cluster import BROKERS
from strandline.simulation.environment.host import current_host
from strandline.simulation.families import FAMILIES
from strandline.simulation.world import World

T0 = TopicPartition("numbers", 0)
Story = Callable[[World], Awaitable[None]]


def said(story: Story, *, groups: float = 0.0, interleaves: float = 0.0) -> str:
    """What a world says of a story in which something is wrong."""
    world = World(5, replace(FAMILIES["plain"], groups=groups, interleaves=interleaves))

    async def scripted() -> None:
        for id in BROKERS:
            world.cluster.start(id)
        await world.workload.begin()
        world.checks.begin()
        if world.readers is not None:
            world.readers.begin()
        await asyncio.sleep(3)
        await story(world)
        await asyncio.sleep(1)

    world.story = scripted  # type: ignore[method-assign]
    return world.run().violation or ""


def follower(world: World) -> tuple[int, Partition]:
    """One of partition 0."""
    id = next(id for id in BROKERS if id != world.checks.leader(T0))
    return id, world.cluster.nodes[id].broker.replicas.partitions[T0]


async def on(world: World, id: int, deed: Callable[[], object]) -> None:
    """A broker does something."""

    async def do() -> None:
        deed()

    await world.loop.spawn(world.cluster.hosts[id], do())


# --- I20: groups ------------------------------------------------------------------------------------


async def one_takes_over(world: World) -> None:
    """Whoever reads partition 0 leaves the group, and another member goes on."""
    readers = world.readers
    assert readers is not None
    while readers.committed[T0] < 10:
        await asyncio.sleep(0.1)
    for member in readers._members.values():
        member.leaves = True
    before = readers.covered[T0]
    while readers.covered[T0] < before + 20 and not world.trace.violations:
        await asyncio.sleep(0.1)


def test_a_group_whose_members_come_and_go_reads_on() -> None:
    assert said(one_takes_over, groups=1.0) == ""


def test_a_group_goes_on_where_it_has_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    committed = offsets._committed

    def before(*asked: Any) -> Any:
        return [
            (name, [(index, replace(each, offset=max(each.offset - 5, -1))) for index, each in found])
            for name, found in committed(*asked)
        ]

    monkeypatch.setattr(offsets, "_committed", before)
    told = said(one_takes_over, groups=1.0)
    assert "I20" in told and "a member starts at" in told


def test_a_group_is_handed_every_record(monkeypatch: pytest.MonkeyPatch) -> None:
    poll = Consumer.poll

    async def all_but_one(consumer: Consumer, *more: Any) -> list[ConsumerRecord]:
        is_member = current_host().name.startswith("member")
        return [each for each in await poll(consumer, *more) if not (is_member and each.offset == 7)]

    monkeypatch.setattr(Consumer, "poll", all_but_one)
    told = said(one_takes_over, groups=1.0)
    assert "I20" in told and "the group got" in told


# --- I21: retention ---------------------------------------------------------------------------------


def test_a_log_begins_anew_where_retention_has_let_one_begin() -> None:
    async def anew(world: World) -> None:
        id, partition = follower(world)
        await on(world, id, lambda: partition.log.restart_at(partition.log.end_offset + 5))

    told = said(anew)
    assert "I21" in told and "restarts at" in told


@pytest.mark.parametrize("told", [True, False])
def test_what_lies_before_the_start_goes_though_little_is_left(told: bool) -> None:
    """A follower that lags is told by its leader to begin later: that is not retention by size."""

    async def retire(world: World) -> None:
        id, partition = follower(world)
        log = partition.log
        log.roll(world.cluster.clock.wall_ms())
        log.configure(log.config.model_copy(update={"retention_bytes": 1 << 20}))
        if told:
            world.checks.let_go(T0, log.segments[1].base_offset)
            log.move_start(log.segments[1].base_offset)
        await on(world, id, lambda: log.retire(1, world.cluster.clock.wall_ms()))

    assert ("I21" in said(retire)) is not told


# --- I22: what the loop waits for -------------------------------------------------------------------


def test_the_loop_syncs_nothing() -> None:
    async def sync(world: World) -> None:
        await on(world, 1, lambda: world.cluster.disks[1].sync_dir("/data"))

    assert "I22" in said(sync)


@pytest.mark.parametrize("interleaves", [0.0, 1.0])
def test_a_thread_may_sync(interleaves: float) -> None:
    async def sync(world: World) -> None:
        async def in_a_thread() -> None:
            await asyncio.to_thread(world.cluster.disks[1].sync_dir, "/data")

        await world.loop.spawn(world.cluster.hosts[1], in_a_thread())

    assert said(sync, interleaves=interleaves) == ""


def test_the_loop_waits_for_no_lock_of_a_thread() -> None:
    async def wait(world: World) -> None:
        lock = next(iter(world.cluster.nodes[1].broker.logs._promises._turns.values()))

        def hold() -> None:
            with lock:
                world.cluster.disks[1].listdir("/data")

        async def both() -> None:
            thread = asyncio.create_task(asyncio.to_thread(hold))
            while not lock.locked():
                await asyncio.sleep(0.0001)
            with lock:
                await thread

        await world.loop.spawn(world.cluster.hosts[1], both())

    assert "I22" in said(wait, interleaves=1.0)


def test_a_broker_that_registers_again_does_not_keep_its_partitions_waiting() -> None:
    """It wrote the new incarnation on its loop, while it served: a disk that hung stopped all others."""

    async def expire(world: World) -> None:
        before = world.cluster.nodes[1].broker.incarnation
        world.cluster.zk_clients[1].lose_session()
        while world.cluster.nodes[1].broker.incarnation == before:
            await asyncio.sleep(0.1)

    assert said(expire) == ""


# --- I25: what brokers tell of the cluster ----------------------------------------------------------


def picture_of_a_follower(world: World, change: Callable[[Picture], Picture]) -> None:
    """One broker believes something else."""
    cache = world.cluster.nodes[follower(world)[0]].broker.cache
    cache.picture = change(cache.picture)


def without_a_member(picture: Picture) -> Picture:
    topic = picture.topics[T0.topic]
    shrunk = replace(topic.partitions[0], isr=topic.partitions[0].isr[:-1])
    changed = replace(topic, partitions={**topic.partitions, 0: shrunk})
    return replace(picture, topics={**picture.topics, T0.topic: changed})


def without_a_topic(picture: Picture) -> Picture:
    return replace(picture, topics={})


def without_a_broker(picture: Picture) -> Picture:
    return replace(picture, brokers=dict(list(picture.brokers.items())[1:]))


def under_another_controller(picture: Picture) -> Picture:
    return replace(picture, controller_id=7)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (without_a_member, "says of numbers-0"),
        (without_a_topic, "says of numbers-0"),
        (without_a_broker, "knows the brokers"),
        (under_another_controller, "takes b7 for the controller"),
    ],
)
def test_a_broker_that_was_not_told_of_a_change_is_found(
    change: Callable[[Picture], Picture], what: str
) -> None:
    async def forget(world: World) -> None:
        picture_of_a_follower(world, change)
        await world.judging.wait_told(2)

    told = said(forget)
    assert "I25" in told and what in told


def test_a_leader_that_would_let_nobody_join_is_found() -> None:
    async def shut_out(world: World) -> None:
        world.cluster.nodes[world.checks.leader(T0)].broker.shared.membership.live = frozenset()
        await world.judging.wait_told(2)

    told = said(shut_out)
    assert "I25" in told and "would let only []" in told


def test_brokers_that_were_told_everything_agree() -> None:
    assert said(lambda world: world.judging.wait_told(2)) == ""


# --- what nobody expects ----------------------------------------------------------------------------


async def fail() -> None:
    raise KeyError("nobody expects this")


def test_a_task_without_an_owner_that_fails_fails_the_run() -> None:
    async def forget(world: World) -> None:
        world.loop.spawn(world.cluster.hosts[1], fail())

    told = said(forget)
    assert told.startswith("unexpected: ") and "nobody expects this" in told


def test_a_sustained_task_that_fails_fails_the_run() -> None:
    """It is begun again, so nothing else would show it."""

    async def sustain(world: World) -> None:
        async def owner() -> None:
            Tasks("owner").sustain(fail, "work")

        await world.loop.spawn(world.cluster.hosts[1], owner())

    assert said(sustain).startswith("unexpected: task_failed")


def test_the_last_words_of_a_dead_process_are_not_heard() -> None:
    async def die(world: World) -> None:
        async def write() -> None:
            await asyncio.sleep(0.1)
            world.cluster.disks[1].mkdir("/data/late")

        async def late() -> None:
            try:
                await asyncio.sleep(1)
            finally:
                world.cluster.disks[1].mkdir("/data/late")

        world.loop.spawn(world.cluster.hosts[1], late())
        world.loop.spawn(world.cluster.hosts[1], write())
        world.cluster.crash(1)

    assert said(die) == ""
