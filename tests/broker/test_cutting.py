"""What a follower must cut lies aside, on the medium, before the first byte leaves; or nothing is cut."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from errno import EACCES, EIO, EMFILE, ENOENT, ENOSPC, EPERM, EROFS
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

import pytest
from structlog.testing import capture_logs

from strandline.base.types import Offset
from strandline.broker.replicas.truncation import Cut, carry_out
from strandline.protocol.batches import headers, read_header
from strandline.protocol.records import iterate
from strandline.replication.effects import Truncate
from strandline.storage.disk import NoDescriptor, RealDisk
from strandline.storage.log import producer_snapshots
from strandline.storage.log.checkpoints import RECOVERY_POINTS, read_offsets
from strandline.storage.quarantine import Aside, removal_rows, removed_bytes
from tests.broker.replica_harness import TP, ask, batch, cluster, outcome, produce, until
from tests.storage.faulty_disk import FaultyDisk


@asynccontextmanager
async def parted(directory: Path, disk: Any = RealDisk, **options: Any) -> AsyncIterator[Any]:
    """Broker 1 holds three batches that broker 2, about to lead, has never seen."""
    async with cluster(directory, 2, disk, **options) as stage:
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"both")))) == (0, 0)
        stage.members[2].parts.fetchers.drop(stage.members[2].partition)
        await until(lambda: not stage.members[1].partition.parked)
        for value in (b"only", b"here", b"!"):
            assert outcome(await ask(client, produce(batch(value), acks=1)))[0] == 0
        await client.close()
        yield stage


async def cut_by(stage: Any) -> None:
    """Broker 2 leads, and has one other record."""
    await stage.elect(2, [2])
    other = await stage.members[2].connect()
    assert outcome(await ask(other, produce(batch(b"new")))) == (0, 1)
    await other.close()


def aside(directory: Path) -> list[dict[str, Any]]:
    return removal_rows(RealDisk(), str(directory / "1"), TP)


async def test_what_is_cut_is_kept_with_all_that_is_known_of_it(tmp_path: Path) -> None:
    async with parted(tmp_path) as stage:
        log = stage.members[1].partition.log
        bytes_before = bytes(log.read(0, 1 << 20, 4))
        watermark = stage.members[1].partition.high_watermark
        await cut_by(stage)
        await until(lambda: log.end_offset == 2)
        (row,) = aside(tmp_path)
        removal = row["removal"]
        assert (removal["from_offset"], removal["end_offset"]) == (1, 4)
        assert (removal["cause"], removal["leader"], removal["leader_epoch"]) == ("truncation", 2, 1)
        assert [list(each) for each in removal["epochs"]] == [[0, 1]]
        assert removal["high_watermark"] == watermark
        (name,) = row["files"]
        kept = (Path(row["path"]) / name).read_bytes()
        assert kept == bytes_before[-len(kept) :]
        assert [bytes(r.value or b"") for r in iterate(kept)] == [b"only", b"here", b"!"]
        decision = stage.members[1].parts.shared.recorder.of("t-0")[-1]
        assert decision.what == "truncated" and decision.values["aside"] == row["path"]
        assert decision.values["end"] == 1 and decision.values["was"] == 4


@pytest.mark.parametrize("unclean", [True, False])
def test_the_copy_is_on_the_medium_before_the_log_is_touched(tmp_path: Path, unclean: bool) -> None:
    """Who is not in the ISR may have been, when an unclean election took it out, however long ago. Nobody
    waits for it now.
    """
    disks: list[FaultyDisk] = []

    def disk() -> Any:
        disks.append(FaultyDisk())
        return disks[-1]

    async def story() -> None:
        async with parted(tmp_path, disk) as stage:
            stage.unclean = unclean
            await cut_by(stage)
            await until(lambda: stage.members[1].partition.log.end_offset == 2)

    asyncio.run(story())
    calls = [(call, str(path)) for call, path in disks[0].calls]
    cut = max(
        n
        for n, (call, path) in enumerate(calls)
        if call == "truncate" and path.endswith("t-0/" + "0" * 20 + ".log")
    )
    note = next(
        n for n, (call, path) in enumerate(calls) if call == "replace" and path.endswith("removal.json")
    )
    copied = max(n for n, (call, path) in enumerate(calls) if call == "append" and ".aside/" in path)
    synced = next(
        n for n, (call, path) in enumerate(calls) if n > copied and call == "sync" and ".aside/" in path
    )
    named = next(
        n for n, (call, path) in enumerate(calls) if n > synced and call == "sync_dir" and ".aside/" in path
    )
    assert note < copied < synced < named < cut


@pytest.mark.parametrize("call", ["append", "replace"])
async def test_nothing_is_cut_while_there_is_no_room_to_keep_it(tmp_path: Path, call: str) -> None:
    disk = FaultyDisk()

    async with parted(
        tmp_path, lambda: disk, replication={"lag_time_max_ms": 1000, "fetch_backoff_ms": 50}
    ) as stage:
        log = stage.members[1].partition.log
        fault = disk.fail(call, "*.aside/*", ENOSPC)
        await cut_by(stage)
        await until(lambda: fault.hits > 2)
        assert log.end_offset == 4 and stage.members[1].partition.offline is None
        place = tmp_path / "1.aside"
        await until(lambda: not any(place.iterdir()))  # but for the attempt that is being made
        waits = stage.members[1].parts.shared.recorder.of("t-0")[-1]
        assert waits.what == "cut_waits"
        disk.heal(fault)
        await until(lambda: log.end_offset == 2)
        (row,) = aside(tmp_path)
        assert row["removal"]["from_offset"] == 1


@pytest.mark.parametrize(
    ("call", "path", "error"),
    [("mkdir", "*.aside", EACCES), ("mkdir", "*.aside/*", EROFS), ("replace", "*.aside/*", EPERM),
     ("open", "*.aside/*.log@*", ENOENT)],
)  # fmt: skip
def test_where_nothing_can_ever_be_kept_the_follower_does_not_wait(
    tmp_path: Path, call: str, path: str, error: int
) -> None:
    disk = FaultyDisk()

    async def story() -> None:
        async with parted(tmp_path, lambda: disk) as stage:
            log = stage.members[1].partition.log
            disk.fail(call, path, error)
            await cut_by(stage)
            await until(lambda: log.end_offset == 2)
            assert aside(tmp_path) == []
            told = list(stage.members[1].parts.shared.recorder.of("t-0"))[-2:]
            assert [each.what for each in told] == ["cut_unkept", "truncated"]
            assert os.strerror(error) in told[0].values["why"] and told[1].values["aside"] is None

    with capture_logs() as logged:
        asyncio.run(story())
    (line,) = [each for each in logged if each["event"] == "removal_not_kept"]
    assert line["log_level"] == "error" and line["cut"]


async def test_a_copy_of_what_was_replaced_meanwhile_does_not_count(tmp_path: Path) -> None:
    """Retention and compaction go on while a thread copies: what it has may not be what goes."""

    async with parted(tmp_path) as stage:
        partition = stage.members[1].partition
        partition.log.roll(1000)
        stage.members[1].parts.fetchers.stop()
        await stage.elect(2, [2])
        await until(lambda: partition.following is not None)
        cut = Cut(partition, Truncate(Offset(1), settled=True))
        directory = Path(partition.log.directory)
        for suffix in (".log", ".index", ".timeindex"):
            (directory / f"{0:020d}{suffix}.cleaned").touch()
        partition.log.replace([0])
        assert list(await carry_out([cut])) == [partition], "it is asked for again"
        assert partition.log.end_offset == 4 and aside(tmp_path) == []


async def test_a_cut_is_made_of_the_log_that_was_looked_at(tmp_path: Path) -> None:
    """It ends where it ended then, and in the same segment; yet what it ends with was never copied."""

    async with parted(tmp_path) as stage:
        partition = stage.members[1].partition
        stage.members[1].parts.fetchers.stop()
        await stage.elect(2, [2])
        await until(lambda: partition.following is not None)
        cut = Cut(partition, Truncate(Offset(1), settled=True))
        partition.log.truncate_to(3)
        other = bytearray(batch(b"another"))
        partition.log.append(memoryview(other), read_header(other), 0, 1000)
        assert partition.log.end_offset == 4
        assert list(await carry_out([cut])) == [partition], "it is asked for again"
        assert partition.log.end_offset == 4 and aside(tmp_path) == []


async def test_an_operator_may_prefer_to_keep_nothing(tmp_path: Path) -> None:
    async with parted(tmp_path, storage={"aside_bytes_max": 0}) as stage:
        await cut_by(stage)
        await until(lambda: stage.members[1].partition.log.end_offset == 2)
        assert aside(tmp_path) == []


async def test_a_cut_that_was_overtaken_is_not_made_and_its_copy_goes(tmp_path: Path) -> None:
    async with parted(tmp_path) as stage:
        partition = stage.members[1].partition
        stage.members[1].parts.fetchers.stop()
        await stage.elect(2, [2])
        await until(lambda: partition.following is not None)
        cut = Cut(partition, Truncate(Offset(1), settled=True))
        cut.keep()
        assert cut.holds() and len(aside(tmp_path)) == 1
        await stage.elect(1, [1])
        assert not cut.holds()
        cut.discard()
        assert aside(tmp_path) == [] and partition.log.end_offset == 4


async def test_all_segments_behind_the_cut_are_kept(tmp_path: Path) -> None:
    async with parted(tmp_path) as stage:
        log = stage.members[1].partition.log
        client = await stage.members[1].connect()
        for number in range(3):
            log.roll(1000)
            await ask(client, produce(batch(b"%d" % number), acks=1))
        await client.close()
        assert len(log.segments) == 4
        await cut_by(stage)
        await until(lambda: log.end_offset == 2)
        (row,) = aside(tmp_path)
        files = sorted(row["files"])
        kept = b"".join((Path(row["path"]) / name).read_bytes() for name in files)
        assert len(files) == 4
        assert [h.base_offset for _, h in headers(kept)] == [1, 2, 3, 4, 5, 6]


def test_only_what_lies_aside_is_read(tmp_path: Path) -> None:
    async def story() -> None:
        async with parted(tmp_path) as stage:
            await cut_by(stage)
            await until(lambda: stage.members[1].partition.log.end_offset == 2)

    asyncio.run(story())
    (row,) = aside(tmp_path)
    disk, log_dir = RealDisk(), str(tmp_path / "1")
    path = f"{row['path']}/{row['files'][0]}"
    assert removed_bytes(disk, log_dir, path, 0, 1 << 20) == Path(path).read_bytes()
    assert removed_bytes(disk, log_dir, path, 10, 5) == Path(path).read_bytes()[10:15]
    for other in ("/etc/passwd", f"{row['path']}/../../1/meta.properties", f"{log_dir}/t-0/{'0' * 20}.log"):
        assert removed_bytes(disk, log_dir, other, 0, 100) is None
    assert json.loads((Path(row["path"]) / "removal.json").read_text())["unclean"] is None
    assert Aside(disk, log_dir).all(TP)


class Watched(RealDisk):
    """Knows what the loop itself has waited for; fails to sync a log's directory when told."""

    def __init__(self) -> None:
        self.waited: list[str] = []
        self.broken = ""

    def replace(self, path: str, data: bytes, sync: bool = True, mode: int = 0o644) -> None:
        self._note(path, sync)
        super().replace(path, data, sync, mode)

    def sync_dir(self, path: str) -> None:
        self._note(path, True)
        if path == self.broken:
            raise OSError(EIO, "broken")
        super().sync_dir(path)

    def _note(self, path: str, waits: bool) -> None:
        if waits and current_thread() is main_thread():
            self.waited.append(path)


