"""What a start believes without reading it all, and what it finds wrong and mends."""

from pathlib import Path

import pytest

from strandline.protocol.batches import BASE_OFFSET, LEADER_EPOCH, LEADER_EPOCH_AT, read_header
from strandline.storage.directories.incarnation import CLEAN_MARKER, Incarnations
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import LogDamaged
from strandline.storage.log import checkpoints
from strandline.storage.log.log import Log
from strandline.storage.quarantine import Aside
from tests.storage.conftest import START_MS, T0, FixedClock, Place, make_batch, put
from tests.storage.test_recovery import everything, fill, last_file

Harm = tuple[str, bytes]


def segments(place: Place) -> list[Path]:
    return sorted(place.file("").glob("*.log"))


def flushed(place: Place) -> bytes:
    """Twelve batches in three segments, all of them on the medium, and that is written down."""
    before = fill(place)
    place.log.flush()
    place.logs.checkpoint_recovery_points()
    return before


def spoil(path: Path, at: int, mask: int = 1) -> bytes:
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)
    return bytes(data)


def scanned(place: Place) -> int:
    return place.logs.recovered[0].scanned_bytes


def reopened(place: Place, **more: object) -> Log:
    logs = Logs.open(
        [place.root], place.disk, place.config, FixedClock(), clean=False,
        before_loss=lambda p, why: place.doubts.append(why), **more,
    )  # type: ignore[arg-type]  # fmt: skip
    place.logs, place.log = logs, logs.logs[T0]
    return place.log


# -- what is believed


def test_only_what_lies_past_the_recovery_point_is_read(place: Place) -> None:
    before = flushed(place)
    place.die()
    spoil(segments(place)[0], 100)
    assert place.start().end_offset == 12
    assert scanned(place) == segments(place)[-1].stat().st_size
    assert place.doubts == []
    assert len(everything(place.log)) == len(before), "its readers find it by its checksum"


def test_a_closed_segment_that_was_cut_short_is_found_without_being_read(place: Place) -> None:
    flushed(place)
    place.die()
    first = segments(place)[0]
    first.write_bytes(first.read_bytes()[:-1])
    assert place.start().end_offset < int(segments(place)[-1].stem) + 12
    assert place.doubts


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("place_of", [0, 1])
def test_a_closed_segment_with_more_behind_it_is_found(place: Place, place_of: int, clean: bool) -> None:
    flushed(place)
    place.stop()
    path = segments(place)[place_of]
    end = read_header(segments(place)[place_of + 1].read_bytes()).base_offset
    path.write_bytes(path.read_bytes() + make_batch(b"overlap", base=end, epoch=0))
    assert place.start(clean=clean).end_offset <= end + 1
    assert place.doubts


def test_a_doubted_log_is_read_from_its_beginning(place: Place) -> None:
    flushed(place)
    place.stop()
    size = read_header(segments(place)[0].read_bytes()).size
    spoil(segments(place)[0], size + 80)
    assert reopened(place, doubts=["t-0"]).end_offset == 1
    assert "checksum" in place.doubts[0]


@pytest.mark.parametrize("at", [26, 100], ids=["its last offset", "its records"])
def test_a_clean_end_is_not_believed_if_the_last_batch_is_not_whole(place: Place, at: int) -> None:
    flushed(place)
    place.stop()
    last = segments(place)[-1]
    size = read_header(last.read_bytes()).size
    spoil(last, last.stat().st_size - size + at)
    assert place.start(clean=True).end_offset == 11
    assert place.doubts


def test_a_clean_end_is_where_the_stop_has_said(place: Place) -> None:
    flushed(place)
    place.stop()
    last = segments(place)[-1]
    last.write_bytes(last.read_bytes() + make_batch(b"late", base=12, epoch=2))
    assert place.start(clean=True).end_offset == 13
    assert scanned(place) > 0


@pytest.mark.parametrize(
    "harm", ["entry", "time", "position", "beyond", "before"], ids=lambda harm: f"a wrong {harm}"
)
def test_the_ends_of_indexes_are_held_against_the_log(place: Place, harm: str) -> None:
    before = flushed(place)
    place.stop()
    index, times = sorted(place.file("").glob("*.index"))[0], sorted(place.file("").glob("*.timeindex"))[0]
    good = index.read_bytes(), times.read_bytes()
    match harm:
        case "entry":
            spoil(index, len(good[0]) - 5)
        case "position":
            spoil(index, len(good[0]) - 1)
        case "beyond":
            index.write_bytes(good[0] + b"\0\0\0\x63\0\1\0\0")
        case "time":
            spoil(times, len(good[1]) - 5)
        case _:
            times.write_bytes(good[1] + bytes(12))
    assert everything(place.start(clean=True)) == before
    assert scanned(place) > 0
    place.stop()
    assert (index.read_bytes(), times.read_bytes()) == good


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_no_entry_of_an_index_is_believed_against_the_log(place: Place, suffix: str) -> None:
    for n in range(7):
        put(place.log, b"%03d" % n * 30, at=START_MS + n)
    place.stop()
    place.start(clean=True)
    whole, asked = everything(place.log), range(START_MS - 1, START_MS + 9)
    found = [place.log.find_timestamp(ms, 7) for ms in asked]
    place.stop()
    path = sorted(place.file("").glob(f"*{suffix}"))[0]
    good = path.read_bytes()
    for at in range(len(good)):
        spoil(path, at, 0x80 if at % 2 else 0x01)
        log = place.start(clean=True)
        assert everything(log) == whole
        assert [read_header(bytes(log.read(offset, 1, 7))).base_offset for offset in range(7)] == list(
            range(7)
        )
        assert [log.find_timestamp(ms, 7) for ms in asked] == found, f"byte {at}"
        assert not place.doubts
        place.stop()
        path.write_bytes(good)


