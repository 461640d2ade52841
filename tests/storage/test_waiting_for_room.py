"""What a broker leaves undone for want of room, and what it makes of that when there is some."""

import errno
from pathlib import Path
from uuid import UUID

import pytest

from strandline.storage.config import TopicConfig
from strandline.storage.disk import ReplicaElsewhere

from .conftest import T0, put
from .log_dirs import Dirs


def test_a_full_disk_lets_logs_go(tmp_path: Path) -> None:
    dirs = Dirs(tmp_path)
    put(dirs.create(), b"a")
    dirs.logs.checkpoint_high_watermarks({T0: 1})
    dirs.disk.fail("replace", "*-checkpoint", errno.ENOSPC)
    dirs.logs.remove(T0, UUID(int=1))
    dirs.logs.close(clean=False)
    dirs.open()
    assert dirs.doubts == [], "its name tells that it was removed"


def test_a_log_waits_for_room_to_be_mended_in_and_is_opened_then(tmp_path: Path) -> None:
    """Others of the directory are open meanwhile; where it began and what was promised stays written down."""
    dirs = Dirs(tmp_path)
    torn, whole = dirs.create(0), dirs.create(1)
    for each in (torn, whole):
        for value in (b"a", b"b", b"c"):
            put(each, value)
    torn.move_start(1)
    dirs.logs.checkpoint_start_offsets()
    dirs.logs.checkpoint_high_watermarks({torn.partition: 3, whole.partition: 3})
    (file,) = Path(torn.directory).glob("*.log")
    dirs.logs.close(clean=False)
    file.write_bytes(file.read_bytes() + b"\xff" * 100)
    full = dirs.disk.fail("mkdir", f"{dirs.paths[0]}.aside", errno.ENOSPC)
    dirs.open()
    assert set(dirs.logs.logs) == {whole.partition} and dirs.logs.closed == {torn.partition}
    with pytest.raises(ReplicaElsewhere):
        dirs.logs.create(torn.partition, None, TopicConfig.of(dirs.config))
    dirs.logs.checkpoint_recovery_points()
    dirs.logs.checkpoint_high_watermarks({})
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
