"""All logs of a broker at once: which are opened, what is in the way, how far it is."""

import shutil
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest
from structlog.testing import capture_logs

from strandline.base.types import TopicPartition
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories import open_logs
from strandline.storage.directories.log_manager import STRAY, AmbiguousDirectory, Logs
from strandline.storage.directories.workers import in_threads
from strandline.storage.disk import RealDisk
from strandline.storage.log import checkpoints
from tests.storage.conftest import START_MS, T0, FixedClock, Place, put

CONFIG = StorageConfig(segment_bytes=1000, index_interval_bytes=100)


class Running:
    """A clock that goes a little at every look."""

    def __init__(self, step_ms: int) -> None:
        self.now, self.step = START_MS, step_ms

    def wall_ms(self) -> int:
        self.now += self.step
        return self.now


def opened(dirs: Sequence[Path], clock: object = None, **more: object) -> Logs:
    return Logs.open(
        [str(path) for path in dirs], RealDisk(), CONFIG, clock or FixedClock(), clean=False,
        before_loss=more.pop("before_loss", lambda *_: None), **more,
    )  # type: ignore[arg-type]  # fmt: skip


def filled(dirs: Sequence[Path], count: int = 6) -> None:
    logs = opened(dirs)
    for n in range(count):
        each = logs.create(TopicPartition("t", n), None, TopicConfig.of(CONFIG))
        for m in range(10):
            put(each, b"%d" % m * 150)
    logs.close(clean=False)


def test_directories_and_logs_are_recovered_at_once_and_the_result_is_the_same(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in "ab"]
    filled(dirs)
    for partition in ("t-1", "t-2", "t-5"):
        (path,) = tmp_path.glob(f"?/{partition}/{0:020d}.log")
        path.write_bytes(path.read_bytes()[:-1])
    seen: list[str] = []
    threads: set[int] = set()

    def note(partition: TopicPartition, _: str) -> None:
        seen.append(str(partition))
        threads.add(threading.get_ident())

    def crew(works: Sequence[Callable[[], object]], count: int) -> list[object]:
        return in_threads(works, max(count, 3))

    logs = opened(dirs, before_loss=note, crew=crew)
    assert sorted(seen) == ["t-1", "t-2", "t-5"]
    assert threading.get_ident() not in threads
    at_once = [(r.partition, r.losses) for r in logs.recovered]
    assert [str(p) for p, _ in at_once] == ["t-0", "t-2", "t-4", "t-1", "t-3", "t-5"], "in their order"
    logs.close(clean=False)
    again = opened(dirs)
    assert {p: each.end_offset for p, each in again.logs.items()} == {
        p: each.end_offset for p, each in logs.logs.items()
    }
    again.close(clean=False)


def test_the_first_failure_is_told_after_all_have_ended() -> None:
    ended: list[int] = []

    def work(n: int) -> int:
        if n in (1, 3):
            raise ValueError(str(n))
        ended.append(n)
        return n

    with pytest.raises(ValueError, match="1"):
        in_threads([lambda n=n: work(n) for n in range(5)], 2)  # type: ignore[misc]
    assert sorted(ended) == [0, 2, 4]


def test_progress_is_told_once_a_second_and_at_the_end(tmp_path: Path) -> None:
    filled([tmp_path / "a"])
    with capture_logs() as lines:
        opened([tmp_path / "a"], Running(step_ms=300)).close(clean=False)
    told = [line for line in lines if line["event"].startswith("recovery_")]
    assert told[-1]["event"] == "recovery_finished"
    assert told[-1]["logs"] == "6/6"
    done, total = map(int, told[-1]["bytes"].split("/"))
    assert done == total > 0
    times = [line["elapsed_ms"] for line in told[:-1]]
    assert len(times) > 1 and all(later - earlier >= 1000 for earlier, later in pairwise(times))
    bytes_done = [int(line["bytes"].split("/")[0]) for line in told]
    assert bytes_done == sorted(bytes_done)


def test_nothing_is_changed_when_a_partition_lies_in_two_places(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in "ab"]
    filled(dirs, 2)
    (tmp_path / "b" / "t-0").mkdir()
    torn = tmp_path / "a" / "t-0" / f"{0:020d}.log"
    torn.write_bytes(torn.read_bytes() + b"torn")
    before = torn.read_bytes()
    with pytest.raises(AmbiguousDirectory, match="t-0"):
        opened(dirs)
    assert torn.read_bytes() == before


@pytest.mark.parametrize(
    "name", [f"{0:020d}.log", f"{0:020d}.index", checkpoints.EPOCHS, "topic-config.json"]
)
def test_a_directory_in_the_place_of_a_file_keeps_that_log_shut(place: Place, name: str) -> None:
    put(place.log, b"x")
    place.die()
    place.file(name).unlink(missing_ok=True)
    place.file(name).mkdir()
    assert name in shut(place, clean=True)


