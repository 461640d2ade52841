"""A log in use: appends, reads, cuts, disk trouble."""

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread

import pytest

from strandline.protocol.batches import headers, read_header
from strandline.protocol.errors import OffsetOutOfRange
from strandline.protocol.primitives import Buffer
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.disk import DiskFailed, DiskFull, File, RealDisk
from strandline.storage.log import producer_snapshots
from strandline.storage.log.log import CorruptBatch, NotNext
from tests.patience import HANG_S
from tests.storage.conftest import START_MS, T0, Place, make_batch, put


def read_all(place: Place) -> bytes:
    return bytes(place.log.read(place.log.start_offset, 1 << 20, place.log.end_offset))


def test_a_leader_gives_a_batch_its_place(place: Place) -> None:
    put(place.log, b"a", b"b")
    assert put(place.log, b"c", epoch=4) == 2
    data = read_all(place)
    second = read_header(data, read_header(data).size)
    assert (second.base_offset, second.leader_epoch) == (2, 4)
    assert place.log.epochs.entries == [(0, 0), (4, 2)]
    assert place.file("leader-epoch-checkpoint").read_bytes() == b"0\n2\n0 0\n4 2\n"


def test_append_time_is_stamped_when_the_topic_asks(place: Place) -> None:
    place.log.configure(TopicConfig.from_names({"message.timestamp.type": "LogAppendTime"}, place.config))
    batch = make_batch(b"a", at=5)
    place.log.append(memoryview(batch), read_header(batch), 0, START_MS)
    assert place.log.find_timestamp(START_MS, 1) == (START_MS, 0, 0)
    place.die()
    assert place.start().find_timestamp(START_MS, 1) == (START_MS, 0, 0)


@pytest.mark.parametrize("tail", [True, False])
def test_what_a_read_gave_is_never_written_again(place: Place, tail: bool) -> None:
    place.log.keep_tail = tail
    put(place.log, b"first" * 10)
    put(place.log, b"second" * 10)
    given = place.log.read(0, 1 << 20, 2)
    copy = bytes(given)
    place.log.truncate_to(1)
    for _ in range(5000):
        put(place.log, b"other" * 20)
    place.log.restart_at(9)
    put(place.log, b"x" * 500)
    assert bytes(given) == copy
    for part in given.parts:
        assert memoryview(part).readonly


@pytest.mark.parametrize("tail", [True, False])
def test_nothing_at_or_above_the_watermark_is_read(place: Place, tail: bool) -> None:
    place.log.keep_tail = tail
    for _ in range(4):
        put(place.log, b"a", b"b")
    assert place.log.read(0, 1 << 20, 0).nbytes == 0
    assert read_header(bytes(place.log.read(3, 1 << 20, 4))).base_offset == 2
    assert place.log.read(4, 1 << 20, 4).nbytes == 0
    with pytest.raises(OffsetOutOfRange):
        place.log.read(9, 1, 9)


def test_a_log_rolls_by_the_age_of_its_first_batch(tmp_path: Path) -> None:
    place = Place(tmp_path, segment_ms=1000)
    put(place.log, b"a", at=START_MS)
    put(place.log, b"b", at=START_MS + 1000)
    put(place.log, b"c", at=START_MS + 1001)
    assert [segment.base_offset for segment in place.log.segments] == [0, 2]
    place.die()


def test_a_log_rolls_when_an_index_is_full(tmp_path: Path) -> None:
    place = Place(tmp_path, index_bytes_max=36, index_interval_bytes=0)
    for n in range(10):
        put(place.log, b"a", at=START_MS + n)
    assert len(place.log.segments) > 1
    assert all(len(segment.times) <= 3 for segment in place.log.segments)
    place.die()


def test_a_follower_refuses_what_does_not_continue_its_log(place: Place) -> None:
    put(place.log, b"a", epoch=3)
    good = make_batch(b"b", base=1, epoch=3)
    flipped = bytearray(make_batch(b"c", base=2, epoch=3))
    flipped[-1] ^= 1
    for error, run in (
        (NotNext, make_batch(b"b", base=0, epoch=3)),
        (CorruptBatch, make_batch(b"b", base=1, epoch=2)),
        (CorruptBatch, make_batch(b"b", base=1, epoch=9)),
        (CorruptBatch, flipped),
        (CorruptBatch, bytearray(100)),
    ):
        before = place.file("00000000000000000000.log").read_bytes()
        with pytest.raises(error):
            place.log.append_replicated(memoryview(run), epoch_max=8)
        assert place.log.end_offset == 1
        assert place.file("00000000000000000000.log").read_bytes() == before
    assert place.log.append_replicated(memoryview(good + flipped[:65])) == len(good)


