"""Old segments leave their log, their files leave the disk later, and the log start is remembered."""

import errno
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from strandline.storage.config import TopicConfig
from strandline.storage.disk import DiskFailed, RealDisk
from strandline.storage.log.checkpoints import read_offsets
from strandline.storage.log.pending_deletion import STEP_FILES_MAX, Deletion, PendingDeletion
from strandline.storage.log.producer_snapshots import snapshot_offsets
from strandline.storage.segment.segment import NO_TIME
from tests.storage.conftest import START_MS, T0, Place, put


class CountingDisk(RealDisk):
    """A disk that counts what it is asked for, and can fail at renaming."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.broken = False

    def __getattribute__(self, name: str) -> Any:
        if name in {"open", "read", "listdir", "exists", "rename", "unlink", "rmtree", "replace"}:
            self.calls[name] += 1
            if self.broken and name == "rename":
                raise OSError(errno.EIO, "broken")
        return super().__getattribute__(name)


@pytest.fixture
def filled(place: Place) -> Iterator[Place]:
    """Segments of three batches each, a batch a millisecond."""
    for n in range(12):
        put(place.log, b"x" * 200, at=START_MS + n, pid=1, seq=n)
    assert [segment.base_offset for segment in place.log.segments] == [0, 3, 6, 9]
    yield place


def configure(place: Place, **names: str) -> None:
    dotted = {name.replace("_", "."): text for name, text in names.items()}
    place.log.configure(TopicConfig.from_names(dotted, place.config))


def files(place: Place, ending: str) -> list[str]:
    return [name for name in place.disk.listdir(f"{place.root}/t-0") if name.endswith(ending)]


def start_offsets(place: Place) -> dict[Any, int]:
    return read_offsets(place.disk, f"{place.root}/log-start-offset-checkpoint")


def test_segments_older_than_retention_ms_go(filled: Place) -> None:
    configure(filled, retention_ms="1000")
    filled.clock.now = START_MS + 1002
    assert filled.retain(12) == 0, "its newest record is exactly as old as it may be"
    filled.clock.now = START_MS + 1007
    assert filled.retain(12) == 2
    assert (filled.log.start_offset, filled.log.end_offset) == (6, 12)
    assert snapshot_offsets(filled.disk, f"{filled.root}/t-0") == [6, 9]


def written_at(place: Place, base: int, ms: int) -> None:
    os.utime(place.file(f"{base:020d}.log"), ns=(0, ms * 1_000_000))


@pytest.mark.parametrize("restarts", [False, True])
def test_segments_without_timestamps_age_from_when_they_were_written_to(place: Place, restarts: bool) -> None:
    """Not from the start of the broker: one that restarts often would keep them for ever."""
    for _ in range(9):
        put(place.log, b"x" * 200, at=NO_TIME)
    bases = [segment.base_offset for segment in place.log.segments]
    assert len(bases) == 3 and place.log.segments[0].newest[0] == NO_TIME
    for base, ms in zip(bases, (10, 2000, 3000), strict=True):
        written_at(place, base, START_MS + ms)
    place.clock.now = START_MS + 3000
    if restarts:
        place.stop()
        place.start(clean=True)
    configure(place, retention_ms="1000")
    assert place.retain(9) == 1, "the second is exactly as old as it may be"
    place.clock.now = START_MS + 3001
    assert place.retain(9) == 1
    assert place.log.start_offset == bases[2]
    written_at(place, bases[2], START_MS + 9000)  # the one that grows is written to again
    place.clock.now = START_MS + 10_000
    assert place.retain(9) == 0


def test_never_above_the_watermark(filled: Place) -> None:
    configure(filled, retention_ms="1000")
    filled.clock.now = START_MS + 9999
    assert filled.retain(11) == 3
    assert filled.log.start_offset == 9


def test_an_idle_partition_loses_its_active_segment_too(filled: Place) -> None:
    configure(filled, retention_ms="1000")
    filled.clock.now = START_MS + 9999
    assert filled.retain(12) == 4
    assert (filled.log.start_offset, filled.log.end_offset, filled.log.size) == (12, 12, 0)
    assert filled.retain(12) == 0, "an empty active segment stays"
    assert put(filled.log, b"next", at=START_MS + 9999) == 12
    filled.die()
    log = filled.start()
    assert (log.start_offset, log.end_offset) == (12, 13)
    assert filled.doubts == []


def test_the_oldest_go_while_the_partition_is_too_large(filled: Place) -> None:
    one = filled.log.segments[0].size
    configure(filled, retention_ms="-1", retention_bytes=str(filled.log.size - one + 1))
    assert filled.retain(12) == 0, "without it there would be less than is to be kept"
    configure(filled, retention_ms="-1", retention_bytes=str(filled.log.size - one))
    assert filled.retain(12) == 1
    assert filled.log.start_offset == 3


@pytest.mark.parametrize("policy", ["compact", ""])
def test_a_topic_without_delete_loses_only_what_lies_below_its_start(filled: Place, policy: str) -> None:
    configure(filled, retention_ms="1", retention_bytes="1", cleanup_policy=policy)
    filled.clock.now = START_MS + 9999
    assert filled.retain(12) == 0
    filled.log.move_start(7)
    assert filled.retain(12) == 2
    assert (filled.log.segments[0].base_offset, filled.log.start_offset) == (6, 7)


def test_files_stay_for_the_delay_of_their_topic(filled: Place) -> None:
    configure(filled, retention_ms="1000", file_delete_delay_ms="5000")
    filled.clock.now = START_MS + 1007
    filled.retain(12)
    renamed = files(filled, ".deleted")
    assert {name.partition(".")[2] for name in renamed} >= {"log.gone.deleted", "index.gone.deleted"}
    filled.logs.condemned.due(0.0)
    filled.purge(after_s=4.9)
    assert files(filled, ".deleted") == renamed
    filled.purge(after_s=5.0)
    assert files(filled, ".deleted") == []
    assert len(filled.logs.condemned) == 0


def test_the_next_start_deletes_what_a_crash_has_left(filled: Place) -> None:
    configure(filled, retention_ms="1000")
    filled.clock.now = START_MS + 1007
    filled.retain(12)
    filled.die()
    log = filled.start()
    assert (log.start_offset, log.end_offset, filled.doubts) == (6, 12, [])
    assert files(filled, ".deleted") == []


def test_a_rename_that_fails_closes_the_log(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", segment_bytes=1000)
    place.die()
    place.disk = disk = CountingDisk()
    place.start()
    for n in range(9):
        put(place.log, b"x" * 300, at=START_MS + n)
    disk.broken = True
    place.log.move_start(9)
    with pytest.raises(DiskFailed):
        place.retain(9)
    disk.broken = False
    assert place.log.failed
    place.die()


# -- what it costs


def test_many_segments_cost_one_file_call_and_that_only_once(tmp_path: Path) -> None:
    place = Place(tmp_path / "data", segment_bytes=200)
    for n in range(300):
        put(place.log, b"x" * 150, at=START_MS + n)
    place.stop()
    place.disk = disk = CountingDisk()
    place.start(clean=True)
    assert len(place.log.segments) == 300
    configure(place, retention_ms="1000")
    disk.calls.clear()
    place.clock.now = START_MS + 1000
    assert place.retain(300) == 0
    assert disk.calls.total() <= 1, "the closing entry of one time index"
    disk.calls.clear()
    assert place.retain(300) == 0
    assert disk.calls.total() == 0
    place.clock.now = START_MS + 1008
    assert place.logs.retire(place.log, 300, 8) == 8
    assert disk.calls["rename"] == 8 * 4, "three files and a snapshot each"
    assert disk.calls["listdir"] == 0, "a directory of ten thousand segments takes long to list"
    assert disk.calls["open"] <= 9
    assert not any(segment.held for segment in place.log.segments[:-1]), "no index was kept in memory"
    place.die()


def test_deletion_goes_in_steps(tmp_path: Path) -> None:
    disk = CountingDisk()
    old = tmp_path / "t-0.00-delete"
    old.mkdir()
    for n in range(100):
        (old / f"{n}.log").write_bytes(b"")
    single = tmp_path / "1.log.deleted"
    single.write_bytes(b"")
    deletion = Deletion(disk, [str(single), str(old), str(tmp_path / "gone-delete")])
    deletion.step(lambda: 0.0)
    assert 0 < disk.calls["unlink"] <= STEP_FILES_MAX
    assert deletion
    clock = iter(range(1000))
    disk.calls.clear()
    deletion.step(lambda: float(next(clock)))
    assert disk.calls["unlink"] == 0, "the time for a step is over at once"
    clock = iter(float(n) / 250 for n in range(1000))
    deletion.step(lambda: next(clock))
    assert 0 < disk.calls["unlink"] <= 3
    while deletion:
        deletion.step(lambda: 0.0)
    assert not old.exists()
    assert not single.exists()


def test_what_cannot_be_deleted_does_not_hold_up_the_rest(tmp_path: Path) -> None:
    class Stubborn(RealDisk):
        def unlink(self, path: str) -> None:
            if "bad" in path:
                raise OSError(errno.EIO, path)
            super().unlink(path)

    good = tmp_path / "good.deleted"
    good.write_bytes(b"")
    deletion = Deletion(Stubborn(), [str(tmp_path / "bad.deleted"), str(good)])
    with pytest.raises(OSError, match="bad"):
        deletion.step(lambda: 0.0)
    deletion.step(lambda: 0.0)
    assert not deletion
    assert not good.exists()


def test_each_path_has_its_own_delay() -> None:
    condemned = PendingDeletion()
    condemned.add(["slow"], 5000)
    condemned.add(["fast"], 0)
    assert condemned.due(10.0) == ["fast"]
    assert condemned.due(14.9) == []
    assert condemned.due(15.0) == ["slow"]
    assert len(condemned) == 0


# -- the start of a log


def test_a_start_within_a_segment_is_remembered(filled: Place) -> None:
    filled.log.move_start(4)
    assert filled.logs.starts_moved
    filled.logs.checkpoint_start_offsets()
    assert not filled.logs.starts_moved
    assert start_offsets(filled) == {T0: 4}
    filled.die()
    log = filled.start()
    assert (log.start_offset, log.segments[0].base_offset, filled.doubts) == (4, 0, [])


def test_a_start_that_is_a_segments_own_needs_no_entry(filled: Place) -> None:
    """As in Kafka's file: its brokers write only starts behind the base of the first segment."""
    filled.log.move_start(7)
    filled.logs.checkpoint_start_offsets()
    assert start_offsets(filled) == {T0: 7}
    filled.log.move_start(9)
    assert filled.retain(12) == 3
    filled.logs.checkpoint_recovery_points()
    assert start_offsets(filled) == {}
    filled.die()
    assert filled.start().start_offset == 9


