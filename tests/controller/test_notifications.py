"""A notification is handled before its node goes: whatever answer is lost, what it says is not."""

from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from strandline.base.types import TopicPartition
from strandline.controller.planning import plans
from strandline.controller.watches import IsrWatch, LogDirWatch
from strandline.simulation.environment.zookeeper import SimZooKeeper
from strandline.zookeeper import documents, znodes
from strandline.zookeeper.client import Delete, ZkError
from tests.controller.memory_zk_client import MemoryZkClient

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Tell = Callable[[Any], Awaitable[None]]
KINDS: list[tuple[type[IsrWatch] | type[LogDirWatch], Tell, plans.Event]] = [
    (LogDirWatch, lambda r: znodes.notify_log_dir_event(r, 2), plans.LogDirsChanged(frozenset({2}))),
    (IsrWatch, lambda r: znodes.notify_isr_change(r, [T0]), plans.IsrsChanged((T0,))),
]


async def begin(kind: Any) -> tuple[MemoryZkClient, Any]:
    zk = MemoryZkClient(SimZooKeeper())
    await znodes.ensure_paths(cast(Any, zk))
    await znodes.create_if_absent(cast(Any, zk), documents.CONTROLLER_EPOCH, b"1")
    return zk, kind(zk, znodes.ControllerTerm(1, 0))


async def look_until_gone(zk: MemoryZkClient, watch: Any, parent: str) -> list[plans.Event]:
    """As the controller does it: again after a failure, until there is nothing left to look at."""
    heard: list[plans.Event] = []
    for _ in range(5):
        try:
            heard += await watch.look()
            await watch.handled()
        except ZkError:
            continue
        if not zk.server.nodes[parent].children:
            return heard
    raise AssertionError("the notifications stay")


@pytest.mark.parametrize(("kind", "tell", "event"), KINDS, ids=lambda one: getattr(one, "__name__", ""))
async def test_a_notification_whose_removal_was_not_answered_has_been_heard(
    kind: Any, tell: Tell, event: plans.Event
) -> None:
    zk, watch = await begin(kind)
    await tell(zk)
    lost: list[object] = []
    zk.loses = lambda ops: not lost and any(isinstance(op, Delete) for op in ops) and not lost.append(ops)
    assert event in await look_until_gone(zk, watch, watch._parent)
    assert lost


async def test_one_that_cannot_be_read_takes_no_other_with_it() -> None:
    zk, watch = await begin(IsrWatch)
    for partition in (T0, T1):
        await znodes.notify_isr_change(cast(Any, zk), [partition])
    zk.unreadable = {f"{documents.ISR_CHANGE_PREFIX}0000000001"}
    heard = await look_until_gone(zk, watch, documents.ISR_CHANGES)
    assert {q for one in heard for q in one.partitions} == {T0, T1}  # type: ignore[union-attr]


async def test_one_that_somebody_else_has_removed_is_none() -> None:
    zk, watch = await begin(LogDirWatch)
    await znodes.notify_log_dir_event(cast(Any, zk), 2)
    assert await watch.look() == [plans.LogDirsChanged(frozenset({2}))]
    name = f"{documents.LOG_DIR_EVENT_PREFIX}0000000000"
    await zk.multi([Delete(name, 0)])
    await watch.handled()
    assert await watch.look() == []


async def test_what_cannot_be_understood_is_removed_unheard() -> None:
    zk, watch = await begin(LogDirWatch)
    await znodes.notify_log_dir_event(cast(Any, zk), 2)
    zk.server.nodes[f"{documents.LOG_DIR_EVENT_PREFIX}0000000000"].data = b"{"
    assert await look_until_gone(zk, watch, documents.LOG_DIR_EVENTS) == []
