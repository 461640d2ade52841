"""Tasks with an owner: what fails is heard of, and what is sustained begins again."""

import asyncio
from itertools import pairwise

import pytest

from strandline.base import tasks as rules
from strandline.base.tasks import Tasks
from tests.patience import HANG_S


async def test_a_failure_is_told_at_once_and_raised_at_the_end() -> None:
    heard: list[BaseException] = []
    tasks = Tasks("owner", heard.append)
    await asyncio.wait([tasks.spawn(fail("first"), "a")])
    tasks.spawn(asyncio.sleep(60), "b")
    with pytest.raises(ValueError, match="first"):
        await tasks.stop()
    assert [str(each) for each in heard] == ["first"]


async def test_what_the_owner_has_dealt_with_is_not_raised() -> None:
    tasks = Tasks("owner", lambda failure: tasks.forgive(failure))
    await asyncio.wait([tasks.spawn(fail("first"), "a")])
    await tasks.stop()


async def test_what_is_sustained_begins_again_after_a_growing_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "FIRST_PAUSE_S", 0.01)

    begun: list[float] = []
    heard: list[BaseException] = []
    ended = asyncio.Event()

    async def work() -> None:
        begun.append(asyncio.get_running_loop().time())
        if len(begun) < 4:
            await fail(f"{len(begun)}")
        ended.set()

    tasks = Tasks("owner")
    tasks.sustain(work, "work", heard.append)
    await asyncio.wait_for(ended.wait(), HANG_S)
    assert [str(each) for each in heard] == ["1", "2", "3"]
    pauses = [after - before for before, after in pairwise(begun)]
    assert pauses[1] >= 0.019 and pauses[2] >= 0.039
    await tasks.stop()
    assert not len(tasks)


async def test_what_is_sustained_ends_with_its_owner() -> None:
    tasks, ended = Tasks("owner"), asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    tasks.sustain(work, "work")
    await asyncio.sleep(0.01)
    await tasks.stop()
    assert ended.is_set()


async def fail(why: str) -> None:
    raise ValueError(why)
