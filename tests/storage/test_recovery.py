"""What a log is after its process or its disk has done something to it."""

from pathlib import Path
from uuid import UUID

import pytest

from strandline.protocol.batches import read_header
from strandline.storage.log import checkpoints
from strandline.storage.log.log import Log
from strandline.storage.quarantine import Aside
from tests.storage.conftest import T0, Place, make_batch, put


def fill(place: Place, count: int = 12) -> bytes:
    """Batches of one record, several segments of them; returns all bytes of the log."""
    for n in range(count):
        put(place.log, b"%03d" % n * 40, epoch=n // 5, pid=9, seq=n)
    return everything(place.log)


def everything(log: Log) -> bytes:
    data, offset = b"", log.start_offset
    while offset < log.end_offset:
        part = bytes(log.read(offset, 1 << 20, log.end_offset))
        assert part
        data += part
        while part:
            header = read_header(part)
            offset, part = header.next_offset, part[header.size :]
    return data


def last_file(place: Place) -> Path:
    return max(place.file("").glob("*.log"))


def test_kill_leaves_everything_that_was_appended(place: Place) -> None:
    before = fill(place)
    entries, snapshot = list(place.log.epochs.entries), place.log.producers.snapshot()
    place.die()
    log = place.start()
    assert everything(log) == before
    assert log.epochs.entries == entries == [(0, 0), (1, 5), (2, 10)]
    assert log.producers.snapshot() == snapshot
    assert not place.logs.recovered[0].lost
    assert log.flushed_offset == 12, "a start brings what it found to the medium"


def test_five_batches_of_a_producer_are_known_after_a_kill(place: Place) -> None:
    fill(place, 12)
    place.die()
    log = place.start()
    again = read_header(make_batch(b"x", pid=9, seq=10))
    duplicate = log.producers.check(again)
    assert duplicate is not None
    assert duplicate.base_offset == 10


@pytest.mark.parametrize("kept", [1, 11, 12, 60, 61, 100])
def test_a_torn_tail_is_cut_and_is_no_loss(place: Place, kept: int) -> None:
    before = fill(place)
    place.die()
    file = last_file(place)
    file.write_bytes(file.read_bytes() + make_batch(b"y" * 200, base=12, epoch=2)[:kept])
    assert everything(place.start()) == before
    assert place.logs.recovered[0].torn_bytes == kept
    assert place.doubts == []


def test_a_flipped_byte_before_good_batches_is_a_loss_that_is_noted_and_kept_aside(place: Place) -> None:
    before = fill(place)
    place.die()
    first = min(place.file("").glob("*.log"))
    data = bytearray(first.read_bytes())
    size = read_header(data).size
    data[size + 70] ^= 1  # the second batch
    first.write_bytes(data)
    log = place.start()
    assert log.end_offset == 1
    assert everything(log) == before[:size]
    assert len(place.doubts) == 1
    assert "checksum" in place.doubts[0]
    (removal,) = Aside(place.disk, place.root).all(T0)
    kept = b"".join(path.read_bytes() for path in sorted(Path(removal.path).glob("*.log*")))
    assert kept == bytes(data[size:]) + before[len(data) :]
    assert removal.removal is not None
    assert (removal.removal.from_offset, removal.removal.epochs) == (1, ((0, 1), (1, 5), (2, 10)))
    assert "checksum" in removal.removal.reason


@pytest.mark.parametrize("at", [7, 11, 12, 16])  # base offset, length, epoch, magic: outside the CRC
def test_a_flip_outside_the_checksum_is_found(place: Place, at: int) -> None:
    fill(place, 3)
    place.die()
    file = last_file(place)
    data = bytearray(file.read_bytes())
    data[read_header(data).size + at] ^= 0x80
    file.write_bytes(data)
    assert place.start().end_offset == 1
    assert len(place.doubts) == 1


def test_a_length_that_reaches_over_good_batches_is_no_torn_tail(place: Place) -> None:
    fill(place, 3)
    place.die()
    file = last_file(place)
    data = bytearray(file.read_bytes())
    data[read_header(data).size + 9] = 1  # 64 KiB more
    file.write_bytes(data)
    assert place.start().end_offset == 1
    assert "length" in place.doubts[0]


@pytest.mark.parametrize("junk", [bytes(100), b"\xff" * 100, b"GET / HTTP/1.1\r\n" * 10])
def test_garbage_at_the_end_is_cut_but_makes_doubtful(place: Place, junk: bytes) -> None:
    before = fill(place, 3)
    place.die()
    file = last_file(place)
    file.write_bytes(file.read_bytes() + junk)
    assert everything(place.start()) == before
    assert place.doubts


def test_the_note_comes_before_the_first_cut(place: Place) -> None:
    fill(place, 3)
    place.die()
    file = last_file(place)
    data = bytearray(file.read_bytes())
    data[100] ^= 1
    file.write_bytes(data)

    class Killed(BaseException):
        pass

    def killed(*_: object) -> None:
        raise Killed

    place.doubts = type("Noting", (list,), {"append": killed})()
    with pytest.raises(Killed):
        place.start()
    assert file.read_bytes() == data


def test_a_log_shorter_than_its_checkpoints_is_doubtful(place: Place) -> None:
    fill(place, 3)
    place.logs.checkpoint_high_watermarks(lambda: {T0: 3})
    place.die()
    file = last_file(place)
    file.write_bytes(file.read_bytes()[:-5])
    log = place.start()
    assert log.end_offset == 2
    assert "high watermark 3" in place.doubts[0]
    assert place.logs.high_watermarks[T0] == 2


def test_a_truncation_is_no_loss_at_the_next_start(place: Place) -> None:
    fill(place)
    place.log.flush()
    place.logs.checkpoint_recovery_points()
    place.logs.checkpoint_high_watermarks(lambda: {T0: 12})
    place.log.truncate_to(7)
    put(place.log, b"new", epoch=3)
    place.die()
    log = place.start()
    assert log.end_offset == 8
    assert log.epochs.entries == [(0, 0), (1, 5), (3, 7)]
    assert place.doubts == []


def test_a_lost_segment_in_the_middle_ends_the_log_there(place: Place) -> None:
    fill(place)
    place.die()
    files = sorted(place.file("").glob("*.log"))
    files[1].unlink()
    log = place.start()
    assert log.end_offset == int(files[1].stem)
    assert place.doubts
    assert sorted(place.file("").glob("*.log")) == files[:1]


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("harm", ["missing", "empty", "zeros", "torn", "long"])
def test_indexes_are_rebuilt(place: Place, harm: str, clean: bool) -> None:
    before = fill(place)
    place.stop()
    indexes = sorted([*place.file("").glob("*.index"), *place.file("").glob("*.timeindex")])
    good = {path: path.read_bytes() for path in indexes}
    for path in indexes:
        match harm:
            case "missing":
                path.unlink()
            case "empty":
                path.write_bytes(b"")
            case "zeros":
                path.write_bytes(good[path] + bytes(4096))
            case "torn":
                path.write_bytes(good[path][:-3])
            case _:
                path.write_bytes(good[path] + b"\x7f\xff\xff\xff" * 6)
    log = place.start(clean=clean)
    assert everything(log) == before
    for offset in range(12):
        assert read_header(bytes(log.read(offset, 1, 12))).base_offset == offset
    if harm != "empty" and not clean:
        place.stop()
        assert {path: path.read_bytes() for path in indexes} == good


@pytest.mark.parametrize("content", [None, b"", b"junk", b"0\n1\n7 99\n", b"0\n2\n0 0\n0 5\n"])
def test_the_epoch_file_is_rebuilt_epoch_zero_included(place: Place, content: bytes | None) -> None:
    fill(place)
    place.die()
    path = place.file(checkpoints.EPOCHS)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert place.start().epochs.entries == [(0, 0), (1, 5), (2, 10)]
    assert path.read_bytes() == b"0\n3\n0 0\n1 5\n2 10\n"


def test_no_epoch_reaches_over_records_that_were_deleted_and_came_back(place: Place) -> None:
    """Of an early segment the epochs are read again, of the next nobody knows them: the file begins later."""
    place.log.configure(place.log.config.model_copy(update={"cleanup_policy": "compact"}))
    for n in range(25):
        put(place.log, b"%03d" % n * 40, epoch=n // 5)
    place.log.flush()
    place.logs.checkpoint_recovery_points()
    place.log.move_start(20)
    place.die()  # before the start was written down
    assert place.start().start_offset == 0
    place.stop()
    place.file(f"{0:020d}.index").unlink()  # so that this segment is scanned
    epochs = place.start(clean=True).epochs
    assert [epochs.epoch_at(n) for n in range(25)] == [-1] * 20 + [4] * 5


@pytest.mark.parametrize(
    "name", [checkpoints.HIGH_WATERMARKS, checkpoints.RECOVERY_POINTS, checkpoints.START_OFFSETS]
)
@pytest.mark.parametrize("content", [b"", b"\x00" * 20, b"1\n0\n", b"0\n1\nt 0 x\n"])
def test_a_damaged_checkpoint_costs_a_scan_and_nothing_else(place: Place, name: str, content: bytes) -> None:
    before = fill(place)
    place.stop()
    (Path(place.root) / name).write_bytes(content)
    assert everything(place.start()) == before
    assert place.doubts == []


def test_a_clean_stop_needs_no_scan(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    before = fill(place)
    place.stop()

    def never(*_: object) -> None:
        raise AssertionError("scanned")

    monkeypatch.setattr("strandline.storage.recovery.recover_log.scan", never)
    log = place.start(clean=True)
    assert everything(log) == before
    put(log, b"more", epoch=2, pid=9, seq=12)
    assert log.end_offset == 13


@pytest.mark.parametrize("content", [b"", b"version: 1\n", b"version: 0\ntopic_id: ?\n", b"\xff"])
def test_a_damaged_topic_id_or_setting_is_asked_for_again(place: Place, content: bytes) -> None:
    before = fill(place)
    place.die()
    place.file(checkpoints.PARTITION_METADATA).write_bytes(content)
    place.file(checkpoints.TOPIC_CONFIG).write_bytes(content)
    assert everything(place.start()) == before
    assert place.log.topic_id is None
    place.log.adopt_topic_id(UUID(int=5))
    place.die()
    assert place.start().topic_id == UUID(int=5)


def test_foreign_names_are_left_alone(place: Place) -> None:
    before = fill(place)
    place.die()
    root = Path(place.root)
    for name in ("lost+found", "no-number-x", "t-01"):
        (root / name).mkdir()
    (root / "file-7").write_text("not a directory")
    (root / "t-1.0123456789abcdef0123456789abcdef-delete").mkdir()
    place.file("00000000000000000001.txt").write_text("?")
    place.file("1.log").write_text("?")
    place.file("99999999999999999999.log").touch()  # no offset is so large
    place.file(checkpoints.TOPIC_CONFIG).unlink()  # so that any gap is believed
    place.file("00000000000000000099.index").write_bytes(b"orphan")
    assert everything(place.start()) == before
    assert set(place.logs.logs) == {T0}
    assert not place.file("00000000000000000099.index").exists()
    place.purge()
    assert not (root / "t-1.0123456789abcdef0123456789abcdef-delete").exists()


def test_a_log_that_ends_before_its_start_begins_anew_there(place: Place) -> None:
    fill(place, 3)
    place.log.move_start(2)
    place.logs.checkpoint_recovery_points()
    place.die()
    checkpoints.write_offsets(place.disk, f"{place.root}/{checkpoints.START_OFFSETS}", {T0: 50})
    log = place.start()
    assert (log.start_offset, log.end_offset) == (50, 50)
    assert place.doubts
    assert put(log, b"x") == 50