@pytest.mark.parametrize(("begins_anew", "broken"), [(False, False), (True, False), (True, True)])
async def test_the_loop_waits_for_no_disk_when_logs_are_truncated_or_restarted(
    tmp_path: Path, begins_anew: bool, broken: bool
) -> None:
    """A broker that was away for a week does it with all of its logs at once."""

    disks: list[Watched] = []

    def disk() -> Watched:
        disks.append(Watched())
        return disks[-1]

    async with parted(tmp_path, disk) as stage:
        away, partition = stage.members[1], stage.members[1].partition
        await away.parts.flushing.until_flushed(list(away.logs.logs.values()))
        away.logs.checkpoint_recovery_points()
        away.logs.checkpoint_high_watermarks(lambda: {TP: 4})
        if begins_anew:
            other = stage.members[2].partition.log
            other.restart_at(1000)
        disks[0].waited.clear()
        disks[0].broken = partition.log.directory if broken else ""
        if begins_anew:
            await stage.elect(2, [2])
            await until(lambda: partition.log.start_offset == 1000)
        else:
            await cut_by(stage)
        await until(lambda: partition.log.end_offset == (1000 if begins_anew else 2))
        assert disks[0].waited == []
        if broken:
            await until(lambda: partition.offline is not None)
            return
        await until(lambda: partition.high_watermark == partition.log.end_offset)
        points = read_offsets(disks[0], str(tmp_path / "1" / RECOVERY_POINTS))
        assert points[TP] == (0 if begins_anew else 1), "lowered before, in a thread"


