"""Many new logs, many new epochs: made apart from the loop, and brought to the medium together."""

from pathlib import Path
from uuid import UUID

import pytest

from strandline.protocol.kinds import TopicPartition
from strandline.storage import together
from strandline.storage.config import TopicConfig
from strandline.storage.disk import DiskError, DiskFailed
from strandline.storage.fresh import Fresh
from strandline.storage.log import Log

from .test_disk_faults import Dirs


def prepare(dirs: Dirs, count: int) -> list[Fresh]:
    config = TopicConfig.of(dirs.config)
    wanted = [dirs.logs.fresh(TopicPartition("t", n), UUID(int=7), config) for n in range(count)]
    for fresh in wanted:
        fresh.make(dirs.disk, 0, sync=False)
    return wanted


def begin(dirs: Dirs, count: int) -> list[Log]:
    return [dirs.logs.begin(fresh) for fresh in prepare(dirs, count)]


def test_many_are_brought_to_the_medium_by_one_call_and_few_by_their_files(tmp_path: Path) -> None:
    for count, calls in ((together.MANY, {"sync_all": 1, "sync": 0}), (2, {"sync_all": 0, "sync": 4})):
        dirs = Dirs(tmp_path / str(count))
        logs = begin(dirs, count)
        dirs.disk.calls.clear()
        assert together.settle_new(dirs.disk, logs) == []
        assert {call: dirs.disk.asked(call) for call in calls} == calls
        for log in logs:
            log.assign_epoch(3)
        dirs.disk.calls.clear()
        assert together.save_epochs(dirs.disk, logs) == []
        assert dirs.disk.asked("sync_all") == calls["sync_all"]
        for log in logs:
            assert (Path(log.directory) / "leader-epoch-checkpoint").read_text() == "0\n1\n3 0\n"


def test_what_could_not_be_made_sure_has_failed_for_all_of_that_directory(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path, ("a", "b"))
    logs = begin(dirs, together.MANY)
    assert {log.directory.rsplit("/", 2)[1] for log in logs} == {"a", "b"}, "they go where the fewest are"
    dirs.disk.fail("sync_all", dirs.paths[1])
    failed = together.settle_new(dirs.disk, logs)
    assert [log.directory.rsplit("/", 2)[1] for log, _ in failed] == ["b"] * (together.MANY // 2)
    assert all(isinstance(error, DiskFailed) for _, error in failed)


def test_one_that_cannot_be_written_is_one(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path)
    logs = begin(dirs, together.MANY)
    for log in logs:
        log.assign_epoch(3)
    dirs.disk.fail("replace", "*/t-5/*")
    assert [log.partition.partition for log, _ in together.save_epochs(dirs.disk, logs)] == [5]


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
