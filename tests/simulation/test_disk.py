"""What a simulated disk remembers, and what a dead process can still do to it: nothing."""

import contextvars
from random import Random

import pytest

from strandline.simulation.environment.disk import SimDisk
from strandline.simulation.environment.host import HOST, CrashedHost, Host
from strandline.storage.disk import DirectoryLocked


def test_a_process_crash_keeps_the_page_cache_and_power_loss_does_not() -> None:
    disk = SimDisk()
    disk.mkdir("/d")
    file = disk.open("/d/log", create=True)
    file.append([b"safe"])
    file.sync()
    file.append([b"-unsynced"])
    assert disk.open("/d/log").pread(0, 100) == b"safe-unsynced"
    disk.lose_power(keep=0.5)
    assert disk.read("/d/log") == b"safe-uns"
    disk.lose_power(keep=0)
    assert disk.read("/d/log") == b"safe-uns", "what stood there after the loss had reached the medium"


def test_a_dead_process_writes_nothing_and_holds_no_lock() -> None:
    disk, host = SimDisk(), Host("b1")
    disk.mkdir("/d")
    mine = contextvars.copy_context()
    mine.run(HOST.set, host)
    file = mine.run(disk.open, "/d/log", True)
    mine.run(disk.lock, "/d/.lock")
    with pytest.raises(DirectoryLocked):
        disk.lock("/d/.lock")
    host.alive = False
    with pytest.raises(CrashedHost):
        file.append([b"late"])
    with pytest.raises(CrashedHost):
        mine.run(disk.rename, "/d/log", "/d/other")
    disk.lock("/d/.lock")
    assert disk.read("/d/log") == b""


def test_folders_are_renamed_and_removed_whole() -> None:
    disk = SimDisk()
    disk.mkdir("/d/t-0")
    disk.open("/d/t-0/a.log", create=True).append([b"x"])
    disk.rename("/d/t-0", "/d/t-0.1-delete")
    assert disk.listdir("/d") == ["t-0.1-delete"] and disk.read("/d/t-0.1-delete/a.log") == b"x"
    disk.rmtree("/d/t-0.1-delete")
    assert disk.listdir("/d") == []
    with pytest.raises(FileNotFoundError):
        disk.open("/nowhere/file", create=True)


def test_a_cruel_power_loss_takes_back_what_no_sync_has_made_sure() -> None:
    outcomes = set()
    for seed in range(60):
        disk = SimDisk()
        disk.mkdir("/d")
        disk.replace("/d/old", b"safe")
        file = disk.open("/d/old")
        file.truncate(2)
        disk.rename("/d/old", "/d/new")
        disk.unlink("/d/new")
        disk.lose_power(0.0, Random(seed))
        outcomes.add(tuple((name, disk.read(f"/d/{name}")) for name in disk.listdir("/d")))
    assert outcomes == {(("old", b"safe"),), (("old", b"sa"),), (("new", b"sa"),), ()}, "in their order"


def test_what_was_synced_stays_and_brings_along_what_came_before() -> None:
    for seed in range(30):
        disk = SimDisk()
        disk.mkdir("/d/e")
        file = disk.open("/d/e/log", create=True)
        file.append([b"safe"])
        file.sync()
        disk.sync_dir("/d/e")
        file.append([b"x" * 500])
        disk.lose_power(1.0, Random(seed))
        assert disk.read("/d/e/log").startswith(b"safe")


def test_a_file_tells_when_it_was_written_to() -> None:
    disk, now = SimDisk(), 7
    disk.wall_ms = lambda: now
    disk.mkdir("/data")
    file = disk.open("/data/x", create=True)
    assert disk.modified_ms("/data/x") == 7
    now = 8
    file.append((b"abc",))
    now = 9
    file.pread(0, 3)
    file.sync()
    assert disk.modified_ms("/data/x") == 8
    file.truncate(1)
    assert disk.modified_ms("/data/x") == 9
