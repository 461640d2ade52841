"""What a log is after a file call has failed: as it was before, or closed for appends; never in between."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from strandline.base.types import TopicPartition
from strandline.storage.disk import DiskFailed, DiskFull, NoDescriptor, ReplicaElsewhere
from strandline.storage.log import checkpoints
from strandline.storage.log.log import Log
from strandline.storage.log.pending_deletion import Deletion
from tests.storage.conftest import START_MS, T0, make_batch, put
from tests.storage.log_dirs import NAMES, Dirs


def values(log: Log) -> bytes:
    return b"".join(bytes(part) for part in log.read(0, 1 << 20, log.end_offset).parts)


def file_size(log: Log) -> int:
    return Path(log.directory, f"{0:020d}.log").stat().st_size


# -- full


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("keep", [0, 1, 60])
def test_an_append_without_room_leaves_the_log_as_it_was(tmp_path: Path, error: int, keep: int) -> None:
    dirs = Dirs(tmp_path)
    log = dirs.create()
    put(log, b"one")
    before, size = values(log), file_size(log)
    dirs.disk.fail("append", "*.log", error, keep=keep)
    for _ in range(2):
        with pytest.raises(DiskFull):
            put(log, b"two")
    assert (log.end_offset, log.failed, file_size(log), values(log)) == (1, False, size, before)
    assert dirs.disk.asked("truncate", "*.log") == 2, "once for each append"
    dirs.disk.heal()
    assert put(log, b"three") == 1
    assert dirs.reopen().end_offset == 2
    assert dirs.doubts == []


def test_a_short_write_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, bytes(data)[:7], at))
    log = Dirs(tmp_path).create()
    put(log, b"one")
    assert log.end_offset == 1 and len(values(log)) == file_size(log)


def test_a_segment_whose_age_cannot_be_read_takes_no_record(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path)
    put(dirs.create(), b"one")
    log = dirs.reopen()
    log.segments[-1].first_time = None
    dirs.disk.fail("pread", "*.log", errno.EIO)
    with pytest.raises(DiskFailed):
        put(log, b"two")
    assert log.failed and log.end_offset == 1


def test_an_epoch_that_finds_no_room_is_written_before_its_first_batch(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path)
    log = dirs.create()
    put(log, b"one", epoch=3)
    dirs.disk.fail("replace", "*/leader-epoch-checkpoint", errno.ENOSPC)
    for _ in range(2):  # the second attempt finds the epoch in memory, and must not take that for written
        with pytest.raises(DiskFull):
            put(log, b"two", epoch=5)
    assert log.end_offset == 1
    dirs.disk.heal()
    put(log, b"three", epoch=5)
    assert checkpoints.read_epochs(dirs.disk, f"{log.directory}/{checkpoints.EPOCHS}") == [(3, 0), (5, 1)]


def test_replicated_batches_of_two_epochs_that_found_no_room_come_again(tmp_path: Path) -> None:
    """The later epoch is forgotten with them: else the first batch would seem to come after it."""
    dirs = Dirs(tmp_path)
    log = dirs.create()
    put(log, b"one", epoch=3)
    dirs.disk.fail("append", "*.log", errno.ENOSPC)
    run = bytes(make_batch(b"two", base=1, epoch=3) + make_batch(b"three", base=2, epoch=5))
    with pytest.raises(DiskFull):
        log.append_replicated(run)
    dirs.disk.heal()
    log.append_replicated(run)
    assert log.end_offset == 3
    assert checkpoints.read_epochs(dirs.disk, f"{log.directory}/{checkpoints.EPOCHS}") == [(3, 0), (5, 2)]


def test_a_leader_whose_epoch_finds_no_room_cannot_append(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path)
    log = dirs.create()
    dirs.disk.fail("replace", "*/leader-epoch-checkpoint", errno.ENOSPC)
    log.assign_epoch(4)
    with pytest.raises(DiskFull):
        log.save_epochs()
    with pytest.raises(DiskFull):
        put(log, b"one", epoch=4)
    dirs.disk.heal()
    log.save_what_waits()
    assert checkpoints.read_epochs(dirs.disk, f"{log.directory}/{checkpoints.EPOCHS}") == [(4, 0)]
    put(log, b"one", epoch=4)


def test_a_cut_on_a_full_disk_forgets_epochs_before_the_next_append_not_after(tmp_path: Path) -> None:
    """Else records of an old epoch would stand in the file under a later one."""
    dirs = Dirs(tmp_path)
    log = dirs.create()
    put(log, b"one", epoch=1)
    put(log, b"two", epoch=2)
    full = dirs.disk.fail("replace", "*/leader-epoch-checkpoint", errno.ENOSPC)
    log.truncate_to(1)
    assert (log.end_offset, log.epochs.entries) == (1, [(1, 0)])
    batch = make_batch(b"three", base=1, epoch=1)
    with pytest.raises(DiskFull):
        log.append_replicated(batch)
    dirs.disk.heal(full)
    log.append_replicated(batch)
    assert dirs.reopen().epochs.entries == [(1, 0)]


def test_a_cut_that_cannot_be_prepared_takes_nothing_away(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path)
    log = dirs.create()
    put(log, b"one", epoch=1)
    put(log, b"two", epoch=2)
    log.flush()
    dirs.logs.checkpoint_recovery_points()
    generation, end, entries = log.generation, log.end_offset, list(log.epochs.entries)
    full = dirs.disk.fail("replace", "*/recovery-point-offset-checkpoint", errno.ENOSPC)
    for _ in range(2):
        with pytest.raises(DiskFull):
            log.truncate_to(1)
        with pytest.raises(DiskFull):
            log.restart_at(50)
    assert (log.generation, log.end_offset, log.epochs.entries) == (generation, end, entries)
    dirs.disk.heal(full)
    assert log.truncate_to(1) == 1
    points = checkpoints.read_offsets(dirs.disk, f"{dirs.paths[0]}/{checkpoints.RECOVERY_POINTS}")
    assert points[T0] == 1


def test_retention_makes_room_on_a_full_disk(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path, segment_bytes=100)
    log = dirs.create()
    for epoch in range(4):
        put(log, b"x" * 80, epoch=epoch)
    assert len(log.segments) == 4
    dirs.disk.fill(dirs.paths[0])
    going = log.retire(4, START_MS)
    assert len(log.segments) == 1, "the last one stays: a new one finds no room"
    assert log.start_offset == 3 and going
    dirs.disk.make_room(dirs.paths[0])
    put(log, b"y", epoch=4)
    assert log.end_offset == 5


def test_settings_that_find_no_room_are_in_force_and_written_later(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path)
    log = dirs.create()
    dirs.disk.fill(dirs.paths[0])
    with pytest.raises(DiskFull):
        log.configure(log.config.model_copy(update={"retention_ms": 5}))
    assert log.config.retention_ms == 5
    dirs.disk.make_room(dirs.paths[0])
    log.save_what_waits()
    assert "5" in Path(log.directory, checkpoints.TOPIC_CONFIG).read_text()


FILES_OF_A_ROLL = (".snapshot", ".index", ".timeindex", ".log")


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE], ids=errno.errorcode.get)
@pytest.mark.parametrize("suffix", FILES_OF_A_ROLL)
def test_a_roll_that_cannot_make_one_file_refuses_the_append_alone(
    tmp_path: Path, suffix: str, error: int
) -> None:
    """Neither is a fault of the disk. No file stands where the segment that grows will have its records."""
    dirs = Dirs(tmp_path, segment_bytes=260)
    log = dirs.create()
    put(log, b"x" * 100)
    fault = dirs.disk.fail("create replace", f"*{suffix}", error)
    with pytest.raises(DiskFull if error == errno.ENOSPC else NoDescriptor):
        put(log, b"x" * 100)
    assert fault.hits and (log.failed, log.end_offset, len(log.segments)) == (False, 1, 1)
    names = [path.name for path in Path(log.directory).iterdir()]
    assert not [name for name in names if name.startswith(f"{1:020d}") and not name.endswith(".snapshot")]
    put(log, b"y")  # there is room for this one where it is
    dirs.disk.heal(fault)
    put(log, b"x" * 100)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert dirs.reopen().end_offset == 3 and not dirs.doubts


# -- failed


@pytest.mark.parametrize("call", ["append", "truncate"])
def test_an_append_that_fails_closes_the_log_for_appends(tmp_path: Path, call: str) -> None:
    """Also when room was all that was missing, but the torn bytes cannot be cut."""
    dirs = Dirs(tmp_path)
    log = dirs.create()
    put(log, b"one")
    dirs.disk.fail("append", "*.log", errno.EIO if call == "append" else errno.ENOSPC, keep=5)
    if call == "truncate":
        dirs.disk.fail("truncate", "*.log")
    with pytest.raises(DiskFailed):
        put(log, b"two")
    dirs.disk.heal()
    with pytest.raises(DiskFailed):
        put(log, b"three")
    assert log.end_offset == 1


def test_a_failed_sync_is_never_tried_again(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path)
    log = dirs.create()
    put(log, b"one")
    dirs.disk.fail("sync", "*.log", times=1)
    other = log.begin_flush()
    with pytest.raises(DiskFailed):
        log.flush()
    asked = dirs.disk.asked("sync", "*.log")
    other.run()  # one that was under way: the pages count as clean now, so it goes well
    log.end_flush(other)
    assert log.flushed_offset == 0, "after a failed sync a later one proves nothing"
    assert dirs.disk.asked("sync", "*.log") == asked + 1
    assert dirs.logs.close() is False
    assert dirs.disk.asked("sync", "*.log") == asked + 1


# -- several directories


def test_new_logs_go_where_the_fewest_are(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path, NAMES)
    for number in range(5):
        dirs.create(number)
    held = [dirs.logs.directory_of(TopicPartition("t", number)) for number in range(5)]
    assert [held.count(path) for path in dirs.paths] == [3, 2]


def test_new_logs_go_where_there_is_room(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path, NAMES)
    dirs.logs.places.full[dirs.paths[0]] = "no room"
    assert {dirs.create(n).directory.rpartition("/")[0] for n in range(3)} == {dirs.paths[1]}


def test_a_log_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    """Else the next attempt, in another directory, would leave the partition in two."""
    dirs = Dirs(tmp_path, NAMES)
    full = dirs.disk.fail("replace", f"{dirs.paths[0]}/t-0/*", errno.ENOSPC)
    with pytest.raises(DiskFull):
        dirs.create()
    dirs.disk.heal(full)
    assert not Path(dirs.paths[0], "t-0").exists()


def test_a_directory_that_cannot_be_opened_is_offline_and_the_others_serve(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path, NAMES)
    for number in range(4):
        put(dirs.create(number), b"x")
    dirs.logs.close(clean=False)
    dirs.disk.fail("listdir", dirs.paths[0])
    logs = dirs.open()
    assert list(logs.places.offline) == [dirs.paths[0]]
    assert sorted(logs.logs) == [TopicPartition("t", 1), TopicPartition("t", 3)]
    with pytest.raises(ReplicaElsewhere):
        dirs.create(0, is_new=False)
    assert dirs.create(9, is_new=True).directory.startswith(dirs.paths[1])
    logs.checkpoint_recovery_points()


def test_without_any_directory_nothing_is_opened(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path, NAMES)
    dirs.logs.close(clean=False)
    dirs.disk.fail("listdir", f"{tmp_path}/?")
    with pytest.raises(OSError):
        dirs.open()


def test_a_directory_given_up_is_not_touched_again(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path, NAMES)
    for number in range(4):
        put(dirs.create(number), b"x")
    assert dirs.logs.give_up(dirs.paths[0], "EIO") == [TopicPartition("t", 0), TopicPartition("t", 2)]
    asked = len([path for _, path in dirs.disk.calls if path.startswith(dirs.paths[0])])
    dirs.logs.checkpoint_recovery_points()
    dirs.logs.checkpoint_high_watermarks(lambda: {TopicPartition("t", n): 1 for n in range(4)})
    assert dirs.logs.close()
    assert len([path for _, path in dirs.disk.calls if path.startswith(dirs.paths[0])]) == asked


def test_one_bad_checkpoint_does_not_keep_the_others_from_being_written(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path, NAMES)
    for number in range(2):
        put(dirs.create(number), b"x")
    dirs.disk.fail("replace", f"{dirs.paths[0]}/{checkpoints.HIGH_WATERMARKS}")
    with pytest.raises(DiskFailed) as failed:
        dirs.logs.checkpoint_high_watermarks(lambda: {TopicPartition("t", n): 1 for n in range(2)})
    assert dirs.logs.places.holding(failed.value.path) == dirs.paths[0]
    written = checkpoints.read_offsets(dirs.disk, f"{dirs.paths[1]}/{checkpoints.HIGH_WATERMARKS}")
    assert written == {TopicPartition("t", 1): 1}


@pytest.mark.parametrize("restart", [False, True])
def test_large_files_are_never_deleted_by_whoever_cuts(tmp_path: Path, restart: bool) -> None:
    """A gigabyte takes a quarter of a second: the loop renames, a thread deletes."""
    dirs = Dirs(tmp_path, segment_bytes=100)
    log = dirs.create()
    for _ in range(5):
        put(log, b"x" * 80)
    if restart:
        log.restart_at(1000)
    else:
        log.truncate_to(1)
    assert not dirs.disk.asked("unlink", "*.log*")
    left = [path for path in (tmp_path / "a" / "t-0").iterdir() if path.name.endswith(".log.gone.deleted")]
    assert len(left) == (5 if restart else 3)
    assert len(dirs.logs.condemned) == 3 * len(left)
    deletion = Deletion(dirs.disk, dirs.logs.condemned.due(0.0))
    while deletion:
        deletion.step(lambda: 0.0)
    assert not [path for path in (tmp_path / "a" / "t-0").iterdir() if path.name.endswith(".deleted")]


def test_a_log_whose_directory_cannot_be_renamed_stays(tmp_path: Path) -> None:
    """Else a topic created again under its name would begin on its files."""
    dirs = Dirs(tmp_path)
    log = dirs.create()
    put(log, b"a")
    fault = dirs.disk.fail("rename", "*/t-0", errno.ENOSPC)
    with pytest.raises(DiskFull):
        dirs.logs.remove(T0, UUID(int=1))
    assert dirs.logs.get(T0) is log and put(log, b"b") == 1
    dirs.disk.heal(fault)
    target = dirs.logs.remove(T0, UUID(int=1))
    assert Path(target).exists() and dirs.logs.get(T0) is None
    assert dirs.create().end_offset == 0


def test_that_there_are_gaps_is_written_down_before_the_first_one(tmp_path: Path) -> None:
    """A start would take the batch behind it for damage."""
    dirs = Dirs(tmp_path)
    disk, log, run = dirs.disk, dirs.create(), memoryview(make_batch(b"b", base=7))
    disk.fail("replace", "*/topic-config.json", errno.ENOSPC, times=1)
    with pytest.raises(DiskFull):
        log.append_replicated(run)
    assert (log.end_offset, log.size, log.gaps_allowed) == (0, 0, False)
    assert log.append_replicated(run) == len(run)
    assert b'"gaps":true' in disk.read(f"{log.directory}/topic-config.json").replace(b" ", b"")


def test_a_log_that_was_scanned_opens_no_index_to_append(tmp_path: Path) -> None:
    """For want of a descriptor records would stand in its file that it does not know of."""
    dirs = Dirs(tmp_path, index_interval_bytes=100)
    dirs.create()
    log = dirs.reopen()
    dirs.disk.fail("read open", "*index", errno.EMFILE)
    log.append_replicated(b"".join(make_batch(b"x" * 100, base=offset) for offset in range(3)))
    assert put(log, b"after") == 3
    assert dirs.reopen().end_offset == 4 and not dirs.doubts
