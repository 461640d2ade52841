"""Passes over many logs leave the loop to others, and touch the disk a little at a time."""

import asyncio
from collections import Counter
from pathlib import Path
from threading import current_thread, main_thread
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.upkeep import passes
from strandline.broker.upkeep.passes import LOGS_PER_SLICE, SEGMENTS_PER_SLICE, Upkeep
from strandline.protocol.batches import read_header
from strandline.protocol.records import BatchBuilder
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import DiskFailed, RealDisk
from strandline.storage.log.log import Log
from strandline.storage.quarantine import Aside, Removal
from tests.broker.replica_harness import until

START_MS = 1_700_000_000_000


class Clock:
    """A wall clock that stands still until it is moved."""

    now = START_MS

    def wall_ms(self) -> int:
        return self.now


class TurnCountingDisk(RealDisk):
    """Counts the loop's own file calls, by the turn in which they are made."""

    def __init__(self) -> None:
        self.turn = 0
        self.calls: Counter[int] = Counter()

    def __getattribute__(self, name: str) -> Any:
        if name in {"open", "read", "listdir", "exists", "rename", "unlink", "replace", "sync_dir"} and (
            current_thread() is main_thread()
        ):
            self.calls[self.turn] += 1
        return super().__getattribute__(name)


class World:
    """A broker's logs, and replicas that know nothing but watermarks."""

    def __init__(self, root: Path, **settings: int) -> None:
        self.clock = Clock()
        self.disk = TurnCountingDisk()
        self.config = StorageConfig(**settings)
        self.logs = Logs.open(
            [str(root)], self.disk, self.config, self.clock, clean=False, before_loss=lambda *_: None
        )
        self.failed: list[object] = []
        self.watermarks: dict[TopicPartition, int] = {}
        shared: Any = SimpleNamespace(me=1, on_disk_failed=lambda partition, error: self.failed.append(error))
        replicas: Any = SimpleNamespace(find=self.find)
        flushing: Any = None  # no pass here writes recovery points
        self.elsewhere: set[TopicPartition] = set()
        self.unread: set[str] = set()
        picture: Any = SimpleNamespace(is_in_sync_elsewhere=lambda me, tp: tp in self.elsewhere)
        self.upkeep = Upkeep(
            self.logs, shared, replicas, flushing, self.clock, self.failed.append, lambda: picture,
            lambda topic: topic not in self.unread,
        )  # fmt: skip

    def find(self, partition: TopicPartition) -> Any:
        if partition not in self.watermarks:
            return None
        held = self.logs.logs[partition]
        return SimpleNamespace(
            log=held, high_watermark=self.watermarks[partition], disk_failed=self.failed.append
        )

    def log(self, index: int, batches: int, **names: str) -> Log:
        """A log with so many batches, all committed."""
        overrides = {name.replace("_", "."): text for name, text in names.items()}
        config = TopicConfig.from_names(overrides, self.config)
        partition = TopicPartition("t", index)
        made = self.logs.create(partition, None, config)
        for n in range(batches):
            builder = BatchBuilder()
            builder.append(START_MS + n, None, b"x" * 150, ())
            batch = bytearray(builder.build())
            made.append(memoryview(batch), read_header(batch), 0, START_MS)
        self.watermarks[partition] = made.end_offset
        return made

    async def turns(self) -> None:
        """Number the turns of the loop."""
        while True:
            self.disk.turn += 1
            await asyncio.sleep(0)


async def most_calls_in_a_turn(world: World) -> int:
    """The file calls of a retention pass, in the turn that has the most of them."""
    counting = asyncio.ensure_future(world.turns())
    await asyncio.sleep(0)
    world.disk.calls.clear()
    await world.upkeep.retain()
    counting.cancel()
    return max(world.disk.calls.values(), default=0)


async def test_a_log_of_many_segments_goes_a_few_at_a_time(tmp_path: Path) -> None:
    world = World(tmp_path / "d", segment_bytes=200, retention_ms=1000)
    log = world.log(0, 100)
    assert len(log.segments) == 100
    world.clock.now = START_MS + 1000 + 90
    most = await most_calls_in_a_turn(world)
    assert log.start_offset == 90
    assert 0 < most <= SEGMENTS_PER_SLICE * 4 + 4, "four renames each, and the epochs"
    assert len(world.logs.condemned) > 200
    world.logs.close(clean=False)


async def test_many_logs_are_looked_at_in_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path / "d", retention_ms=1000)
    for index in range(3 * LOGS_PER_SLICE):
        world.log(index, 1)
    looked: Counter[int] = Counter()
    retire = world.logs.retire

    def counted(*told: Any) -> int:
        looked[world.disk.turn] += 1
        return retire(*told)

    monkeypatch.setattr(world.logs, "retire", counted)
    assert await most_calls_in_a_turn(world) == 0, "nothing is read to see that nothing is old"
    assert sorted(looked.values()) == [LOGS_PER_SLICE] * 3
    world.logs.close(clean=False)