# -- epochs


@pytest.mark.parametrize("content", ["0 0\n1 6\n2 10", "0 0\n1 5\n3 10", "0 0\n1 4\n2 10", "0 0\n1 5\n2 99"])
@pytest.mark.parametrize("clean", [True, False])
def test_epochs_that_the_batches_do_not_bear_out_are_read_again(
    place: Place, content: str, clean: bool
) -> None:
    flushed(place)
    place.stop()
    place.file(checkpoints.EPOCHS).write_bytes(f"0\n3\n{content}\n".encode())
    log = place.start(clean=clean)
    assert log.epochs.entries == [(0, 0), (1, 5), (2, 10)]
    assert place.doubts == []
    assert (log.start_offset, log.end_offset) == (0, 12)


def test_epochs_of_a_log_whose_beginning_is_gone_are_borne_out_too(place: Place) -> None:
    fill(place)
    place.log.move_start(7)
    place.log.flush()
    place.logs.checkpoint_recovery_points()
    place.stop()
    assert place.start(clean=True).epochs.entries == [(1, 7), (2, 10)]
    assert scanned(place) == 0


def test_segments_behind_a_scanned_one_keep_their_epochs(place: Place) -> None:
    flushed(place)
    place.stop()
    sorted(place.file("").glob("*.index"))[0].unlink()
    assert place.start(clean=True).epochs.entries == [(0, 0), (1, 5), (2, 10)]
    assert 0 < scanned(place) < sum(path.stat().st_size for path in segments(place))


def test_an_epoch_out_of_nowhere_ends_the_log_before_it(place: Place) -> None:
    fill(place)
    place.die()
    data = bytearray(last_file(place).read_bytes())
    size = read_header(data).size
    LEADER_EPOCH.pack_into(data, len(data) - size + LEADER_EPOCH_AT, 99)
    last_file(place).write_bytes(data)
    assert place.start().end_offset == 11
    assert place.log.epochs.entries == [(0, 0), (1, 5), (2, 10)]
    assert "epoch 99" in place.doubts[0]


# -- segments


def test_a_missing_first_segment_is_a_loss(place: Place) -> None:
    flushed(place)
    place.die()
    gone = segments(place)[0]
    gone.unlink()
    log = place.start()
    assert log.start_offset == int(segments(place)[0].stem)
    assert "starts at" in place.doubts[0]


def test_segments_that_retention_took_are_none(place: Place) -> None:
    flushed(place)
    place.log.retire(1, 0)
    place.die()
    assert place.start().start_offset == int(segments(place)[0].stem)
    assert place.doubts == []


@pytest.mark.parametrize("shift", [-2, 2], ids=["overlapping", "with a gap"])
def test_segments_that_do_not_join_end_the_log_there(place: Place, shift: int) -> None:
    flushed(place)
    place.stop()
    second = segments(place)[1]
    base = int(second.stem)
    for suffix in (".log", ".index", ".timeindex"):
        old = place.file(f"{base:020d}{suffix}")
        data = bytearray(old.read_bytes())
        if suffix == ".log":
            position = 0
            while position < len(data):
                header = read_header(data, position)
                BASE_OFFSET.pack_into(data, position, header.base_offset + shift)
                position += header.size
        old.unlink()
        place.file(f"{base + shift:020d}{suffix}").write_bytes(data)
    log = place.start()
    assert log.end_offset == base
    assert place.doubts
    (kept,) = Aside(place.disk, place.root).all(T0)
    assert kept.removal is not None
    assert kept.removal.from_offset == base


def test_leftovers_of_what_was_under_way_are_gone(place: Place) -> None:
    before = flushed(place)
    place.stop()
    for suffix in (".log.deleted", ".log.gone.deleted", ".log.cleaned", ".index.swap", ".index.tmp"):
        place.file(f"{0:020d}{suffix}").write_bytes(b"left over")
    assert everything(place.start(clean=True)) == before
    assert not [path for path in place.file("").iterdir() if path.suffix in (".deleted", ".cleaned", ".swap")]


# -- checkpoints

