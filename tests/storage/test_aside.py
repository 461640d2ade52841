"""What had to leave a log is kept, with its reason, within bounds."""

import errno
from pathlib import Path

import pytest

from strandline.base.types import TopicPartition
from strandline.storage.disk import RealDisk
from strandline.storage.quarantine import NOTE, Aside, Kept, Removal, expired, tidy
from tests.storage.conftest import T0, Place, put
from tests.storage.faulty_disk import FaultyDisk

DAY_MS = 86_400_000


def removal(at_ms: int = 5, partition: str = "t-0") -> Removal:
    return Removal(
        partition=partition, at_ms=at_ms, cause="truncation", reason="the new leader has less", from_offset=7,
        end_offset=9, epochs=((1, 7), (2, 8)), high_watermark=7, acknowledged="leader",
    )  # fmt: skip


def test_a_removal_is_found_again_with_all_that_was_said(tmp_path: Path) -> None:
    log_dir = tmp_path / "data"
    (log_dir / "t-0").mkdir(parents=True)
    whole, part = log_dir / "t-0" / "00000000000000000007.log", log_dir / "t-0" / "00000000000000000000.log"
    whole.write_bytes(b"whole")
    part.write_bytes(b"kept|cut")
    aside = Aside(RealDisk(), str(log_dir))
    assert aside.all() == []
    shelf = aside.shelf(removal())
    shelf.move(str(whole))
    shelf.copy(str(part), 5)
    shelf.close()
    (kept,) = aside.all(T0)
    assert kept.removal == removal()
    assert not whole.exists() and part.read_bytes() == b"kept|cut"
    files = {path.name: path.read_bytes() for path in Path(kept.path).iterdir() if path.name != NOTE}
    assert files == {whole.name: b"whole", f"{part.name}@5": b"cut"}
    assert Path(kept.path).parent == tmp_path / "data.aside", "beside the log directory, not in it"


def test_the_place_is_on_the_medium_before_anything_is_moved_to_it(tmp_path: Path) -> None:
    disk = FaultyDisk()
    aside = Aside(disk, str(tmp_path / "data"))
    for place in range(2):
        aside.shelf(removal())
        assert disk.asked("sync_dir", str(tmp_path)) == 1, "once is enough"
        assert disk.asked("sync_dir", aside.path) == place + 1


def test_two_at_the_same_moment_do_not_meet_and_others_are_told_apart(tmp_path: Path) -> None:
    aside = Aside(RealDisk(), str(tmp_path / "data"))
    long = TopicPartition("x" * 249, 12345)
    paths = {aside.shelf(each).path for each in (removal(), removal(), removal(partition="t-00"))}
    paths.add(aside.shelf(removal(partition=str(long))).path)
    assert len(paths) == 4
    assert len(aside.all(T0)) == 2
    assert len(aside.all(long)) == 1
    (Path(aside.path) / "notes.txt").write_text("somebody's")
    broken = Path(aside.all(T0)[0].path) / NOTE
    broken.write_text("{")
    assert len(aside.all(T0)) == 2, "a note that cannot be read hides nothing"


def test_a_shelf_on_another_file_system_is_filled_by_copying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk()
    (tmp_path / "a.log").write_bytes(b"x" * 3_000_000)

    def refuse(source: str, target: str) -> None:
        raise OSError(errno.EXDEV, "another device")

    monkeypatch.setattr(disk, "rename", refuse)
    shelf = Aside(disk, str(tmp_path / "data")).shelf(removal())
    shelf.move(str(tmp_path / "a.log"))
    assert Path(shelf.path, "a.log").read_bytes() == b"x" * 3_000_000
    assert not (tmp_path / "a.log").exists()