async def test_a_log_may_be_removed_or_fail_during_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from uuid import UUID

    world = World(tmp_path / "d", segment_bytes=200, retention_ms=1000)
    failing, removed, last = (world.log(index, 20) for index in range(3))
    world.clock.now = START_MS + 9999
    rename = world.disk.rename

    def broken(source: str, target: str) -> None:
        if "/t-0/" in source:
            raise OSError(5, "Input/output error")
        if "/t-1/" in source and world.logs.get(removed.partition) is removed:
            asyncio.get_running_loop().call_soon(world.logs.remove, removed.partition, UUID(int=1))
        rename(source, target)

    monkeypatch.setattr(world.disk, "rename", broken)
    await world.upkeep.retain()
    assert failing.failed
    assert len(world.failed) == 1, "the replica is told of its disk"
    assert removed.closed
    assert last.start_offset == 20
    world.logs.close(clean=False)


async def test_a_watermark_that_is_behind_holds_back(tmp_path: Path) -> None:
    world = World(tmp_path / "d", segment_bytes=200, retention_ms=1000)
    lagging = world.log(0, 10)
    world.watermarks[lagging.partition] = 4
    world.clock.now = START_MS + 9999
    await world.upkeep.retain()
    assert lagging.start_offset == 4
    world.logs.close(clean=False)


async def test_what_lies_aside_is_kept_within_its_bounds(tmp_path: Path) -> None:
    world = World(tmp_path / "d", aside_retention_ms=1000)
    removal = Removal(partition="t-0", at_ms=START_MS, cause="recovery", reason="a test", from_offset=0)
    kept = Aside(world.disk, str(tmp_path / "d")).shelf(removal).path
    world.clock.now = START_MS + 1000
    await world.upkeep.retain()
    assert world.disk.exists(kept)
    world.clock.now = START_MS + 1001
    await world.upkeep.retain()
    assert world.disk.exists(kept), "it may be the only copy"
    world.elsewhere.add(TopicPartition("t", 0))
    await world.upkeep.retain()
    assert not world.disk.exists(kept)
    world.logs.close(clean=False)


async def test_nothing_is_deleted_while_the_settings_of_its_topic_are_not_known(tmp_path: Path) -> None:
    """Kafka leaves none beside a log. Without a controller, and with one of Kafka's while ZooKeeper does not
    answer, the log has the broker's defaults, and its topic may keep everything.
    """
    world = World(tmp_path / "d", segment_bytes=200, retention_ms=1000)
    log = world.log(0, 10)
    end, place = world.watermarks.pop(TopicPartition("t", 0)), TopicPartition("t", 0)
    world.logs.high_watermarks[place] = end
    world.clock.now = START_MS + 5000
    await world.upkeep.retain()
    assert log.start_offset == 0, "no controller has named it"
    world.watermarks[place] = end
    world.unread.add("t")
    await world.upkeep.retain()
    assert log.start_offset == 0, "the controller has not sent them, and they have not been read"
    world.unread.clear()
    await world.upkeep.retain()
    assert log.start_offset == 10
    world.logs.close(clean=False)


async def test_a_clock_that_jumps_deletes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path / "d", segment_bytes=200, retention_ms=1000)
    log = world.log(0, 10)
    world.clock.now = START_MS + passes.CLOCK_JUMP_MS_MAX + 60_000
    await world.upkeep.retain()
    assert log.start_offset == 0
    await world.upkeep.retain()
    assert log.start_offset == 10
    world.logs.close(clean=False)


async def test_files_and_moved_starts_reach_the_disk_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "PURGE_INTERVAL_S", 0.01)
    monkeypatch.setattr(passes, "START_OFFSETS_INTERVAL_MS", 10)

    world = World(tmp_path / "d", segment_bytes=200, retention_check_interval_ms=10, file_delete_delay_ms=20)
    log = world.log(0, 10, retention_ms="1000")
    inside = world.log(1, 10, retention_ms="-1", segment_bytes="100000")
    world.upkeep.start()
    inside.move_start(5)
    world.clock.now = START_MS + 1005
    await until(lambda: log.start_offset == 5)
    folder = Path(log.directory)
    await until(lambda: not list(folder.glob("*.deleted")) and not len(world.logs.condemned))
    assert not (folder / "00000000000000000004.log").exists()
    written = tmp_path / "d" / "log-start-offset-checkpoint"
    await until(lambda: written.exists() and written.read_text() == "0\n1\nt 1 5\n")
    await world.upkeep.stop()
    world.logs.close(clean=False)
    assert world.failed == []


def unreadable(path: Path) -> None:
    """Whoever reads it gets an error: it is a directory now."""
    path.unlink()
    path.mkdir()


async def test_a_log_whose_age_cannot_be_read_spares_the_others(tmp_path: Path) -> None:
    world = World(tmp_path / "d", segment_bytes=200, retention_ms=1000)
    logs = [world.log(index, 10) for index in range(2)]
    world.clock.now = START_MS + 5000
    spoilt = logs[0].segments[0]
    spoilt.release()
    spoilt._max_time = None  # as after a start
    unreadable(Path(spoilt.path(".timeindex")))
    await world.upkeep.retain()
    assert logs[0].start_offset == 0 and logs[1].start_offset == 10
    (told,) = world.failed
    assert isinstance(told, DiskFailed)
    world.logs.close(clean=False)
