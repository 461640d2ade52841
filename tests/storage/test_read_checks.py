"""What a read hands out begins with the batch that holds the offset, and its batches continue each other:
a flipped base offset, length, magic or epoch, which no checksum covers, is found and never served.
"""

import os
from pathlib import Path
from struct import pack

import pytest

from strandline.protocol.batches import headers
from strandline.storage.disk import DiskError, LogDamaged
from strandline.storage.segment.segment import Segment
from tests.storage.bare_log import BareLog

COUNT = 30
FIELDS = {
    "base offset, a low bit": (7, 0x01),
    "base offset, a high bit": (0, 0x40),
    "length, shorter": (11, 0x40),
    "length, longer": (10, 0x10),
    "length, negative": (8, 0x80),
    "epoch": (14, 0x01),
    "magic": (16, 0x01),
    "last offset delta": (26, 0x02),
}


def sealed(tmp_path: Path, **settings: int) -> BareLog:
    """Two closed segments and one that grows; indexes on the disk only."""
    bare = BareLog(tmp_path / "t-0", segment_bytes=2400, index_interval_bytes=400, **settings)
    bare.fill(COUNT)
    bare.reopen()
    assert len(bare.log.segments) == 3
    return bare


def flip(segment: Segment, position: int, bit: int) -> None:
    with open(segment.path(".log"), "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ bit]))


@pytest.mark.parametrize("batch", [0, 1, 5, 10, 13])
@pytest.mark.parametrize("name", FIELDS)
def test_a_flipped_header_is_never_served(tmp_path: Path, name: str, batch: int) -> None:
    bare = sealed(tmp_path)
    segment = bare.log.segments[0]
    whole = bytes(bare.log.read(0, 1 << 20, COUNT))
    places = [position for position, _ in headers(whole)]
    bare.reopen()
    at, bit = FIELDS[name]
    flip(bare.log.segments[0], places[batch] + at, bit)
    noticed = 0
    for offset in range(len(places)):
        for bytes_max in (1, 500, 1 << 20):
            for wait in (True, False):
                noticed += not served_rightly(bare, offset, bytes_max, wait, whole, places)
    assert noticed, "whoever reads the batch itself must be told"
    assert segment.base_offset == 0


def served_rightly(
    bare: BareLog, offset: int, bytes_max: int, wait: bool, whole: bytes, places: list[int]
) -> bool:
    """Read, and compare what comes with what was written; False if the log says that it is damaged."""
    bare.log.segments[0].release()
    bare.log.segments[0].index
    try:
        data = bytes(bare.log.read(offset, bytes_max, COUNT, wait=wait))
    except LogDamaged:
        bare.log._chain.failed = False
        return False
    assert data and data == whole[places[offset] :][: len(data)]
    return True


@pytest.mark.parametrize("entry", [0, 1, 2])
@pytest.mark.parametrize("byte", [2, 3, 6, 7])
def test_a_wrong_index_costs_a_rebuild_and_no_reader(tmp_path: Path, entry: int, byte: int) -> None:
    bare = sealed(tmp_path)
    expected = {offset: bytes(bare.log.read(offset, 1, COUNT)) for offset in range(COUNT)}
    path = Path(bare.log.segments[0].path(".index"))
    good = path.read_bytes()
    assert len(good) >= 24
    bare.reopen()
    wrong = bytearray(good)
    wrong[entry * 8 + byte] ^= 0x01
    path.write_bytes(wrong)
    for offset in range(COUNT):
        assert bytes(bare.log.read(offset, 1, COUNT)) == expected[offset], offset
    assert path.read_bytes() in (good, bytes(wrong))


def test_a_wrong_index_that_is_met_is_put_right_on_the_disk(tmp_path: Path) -> None:
    bare = sealed(tmp_path)
    path = Path(bare.log.segments[0].path(".index"))
    path.write_bytes(pack(">ii", 3, 100))
    before = bytes(bare.log.read(8, 1, COUNT))
    assert next(headers(before))[1].base_offset == 8
    size = os.path.getsize(bare.log.segments[0].path(".log"))
    assert bare.log.segments[0].index.plausible(size) and path.read_bytes() != pack(">ii", 3, 100)


def test_an_entry_that_points_behind_its_offset_is_not_believed(tmp_path: Path) -> None:
    bare = sealed(tmp_path)
    places = [position for position, _ in headers(bytes(bare.log.read(0, 1 << 20, COUNT)))]
    bare.reopen()
    Path(bare.log.segments[0].path(".index")).write_bytes(pack(">ii", 3, places[8]))
    assert next(headers(bytes(bare.log.read(5, 1, COUNT))))[1].base_offset == 5


def test_a_segment_that_ends_before_the_next_begins_is_damaged(tmp_path: Path) -> None:
    bare = sealed(tmp_path)
    first = bare.log.segments[0]
    data = Path(first.path(".log")).read_bytes()
    last = [position for position, _ in headers(data)][-1]
    first.release()
    with open(first.path(".log"), "r+b") as file:
        file.truncate(last)
    first.size = last
    with pytest.raises(DiskError):
        bare.log.read(0, 1 << 20, COUNT)


def test_a_compacted_log_may_leave_offsets_out(tmp_path: Path) -> None:
    bare = sealed(tmp_path)
    first = bare.log.segments[0]
    data = Path(first.path(".log")).read_bytes()
    places = [position for position, _ in headers(data)]
    kept = data[places[2] : places[3]] + data[places[5] : places[7]]
    first.release()
    Path(first.path(".log")).write_bytes(kept)
    Path(first.path(".index")).write_bytes(b"")
    first.size = len(kept)
    bare.log.allow_gaps()
    for offset in range(7):
        found = next(headers(bytes(bare.log.read(offset, 1, COUNT))))[1].base_offset
        assert found == (2 if offset <= 2 else max(offset, 5))


def test_an_index_of_kafkas_may_name_the_last_offset_of_a_whole_write(tmp_path: Path) -> None:
    bare = sealed(tmp_path)
    path = Path(bare.log.segments[0].path(".index"))
    places = [position for position, _ in headers(bytes(bare.log.read(0, 1 << 20, COUNT)))]
    kafkas = pack(">iiii", 6, places[4], 11, places[9])
    bare.reopen()
    path.write_bytes(kafkas)
    for offset in range(COUNT):
        assert next(headers(bytes(bare.log.read(offset, 1, COUNT))))[1].base_offset == offset
    assert path.read_bytes() == kafkas, "nothing was wrong with it"
