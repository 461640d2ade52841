"""Many new logs, many new epochs: made apart from the loop, and brought to the medium together."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from strandline.base.types import TopicPartition
from strandline.storage.config import TopicConfig
from strandline.storage.disk import DiskError, DiskFailed, DiskFull
from strandline.storage.log import bulk_sync
from strandline.storage.log.log import Log
from strandline.storage.log.new_log import Fresh
from tests.storage.conftest import put
from tests.storage.log_dirs import Dirs


def prepare(dirs: Dirs, count: int) -> list[Fresh]:
    config = TopicConfig.of(dirs.config)
    wanted = [dirs.logs.fresh(TopicPartition("t", n), UUID(int=7), config) for n in range(count)]
    dirs.logs.make(wanted)
    return wanted


def begin(dirs: Dirs, count: int) -> list[Log]:
    return [dirs.logs.begin(fresh) for fresh in prepare(dirs, count)]


def test_many_are_brought_to_the_medium_by_one_call_and_few_by_their_files(tmp_path: Path) -> None:
    for count, calls in ((bulk_sync.MANY, {"sync_all": 1, "sync": 0}), (2, {"sync_all": 0, "sync": 4})):
        dirs = Dirs(tmp_path / str(count))
        logs = begin(dirs, count)
        dirs.disk.calls.clear()
        assert bulk_sync.settle_new(dirs.disk, logs) == []
        assert {call: dirs.disk.asked(call) for call in calls} == calls


def test_a_failover_waits_for_no_sync(tmp_path: Path) -> None:
    """Epochs of new leaders are written; the next flush syncs them."""
    for count in (bulk_sync.MANY, 2):
        dirs = Dirs(tmp_path / str(count))
        logs = begin(dirs, count)
        for log in logs:
            put(log, b"x")
            log.flush()
            log.assign_epoch(3)
        dirs.disk.calls.clear()
        assert bulk_sync.save_epochs(logs) == []
        assert dirs.disk.asked("sync*") == 0
        for log in logs:
            path = f"{log.directory}/leader-epoch-checkpoint"
            assert Path(path).read_text() == "0\n2\n0 0\n3 1\n"
            log.flush()
            assert dirs.disk.asked("sync", path) == 1


class WrittenMeanwhile(set[str]):
    """Names of small files that wait for a sync. A thread replaces the epoch file as they are looked at."""

    def copy(self) -> set[str]:
        found = set(self)
        self.add("leader-epoch-checkpoint")
        return found


def test_a_file_that_is_written_while_a_flush_begins_is_synced_by_the_next_one(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path)
    (log,) = begin(dirs, 1)
    path = f"{log.directory}/leader-epoch-checkpoint"
    put(log, b"x")
    log.flush()
    log._flush_state._beside = WrittenMeanwhile({"topic-config.json"})
    put(log, b"y")
    dirs.disk.calls.clear()
    log.flush()
    assert dirs.disk.asked("sync", path) == 0
    log._flush_state._beside = set(log._flush_state._beside)
    log.flush()
    assert dirs.disk.asked("sync", path) == 1


def remove_all(dirs: Dirs) -> None:
    for n, partition in enumerate(list(dirs.logs.logs)):
        dirs.logs.remove(partition, UUID(int=n), sync=False)


def lived(tmp_path: Path, count: int) -> Dirs:
    """A topic in two directories, of whose partitions something is promised in every checkpoint."""
    dirs = Dirs(tmp_path, ("a", "b"))
    for log in begin(dirs, count):
        put(log, b"x", b"y")
        put(log, b"z")
        log.flush()
        log.move_start(1)
        dirs.logs.cleaned.note(log.partition, 2, 0)
    dirs.logs.checkpoint_high_watermarks(lambda: dict.fromkeys(dirs.logs.logs, 3))
    dirs.logs.checkpoint_recovery_points()
    return dirs


def promised(dirs: Dirs) -> str:
    return "".join(path.read_text() for root in dirs.paths for path in Path(root).glob("*-checkpoint"))


def test_a_topic_that_is_made_again_costs_the_loop_no_file_call(tmp_path: Path) -> None:
    dirs = lived(tmp_path, 6)
    assert "t 5 3" in promised(dirs)
    remove_all(dirs)
    dirs.logs.settle_removals()
    assert not dirs.logs.high_watermarks
    dirs.disk.calls.clear()
    config = TopicConfig.of(dirs.config)
    wanted = [dirs.logs.fresh(TopicPartition("t", n), UUID(int=8), config) for n in range(6)]
    assert dirs.disk.calls == []
    dirs.logs.make(wanted)
    logs = [dirs.logs.begin(fresh) for fresh in wanted]
    assert dirs.disk.asked("replace", "*-checkpoint") <= 2, "the cleaner's, once a directory"
    assert promised(dirs).replace("0\n0\n", "") == ""
    put(logs[0], b"new")
    dirs.reopen()
    assert dirs.logs.logs[TopicPartition("t", 0)].end_offset == 1
    assert not dirs.doubts


def test_nothing_is_promised_of_a_new_log_when_its_predecessor_was_not_forgotten(tmp_path: Path) -> None:
    """There was no room to write that down, or no time: the new log is made first."""
    dirs = lived(tmp_path, 6)
    remove_all(dirs)
    config = TopicConfig.of(dirs.config)
    wanted = [dirs.logs.fresh(TopicPartition("t", n), UUID(int=8), config) for n in range(6)]
    dirs.disk.calls.clear()
    dirs.logs.make(wanted)
    assert dirs.disk.asked("replace", "*-checkpoint") <= 8, "each file once, however many logs"
    put(dirs.logs.begin(wanted[0]), b"new")
    for fresh in wanted[1:]:
        dirs.logs.begin(fresh)
    dirs.reopen()
    assert [log.end_offset for _, log in sorted(dirs.logs.logs.items())] == [1, 0, 0, 0, 0, 0]
    assert not dirs.doubts


def test_what_cannot_be_taken_back_keeps_the_new_log_from_being_made(tmp_path: Path) -> None:
    dirs = lived(tmp_path, 2)
    remove_all(dirs)
    dirs.disk.fail("replace", "*/recovery-point-offset-checkpoint", errno.ENOSPC)
    wanted = [dirs.logs.fresh(TopicPartition("t", n), None, TopicConfig.of(dirs.config)) for n in range(2)]
    dirs.logs.make(wanted)
    for fresh in wanted:
        with pytest.raises(DiskFull):
            dirs.logs.begin(fresh)
    assert not dirs.logs.logs


def test_what_could_not_be_made_sure_has_failed_for_all_of_that_directory(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path, ("a", "b"))
    logs = begin(dirs, bulk_sync.MANY)
    assert {log.directory.rsplit("/", 2)[1] for log in logs} == {"a", "b"}, "they go where the fewest are"
    dirs.disk.fail("sync_all", dirs.paths[1])
    failed = bulk_sync.settle_new(dirs.disk, logs)
    assert [log.directory.rsplit("/", 2)[1] for log, _ in failed] == ["b"] * (bulk_sync.MANY // 2)
    assert all(isinstance(error, DiskFailed) for _, error in failed)


def test_one_that_cannot_be_written_is_one(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path)
    logs = begin(dirs, bulk_sync.MANY)
    for log in logs:
        log.assign_epoch(3)
    dirs.disk.fail("replace", "*/t-5/*")
    assert [log.partition.partition for log, _ in bulk_sync.save_epochs(logs)] == [5]


def test_a_log_that_cannot_be_made_leaves_nothing_behind(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path)
    dirs.disk.fail("create", "*/t-1/*")
    wanted = prepare(dirs, 3)
    assert [fresh.error is None for fresh in wanted] == [True, False, True]
    with pytest.raises(DiskError):
        dirs.logs.begin(wanted[1])
    assert not dirs.disk.exists(wanted[1].path)


def test_a_directory_that_was_given_up_meanwhile_gets_no_log(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path, ("a", "b"))
    first, second = prepare(dirs, 2)
    dirs.logs.places.lose(first.directory, "broken")
    with pytest.raises(DiskFailed):
        dirs.logs.begin(first)
    assert dirs.logs.begin(second).end_offset == 0
