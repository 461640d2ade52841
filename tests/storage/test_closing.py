"""A clean stop of many logs: side by side, each for itself."""

import errno
from pathlib import Path
from threading import Barrier

import pytest

from strandline.base.types import TopicPartition
from strandline.storage.config import TopicConfig
from strandline.storage.directories import close_logs
from strandline.storage.directories.workers import in_threads
from tests.storage.conftest import put
from tests.storage.log_dirs import Dirs

TOGETHER_S = 10.0


def filled(root: Path, count: int, **settings: int) -> Dirs:
    dirs = Dirs(root, **settings)
    config = TopicConfig.of(dirs.config)
    wanted = [dirs.logs.fresh(TopicPartition("t", n), None, config) for n in range(count)]
    dirs.logs.make(wanted)
    for n, fresh in enumerate(wanted):
        put(dirs.logs.begin(fresh), b"%d" % n, pid=n, seq=0)
    return dirs


def ends(dirs: Dirs) -> list[int]:
    return [each.end_offset for _, each in sorted(dirs.logs.logs.items())]


def test_many_logs_wait_for_the_medium_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No sync of a log's directory ends before as many others have begun: one after the other none would."""
    dirs = filled(tmp_path, 3 * close_logs.LANES)
    meeting, sync_dir, met = Barrier(close_logs.LANES), dirs.disk.inner.sync_dir, []

    def together(path: str) -> None:
        if path != dirs.paths[0]:  # of a log
            met.append(meeting.wait(TOGETHER_S))
        sync_dir(path)

    monkeypatch.setattr(dirs.disk.inner, "sync_dir", together)
    assert dirs.logs.close(crew=in_threads)
    assert len(met) == 3 * close_logs.LANES


@pytest.mark.parametrize("share", [1, 7, 100])
def test_a_log_that_cannot_be_synced_is_alone_in_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: int
) -> None:
    monkeypatch.setattr(close_logs, "SHARE", share)
    dirs = filled(tmp_path, 20)
    dirs.disk.fail("sync", "*/t-7/*.log", errno.EIO)
    assert not dirs.logs.close(crew=in_threads)
    assert [each.partition.partition for each in dirs.logs.logs.values() if each.failed] == [7]
    assert all(each.closed for each in dirs.logs.logs.values())
    snapshots = [path for path in tmp_path.glob("a/t-*/*.snapshot") if int(path.stem)]
    assert len(snapshots) == 20, "what makes a start fast is there, of the one that failed too"


def test_with_few_descriptors_none_is_closed_under_a_thread(tmp_path: Path) -> None:
    """More logs than may have a file open: closing one opens its file, and lets another's go."""
    dirs = filled(tmp_path, 60, open_files_max=20)
    assert dirs.logs.close(crew=in_threads)
    dirs.open()
    assert ends(dirs) == [1] * 60
    assert not dirs.doubts
