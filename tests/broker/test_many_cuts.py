"""Many cuts in one log directory: the copies of what they take away share a sync, and one thread waits."""

import asyncio
from pathlib import Path

import pytest

from strandline.base.types import Offset
from strandline.broker.replicas.truncation import Cut, carry_out
from strandline.replication.effects import Truncate
from strandline.storage.log.bulk_sync import MANY
from strandline.storage.quarantine import ASIDE
from tests.broker.storage_harness import ME, Box, box, run, tp
from tests.broker.test_hung_directory import HangingDisk, until
from tests.storage.faulty_disk import FaultyDisk


async def followers(b: Box, count: int, unclean: bool = True) -> list[Cut]:
    """What the new leader of so many partitions has them cut: it has nothing from 2 on."""
    numbers = range(count)
    await b.lead(*numbers)
    for number in numbers:
        b.append(number, b"one", b"two")
        b.append(number, b"three")
    await b.lead(*numbers, leader=2, is_new=False, unclean=unclean, others=() if unclean else (ME,))
    return [anew(b, number) for number in numbers]


def anew(b: Box, number: int) -> Cut:
    return Cut(b.replicas.get(tp(number)), Truncate(Offset(2), settled=True))


def test_copies_of_many_cuts_come_to_the_medium_at_once(tmp_path: Path) -> None:
    disk, count = FaultyDisk(), 2 * MANY

    async def story() -> None:
        async with box(tmp_path, "x", disk=disk) as b:
            aside = b.dirs[0] + ASIDE
            cuts = await followers(b, count)
            fault = disk.fail("sync_all", aside)
            partitions = [cut.partition for cut in cuts]
            assert list(await carry_out([*cuts])) == partitions, "what is not on the medium is no copy"
            assert fault.hits == 1 and {each.log.end_offset for each in partitions} == {3}
            assert disk.listdir(aside) == []
            disk.heal()
            disk.calls.clear()
            assert not await carry_out([anew(b, number) for number in range(count)])
            assert {each.log.end_offset for each in partitions} == {2}
            assert len(disk.listdir(aside)) == count
            assert disk.asked("sync_all", aside) == disk.asked("sync*", f"{aside}*") == 1

    run(story)


def test_few_copies_come_to_the_medium_one_by_one(tmp_path: Path) -> None:
    """The file system is not asked to write down all that it holds for one small file."""
    disk = FaultyDisk()

    async def story() -> None:
        async with box(tmp_path, "x", disk=disk) as b:
            cuts = await followers(b, 2)
            disk.calls.clear()
            assert not await carry_out([*cuts])
            synced = {path for call, path in disk.calls if call == "sync" and ASIDE in path}
            assert len(synced) == 4, "a note and a copy for each"
            assert disk.asked("sync_all") == 0

    run(story)


@pytest.mark.parametrize("count", [2, 2 * MANY])
def test_what_was_never_committed_waits_for_no_sync(tmp_path: Path, count: int) -> None:
    """acks=all waits for this follower: a leader in sync lacks nothing that was promised to anybody."""
    disk = FaultyDisk()

    async def story() -> None:
        async with box(tmp_path, "x", disk=disk) as b:
            cuts = await followers(b, count, unclean=False)
            disk.calls.clear()
            assert not await carry_out([*cuts])
            assert disk.asked("sync*") == 0
            assert len(disk.listdir(b.dirs[0] + ASIDE)) == count, "there is a copy, all the same"

    run(story)


def test_one_thread_waits_for_a_directory_that_hangs_however_many_leaders_ask_for_cuts(
    tmp_path: Path,
) -> None:
    disk = HangingDisk()

    async def story() -> None:
        async with box(tmp_path, "x", disk=disk) as b:
            cuts = await followers(b, 5)
            disk.hang(b.dirs[0])
            cutting = [asyncio.ensure_future(carry_out([cut])) for cut in cuts]
            await until(lambda: disk.waiting)
            for _ in range(3):  # what else has been begun has come to the medium by now
                await asyncio.get_running_loop().run_in_executor(None, str)
            assert disk.waiting == 1
            disk.gate.set()
            assert await asyncio.gather(*cutting) == [{}] * 5
            assert {cut.partition.log.end_offset for cut in cuts} == {2}

    run(story)
