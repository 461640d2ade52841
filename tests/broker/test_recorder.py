"""The flight recorder: written soon and beside the loop, bounded on disk, there after kill -9."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from errno import ENOSPC
from pathlib import Path

from strandline.base.clock import SystemClock
from strandline.broker import recorder as module
from strandline.broker.recorder import Recorder, in_memory, on_disk
from strandline.storage.decision_log import FLIGHT_RECORDER, Note, read_rings
from strandline.storage.disk import RealDisk
from tests.patience import HANG_S
from tests.storage.faulty_disk import FaultyDisk

KILLED = """
import asyncio, os, sys
from strandline.broker.recorder import on_disk
from strandline.base.clock import SystemClock
from strandline.storage.disk import RealDisk

async def main():
    recorder = await on_disk(RealDisk(), SystemClock(), 1 << 20, sys.argv[1], None)
    number = 0
    while True:
        recorder.note("t-0", "became_leading", epoch=number)
        number += 1
        await asyncio.sleep(0.01)
        if number % 50 == 0:
            print(number, flush=True)

asyncio.run(main())
"""


def kept(directory: Path) -> list[int]:
    rings = read_rings(RealDisk(), str(directory))
    return [] if rings is None else [d.values["epoch"] for d in rings.of("t-0")]


async def opened(directory: Path, bytes_max: int = 1 << 20, disk: RealDisk | None = None) -> Recorder:
    return await on_disk(disk or RealDisk(), SystemClock(), bytes_max, str(directory), None)


async def until(condition: object) -> None:
    async with asyncio.timeout(HANG_S):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.005)


def test_it_survives_a_restart_and_goes_on(tmp_path: Path) -> None:
    async def story() -> None:
        for run in range(3):
            recorder = await opened(tmp_path)
            recorder.note("t-0", "became_leading", epoch=run)
            await recorder.stop()

    asyncio.run(story())
    assert kept(tmp_path) == [0, 1, 2]


async def test_what_was_noted_is_there_soon_without_a_stop(tmp_path: Path) -> None:
    recorder = await opened(tmp_path)
    recorder.note("t-0", "became_leading", epoch=1)
    await until(lambda: kept(tmp_path) == [1])
    recorder.note("t-0", "became_leading", epoch=2)
    await until(lambda: kept(tmp_path) == [1, 2])
    await recorder.stop()


def test_kill_9_takes_only_the_last_moment(tmp_path: Path) -> None:
    line = [sys.executable, "-c", KILLED, str(tmp_path)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(4)]
        os.kill(process.pid, signal.SIGKILL)
    epochs = kept(tmp_path)
    assert epochs and epochs[-1] >= told[-2] - 50, "a second would be too much"
    assert epochs == list(range(epochs[0], epochs[-1] + 1))


def test_the_file_is_bounded(tmp_path: Path) -> None:
    async def story() -> None:
        recorder = await opened(tmp_path, 20_000)
        for number in range(3_000):
            recorder.note(f"t-{number % 40}", "became_leading", epoch=number)
            if number % 100 == 0:
                await asyncio.sleep(0.03)
                assert (tmp_path / FLIGHT_RECORDER).stat().st_size < 45_000
        await recorder.stop()
        assert recorder.rings.nbytes <= 20_000

    asyncio.run(story())
    assert (tmp_path / FLIGHT_RECORDER).stat().st_size < 45_000
    assert kept(tmp_path)[-1] == 2960


def test_a_long_series_is_walked_in_steps_while_others_have_their_turn(tmp_path: Path) -> None:
    async def story() -> None:
        recorder = await opened(tmp_path, 4 << 20)
        turns, walked = 0, 0

        def many() -> Iterator[Note]:
            nonlocal walked
            for number in range(5_000):
                walked += 1
                yield Note(f"t-{number}", "elected", {"leader": 1})

        recorder.series(many())
        assert walked == 0, "nothing of it on the way of the decision"
        async with asyncio.timeout(20):
            while walked < 5_000:
                turns += 1
                await asyncio.sleep(0)
        assert turns >= 5_000 / module.STEP
        await recorder.stop()

    asyncio.run(story())
    rings = read_rings(RealDisk(), str(tmp_path))
    assert rings is not None and len(rings.names()) == 5_000


def test_a_disk_that_does_not_take_it_costs_nothing_else(tmp_path: Path) -> None:
    async def story() -> None:
        disk = FaultyDisk()
        recorder = await opened(tmp_path, disk=disk)  # type: ignore[arg-type]
        fault = disk.fail("replace append", f"*{FLIGHT_RECORDER}*", ENOSPC)
        recorder.note("t-0", "became_leading", epoch=1)
        await until(lambda: fault.hits)
        recorder.note("t-0", "became_leading", epoch=2)
        disk.heal()
        await recorder.stop()

    asyncio.run(story())
    assert kept(tmp_path) == [1, 2]


def test_nothing_is_kept_where_nothing_shall_be(tmp_path: Path) -> None:
    async def story() -> None:
        recorder = await opened(tmp_path, 0)
        recorder.note("t-0", "became_leading", epoch=1)
        recorder.series(iter([Note("t-0", "elected", {})]))
        await recorder.stop()
        assert recorder.of("t-0") == []

    asyncio.run(story())
    assert not (tmp_path / FLIGHT_RECORDER).exists()


async def test_without_a_file_everything_is_at_hand_at_once(tmp_path: Path) -> None:
    recorder = await in_memory(RealDisk(), SystemClock(), 1 << 20, str(tmp_path), None)
    recorder.series(iter([Note("t-0", "elected", {"leader": 1})]))
    assert [d.what for d in recorder.of("t-0")] == ["elected"]
    await recorder.stop()
