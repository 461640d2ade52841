"""What the model and the sweep once found, each story by itself."""

from pathlib import Path

import pytest

from strandline.simulation.environment.disk import SimDisk
from strandline.storage.cleaning.plan import LogFacts, dirt, is_due
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.incarnation import Incarnations
from strandline.storage.directories.intact import Intactness
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import LogDamaged, RealDisk
from strandline.storage.log import checkpoints
from strandline.storage.log.checkpoints import Unreadable
from strandline.storage.log.log import Log
from strandline.storage.recovery.scan_segment import Expected, Fault, scan
from strandline.storage.segment.segment import Segment
from tests.storage.conftest import START_MS, T0, FixedClock, Place, make_batch, put

FIRST = f"{0:020d}"


def flip(path: Path, position: int, bits: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(data)


# Lengths and times.


@pytest.mark.parametrize("bits", [1, 0x40])
def test_a_last_batch_that_is_whole_is_not_torn_whatever_its_length_says(place: Place, bits: int) -> None:
    put(place.log, b"a")
    put(place.log, b"b")
    put(place.log, b"c")
    last = place.log.segments[0].locate(2)
    place.die()
    assert last is not None
    flip(place.file(f"{FIRST}.log"), last[0] + 9, bits)
    segment = Segment(place.disk, str(place.file("")), 0, 0, create=False)
    assert scan(segment, Expected(offset=0)).fault is Fault.CORRUPT
    segment.close()
    place.start()
    assert place.doubts and place.log.end_offset == 2


def times_of(place: Place) -> list[object]:
    return [place.log.find_timestamp(START_MS + ms, place.log.end_offset) for ms in range(0, 90, 5)]


def with_times(place: Place) -> list[object]:
    """A closed segment, whose time index has several entries, and what lookups find in it."""
    for n in range(9):
        put(place.log, b"x" * 40, at=START_MS + 10 * n)
    place.log.roll(0)
    place.stop()
    place.start(clean=True)
    return times_of(place)


def test_an_entry_of_a_time_index_counts_only_if_its_batch_bears_it_out(place: Place) -> None:
    right = with_times(place)
    path = place.file(f"{FIRST}.timeindex")
    whole = path.read_bytes()
    assert len(whole) > 36
    for position in range(len(whole) - 12):
        for bits in (1, 0x80):
            flip(path, position, bits)
            assert times_of(place) == right, f"byte {position}"
            path.write_bytes(whole)
            place.log.segments[0].release()


@pytest.mark.parametrize("position", [0, 6, 7, 23, 26, 61])
def test_a_lookup_by_time_answers_nothing_from_a_damaged_batch(place: Place, position: int) -> None:
    with_times(place)
    flip(place.file(f"{FIRST}.log"), position)
    with pytest.raises(LogDamaged):
        place.log.find_timestamp(START_MS, 9)
    assert place.log.failed


def test_a_closed_segment_with_times_has_a_time_index(place: Place) -> None:
    """Of one that was cut short, the last entry is right, and tells that all records are older."""
    right = with_times(place)
    place.die()
    path = place.file(f"{FIRST}.timeindex")
    whole = path.read_bytes()
    for kept in range(0, len(whole), 12):
        path.write_bytes(whole[:kept])
        place.start(clean=True)
        assert times_of(place) == right, f"{kept // 12} entries were left"
        place.die()


# Power.


class Machine:
    """A broker's log on a disk that forgets."""

    def __init__(self, **settings: int | str) -> None:
        self.disk = SimDisk()
        self.config = StorageConfig(segment_bytes=1000, index_interval_bytes=0, **settings)  # type: ignore
        self.doubts: list[str] = []
        self.start()
        self.logs.create(T0, None, TopicConfig.of(self.config))

    def start(self, same_boot: bool = True) -> None:
        self.disk.mkdir("/data")
        self.logs = Logs.open(
            ["/data"], self.disk, self.config, FixedClock(), clean=False, same_boot=same_boot,
            before_loss=lambda partition, why: self.doubts.append(why),
        )  # fmt: skip

    @property
    def log(self) -> Log:
        return self.logs.logs[T0]

    def flush(self) -> None:
        self.log.flush()
        self.logs.checkpoint_recovery_points()

    def lose_power(self, keep: float) -> None:
        self.disk.lose_power(keep)
        self.start(same_boot=False)

    def find(self, ms: int) -> object:
        return self.log.find_timestamp(START_MS + ms, self.log.end_offset)


@pytest.mark.parametrize("flushed_again", [False, True])
@pytest.mark.parametrize("keep", [0.0, 0.5])
def test_indexes_of_a_segment_that_is_closed_after_its_flush(flushed_again: bool, keep: float) -> None:
    machine = Machine()
    for n in range(9):
        put(machine.log, b"x", at=START_MS + n)
    assert len(machine.log.segments) == 1
    machine.flush()
    machine.log.roll(0)
    assert machine.disk.files[f"/data/t-0/{FIRST}.timeindex"].synced == 0
    if flushed_again:
        put(machine.log, b"y", at=START_MS + 99)
        machine.flush()
    machine.lose_power(keep)
    assert [machine.find(ms) for ms in range(9)] == [(START_MS + n, n, 0) for n in range(9)]
    assert machine.log.segments[0].newest == (START_MS + 8, 8)


@pytest.mark.parametrize("clean", [False, True])
def test_a_partition_whose_segments_never_came_to_the_medium(place: Place, clean: bool) -> None:
    place.stop()
    for path in place.file("").iterdir():
        path.unlink()
    log = place.start(clean)
    assert (log.start_offset, log.end_offset, place.doubts) == (0, 0, [])
    assert put(log, b"a") == 0


# Epochs and truncation.


def test_an_epoch_whose_batches_were_compacted_away_keeps_its_place() -> None:
    machine = Machine(cleanup_policy="compact")
    run = bytearray()
    for base, epoch in ((0, 0), (3, 1), (7, 3)):  # of epoch 1 only the second batch is left, of epoch 2 none
        run += make_batch(b"v", base=base, epoch=epoch)
    machine.log.append_replicated(memoryview(run))
    machine.log.epochs.entries[:] = [(0, 0), (1, 2), (2, 5), (3, 6)]
    machine.log.save_epochs()
    machine.logs.close(clean=False)
    machine.start()
    assert machine.log.epochs.entries == [(0, 0), (1, 2), (2, 5), (3, 6)]
    assert machine.doubts == []


def test_but_not_if_a_batch_contradicts_it() -> None:
    machine = Machine(cleanup_policy="compact")
    run = bytearray()
    for base, epoch in ((0, 0), (3, 0), (7, 3)):
        run += make_batch(b"v", base=base, epoch=epoch)
    machine.log.append_replicated(memoryview(run))
    machine.log.epochs.entries[:] = [(0, 0), (1, 2), (3, 7)]
    machine.log.save_epochs()
    machine.logs.close(clean=False)
    machine.start(same_boot=False)
    assert machine.log.epochs.entries == [(0, 0), (3, 7)]


def test_a_cut_at_a_start_inside_a_batch_leaves_an_empty_log(place: Place) -> None:
    put(place.log, b"a", b"b", b"c")
    put(place.log, b"d")
    place.log.move_start(1)
    generation = place.log.generation
    assert place.log.truncate_to(1) == 1
    assert place.log.generation == generation + 1
    assert (place.log.start_offset, place.log.end_offset) == (1, 1)
    assert put(place.log, b"e") == 1
    place.die()
    place.start()
    assert (place.log.start_offset, place.log.end_offset, place.doubts) == (1, 2, [])


# Compaction.


@pytest.mark.parametrize("committed", [0, 2, 9])
def test_what_begins_inside_a_segment_that_may_not_be_cleaned_yet_is_not_dirty(committed: int) -> None:
    machine = Machine(cleanup_policy="compact")
    for n in range(9):
        put(machine.log, b"x" * 200, at=START_MS + n)
    log = machine.log
    assert [segment.base_offset for segment in log.segments][:2] == [0, 3]
    lag = log.config.model_copy(update={"min_compaction_lag_ms": 1000 if committed == 9 else 0})
    found = dirt(LogFacts(log.segments, 2, log.end_offset, committed, None, lag), START_MS + 10)
    assert found.dirty_bytes == 0
    assert not is_due(found, lag)


# Files of our own.


def test_no_bit_of_our_own_files_flips_unnoticed(place: Place) -> None:
    path = place.file(checkpoints.TOPIC_CONFIG)
    whole = path.read_bytes()
    for position in range(len(whole)):
        flip(path, position)
        with pytest.raises(Unreadable):
            checkpoints.read_topic_config(place.disk, str(path))
        path.write_bytes(whole)
    assert checkpoints.read_topic_config(place.disk, str(path)) is not None


def test_a_claim_to_be_intact_cannot_grow_older(tmp_path: Path) -> None:
    root = str(tmp_path)
    state = Incarnations.load(RealDisk(), [root], "boot")
    state.write(Intactness(8, 7, {"t-0": 8}), flush_mode=False)
    state.release()
    whole = (tmp_path / "incarnation.json").read_bytes()
    assert b'"intact_since":7' in whole
    (tmp_path / "incarnation.json").write_bytes(whole.replace(b'"intact_since":7', b'"intact_since":3'))
    state = Incarnations.load(RealDisk(), [root], "boot")
    assert state.remembered().last_k is None
    state.release()


def test_a_file_of_an_earlier_version_has_no_checksum(tmp_path: Path) -> None:
    (tmp_path / "incarnation.json").write_text(
        '{"version":1,"last_k":3,"boot_id":"boot","intact_since":1,"flush_mode":false}'
    )
    state = Incarnations.load(RealDisk(), [str(tmp_path)], "boot")
    assert state.remembered().last_k == 3
    state.release()