@pytest.mark.parametrize("bad", ["flipped", "again", "epoch", "nothing"])
def test_a_follower_takes_the_good_part_of_a_run_and_refuses_the_rest(place: Place, bad: str) -> None:
    good, rest = make_batch(b"a", base=0, epoch=3), make_batch(b"b", base=1, epoch=3)
    match bad:
        case "flipped":
            rest[-1] ^= 1
        case "again":
            rest = make_batch(b"b", base=0, epoch=3)
        case "epoch":
            rest = make_batch(b"b", base=1, epoch=2)
        case _:
            rest = bytearray(100)
    assert place.log.append_replicated(memoryview(good + rest + make_batch(b"c", base=2, epoch=3))) == len(
        good
    )
    assert everything_in(place) == bytes(good)
    with pytest.raises((CorruptBatch, NotNext)):
        place.log.append_replicated(memoryview(rest))


@pytest.mark.parametrize("clean", [True, False])
def test_a_follower_takes_the_gaps_of_a_topic_that_was_compacted_once(place: Place, clean: bool) -> None:
    """Its policy is "delete" again: nothing but the leader's log tells of what was compacted away."""
    run = make_batch(b"a", base=3) + make_batch(b"b", base=7)
    assert place.log.append_replicated(memoryview(run)) == len(run)
    assert place.log.append_replicated(memoryview(more := make_batch(b"c", base=20))) == len(more)
    place.log.flush()
    place.stop() if clean else place.die()
    log = place.start(clean)
    assert (log.end_offset, place.doubts) == (21, [])
    assert [h.base_offset for _, h in headers(bytes(log.read(0, 1 << 20, 21)))] == [3, 7, 20]
    put(log, b"d")
    assert log.end_offset == 22


def everything_in(place: Place) -> bytes:
    return place.file("00000000000000000000.log").read_bytes()


def test_gaps_are_taken_once_a_topic_was_compacted(place: Place) -> None:
    place.log.configure(TopicConfig.from_names({"cleanup.policy": "compact"}, place.config))
    place.log.configure(TopicConfig.of(place.config))
    place.log.keep_tail = True
    place.log.append_replicated(make_batch(b"a", base=0) + make_batch(b"b", base=7))
    assert read_header(bytes(place.log.read(3, 1, 8))).base_offset == 7
    assert place.log.truncate_to(5) == 5
    place.log.append_replicated(make_batch(b"b", base=9))
    place.die()
    assert place.start().end_offset == 10
    assert place.doubts == []


def test_a_cut_takes_epochs_and_producers_along(place: Place) -> None:
    for n in range(12):
        put(place.log, b"x" * 90, epoch=n // 4, pid=9, seq=n)
    place.log.assign_epoch(7)
    place.log.truncate_to(12)
    assert place.log.epochs.latest == 2, "an epoch without records goes even if no record does"
    assert place.log.truncate_to(5) == 5
    assert place.log.epochs.entries == [(0, 0), (1, 4)]
    assert place.log.producers.check(read_header(make_batch(b"x", pid=9, seq=5))) is None
    assert place.log.producers.check(read_header(make_batch(b"x", pid=9, seq=4))) is not None
    assert place.log.end_offset_for(0) == (0, 4)
    assert place.log.end_offset_for(1) == (1, 5)
    assert place.log.end_offset_for(2) == (-1, -1)


def test_a_cut_never_goes_below_the_start(place: Place) -> None:
    for _ in range(4):
        put(place.log, b"x")
    place.log.move_start(2)
    assert place.log.truncate_to(0) == 2
    assert place.log.start_offset == 2


def test_no_log_begins_behind_its_end(place: Place) -> None:
    """Nor is it moved back: what lay before the start may be gone from the disk."""
    for _ in range(4):
        put(place.log, b"x")
    assert not place.log.move_start(5)
    assert place.log.start_offset == 0
    assert place.log.move_start(4) and place.log.start_offset == place.log.end_offset
    assert not place.log.move_start(3)
    assert place.log.start_offset == 4


def test_a_restart_begins_at_the_leaders_start(place: Place) -> None:
    for n in range(12):
        put(place.log, b"x" * 90, pid=9, seq=n)
    place.log.restart_at(500)
    assert (place.log.start_offset, place.log.end_offset, place.log.epochs.entries) == (500, 500, [])
    assert len(place.log.producers) == 0
    assert [path.name for path in place.file("").glob("*.log")] == ["00000000000000000500.log"]
    assert put(place.log, b"x", epoch=3) == 500


def test_sealed_segments_are_opened_and_let_go(tmp_path: Path) -> None:
    place = Place(tmp_path, segment_bytes=200, sealed_open_max=2)
    for _ in range(20):
        put(place.log, b"x" * 100)
    for offset in range(20):
        assert place.log.read(offset, 1, 20).nbytes
    place.log.find_timestamp(START_MS, 20)
    assert sum(segment.held for segment in place.log.segments) <= 3
    place.die()


class FaultyFile:
    """A file whose next append writes a part and then fails."""

    def __init__(self, file: File, disk: "FaultyDisk") -> None:
        self.file = file
        self.disk = disk

    def append(self, buffers: Sequence[Buffer]) -> int:
        if self.disk.fault:
            self.file.append([bytes(buffers[0])[:10]])
            raise OSError(self.disk.fault, "injected")
        return self.file.append(buffers)

    def sync(self) -> None:
        if self.disk.fault:
            raise OSError(self.disk.fault, "injected")
        self.file.sync()

    def share(self) -> File:
        return FaultyFile(self.file.share(), self.disk)  # type: ignore[return-value]

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)