def shut(place: Place, clean: bool = False, partition: TopicPartition = T0) -> str:
    """Why the log is not open after a start."""
    place.logs = place._open(clean)
    assert partition not in place.logs.logs
    assert any(str(partition) in doubt for doubt in place.doubts), "its replica vouches for nothing"
    assert not place.logs.close(), "whatever it is, it must be looked at again"
    return place.logs.spoilt[partition]


def test_a_log_is_no_symbolic_link_nor_has_any(place: Place, tmp_path: Path) -> None:
    put(place.log, b"x")
    place.die()
    segment, elsewhere = place.file(f"{0:020d}.log"), tmp_path / "elsewhere"
    segment.rename(elsewhere)
    segment.symlink_to(elsewhere)
    assert "symbolic link" in shut(place)
    segment.unlink()
    elsewhere.rename(segment)
    (Path(place.root) / "u-0").symlink_to(place.file(""))
    assert "symbolic link" in shut(place, partition=TopicPartition("u", 0))
    (Path(place.root) / "u-0").unlink()
    assert place.start().end_offset == 1


def test_names_of_logs_that_are_leaving_coming_or_strange(place: Place) -> None:
    put(place.log, b"x")
    place.die()
    root, digits = Path(place.root), "0123456789abcdef0123456789abcdef"
    kept = [f"t-1.{digits}-stray", "precious-delete", f"t-x.{digits}-delete"]
    coming = f"t-1.{digits}-future"
    for name in (*kept, coming, f"t-1.{digits}-delete"):
        (root / name).mkdir()
    (root / f"t-2.{digits}-delete").write_text("a file")
    place.start()
    assert set(place.logs.logs) == {T0}
    place.purge()
    assert sorted(path.name for path in root.iterdir() if "-delete" in path.name) == sorted(
        ["precious-delete", f"t-x.{digits}-delete", f"t-2.{digits}-delete"]
    ), "only what is named as a log that is being deleted is deleted"
    assert all((root / name).exists() for name in kept)
    assert not (root / coming).exists(), "a copy that nobody finishes: the log is where it was"
    assert place.logs.interrupted == {TopicPartition("t", 1): place.root}


def killed_after(dirs: Sequence[Path], count: int, topic: str = "t") -> Logs:
    """A broker that has written its checkpoints and is killed later."""
    logs = opened(dirs)
    for n in range(count):
        put(logs.create(TopicPartition(topic, n), None, TopicConfig.of(CONFIG)), b"x")
    logs.checkpoint_high_watermarks(lambda: dict.fromkeys(logs.logs, 1))
    return logs


def missed(dirs: Sequence[Path]) -> list[str]:
    seen: list[str] = []
    opened(dirs, before_loss=lambda partition, _: seen.append(str(partition))).close(clean=False)
    return seen


def test_a_log_whose_directory_is_gone_is_in_doubt(tmp_path: Path) -> None:
    dirs = [tmp_path / name for name in "ab"]
    killed_after(dirs, 4).close(clean=False)
    shutil.rmtree(tmp_path / "b" / "t-1")
    (tmp_path / "a" / "t-2").rename(tmp_path / "b" / "t-2")
    assert missed(dirs) == ["t-1"], "t-2 was moved to another directory, and is there"


@pytest.mark.parametrize("topic", ["t", "t" * 249])
def test_a_log_that_was_removed_is_not_missed(tmp_path: Path, topic: str) -> None:
    """Killed after the new name was given, and killed after the checkpoints have forgotten it."""
    logs = killed_after([tmp_path], 4, topic)
    logs.remove(TopicPartition(topic, 1), UUID(int=1), sync=False)
    logs.remove(TopicPartition(topic, 2), UUID(int=2), STRAY, sync=False)
    logs.close(clean=False)
    assert missed([tmp_path]) == []
    logs = opened([tmp_path])
    logs.remove(TopicPartition(topic, 3), UUID(int=3))
    logs.close(clean=False)
    for path in tmp_path.glob(f"{topic[:100]}*-delete"):
        shutil.rmtree(path)
    assert missed([tmp_path]) == []
    shutil.rmtree(tmp_path / f"{topic}-0")
    assert missed([tmp_path]) == [f"{topic}-0"]


def test_many_small_logs_wait_for_the_disk_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_logs, "MANY_LOGS", 6)
    filled([tmp_path])
    asked: list[int] = []

    def crew(works: Sequence[Callable[[], object]], threads: int) -> list[object]:
        asked.append(threads)
        return [work() for work in works]

    opened([tmp_path], crew=crew).close(clean=False)
    assert asked == [1, open_logs.SMALL_LOGS_AT_ONCE], "the directories, and then the logs"
    monkeypatch.setattr(open_logs, "SMALL_LOG_BYTES", 100)
    opened([tmp_path], crew=crew).close(clean=False)
    assert asked[3] == CONFIG.recovery_threads, "large ones are read one after the other"