def test_the_oldest_go_when_there_is_too_much_and_the_old_anyway() -> None:
    kept = [Kept(str(n), removal(), at_ms=n * 100, nbytes=10) for n in range(5)]
    assert expired(kept, now_ms=400, retention_ms=-1, bytes_max=-1) == []
    assert [k.path for k in expired(kept, 400, retention_ms=-1, bytes_max=25)] == ["0", "1", "2"]
    assert [k.path for k in expired(kept, 400, retention_ms=250, bytes_max=-1)] == ["0", "1"]
    assert expired(kept, 400, retention_ms=400, bytes_max=50) == []


ONLY_COPIES = {
    "taken out by recovery": removal().model_copy(update={"cause": "recovery"}),
    "committed": removal().model_copy(update={"high_watermark": 8}),
    "cut by an unclean leader": removal().model_copy(update={"unclean": True}),
    "acknowledged by all": removal().model_copy(update={"acknowledged": "all"}),
    "unknown": None,
}


@pytest.mark.parametrize("note", ONLY_COPIES.values(), ids=ONLY_COPIES)
def test_what_may_be_the_only_copy_never_goes_for_its_size(note: Removal | None) -> None:
    only = Kept("/data.aside/t-0.0-0", note, at_ms=0, nbytes=11 << 30)
    others = [Kept(f"{n}", removal(), at_ms=n, nbytes=10) for n in (1, 2)]
    asked: list[str] = []
    assert expired([only, *others], now_ms=9, retention_ms=-1, bytes_max=20) == []
    assert expired([only, *others], 9, retention_ms=-1, bytes_max=10) == others[:1]
    assert expired([only], DAY_MS, retention_ms=DAY_MS - 1, bytes_max=0) == [], "nor for its age"
    assert expired([only], DAY_MS, DAY_MS - 1, 0, lambda name: asked.append(name) or True) == [only]
    assert asked == ["t-0"], "unless another replica is in sync"


def test_a_pass_deletes_what_the_bounds_do_not_allow(tmp_path: Path) -> None:
    disk, dirs = RealDisk(), [str(tmp_path / "a"), str(tmp_path / "b")]
    old = [Aside(disk, each).shelf(removal(at_ms=0)).path for each in dirs]
    new = Aside(disk, dirs[0]).shelf(removal(at_ms=2 * DAY_MS)).path
    assert tidy(disk, dirs, now_ms=2 * DAY_MS, retention_ms=DAY_MS, bytes_max=-1) == old
    assert [k.path for k in Aside(disk, dirs[0]).all()] == [new]


def test_a_failed_move_leaves_a_log_without_a_gap(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for n in range(30):
        put(place.log, b"%03d" % n * 40)
    place.die()
    files = sorted(place.file("").glob("*.log"))
    files[1].write_bytes(b"?" * 100)
    rename, moved = place.disk.rename, []

    def once(source: str, target: str) -> None:
        if ".aside" in target:
            moved.append(source)
            if len(moved) == 5:
                raise OSError(errno.EIO, "gone")
        rename(source, target)

    monkeypatch.setattr(place.disk, "rename", once)
    with pytest.raises(OSError, match="gone"):
        place.start()
    assert place.doubts, "it was noted before"
    left = sorted(place.file("").glob("*.log"))
    assert left == files[: len(left)] and 2 < len(left) < len(files), "the last one went first"
    monkeypatch.undo()
    assert place.start().end_offset == int(files[1].stem)


def test_a_place_that_nobody_may_look_into_spares_the_others(tmp_path: Path) -> None:
    disk = FaultyDisk()
    dirs = [str(tmp_path / name) for name in "abc"]
    shelves = [Aside(disk, log_dir).shelf(removal(at_ms=1)).path for log_dir in dirs]
    disk.fail("listdir", f"{dirs[0]}.aside", errno.EACCES)
    disk.fail("rmtree", f"{dirs[1]}.aside/*", errno.EACCES)
    assert tidy(disk, dirs, now_ms=2 * DAY_MS, retention_ms=DAY_MS, bytes_max=-1) == shelves[2:]
    assert [Path(path).exists() for path in shelves] == [True, True, False]
