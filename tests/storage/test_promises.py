"""Checkpoints promise no more than will be there, whoever writes them meanwhile; the loop writes nothing."""

import errno
import os
from pathlib import Path
from threading import Event, Thread
from typing import Any
from uuid import UUID

import pytest

from strandline.base.types import TopicPartition
from strandline.storage.cleaning.checkpoint import CLEANER_OFFSETS
from strandline.storage.directories.log_manager import Logs
from strandline.storage.directories.offset_checkpoints import Bounds
from strandline.storage.disk import NoDescriptor
from strandline.storage.log import checkpoints
from strandline.storage.log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS, read_offsets
from tests.patience import HANG_S
from tests.storage.conftest import T0, put
from tests.storage.faulty_disk import Fault, FaultyDisk
from tests.storage.log_dirs import NAMES, Dirs

T1 = TopicPartition("t", 1)


class SlowDisk(FaultyDisk):
    """A checkpoint waits until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.slow = ""
        self.reached, self.gate = Event(), Event()

    def struck(self, call: str, path: str) -> Fault | None:
        if call == "replace" and self.slow and path.endswith(self.slow):
            self.slow = ""
            self.reached.set()
            assert self.gate.wait(HANG_S)
        return super().struck(call, path)


def stage(root: Path, said_first: bool = True) -> tuple[Dirs, Any]:
    """Two logs of ten records each, in a directory each, all of them on the medium."""
    dirs = Dirs(root, NAMES)
    dirs.disk = disk = SlowDisk()
    dirs.logs = dirs.open()
    for number in range(2):
        log = dirs.create(number)
        for _ in range(10):
            put(log, b"x")
        log.flush()
    if said_first:
        dirs.logs.checkpoint_recovery_points()
        watermarks(dirs.logs, 10)
    return dirs, disk


def said(dirs: Dirs, name: str, place: int = 0) -> dict[TopicPartition, int]:
    return read_offsets(dirs.disk, f"{dirs.paths[place]}/{name}")  # type: ignore[arg-type]


def written_meanwhile(disk: Any, name: str, write: Any) -> Thread:
    """A thread that is in the middle of writing `name`."""
    disk.reached.clear(), disk.gate.clear()
    disk.slow = name
    thread = Thread(target=write)
    thread.start()
    assert disk.reached.wait(HANG_S)
    return thread


def test_a_prepared_cut_writes_nothing_and_waits_for_nobody(tmp_path: Path) -> None:
    dirs, disk = stage(tmp_path)
    log = dirs.logs.logs[T0]
    lowered = dirs.logs.lower({T0: Bounds(4, 0)})
    assert said(dirs, RECOVERY_POINTS) == said(dirs, HIGH_WATERMARKS) == {T0: 4}
    thread = written_meanwhile(disk, f"a/{HIGH_WATERMARKS}", lambda: watermarks(dirs.logs, 10))
    before = disk.asked("replace", "*-offset-checkpoint")
    assert log.truncate_to(4) == 4
    assert disk.asked("replace", "*-offset-checkpoint") == before
    disk.gate.set()
    thread.join()
    dirs.logs.lift(lowered)
    assert said(dirs, HIGH_WATERMARKS)[T0] == 4


def watermarks(logs: Logs, offset: int) -> None:
    logs.checkpoint_high_watermarks(lambda: {T0: offset, T1: offset})


@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS])
def test_nothing_is_promised_again_before_the_cut_is_made(tmp_path: Path, name: str) -> None:
    dirs, _ = stage(tmp_path)
    lowered = dirs.logs.lower({T0: Bounds(4, 0)})
    dirs.logs.checkpoint_recovery_points()
    watermarks(dirs.logs, 10)
    assert said(dirs, name) == {T0: 4}
    assert said(dirs, name, 1) == {T1: 10}, "of others all is said"
    dirs.logs.lift(lowered)  # it is not made after all
    dirs.logs.checkpoint_recovery_points()
    watermarks(dirs.logs, 10)
    assert said(dirs, name) == {T0: 10}


def test_a_watermark_from_before_the_cut_that_is_written_after_it(tmp_path: Path) -> None:
    """A thread may get its turn late: a kill soon after would find a log that ends before its watermark."""
    dirs, _ = stage(tmp_path)
    log = dirs.logs.logs[T0]
    lowered = dirs.logs.lower({T0: Bounds(4, 0)})
    log.truncate_to(4)
    dirs.logs.lift(lowered)
    watermarks(dirs.logs, 10)
    assert said(dirs, HIGH_WATERMARKS) == {T0: 4}
    for _ in range(8):
        put(log, b"y")
    dirs.logs.checkpoint_high_watermarks(lambda: {T0: 12})
    assert said(dirs, HIGH_WATERMARKS) == {T0: 12}, "what is asked for later counts"
    assert dirs.reopen().end_offset == 12
    assert not dirs.doubts


@pytest.mark.parametrize("name", [RECOVERY_POINTS, HIGH_WATERMARKS])
def test_a_cut_that_nobody_prepared_while_a_checkpoint_is_written(tmp_path: Path, name: str) -> None:
    """It waits for nobody: whoever is writing looks again when it has written."""
    dirs, disk = stage(tmp_path, said_first=False)
    give = {
        RECOVERY_POINTS: dirs.logs.checkpoint_recovery_points,
        HIGH_WATERMARKS: lambda: watermarks(dirs.logs, 10),
    }[name]
    thread = written_meanwhile(disk, f"a/{name}", give)
    assert dirs.logs.logs[T0].truncate_to(8) == 8
    disk.gate.set()
    thread.join()
    assert said(dirs, name) == {T0: 8}


def test_a_log_that_is_cut_twice_while_a_checkpoint_is_written(tmp_path: Path) -> None:
    """Between the cuts it grew: what is to be written is from before both, and the deeper one bounds it."""
    dirs, disk = stage(tmp_path, said_first=False)
    log = dirs.logs.logs[T0]
    thread = written_meanwhile(disk, f"a/{HIGH_WATERMARKS}", lambda: watermarks(dirs.logs, 10))
    log.truncate_to(4)
    for _ in range(8):
        put(log, b"y")
    log.truncate_to(9)
    disk.gate.set()
    thread.join()
    assert said(dirs, HIGH_WATERMARKS) == {T0: 4}
    watermarks(dirs.logs, 9)
    assert said(dirs, HIGH_WATERMARKS) == {T0: 9}, "what is asked for later counts"


def test_two_preparations_of_one_cut(tmp_path: Path) -> None:
    """The first leader's cut comes to nothing while the second one's is still being prepared."""
    dirs, _ = stage(tmp_path)
    first, second = dirs.logs.lower({T0: Bounds(4, 0)}), dirs.logs.lower({T0: Bounds(6, 0)})
    dirs.logs.lift(first)
    dirs.logs.checkpoint_recovery_points()
    assert said(dirs, RECOVERY_POINTS) == {T0: 6}
    dirs.logs.lift(second)
    dirs.logs.checkpoint_recovery_points()
    assert said(dirs, RECOVERY_POINTS) == {T0: 10}


def test_what_cannot_be_lowered_is_told_of_its_directory_alone(tmp_path: Path) -> None:
    dirs, disk = stage(tmp_path)
    disk.fail("replace", f"*/a/{RECOVERY_POINTS}", 24)
    lowered = dirs.logs.lower({T0: Bounds(4, 0), T1: Bounds(4, 0)})
    assert list(lowered.errors) == [T0] and isinstance(lowered.errors[T0], NoDescriptor)
    assert said(dirs, RECOVERY_POINTS, 1) == {T1: 4}
    dirs.logs.lift(lowered)


def test_a_log_of_the_name_of_one_that_was_removed(tmp_path: Path) -> None:
    """Its promises are forgotten with it: nothing is to be written for it on the loop."""
    dirs, disk = stage(tmp_path)
    dirs.logs.logs[T0].move_start(3)
    dirs.logs.checkpoint_start_offsets()
    assert said(dirs, START_OFFSETS) == {T0: 3}
    dirs.logs.remove(T0, UUID(int=1), sync=False)
    dirs.logs.settle_removals()
    assert all(not said(dirs, name) for name in (RECOVERY_POINTS, HIGH_WATERMARKS, START_OFFSETS))
    before = len(disk.calls)
    fresh = dirs.logs.fresh(T0, UUID(int=8), dirs.logs.logs[T1].config)
    assert len(disk.calls) == before, "the loop asks for no file"
    dirs.logs.make([fresh], sync=True)
    dirs.logs.begin(fresh)
    put(dirs.logs.logs[T0], b"new")
    assert dirs.reopen().end_offset == 1
    assert not dirs.doubts


def test_a_log_that_is_made_before_the_removal_was_settled(tmp_path: Path) -> None:
    dirs, _ = stage(tmp_path)
    dirs.logs.remove(T0, UUID(int=1), sync=False)
    dirs.create(0)
    assert all(not said(dirs, name).get(T0) for name in (RECOVERY_POINTS, HIGH_WATERMARKS))
    dirs.logs.settle_removals()
    put(dirs.logs.logs[T0], b"new")
    dirs.logs.logs[T0].flush()
    dirs.logs.checkpoint_recovery_points()
    assert said(dirs, RECOVERY_POINTS) == {T0: 1}
    assert checkpoints.read_offsets(dirs.disk, f"{dirs.paths[1]}/{RECOVERY_POINTS}") == {T1: 10}  # type: ignore[arg-type]


def test_a_cleaning_of_a_log_that_is_gone_promises_nothing_of_the_next_of_its_name(tmp_path: Path) -> None:
    dirs, _ = stage(tmp_path)
    gone = dirs.logs.logs[T0]
    dirs.logs.remove(T0, UUID(int=1))
    dirs.create(0)
    assert not dirs.logs.promise_flushed(gone, 10)
    assert said(dirs, RECOVERY_POINTS).get(T0, 0) == 0


def torn(dirs: Dirs) -> None:
    """The process is killed, and of the ten records of the first log six are left."""
    (path,) = Path(dirs.logs.logs[T0].directory).glob("*.log")
    size = path.stat().st_size
    dirs.logs.close(clean=False)
    os.truncate(path, size * 6 // 10)


@pytest.mark.parametrize("name", [HIGH_WATERMARKS, RECOVERY_POINTS, CLEANER_OFFSETS])
def test_a_start_that_finds_less_than_was_promised_promises_less(tmp_path: Path, name: str) -> None:
    """A kill before the next checkpoint would have made the old watermark that of later records."""
    dirs, _ = stage(tmp_path)
    for partition in (T0, T1):
        assert dirs.logs.cleaned.note(partition, 10, 0)
    assert said(dirs, name)[T0] == 10
    torn(dirs)
    dirs.logs = dirs.open()
    assert dirs.logs.logs[T0].end_offset == 6
    assert said(dirs, name)[T0] == 6 and said(dirs, name, 1)[T1] == 10
    assert dirs.logs.cleaned.get(T0) == 6


def test_a_start_without_room_for_less_says_so_and_goes_on(tmp_path: Path) -> None:
    dirs, disk = stage(tmp_path)
    torn(dirs)
    disk.fail("replace", f"*/{HIGH_WATERMARKS}", errno.ENOSPC)
    dirs.logs = dirs.open()
    assert dirs.logs.logs[T0].end_offset == 6 and not dirs.logs.places.offline


@pytest.mark.parametrize("call", ["read", "replace"])
def test_a_start_that_cannot_promise_less_uses_no_log_of_that_disk(tmp_path: Path, call: str) -> None:
    """The directory is offline from then on, so what fails there later would concern nobody."""
    dirs, disk = stage(tmp_path)
    torn(dirs)
    disk.fail(call, f"{dirs.paths[0]}/{HIGH_WATERMARKS}", after=call == "read")
    dirs.open()
    assert list(dirs.logs.places.offline) == [dirs.paths[0]]
    assert list(dirs.logs.logs) == [T1] and not dirs.logs.holds(T0)


def test_what_is_opened_when_there_is_room_promises_no_more_than_there_is(tmp_path: Path) -> None:
    dirs, _ = stage(tmp_path)
    torn(dirs)
    dirs.logs = dirs.open()
    promises = dirs.logs._promises
    promises.high_watermarks[T0] = 10
    promises.keep_below([dirs.logs.logs[T0]])
    assert said(dirs, HIGH_WATERMARKS)[T0] == promises.high_watermarks[T0] == 6


def removed_and_killed(root: Path) -> Dirs:
    """A log that began at 8 was removed, and the process killed before its checkpoints had forgotten it."""
    dirs, _ = stage(root)
    dirs.logs.logs[T0].move_start(8)
    dirs.logs.checkpoint_start_offsets()
    assert dirs.logs.cleaned.note(T0, 9, 0)
    dirs.logs.remove(T0, UUID(int=1), sync=False)
    dirs.logs.close(clean=False)
    return dirs


@pytest.mark.parametrize("name", [HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS, CLEANER_OFFSETS])
def test_a_start_forgets_what_was_said_of_logs_that_are_gone(tmp_path: Path, name: str) -> None:
    dirs = removed_and_killed(tmp_path)
    assert said(dirs, name)[T0] > 0
    others = said(dirs, name, 1)
    dirs.open()
    assert T0 not in said(dirs, name) and said(dirs, name, 1) == others


def test_the_next_log_of_a_name_loses_nothing_by_what_was_said_of_the_last(tmp_path: Path) -> None:
    """Killed before its first checkpoint it would have begun at 8, and what it held been set aside."""
    dirs = removed_and_killed(tmp_path)
    dirs.open()
    put(dirs.create(0), b"new")
    log = dirs.reopen()
    assert (log.start_offset, log.end_offset) == (0, 1) and dirs.doubts == []
    assert dirs.logs.high_watermarks[T0] <= 1 and dirs.logs.cleaned.get(T0) is None


def test_what_was_said_of_a_log_that_waits_for_room_stands(tmp_path: Path) -> None:
    """Nobody knows how much of it there is."""
    dirs, disk = stage(tmp_path)
    torn(dirs)
    disk.fail("listdir", f"{dirs.paths[0]}/t-0", errno.EMFILE)
    dirs.open()
    assert dirs.logs.closed == {T0}
    assert said(dirs, HIGH_WATERMARKS) == said(dirs, RECOVERY_POINTS) == {T0: 10}