def test_what_is_left_of_producers_is_read_by_a_thread(tmp_path: Path, monkeypatch: Any) -> None:
    """A segment may have to be read for that, a gigabyte of it."""
    readers, rebuild = [], producer_snapshots.rebuild

    def noted(*given: Any, **named: Any) -> None:
        readers.append(current_thread())
        rebuild(*given, **named)

    monkeypatch.setattr(producer_snapshots, "rebuild", noted)

    async def story() -> None:
        async with parted(tmp_path) as stage:
            leader, log = await stage.members[1].connect(), stage.members[1].partition.log
            theirs = produce(batch(b"x", producer_id=7, sequence=0), acks=1)
            assert outcome(await ask(leader, theirs)) == (0, 4)
            await leader.close()
            await cut_by(stage)
            await until(lambda: log.end_offset == 2)
            assert log.producers.get(7) is None, "its batch is gone"

    asyncio.run(story())
    assert readers and main_thread() not in readers


async def test_a_cut_that_cannot_be_looked_at_waits_longer_each_time(
    tmp_path: Path, monkeypatch: Any
) -> None:
    """Without a descriptor there is no use in asking the leader again at once."""

    async with parted(tmp_path, replication={"fetch_backoff_ms": 50}) as stage:
        partition, fetchers = stage.members[1].partition, stage.members[1].parts.fetchers
        whole, tried = partition.log.leaving, list[int]()

        def without_descriptor(offset: int) -> Any:
            tried.append(offset)
            raise NoDescriptor(partition.log.directory, OSError(EMFILE, "too many open files"))

        monkeypatch.setattr(partition.log, "leaving", without_descriptor)
        await cut_by(stage)
        await until(lambda: len(tried) > 2)
        (fetcher,) = fetchers.of()
        assert partition in fetcher._delays
        assert partition.offline is None and partition.log.end_offset == 4
        monkeypatch.setattr(partition.log, "leaving", whole)
        await until(lambda: partition.log.end_offset == 2)


async def test_a_cut_that_stops_halfway_takes_the_replica_offline_and_no_other(tmp_path: Path) -> None:
    disk = FaultyDisk()

    async with parted(tmp_path, lambda: disk) as stage:
        partition = stage.members[1].partition
        disk.fail("truncate", "*/1/t-0/*.log", ENOSPC)
        await cut_by(stage)
        await until(lambda: partition.offline is not None)
        assert partition.log.failed and partition.log.damaged
        assert not stage.members[1].logs.places.offline
        disk.heal()
