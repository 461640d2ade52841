"""What a broker leaves undone for want of room, and what it makes of that when there is some."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from strandline.storage.config import TopicConfig
from strandline.storage.disk import ReplicaElsewhere
from strandline.storage.log.checkpoints import RECOVERY_POINTS, read_offsets
from strandline.storage.log.log import Log
from tests.storage.conftest import T0, put
from tests.storage.log_dirs import Dirs


def test_a_full_disk_lets_logs_go(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path)
    put(dirs.create(), b"a")
    dirs.logs.checkpoint_high_watermarks(lambda: {T0: 1})
    dirs.disk.fail("replace", "*-checkpoint", errno.ENOSPC)
    dirs.logs.remove(T0, UUID(int=1))
    dirs.logs.close(clean=False)
    dirs.open()
    assert dirs.doubts == [], "its name tells that it was removed"


def test_who_is_opened_late_brings_nothing_back_about_others(tmp_path: Path) -> None:
    """A log that was removed and made again is not compacted, whatever its file still says."""
    dirs = Dirs(tmp_path)
    late, other = dirs.create(0), dirs.create(1)
    for each in (late, other):
        put(each, b"a")
        dirs.logs.cleaned.note(each.partition, 1, dirs.logs.cleaned.cuts(each.partition))
    (file,) = Path(late.directory).glob("*.log")
    dirs.logs.close(clean=False)
    file.write_bytes(file.read_bytes() + b"\xff" * 100)
    full = dirs.disk.fail("mkdir", f"{dirs.paths[0]}.aside", errno.ENOSPC)
    dirs.open()
    dirs.logs.remove(other.partition, UUID(int=1))
    dirs.create(1)
    dirs.disk.heal(full)
    dirs.logs.take_again(dirs.logs.open_again(dirs.paths[0]))
    assert dirs.logs.cleaned.get(late.partition) == 1
    assert dirs.logs.cleaned.get(other.partition) is None


def waiting(root: Path) -> tuple[Dirs, Log]:
    """A log with three flushed records that was not opened: what is torn at its end found no room aside."""
    dirs = Dirs(root)
    torn = dirs.create(0)
    for value in (b"a", b"b", b"c"):
        put(torn, value)
    torn.flush()
    dirs.logs.checkpoint_recovery_points()
    (file,) = Path(torn.directory).glob("*.log")
    dirs.logs.close(clean=False)
    file.write_bytes(file.read_bytes() + b"\xff" * 100)
    full = dirs.disk.fail("mkdir", f"{dirs.paths[0]}.aside", errno.ENOSPC)
    dirs.open()
    assert dirs.logs.closed == {torn.partition}
    dirs.disk.heal(full)
    return dirs, torn


def test_up_to_where_a_waiting_log_is_on_the_medium_stays_written_down(tmp_path: Path) -> None:
    """After a power loss, what compaction took away before that point would pass for lost without it."""
    dirs, torn = waiting(tmp_path)
    dirs.logs.checkpoint_recovery_points()
    points = read_offsets(dirs.disk, f"{dirs.paths[0]}/{RECOVERY_POINTS}")
    assert points == {torn.partition: 3}


def test_who_was_removed_while_it_was_opened_is_gone(tmp_path: Path) -> None:
    dirs, torn = waiting(tmp_path)
    opened = dirs.logs.open_again(dirs.paths[0])
    dirs.logs.remove(torn.partition, UUID(int=1))
    made = dirs.create(0)
    dirs.logs.take_again(opened)
    assert dirs.logs.get(torn.partition) is made and made.end_offset == 0
    assert put(made, b"new") == 0


def test_a_thread_that_opens_a_log_leaves_the_files_of_others_alone(tmp_path: Path) -> None:
    """The loop may be about to use the one that it would have closed."""
    dirs, torn = waiting(tmp_path)
    others = [dirs.create(number) for number in range(1, 4)]
    shared = dirs.logs._open_segments
    shared.files_max = 3
    opened = dirs.logs.open_again(dirs.paths[0])
    assert all(each.segments[-1]._file is not None for each in others)
    dirs.logs.take_again(opened)
    assert shared.open_files == 3
    assert put(dirs.logs.logs[torn.partition], b"d") == 3


def test_no_log_is_made_in_the_place_of_one_that_a_thread_mends(tmp_path: Path) -> None:
    dirs, torn = waiting(tmp_path)
    mkdir, refused = dirs.disk.mkdir, []

    def removed_meanwhile(path: str) -> None:
        if dirs.logs.holds(torn.partition):
            dirs.logs.remove(torn.partition, UUID(int=1))
            with pytest.raises(ReplicaElsewhere) as info:
                dirs.create(0)
            refused.append(info.value)
        mkdir(path)

    dirs.disk.mkdir = removed_meanwhile  # type: ignore[method-assign]
    opened = dirs.logs.open_again(dirs.paths[0])
    dirs.logs.take_again(opened)
    assert len(refused) == 1 and not dirs.logs.holds(torn.partition)
    assert dirs.create(0).end_offset == 0


def test_a_log_waits_for_room_to_be_mended_in_and_is_opened_then(tmp_path: Path) -> None:
    """Others of the directory are open meanwhile; where it began and what was promised stays written down."""
    dirs = Dirs(tmp_path)
    torn, whole = dirs.create(0), dirs.create(1)
    for each in (torn, whole):
        for value in (b"a", b"b", b"c"):
            put(each, value)
    torn.move_start(1)
    dirs.logs.checkpoint_start_offsets()
    dirs.logs.checkpoint_high_watermarks(lambda: {torn.partition: 3, whole.partition: 3})
    (file,) = Path(torn.directory).glob("*.log")
    dirs.logs.close(clean=False)
    file.write_bytes(file.read_bytes() + b"\xff" * 100)
    full = dirs.disk.fail("mkdir", f"{dirs.paths[0]}.aside", errno.ENOSPC)
    dirs.open()
    assert set(dirs.logs.logs) == {whole.partition} and dirs.logs.closed == {torn.partition}
    with pytest.raises(ReplicaElsewhere):
        dirs.logs.create(torn.partition, None, TopicConfig.of(dirs.config))
    dirs.logs.checkpoint_recovery_points()
    dirs.logs.checkpoint_high_watermarks(dict)
    dirs.logs.take_again(dirs.logs.open_again(dirs.paths[0]))
    assert dirs.logs.closed == {torn.partition}, "there is still no room"
    assert not dirs.logs.close(), "a clean stop would have the next start believe what is torn"
    dirs.open()
    assert dirs.logs.closed == {torn.partition}
    dirs.disk.heal(full)
    dirs.logs.take_again(dirs.logs.open_again(dirs.paths[0]))
    opened = dirs.logs.logs[torn.partition]
    assert (opened.start_offset, opened.end_offset, dirs.logs.high_watermarks[torn.partition]) == (1, 3, 3)
    assert not dirs.logs.closed