def test_an_unmoved_start_is_not_written_again(tmp_path: Path) -> None:
    place = Place(tmp_path / "data")
    place.die()
    place.disk = disk = CountingDisk()
    place.start()
    put(place.log, b"a", b"b", b"c")
    place.log.move_start(1)
    place.logs.checkpoint_start_offsets()
    disk.calls.clear()
    place.logs.checkpoint_start_offsets()
    assert disk.calls["replace"] == 0
    place.die()


def test_a_log_that_begins_anew_lower_is_not_taken_for_a_loss(filled: Place) -> None:
    """The leader's log begins lower than our empty one did: its checkpointed start holds no longer."""
    filled.log.move_start(8)
    filled.logs.checkpoint_start_offsets()
    filled.log.restart_at(2, START_MS)
    filled.die()
    log = filled.start()
    assert (log.start_offset, log.end_offset, filled.doubts) == (2, 2, [])


def test_a_topic_made_again_under_its_name_does_not_inherit_checkpoints(filled: Place) -> None:
    filled.log.move_start(8)
    filled.log.flush()
    filled.logs.checkpoint_recovery_points()
    filled.logs.checkpoint_high_watermarks(lambda: {T0: 12})
    filled.logs.remove(T0, UUID(int=7))
    filled.log = filled.logs.create(T0, None, TopicConfig.of(filled.config))
    put(filled.log, b"new")
    filled.die()
    log = filled.start()
    assert (log.start_offset, log.end_offset, filled.doubts) == (0, 1, [])


def test_a_removed_log_goes_after_its_topics_delay(filled: Place) -> None:
    configure(filled, file_delete_delay_ms="5000")
    path = Path(filled.logs.remove(T0, UUID(int=7)))
    filled.purge(after_s=4.9)
    assert path.exists()
    filled.purge(after_s=5.0)
    assert not path.exists()
