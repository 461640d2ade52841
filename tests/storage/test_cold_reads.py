"""Reads that would wait for the medium are refused, brought into memory by a thread, and asked again."""

import errno
import os
from pathlib import Path
from subprocess import run

import pytest

from strandline.protocol.batches import headers
from strandline.storage.disk import File, LogDamaged, NotResident, RealDisk, RealFile
from strandline.storage.file_systems import RAMFS, TMPFS, lies_in_memory
from strandline.storage.log.uncached_read import ReadApart
from strandline.storage.segment.not_resident import Cold
from tests.storage.bare_log import BareLog


class Colder:
    """A file of which nothing is in memory until it is read the other way."""

    def __init__(self, file: File, resident: set[int]) -> None:
        self.file = file
        self.resident = resident

    def pread(self, position: int, size: int) -> bytes:
        data = self.file.pread(position, size)
        self.resident.update(range(position // 64, (position + len(data)) // 64 + 1))
        return data

    def pread_now(self, position: int, size: int) -> bytes:
        size = min(size, self.file.size() - position)
        if not all(block in self.resident for block in range(position // 64, (position + size) // 64 + 1)):
            raise NotResident(position, size)
        return self.file.pread(position, size)

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)


class ColdDisk(RealDisk):
    """A disk whose files are cold when they are opened for the first time, and whenever one likes."""

    def __init__(self) -> None:
        self.resident: dict[str, set[int]] = {}

    def open(self, path: str, create: bool = False) -> File:
        return Colder(super().open(path, create), self.resident.setdefault(path, set()))  # type: ignore[return-value]

    def forget(self) -> None:
        for blocks in self.resident.values():
            blocks.clear()


def ask(bare: BareLog, offset: int, bytes_max: int = 1 << 20) -> bytes:
    """Read without waiting, as the broker does; how often it had to ask again stands in `bare.asked`."""
    for asked in range(4):
        try:
            found = bytes(bare.log.read(offset, bytes_max, bare.log.end_offset, wait=False))
        except Cold as cold:
            cold.warm()
            cold.settle()
        else:
            bare.asked = asked  # type: ignore[attr-defined]
            return found
    raise AssertionError("it stays cold")


def test_a_cold_read_is_refused_and_succeeds_once_a_thread_has_read(tmp_path: Path) -> None:
    disk = ColdDisk()
    bare = BareLog(tmp_path / "t-0", disk=disk)
    bare.fill(100)
    with pytest.raises(Cold):
        bare.log.read(0, 1 << 20, 100, wait=False)
    disk.forget()
    data = ask(bare, 0)
    assert bare.asked == 1  # type: ignore[attr-defined]
    assert [header.base_offset for _, header in headers(data)] == list(range(100))
    assert data == bytes(bare.log.read(0, 1 << 20, 100))


def test_a_closed_segment_is_opened_and_its_index_loaded_in_the_thread(tmp_path: Path) -> None:
    bare = BareLog(tmp_path / "t-0", disk=ColdDisk(), segment_bytes=4000, index_interval_bytes=200)
    bare.fill(100)
    bare.reopen()
    first = bare.log.segments[0]
    assert len(bare.log.segments) > 2 and not first.indexes.loaded
    data = ask(bare, 5)
    assert bare.asked == 1 and first.indexes.loaded  # type: ignore[attr-defined]
    assert next(headers(data))[1].base_offset == 5


def test_what_a_thread_brings_for_a_segment_that_was_cut_is_not_used(tmp_path: Path) -> None:
    bare = BareLog(tmp_path / "t-0", segment_bytes=4000, index_interval_bytes=200)
    bare.fill(100)
    bare.reopen()
    with pytest.raises(Cold) as caught:
        bare.log.read(5, 1 << 20, 100, wait=False)
    caught.value.warm()
    bare.log.truncate_to(7)
    kept = len(bare.log.segments[0].index)
    caught.value.settle()
    assert len(bare.log.segments[0].index) == kept
    bare.fill(3, size=700)
    assert [h.base_offset for _, h in headers(ask(bare, 5))] == [5, 6, 7, 8, 9]


def test_a_segment_that_vanishes_meanwhile_is_no_failure(tmp_path: Path) -> None:
    bare = BareLog(tmp_path / "t-0", segment_bytes=4000)
    bare.fill(100)
    bare.reopen()
    with pytest.raises(Cold) as caught:
        bare.log.read(5, 1 << 20, 100, wait=False)
    bare.log.retire(1, 0)
    for path in (tmp_path / "t-0").glob("*deleted"):
        path.unlink()
    caught.value.warm()
    caught.value.settle()
    assert not bare.log.failed


def test_the_page_cache_is_asked_and_not_the_medium(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    file = RealFile(path, create=True)
    file.append((b"x" * 10_000,))
    assert bytes(file.pread_now(9_000, 5_000)) == b"x" * 1_000
    assert bytes(file.pread_now(20_000, 5)) == b""
    file.close()


@pytest.mark.parametrize("in_memory", [True, False], ids=["tmpfs", "another"])
def test_a_file_system_that_cannot_say_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_memory: bool
) -> None:
    def unknown(*_: object) -> int:
        raise OSError(errno.EOPNOTSUPP, "RWF_NOWAIT is unknown")

    monkeypatch.setattr("os.preadv", unknown)
    monkeypatch.setattr("strandline.storage.disk.lies_in_memory", lambda fd: in_memory)
    file = RealFile(str(tmp_path / "file"), create=True)
    file.append((b"x" * 100,))
    if in_memory:
        assert file.pread_now(90, 50) == b"x" * 10
    else:
        with pytest.raises(NotResident) as told:
            file.pread_now(90, 50)
        assert told.value.is_blind
    file.close()


def test_tmpfs_is_known_by_its_type(tmp_path: Path) -> None:
    fd = os.memfd_create("in memory")
    assert lies_in_memory(fd)
    os.close(fd)
    with (tmp_path / "file").open("w") as file:
        told = run(["stat", "-f", "-c", "%t", file.name], capture_output=True, text=True, check=True).stdout
        assert lies_in_memory(file.fileno()) is (int(told, 16) in (TMPFS, RAMFS))


def apart(bare: BareLog, offset: int, bytes_max: int = 1 << 20) -> ReadApart:
    """What a thread has read, as it stands after that."""
    made = bare.log.apart(offset, bytes_max, bare.log.end_offset)
    assert made.found is None
    made.warm()
    made.settle()
    return made


def still_holds(bare: BareLog, read: ReadApart) -> bool:
    return bare.log.apart(read.offset, 1, bare.log.end_offset, read) is read


def test_a_read_apart_is_the_read_that_the_loop_would_have_made(tmp_path: Path) -> None:
    bare = BareLog(tmp_path / "t-0", segment_bytes=4000, index_interval_bytes=200)
    bare.fill(100)
    bare.reopen()
    for offset in range(100):
        for bytes_max in (0, 500, 1 << 20):
            expected = bytes(bare.log.read(offset, bytes_max, 100))
            assert bytes(apart(bare, offset, bytes_max).found or b"") == expected


@pytest.mark.parametrize("change", ["cut", "restart", "retire", "close"])
def test_a_read_apart_of_a_log_that_has_changed_is_not_served(tmp_path: Path, change: str) -> None:
    bare = BareLog(tmp_path / "t-0", segment_bytes=4000)
    bare.fill(100)
    offset = bare.log.segments[0].base_offset
    whole = apart(bare, offset)
    assert still_holds(bare, whole)
    bare.fill(50)
    assert still_holds(bare, whole), "what comes behind it changes nothing"
    late = bare.log.apart(offset, 1 << 20, bare.log.end_offset)
    {
        "cut": lambda: bare.log.truncate_to(3),
        "restart": lambda: bare.log.restart_at(1000),
        "retire": lambda: bare.log.retire(1, 0),
        "close": lambda: bare.log.abandon(),
    }[change]()
    late.warm()
    late.settle()
    assert late.error is None and not bare.log.failed, "that it fails now says nothing of the disk"
    for read in (whole, late):
        assert not read.holds(bare.log._chain, offset, 150)


def test_a_read_apart_that_finds_damage_or_a_failing_disk_says_so(tmp_path: Path) -> None:
    bare = BareLog(tmp_path / "t-0")
    bare.fill(10)
    path = tmp_path / "t-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[:-200] + bytes(200))
    assert isinstance(apart(bare, 0).error, LogDamaged) and bare.log.damaged


def test_a_read_apart_goes_on_where_a_compacted_segment_has_nothing_left(tmp_path: Path) -> None:
    bare = BareLog(tmp_path / "t-0", segment_bytes=4000)
    bare.fill(60)
    first, second = bare.log.segments[:2]
    first.cut(first.locate(5)[0], 5)  # type: ignore[index]
    bare.log.allow_gaps()
    assert next(headers(bytes(apart(bare, 7).found or b"")))[1].base_offset == second.base_offset


def test_a_read_apart_ends_where_the_log_did_when_it_was_asked_for(tmp_path: Path) -> None:
    bare = BareLog(tmp_path / "t-0")
    bare.fill(10)
    expected = bytes(bare.log.read(0, 1 << 20, 10))
    read = bare.log.apart(0, 1 << 20, 10)
    bare.fill(5)
    read.warm()
    read.settle()
    assert read.error is None and bytes(read.found or b"") == expected
