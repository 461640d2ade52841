"""What is on the medium: flushes overtaken by whatever happens to a log, and what a power loss leaves."""

import errno
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from strandline.simulation.environment.disk import SimDisk
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import DiskFailed, File, NoDescriptor, RealDisk
from strandline.storage.log.flush import Flush
from strandline.storage.log.log import Log
from tests.storage.conftest import T0, FixedClock, Place, put


def begun(log: Log, *values: bytes) -> Flush:
    """Records, and a flush of them that has not run yet."""
    for value in values:
        put(log, value)
    return log.begin_flush()


def ended(log: Log, flush: Flush) -> int:
    flush.run()
    log.end_flush(flush)
    return log.flushed_offset


def test_what_came_after_the_beginning_does_not_count(place: Place) -> None:
    flush = begun(place.log, b"a", b"b")
    put(place.log, b"c")
    assert ended(place.log, flush) == 2
    assert ended(place.log, place.log.begin_flush()) == 3


def test_two_flushes_may_overlap_and_the_earlier_one_takes_nothing_back(place: Place) -> None:
    first = begun(place.log, b"a")
    second = begun(place.log, b"b")
    assert ended(place.log, second) == 2
    assert ended(place.log, first) == 2


def test_a_flush_that_was_overtaken_by_a_cut_claims_nothing(place: Place) -> None:
    assert ended(place.log, begun(place.log, b"a")) == 1
    flush = begun(place.log, b"b", b"c")
    place.log.truncate_to(2)
    put(place.log, b"d")
    assert ended(place.log, flush) == 1
    assert ended(place.log, place.log.begin_flush()) == 3
    place.log.truncate_to(2)
    assert place.log.flushed_offset == 2, "what stays was flushed before"


def test_a_flush_that_was_overtaken_by_a_new_beginning_claims_nothing(place: Place) -> None:
    flush = begun(place.log, *[b"x" * 300] * 9)
    place.log.restart_at(5)
    assert ended(place.log, flush) == 5
    assert ended(place.log, begun(place.log, b"a")) == 6


def test_a_roll_during_a_flush(place: Place) -> None:
    flush = begun(place.log, b"a")
    place.log.roll(0)
    put(place.log, b"b")
    assert ended(place.log, flush) == 1
    assert place.log.sealed_is_flushed
    assert ended(place.log, place.log.begin_flush()) == 2


def test_closed_segments_are_flushed_by_themselves(place: Place) -> None:
    for _ in range(9):
        put(place.log, b"x" * 300)
    assert not place.log.sealed_is_flushed
    active = place.log.segments[-1].base_offset
    assert 0 < active < 9
    assert ended(place.log, place.log.begin_flush(sealed_only=True)) == active
    assert place.log.sealed_is_flushed


def test_retention_during_a_flush_is_no_failure(place: Place) -> None:
    flush = begun(place.log, *[b"x" * 300] * 9)
    gone = place.log.retire(2, 0)
    for path in gone:
        place.disk.unlink(path)
    assert ended(place.log, flush) == 9
    assert not place.log.failed


@pytest.mark.parametrize("purged", [False, True])
def test_deletion_during_a_flush_is_no_failure(place: Place, purged: bool) -> None:
    log = place.log
    flush = begun(log, *[b"x" * 300] * 9)
    target = place.logs.remove(T0, UUID(int=1))
    if purged:
        place.disk.rmtree(target)
    place.logs.create(T0, None, TopicConfig.of(place.config))
    assert ended(log, flush) == 0
    assert not log.failed


def test_a_segment_that_vanished_is_a_failure(place: Place) -> None:
    flush = begun(place.log, *[b"x" * 300] * 9)
    place.file("00000000000000000000.log").unlink()
    with pytest.raises(DiskFailed):
        ended(place.log, flush)


