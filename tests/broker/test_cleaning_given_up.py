"""Compaction that is given up while a thread still works for it, and whose process dies."""

import asyncio
import errno
from pathlib import Path
from threading import Event
from time import sleep

import pytest

from strandline.storage.segment.segment import Segment
from tests.broker.cleaning_harness import T0, Stage, cleaning, in_loop
from tests.storage.faulty_disk import FaultyDisk


@in_loop
async def test_a_sync_that_fails_when_nobody_waits_for_it_any_more_fails_the_log(tmp_path: Path) -> None:
    """The next one would go well, and count what the medium has lost as flushed."""
    stage, disk, syncing = Stage(tmp_path), FaultyDisk(), Event()
    stage.start_again(clean=False, disk=disk)
    stage.put(100, keys=5)
    async with cleaning(stage) as part:
        disk.fail("sync", "*.log", errno.EIO)
        sync = Segment.sync

        def slow(segment: Segment) -> None:
            syncing.set()
            sleep(0.02)
            sync(segment)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Segment, "sync", slow)
            cleaned = asyncio.ensure_future(part.clean_filthiest())
            while not syncing.is_set():
                await asyncio.sleep(0)
            part._on_cut(T0)
            await cleaned
    assert stage.log.failed and len(stage.replicas.disk_errors) == 1


@pytest.mark.parametrize("is_at_work", [False, True])
@in_loop
async def test_a_process_that_dies_within_a_cleaning_waits_for_nothing(
    tmp_path: Path, is_at_work: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks are torn off wherever they stand: at the first write, or while a cleaner works."""
    stage = Stage(tmp_path)
    stage.put(100, keys=5)
    forever: asyncio.Future[None] = asyncio.Future()
    stage.logs.cleaned.adopt({T0: 0} if is_at_work else {})
    async with cleaning(stage) as part:
        _, planned = part._filthiest() or pytest.fail("it is dirty")
        monkeypatch.setattr(part, "_settle", lambda *_: asyncio.sleep(0, True))
        monkeypatch.setattr(part._loop, "run_in_executor", lambda *_: forever)
        work = part._clean(stage.log, planned, 0)
        while work.send(None) is None:
            pass  # it only let others run
        work.close()
        monkeypatch.undo()
