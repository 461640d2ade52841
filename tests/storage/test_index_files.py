"""Index entries reach their files while the segment grows, and never harm the log."""

import errno
from pathlib import Path

import pytest

from strandline.storage.disk import File, RealDisk
from strandline.storage.segment import index_files
from strandline.storage.segment.index import OffsetIndex, TimeIndex
from tests.storage.bare_log import START_MS, BareLog


def on_disk(bare: BareLog) -> tuple[OffsetIndex, TimeIndex]:
    segment = bare.log.segments[-1]
    return (
        OffsetIndex.load(Path(segment.path(".index")).read_bytes()),
        TimeIndex.load(Path(segment.path(".timeindex")).read_bytes()),
    )


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BareLog:
    monkeypatch.setattr(index_files, "GROUP_ENTRIES", 4)
    return BareLog(tmp_path / "t-0", index_interval_bytes=150)


def grow(bare: BareLog, count: int, start: int = 0) -> None:
    for place in range(start, start + count):
        bare.put(b"x" * 100, at=START_MS + place)


def test_what_is_on_the_disk_lies_at_most_a_group_behind(bare: BareLog) -> None:
    grow(bare, 100)
    offsets, times = on_disk(bare)
    memory = bare.log.segments[-1]
    assert 0 <= len(memory.index) - len(offsets) < 4
    assert offsets.offsets == memory.index.offsets[: len(offsets)]
    assert times.times == memory.times.times[: len(times)] and len(times) == len(offsets)


def test_large_batches_do_not_wait_for_a_whole_group(tmp_path: Path) -> None:
    bare = BareLog(tmp_path / "t-0")
    for _ in range(5):
        bare.put(b"x" * 1_200_000)
    assert len(on_disk(bare)[0]) >= 3


def test_a_cut_shortens_the_files_before_the_log(bare: BareLog) -> None:
    grow(bare, 100)
    bare.log.truncate_to(40)
    offsets, times = on_disk(bare)
    memory = bare.log.segments[-1]
    assert offsets.offsets == memory.index.offsets and times.times == memory.times.times
    assert offsets.positions[-1] < memory.size
    grow(bare, 30, start=40)
    offsets, _ = on_disk(bare)
    assert len(offsets) > len(memory.index) - 4
    assert offsets.positions == memory.index.positions[: len(offsets)]
    bare.reopen()
    assert bare.log.segments[-1].indexes_plausible()
    assert bytes(bare.log.read(69, 1, 70))


class BrokenIndexes(RealDisk):
    """Writing to an index fails, in the middle of an entry."""

    fault = 0

    def open(self, path: str, create: bool = False) -> File:
        file = super().open(path, create)
        if "index" in path and self.fault:
            file.pwrite(file.size(), b"\x00\x01\x02")
            file.close()
            raise OSError(self.fault, "injected", path)
        return file


@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
def test_an_index_that_cannot_be_written_never_fails_an_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    monkeypatch.setattr(index_files, "GROUP_ENTRIES", 4)
    disk = BrokenIndexes()
    bare = BareLog(tmp_path / "t-0", disk=disk, index_interval_bytes=150)
    grow(bare, 20)
    disk.fault = fault
    grow(bare, 30, start=20)
    assert bare.log.end_offset == 50 and not bare.log.failed
    assert bytes(bare.log.read(49, 1, 50))
    disk.fault = 0
    grow(bare, 30, start=50)
    offsets, times = on_disk(bare)
    memory = bare.log.segments[-1]
    assert offsets.offsets == memory.index.offsets[: len(offsets)] and len(memory.index) - len(offsets) < 8
    assert times.times == memory.times.times[: len(times)]


def test_a_closed_segment_has_all_entries_and_its_newest_time(bare: BareLog) -> None:
    grow(bare, 30)
    index, newest = bare.log.segments[-1].index, bare.log.segments[-1].newest
    bare.log.roll(START_MS)
    closed = bare.log.segments[0]
    assert Path(closed.path(".index")).read_bytes() == index.dump()
    times = TimeIndex.load(Path(closed.path(".timeindex")).read_bytes())
    assert (times.times[-1], times.offsets[-1]) == newest


def test_time_entries_survive_their_file(tmp_path: Path) -> None:
    times = TimeIndex()
    for time, relative in ((0, 0), (5, 1), (1 << 40, 7), ((1 << 62) + 3, (1 << 31) - 1)):
        times.append(time, relative)
    data = times.dump()
    again = TimeIndex.load(data + b"torn")
    assert (again.times, again.offsets) == (times.times, times.offsets)
    assert times.dump(2) == data[24:]