class Counting(RealDisk):
    """Counts what is opened and which directories are synced; fails when told."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.synced: list[str] = []
        self.fault: tuple[str, int] = ("", 0)  # of which call, and how

    def open(self, path: str, create: bool = False) -> File:
        self.opened.append(path)
        self.check("open")
        return CountingFile(super().open(path, create), self)  # type: ignore[return-value]

    def sync_dir(self, path: str) -> None:
        self.synced.append(path)
        super().sync_dir(path)

    def check(self, call: str) -> None:
        if self.fault[0] == call:
            raise OSError(self.fault[1], "injected")


class CountingFile:
    """A file on such a disk."""

    def __init__(self, file: File, disk: Counting) -> None:
        self.file, self.disk = file, disk

    def sync(self) -> None:
        self.disk.check("sync")
        self.file.sync()

    def share(self) -> "CountingFile":
        self.disk.check("share")
        return CountingFile(self.file.share(), self.disk)

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)


@pytest.fixture
def counted(tmp_path: Path) -> Place:
    """A place on such a disk, with one record."""
    here = Place(tmp_path / "counted", segment_bytes=1000, index_interval_bytes=100)
    here.die()
    here.disk = Counting()
    here.start()
    put(here.log, b"a")
    return here


def test_files_are_not_opened_and_directories_not_synced_without_need(counted: Place) -> None:
    disk, log = counted.disk, counted.log
    assert isinstance(disk, Counting)
    ended(log, log.begin_flush())
    disk.opened.clear()
    disk.synced.clear()
    assert ended(log, begun(log, b"b")) == 2
    assert (disk.opened, disk.synced) == ([], []), "the second flush finds a file that is open, and no news"
    put(log, b"c", epoch=1)
    ended(log, log.begin_flush())
    assert [Path(path).name for path in disk.opened] == ["leader-epoch-checkpoint"]
    assert disk.synced == [log.directory]
    log.roll(0)
    disk.synced.clear()
    put(log, b"d", epoch=1)
    ended(log, log.begin_flush())
    assert disk.synced == [log.directory], "the new segment has a name there"
    counted.die()


def test_a_failed_sync_is_never_tried_again(counted: Place) -> None:
    disk, log = counted.disk, counted.log
    assert isinstance(disk, Counting)
    before = log.flushed_offset
    disk.fault = ("sync", errno.EIO)
    with pytest.raises(DiskFailed):
        log.flush()
    disk.fault = ("", 0)
    assert log.failed
    assert log.flushed_offset == before
    with pytest.raises(DiskFailed):
        put(log, b"b")
    counted.die()


@pytest.mark.parametrize("call", ["share", "open"])
def test_without_a_descriptor_nothing_is_claimed_and_nothing_is_broken(counted: Place, call: str) -> None:
    disk, log = counted.disk, counted.log
    assert isinstance(disk, Counting)
    log.roll(0)
    put(log, b"b")
    before = log.flushed_offset
    disk.fault = (call, errno.EMFILE)
    with pytest.raises(NoDescriptor):
        log.flush()
    disk.fault = ("", 0)
    assert (log.failed, log.flushed_offset) == (False, before)
    log.flush()
    assert log.flushed_offset == 2
    counted.die()


# Power.


def opened(disk: SimDisk, same_boot: bool = False) -> Log:
    """As a broker finds it that starts after a power loss."""
    config = StorageConfig(segment_bytes=1000, index_interval_bytes=100)
    disk.mkdir("/data")
    logs = Logs.open(
        ["/data"], disk, config, FixedClock(), clean=False, before_loss=lambda *_: None, same_boot=same_boot
    )
    return logs.create(T0, None, TopicConfig.of(config))


def cut_off(log: Log) -> None:
    log.truncate_to(log.end_offset - 2)
    put(log, b"another", epoch=3)


HISTORIES: dict[str, Callable[[Log], object]] = {
    "in the segment that grows": lambda log: put(log, b"a"),
    "in closed segments": lambda log: [put(log, b"x" * 300) for _ in range(9)],
    "of two epochs": lambda log: [put(log, b"x", epoch=epoch) for epoch in (1, 1, 2)],
    "after a cut": lambda log: [put(log, b"a"), put(log, b"b"), log.flush(), cut_off(log)],
    "after a new beginning": lambda log: [put(log, b"a"), log.flush(), log.restart_at(7), put(log, b"b")],
}


@pytest.mark.parametrize("keep", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("history", HISTORIES)
def test_what_was_flushed_survives_a_power_loss(history: str, keep: float) -> None:
    disk = SimDisk()
    log = opened(disk)
    HISTORIES[history](log)
    log.flush()
    safe, epochs = log.flushed_offset, list(log.epochs.entries)
    held = b"".join(map(bytes, log.read(log.start_offset, 1 << 20, safe).parts))
    assert safe == log.end_offset
    for _ in range(5):
        put(log, b"y" * 200, epoch=9)
    disk.lose_power(keep)
    again = opened(disk)
    assert again.end_offset >= safe
    assert b"".join(map(bytes, again.read(again.start_offset, 1 << 20, safe).parts)) == held
    assert [entry for entry in again.epochs.entries if entry[0] < 9] == epochs
    if keep == 0.0:
        assert again.end_offset == safe, "and only that"


def test_a_disk_that_keeps_nothing_loses_what_was_not_flushed() -> None:
    disk = SimDisk()
    log = opened(disk)
    put(log, b"a")
    disk.lose_power(0.0)
    assert opened(disk).end_offset == 0


@pytest.mark.parametrize(("settings", "end"), [(b"", 3), (b'{"config":{"unheard_of":1},"gaps":true}', 9)])
def test_a_hole_is_a_loss_where_the_settings_are_torn_by_the_power_failure(settings: bytes, end: int) -> None:
    disk = SimDisk()
    log = opened(disk)
    for _ in range(9):
        put(log, b"x" * 300)
    log.flush()
    bases = [segment.base_offset for segment in log.segments]
    assert bases[:3] == [0, 2, 4]
    whole = disk.files["/data/t-0/00000000000000000002.log"]
    whole.data = whole.data[: len(whole.data) // 2]
    disk.replace("/data/t-0/topic-config.json", settings)
    for name in [*disk.files]:
        if name.endswith("index"):
            disk.unlink(name)
    assert opened(disk, same_boot=True).end_offset == end
    assert opened(disk).end_offset == 3, "after another boot it is one in any case"