DAMAGE: list[Harm] = [
    ("empty", b""),
    ("is truncated", b"0\n1\nt 0"),
    ("no count", b"0\n"),
    ("nul", b"0\n1\nt 0 \x0012\n"),
    ("negative", b"0\n1\nt 0 -5\n"),
    ("huge", b"0\n1\nt 0 99999999999999999999\n"),
    ("expected a number", b"0\n1\nt 0 NaN\n"),
    ("twice", b"0\n2\nt 0 5\nt 0 5\n"),
    ("too many", b"0\n1\nt 0 5\nu 0 5\n"),
    ("too few", b"0\n2\nt 0 5\n"),
    ("version", b"1\n1\nt 0 5\n"),
    ("not text", b"0\n1\n\xff 0 5\n"),
]
OFFSETS = [checkpoints.HIGH_WATERMARKS, checkpoints.RECOVERY_POINTS, checkpoints.START_OFFSETS]


@pytest.mark.parametrize("name", OFFSETS)
@pytest.mark.parametrize(("what", "content"), DAMAGE, ids=[what for what, _ in DAMAGE])
def test_a_damaged_checkpoint_is_as_good_as_none(place: Place, name: str, what: str, content: bytes) -> None:
    before = flushed(place)
    place.stop()
    Path(place.root, name).write_bytes(content)
    assert everything(place.start(clean=True)) == before
    assert place.doubts == []


@pytest.mark.parametrize(("what", "content"), [d for d in DAMAGE if d[0] != "too many"])
def test_a_damaged_epoch_file_is_made_again(place: Place, what: str, content: bytes) -> None:
    flushed(place)
    place.stop()
    place.file(checkpoints.EPOCHS).write_bytes(content.replace(b"t 0", b"0"))
    assert place.start(clean=True).epochs.entries == [(0, 0), (1, 5), (2, 10)]


def test_lines_may_end_as_on_windows(place: Place) -> None:
    flushed(place)
    place.log.move_start(3)
    place.stop()
    for path in (Path(place.root, checkpoints.START_OFFSETS), place.file(checkpoints.EPOCHS)):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert place.start(clean=True).start_offset == 3
    assert scanned(place) == 0


def test_what_was_deleted_stays_deleted_when_the_log_starts_cannot_be_read(place: Place) -> None:
    flushed(place)
    place.log.move_start(3)
    place.stop()
    Path(place.root, checkpoints.START_OFFSETS).write_bytes(b"?")
    assert place.start(clean=True).start_offset == 3
    place.stop()
    assert checkpoints.read_offsets(place.disk, f"{place.root}/{checkpoints.START_OFFSETS}") == {T0: 3}


def test_a_log_start_beyond_all_else_is_not_believed(place: Place) -> None:
    before = flushed(place)
    place.stop()
    checkpoints.write_offsets(place.disk, f"{place.root}/{checkpoints.START_OFFSETS}", {T0: 1 << 60})
    assert everything(place.start(clean=True)) == before
    assert "is after everything else" in place.logs.recovered[0].repairs[-1]


def test_a_recovery_point_beyond_the_log_lets_all_of_it_be_read(place: Place) -> None:
    flushed(place)
    place.die()
    checkpoints.write_offsets(place.disk, f"{place.root}/{checkpoints.RECOVERY_POINTS}", {T0: 99})
    place.start()
    assert scanned(place) == sum(path.stat().st_size for path in segments(place))
    assert "recovery point 99" in place.doubts[0]


# -- after a power loss


def test_a_spoilt_end_is_no_loss_after_a_power_loss_but_is_kept(place: Place) -> None:
    fill(place)
    place.die()
    last = last_file(place)
    data = spoil(last, last.stat().st_size - 1)
    size = read_header(data).size
    assert reopened(place, same_boot=False).end_offset == 11
    assert place.doubts == []
    (kept,) = Aside(place.disk, place.root).all(T0)
    (copy,) = Path(kept.path).glob("*.log@*")
    assert copy.read_bytes() == data[-size:]


def test_the_boot_is_that_of_the_last_process(place: Place) -> None:
    place.die()
    for boot, same in (("a", False), ("a", True), ("b", False)):
        state = Incarnations.load(place.disk, [place.root], boot)
        assert state.same_boot is same
        state.write(state.verdict(0, ()), flush_mode=False)
        state.release()


# -- while running


def test_damage_met_by_a_reader_closes_that_log_and_the_next_start_mends_it(place: Place) -> None:
    flushed(place)
    place.logs.close(clean=True)
    log = place.start(clean=True)
    first = segments(place)[0]
    size = read_header(first.read_bytes()).size
    spoil(first, size + 7, 0x10)  # the base offset of the second batch
    with pytest.raises(LogDamaged):
        log.read(0, 1 << 20, 12)
    assert log.failed and log.damaged
    assert place.logs.close(), "all others may be closed cleanly"
    place.start(clean=True)
    place.die()
    assert reopened(place, doubts=["t-0"]).end_offset == 1
    assert place.doubts


def test_no_stop_is_clean_while_a_doubt_is_not_written_down(place: Place) -> None:
    place.die()
    state = Incarnations.load(place.disk, [place.root], "boot")
    state.write(state.verdict(0, ()), flush_mode=False)
    state.mark_doubt(T0)
    state.mark_clean()
    assert not Path(place.root, CLEAN_MARKER).exists()
    state.note_doubt(T0)
    state.mark_clean()
    assert Path(place.root, CLEAN_MARKER).exists()
    state.release()
