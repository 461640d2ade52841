"""All segment files of a broker are held open under one bound."""

import contextlib
import errno
import os
from pathlib import Path

import pytest

from strandline.protocol.records import iterate
from strandline.storage.disk import NoDescriptor
from strandline.storage.segment.open_files import OpenSegments
from tests.storage.bare_log import BareLog
from tests.storage.faulty_disk import FaultyDisk


def held() -> int:
    """Descriptors of .log files that this process has."""
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            count += os.readlink(f"/proc/self/fd/{name}").endswith(".log")
    return count


def test_segments_that_grow_give_their_files_back_too(tmp_path: Path) -> None:
    opened, before = OpenSegments(100, files_max=5), held()
    logs = [BareLog(tmp_path / f"t-{place}", opened) for place in range(30)]
    for turn in range(4):
        for bare in logs:
            assert bare.put(b"x") == turn
            assert held() - before <= 5
    assert opened.open_files <= 5
    for bare in logs:
        assert bytes(bare.log.read(0, 1 << 20, 4))
        bare.log.truncate_to(2)
        bare.log.close()
    assert held() == before and opened.open_files == 0


def test_files_in_use_are_spared(tmp_path: Path) -> None:
    opened = OpenSegments(100, files_max=4)
    busy, *others = [BareLog(tmp_path / f"t-{place}", opened) for place in range(20)]
    file = busy.log.segments[-1].file
    for bare in others:
        busy.put(b"x")
        bare.put(b"x")
    assert busy.log.segments[-1].file is file


def test_closed_segments_are_bounded_apart(tmp_path: Path) -> None:
    opened = OpenSegments(2, files_max=50)
    bare = BareLog(tmp_path / "t-0", opened, segment_bytes=200)
    bare.fill(20)
    for offset in range(20):
        assert bytes(bare.log.read(offset, 1, 20))
    assert sum(segment.held for segment in bare.log.segments) <= 3
    assert sum(segment.indexes.held for segment in bare.log.segments) <= 3


def test_a_log_outlives_a_moment_without_descriptors(tmp_path: Path) -> None:
    disk, opened = FaultyDisk(), OpenSegments(100, files_max=1)
    log, other = (BareLog(tmp_path / f"t-{place}", opened, disk) for place in range(2))
    log.put(b"before")
    other.put(b"x")  # it has the only descriptor now
    fault = disk.fail("open", "*/t-0/*.log", errno.EMFILE)
    with pytest.raises(NoDescriptor):
        log.put(b"lost")
    assert not log.log.failed and log.log.end_offset == 1
    disk.heal(fault)
    assert log.put(b"after") == 1
    read = iterate(bytes(log.log.read(0, 1 << 20, 2)))
    assert [bytes(r.value or b"") for r in read] == [b"before", b"after"]