class FaultyDisk(RealDisk):
    """A disk that fails when told."""

    fault = 0

    def open(self, path: str, create: bool = False) -> File:
        return FaultyFile(super().open(path, create), self)  # type: ignore[return-value]


class FaultyPlace(Place):
    """A log directory on a faulty disk."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.disk = FaultyDisk()
        self.die()
        self.start()


def test_a_full_disk_leaves_the_log_as_it_was_and_heals(tmp_path: Path) -> None:
    place = FaultyPlace(tmp_path)
    put(place.log, b"a")
    before = place.file("00000000000000000000.log").read_bytes()
    place.disk.fault = errno.ENOSPC  # type: ignore[attr-defined]
    with pytest.raises(DiskFull):
        put(place.log, b"b")
    assert place.log.end_offset == 1
    assert place.file("00000000000000000000.log").read_bytes() == before
    assert read_all(place) == before
    place.disk.fault = 0  # type: ignore[attr-defined]
    assert put(place.log, b"b") == 1
    place.die()


def test_a_failing_disk_takes_no_more_appends(tmp_path: Path) -> None:
    place = FaultyPlace(tmp_path)
    put(place.log, b"a")
    before = read_all(place)
    place.disk.fault = errno.EIO  # type: ignore[attr-defined]
    with pytest.raises(DiskFailed):
        put(place.log, b"b")
    place.disk.fault = 0  # type: ignore[attr-defined]
    with pytest.raises(DiskFailed):
        put(place.log, b"b")
    assert read_all(place) == before
    assert not place.logs.close(), "no clean marker after this"


def test_removal_renames_at_once(place: Place) -> None:
    from uuid import UUID

    put(place.log, b"a")
    path = place.logs.remove(T0, UUID(int=7))
    assert path.endswith("/t-0.00000000000000000000000000000007-delete")
    assert place.logs.get(T0) is None
    place.purge()
    assert not Path(path).exists()
    assert place.logs.create(T0, UUID(int=8), TopicConfig.of(StorageConfig())).end_offset == 0
    assert place.file("partition.metadata").read_bytes() == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAACA"


def test_a_checkpoint_that_is_being_written_does_not_outlive_a_cut(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(4):
        put(place.log, b"x")
    place.log.flush()
    writing, go_on = Event(), Event()
    replace = place.disk.replace

    def held_back(path: str, data: bytes, sync: bool = True, mode: int = 0o644) -> None:
        if path.endswith("recovery-point-offset-checkpoint") and not go_on.is_set():
            writing.set()
            assert go_on.wait(HANG_S)
        replace(path, data, sync, mode)

    monkeypatch.setattr(place.disk, "replace", held_back)
    checkpoint = Thread(target=place.logs.checkpoint_recovery_points)
    cut = Thread(target=place.log.truncate_to, args=(1,))
    checkpoint.start()
    assert writing.wait(HANG_S)
    cut.start()
    cut.join(0.2)
    go_on.set()
    checkpoint.join(HANG_S)
    cut.join(HANG_S)
    assert place.log.end_offset == 1
    place.die()
    place.start()
    assert place.doubts == [], "the file must not promise more than the cut has left"


def test_a_thread_and_the_loop_may_write_the_epochs_at_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(place.log, b"x")
    writing, go_on, fsync = Event(), Event(), os.fsync

    def held_back(fd: int) -> None:
        if current_thread() is not main_thread():
            writing.set()
            assert go_on.wait(HANG_S)
        fsync(fd)

    monkeypatch.setattr(os, "fsync", held_back)
    place.log.assign_epoch(3)
    transition = Thread(target=place.log.save_epochs)
    transition.start()
    assert writing.wait(HANG_S)
    place.log.move_start(1)  # a retention pass
    go_on.set()
    transition.join(HANG_S)
    assert not place.log.failed
    assert place.disk.listdir(f"{place.root}/t-0").count("leader-epoch-checkpoint") == 1


def test_a_cut_forgets_what_producers_wrote_behind_it(place: Place) -> None:
    """A snapshot of records that went would be believed of those that stand there later."""
    for number in range(6):
        put(place.log, b"%d" % number, pid=7, seq=number)
        if number in (1, 4):
            place.log.roll(START_MS)
    assert producer_snapshots.snapshot_offsets(place.log.disk, place.log.directory)[-1] == 5
    place.log.truncate_to(3)
    assert producer_snapshots.snapshot_offsets(place.log.disk, place.log.directory) == [2]
    known = place.log.producers.get(7)
    assert known is not None and known.last_sequence == 2
