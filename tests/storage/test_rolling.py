"""When a segment is closed and the next one begun."""

import errno
import os
from pathlib import Path

import pytest

from strandline.cli.dump.command import main as dump
from strandline.protocol.batches import read_header, seal
from strandline.protocol.records import BatchBuilder
from strandline.storage.disk import DiskFull, File, RealDisk
from strandline.storage.segment.index import RELATIVE_MAX
from tests.storage.bare_log import START_MS, BareLog
from tests.storage.conftest import make_batch


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def bases(bare: BareLog) -> list[int]:
    return [segment.base_offset for segment in bare.log.segments]


def test_a_batch_that_would_pass_segment_bytes_begins_a_segment(tmp_path: Path) -> None:
    size = len(make_batch(b"x" * 100))
    exact = BareLog(tmp_path / "exact", segment_bytes=4 * size)
    exact.fill(9)
    assert bases(exact) == [0, 4, 8]
    less = BareLog(tmp_path / "less", segment_bytes=4 * size - 1)
    less.fill(9)
    assert bases(less) == [0, 3, 6]


def test_a_batch_larger_than_a_segment_stands_alone(tmp_path: Path) -> None:
    bare = BareLog(tmp_path / "t-0", segment_bytes=200)
    bare.fill(1, size=10)
    bare.fill(2, size=1000)
    bare.fill(1, size=10)
    assert bases(bare) == [0, 1, 2, 3]


def test_offsets_that_do_not_fit_an_index_entry_begin_a_segment(tmp_path: Path) -> None:
    bare = BareLog(tmp_path / "t-0")
    bare.fill(1)
    offsets = (RELATIVE_MAX, RELATIVE_MAX + 1)
    run = b"".join(bytes(make_batch(b"x", base=offset)) for offset in offsets)
    assert bare.log.append_replicated(run) == len(run), "in one write, if they went to one segment"
    assert bases(bare) == [0, RELATIVE_MAX + 1]
    for offset in (RELATIVE_MAX, RELATIVE_MAX + 1):
        assert read_header(bytes(bare.log.read(offset, 1, RELATIVE_MAX + 2))).base_offset == offset


def test_a_run_of_batches_is_cut_where_a_segment_is_full(tmp_path: Path) -> None:
    size = len(make_batch(b"x"))
    bare = BareLog(tmp_path / "t-0", segment_bytes=3 * size)
    run = b"".join(bytes(make_batch(b"x", base=offset)) for offset in range(8))
    assert bare.log.append_replicated(run) == len(run)
    assert bases(bare) == [0, 3, 6]


def test_batches_without_times_age_by_the_clock(tmp_path: Path) -> None:
    bare = BareLog(tmp_path / "t-0", segment_ms=1000)
    batch = make_batch(b"x")
    batch[27:43] = bytes([255]) * 16  # both timestamps -1
    seal(batch, 0, len(batch))
    for now, expected in ((START_MS, [0]), (START_MS + 1000, [0]), (START_MS + 1001, [0, 2])):
        bare.log.append(memoryview(bytearray(batch)), read_header(batch), 0, now)
        assert bases(bare) == expected


def test_jitter_closes_segments_earlier_and_not_all_at_once(tmp_path: Path) -> None:
    rolled = set()
    for place in range(8):
        bare = BareLog(tmp_path / f"t-{place}", segment_ms=1000, segment_jitter_ms=500)
        bare.put(b"x")
        age = next(
            ms for ms in range(400, 1100, 20) if bare.put(b"x", at=START_MS + ms) and len(bases(bare)) > 1
        )
        assert 480 <= age <= 1020
        rolled.add(age)
    assert len(rolled) > 2


class FullOfNames(RealDisk):
    """No time index can be created."""

    full = False

    def open(self, path: str, create: bool = False) -> File:
        if create and self.full and path.endswith(".timeindex") and not self.exists(path):
            raise OSError(errno.ENOSPC, "injected", path)
        return super().open(path, create)


def test_a_roll_that_finds_no_room_is_made_up_for(tmp_path: Path) -> None:
    disk = FullOfNames()
    bare = BareLog(tmp_path / "t-0", disk=disk, segment_bytes=200)
    bare.fill(1)
    disk.full, before = True, descriptors()
    for _ in range(3):
        with pytest.raises(DiskFull):
            bare.fill(1)
    assert bare.log.end_offset == 1 and not bare.log.failed
    assert descriptors() == before
    disk.full = False
    bare.fill(2)
    assert bases(bare) == [0, 1, 2]
    assert bytes(bare.log.read(1, 1, 3))


def test_the_segments_of_the_walk_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """log.segment.bytes=107370: the first segment ends with offset 5376 in the batch at position 102124, as
    descriptions print it. They name the next file by that offset; its name is its own first one, 5377."""
    at = 1531477349287
    bare = BareLog(tmp_path / "test-0", segment_bytes=107370)
    offset = 0
    for size in (*[51] * 93, 318, 54, 262, 1):
        builder = BatchBuilder()
        for number in range(offset, offset + size):
            builder.append(at, None, b"message_%d" % number, ())
        batch = bytearray(builder.build())
        bare.log.append(memoryview(batch), read_header(batch), 0, at)
        offset += size
    assert bases(bare) == [0, 5377]
    first, second = sorted((tmp_path / "test-0").glob("*.log"))
    assert (first.name, second.name) == ("00000000000000000000.log", "00000000000000005377.log")
    assert 102124 < first.stat().st_size <= 107370
    assert dump(["-files", str(first), "--print-data-log", "--format", "0.11"]) == 0
    told = [line for line in capsys.readouterr().out.splitlines() if line.startswith("offset: ")]
    assert len(told) == 5377
    assert told[-1] == (
        "offset: 5376 position: 102124 CreateTime: 1531477349287 isvalid: true keysize: -1 valuesize: 12 "
        "magic: 2 compresscodec: NONE producerId: -1 producerEpoch: -1 sequence: -1 isTransactional: false "
        "headerKeys: [] payload: message_5376"
    )
