"""Who is told that a record is safe, and when; and how many syncs that takes."""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from threading import Event, Lock
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.replicas.flushing import Flushing
from strandline.broker.replicas.shared import Role
from strandline.broker.turn import Turn
from strandline.protocol.batches import read_header
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.control import TopicConfigEntry
from strandline.storage.config import StorageConfig, TopicConfig
from strandline.storage.directories.log_manager import Logs
from strandline.storage.disk import DiskError, File, RealDisk
from strandline.storage.log.log import Log
from tests.broker.replica_harness import Cluster, ask, batch, cluster, fetch, fetched, outcome, produce, until
from tests.patience import HANG_S


class GatedDisk(RealDisk):
    """Syncs of segments wait until the gate is open; counts them, and may fail them."""

    def __init__(self) -> None:
        self.gate = Event()
        self.gate.set()
        self.lock = Lock()
        self.syncs = self.waiting = self.waiting_max = 0
        self.fault = 0

    def open(self, path: str, create: bool = False) -> File:
        file = super().open(path, create)
        return GatedFile(file, self) if path.endswith(".log") else file  # type: ignore[return-value]


class GatedFile:
    """A segment on such a disk."""

    def __init__(self, file: File, disk: GatedDisk) -> None:
        self.file, self.disk = file, disk

    def sync(self) -> None:
        disk = self.disk
        with disk.lock:
            disk.syncs += 1
            disk.waiting += 1
            disk.waiting_max = max(disk.waiting, disk.waiting_max)
        assert disk.gate.wait(HANG_S)
        with disk.lock:
            disk.waiting -= 1
        if disk.fault:
            raise OSError(disk.fault, "injected")
        self.file.sync()

    def share(self) -> "GatedFile":
        return GatedFile(self.file.share(), self.disk)

    def __getattr__(self, name: str) -> object:
        return getattr(self.file, name)


def not_expected(error: BaseException) -> None:
    raise error


Story = Callable[[Cluster], Coroutine[Any, Any, None]]


def run(directory: Path, members: int, story: Story, before_ack: bool = True, **configs: str) -> None:
    async def play() -> None:
        storage = {"flush_before_ack": before_ack}
        async with cluster(directory, members, GatedDisk, storage=storage) as stage:
            entries = [TopicConfigEntry(name=n.replace("_", "."), value=v) for n, v in configs.items()]
            await stage.elect(1, list(stage.members), entries)
            try:
                await story(stage)
            finally:
                for id in stage.members:
                    disk_of(stage, id).gate.set()

    asyncio.run(play())


def disk_of(stage: Cluster, id: int) -> GatedDisk:
    disk = stage.members[id].disk
    assert isinstance(disk, GatedDisk)
    return disk


async def stays(condition: Callable[[], bool], turns: int = 20) -> None:
    """It does not change while everybody has had their turn."""
    for _ in range(turns):
        assert condition()
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("acks", [1, -1])
def test_an_answer_waits_for_the_medium(tmp_path: Path, acks: int) -> None:
    async def story(stage: Cluster) -> None:
        disk, client = disk_of(stage, 1), await stage.members[1].connect()
        disk.gate.clear()
        told = asyncio.ensure_future(ask(client, produce(batch(b"a"), acks)))
        await until(lambda: disk.waiting)
        await stays(lambda: not told.done())
        partition = stage.members[1].partition
        assert (partition.log.end_offset, partition.high_watermark) == (1, 0)
        other = await stage.members[1].connect()
        assert not fetched(await ask(other, fetch(0))).records, "and nobody reads it"
        disk.gate.set()
        assert outcome(await told) == (0, 0)
        assert fetched(await ask(other, fetch(0))).records
        await client.close()
        await other.close()

    run(tmp_path, 1, story)


def test_without_the_option_nobody_waits(tmp_path: Path) -> None:
    async def story(stage: Cluster) -> None:
        disk, client = disk_of(stage, 1), await stage.members[1].connect()
        disk.gate.clear()
        for acks in (1, -1):
            assert outcome(await ask(client, produce(batch(b"a"), acks)))[0] == 0
        assert disk.syncs == 0
        await client.close()

    run(tmp_path, 1, story, before_ack=False)


@pytest.mark.parametrize("held", [1, 2])
def test_all_that_must_hold_a_record_have_flushed_it(tmp_path: Path, held: int) -> None:
    async def story(stage: Cluster) -> None:
        client = await stage.members[1].connect()
        leader = stage.members[1].partition
        await until(lambda: leader.leading.progress_of(2).end_offset == 0)
        disk_of(stage, held).gate.clear()
        told = asyncio.ensure_future(ask(client, produce(batch(b"a"))))
        await until(lambda: disk_of(stage, held).waiting)
        await until(lambda: stage.members[3 - held].partition.log.flushed_offset == 1)
        await stays(lambda: not told.done() and leader.high_watermark == 0)
        assert leader.leading.progress_of(2).end_offset == stage.members[2].partition.log.flushed_offset
        disk_of(stage, held).gate.set()
        assert outcome(await told) == (0, 0)
        assert stage.members[2].partition.log.end_offset == 1, "it was not sent twice"
        await client.close()

    run(tmp_path, 2, story)


def test_one_sync_is_for_all_that_came_meanwhile(tmp_path: Path) -> None:
    async def story(stage: Cluster) -> None:
        disk, client = disk_of(stage, 1), await stage.members[1].connect()
        disk.gate.clear()
        asked = [asyncio.ensure_future(ask(client, produce(batch(b"a"), 1)))]
        await until(lambda: disk.waiting)
        asked += [asyncio.ensure_future(ask(client, produce(batch(b"a"), 1))) for _ in range(30)]
        await until(lambda: stage.members[1].partition.log.end_offset == 31)
        disk.gate.set()
        assert [outcome(answer)[1] for answer in await asyncio.gather(*asked)] == list(range(31))
        assert disk.syncs == 2
        await client.close()

    run(tmp_path, 1, story)


@pytest.mark.parametrize("acks", [1, -1])
def test_a_failed_sync_is_not_acknowledged(tmp_path: Path, acks: int) -> None:
    async def story(stage: Cluster) -> None:
        disk, client = disk_of(stage, 1), await stage.members[1].connect()
        disk.fault = errno.EIO
        code, _ = outcome(await ask(client, produce(batch(b"a"), acks)))
        assert code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)
        disk.fault = 0
        partition = stage.members[1].partition
        assert partition.role is Role.OFFLINE
        assert partition.log.flushed_offset == 0
        syncs = disk.syncs
        assert outcome(await ask(client, produce(batch(b"a"), acks)))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert disk.syncs == syncs
        await client.close()

    run(tmp_path, 1, story)


def test_a_follower_whose_sync_fails_does_not_say_that_it_has_it(tmp_path: Path) -> None:
    async def story(stage: Cluster) -> None:
        client, leader = await stage.members[1].connect(), stage.members[1].partition
        await until(lambda: leader.leading.progress_of(2).end_offset == 0)
        disk_of(stage, 2).fault = errno.EIO
        told = asyncio.ensure_future(ask(client, produce(batch(b"a"))))
        await until(lambda: stage.members[2].partition.role is Role.OFFLINE)
        assert leader.leading.progress_of(2).end_offset == 0
        assert outcome(await told) == (0, 0), "the follower has left the set of those who must hold it"
        assert stage.state().isr == [1]
        await client.close()

    run(tmp_path, 2, story)


def test_a_wait_for_the_medium_has_its_deadline(tmp_path: Path) -> None:
    async def story(stage: Cluster) -> None:
        disk, client = disk_of(stage, 1), await stage.members[1].connect()
        disk.gate.clear()
        late = await ask(client, produce(batch(b"a"), 1, timeout_ms=50))
        assert outcome(late)[0] == ErrorCode.REQUEST_TIMED_OUT
        disk.gate.set()
        assert outcome(await ask(client, produce(batch(b"b"), 1))) == (0, 1)
        assert not stage.members[1].partition.flush_acks
        await client.close()

    run(tmp_path, 1, story)


def test_fewer_records_than_flush_messages_may_be_acknowledged_from_memory(tmp_path: Path) -> None:
    async def story(stage: Cluster) -> None:
        disk, client = disk_of(stage, 1), await stage.members[1].connect()
        disk.gate.clear()
        for offset in range(2):
            assert outcome(await ask(client, produce(batch(b"a"), 1))) == (0, offset)
        assert disk.syncs == 0
        told = asyncio.ensure_future(ask(client, produce(batch(b"a"))))
        await until(lambda: disk.waiting)
        await stays(lambda: not told.done())
        disk.gate.set()
        assert outcome(await told) == (0, 2)
        assert disk.syncs == 1
        await client.close()

    run(tmp_path, 1, story, before_ack=False, flush_messages="3")


def test_a_record_is_not_longer_in_memory_than_flush_ms(tmp_path: Path) -> None:
    async def story(stage: Cluster) -> None:
        client, log = await stage.members[1].connect(), stage.members[1].partition.log
        assert outcome(await ask(client, produce(batch(b"a")))) == (0, 0)
        await until(lambda: log.flushed_offset == 1)
        await client.close()

    run(tmp_path, 1, story, before_ack=False, flush_ms="20")


def test_a_closed_segment_is_flushed_in_the_background(tmp_path: Path) -> None:
    async def story(stage: Cluster) -> None:
        client, log = await stage.members[1].connect(), stage.members[1].partition.log
        for _ in range(5):
            assert outcome(await ask(client, produce(batch(b"x" * 9000), 1)))[0] == 0
        assert log.end_offset > log.segments[-1].base_offset > log.flushed_offset
        await until(lambda: log.flushed_offset == log.segments[-1].base_offset)
        await client.close()

    run(tmp_path, 1, story, before_ack=False, segment_bytes=str(1 << 14))


class FixedClock:
    """A wall clock that stands still."""

    def wall_ms(self) -> int:
        return 1000


def several(directory: Path, disk: RealDisk, count: int) -> tuple[Logs, list[Log]]:
    config = StorageConfig()
    logs = Logs.open([str(directory)], disk, config, FixedClock(), clean=False, before_loss=lambda *_: None)
    made = [logs.create(TopicPartition("t", n), None, TopicConfig.of(config)) for n in range(count)]
    for each in made:
        records = bytearray(batch(b"a"))
        each.append(memoryview(records), read_header(records), 0, 1000)
    return logs, made


async def test_no_more_flushes_at_once_than_there_are_threads(tmp_path: Path) -> None:
    disk = GatedDisk()
    logs, made = several(tmp_path, disk, 7)
    heard: list[str] = []
    flushing = Flushing(
        logs,
        StorageConfig(flush_threads=2),
        Turn(not_expected),
    )
    flushing.flushed.subscribe(lambda each: heard.append(str(each.partition)))
    flushing.failed.subscribe(lambda each, error: heard.append(str(error)))
    disk.gate.clear()
    for each in made:
        flushing.want(each)
    flushing.start()
    await until(lambda: disk.waiting == 2)
    flushing.want(made[0])
    flushing.start()
    disk.gate.set()
    await flushing.until_flushed(made)
    assert disk.waiting_max == 2
    assert sorted(heard) == [f"t-{n}" for n in range(7)], "each once"
    await flushing.until_flushed(made)
    assert len(heard) == 7, "nothing to do"
    await flushing.stop()
    logs.close(clean=False)


async def test_a_stop_waits_for_what_is_under_way_and_begins_no_more(tmp_path: Path) -> None:
    disk = GatedDisk()
    logs, made = several(tmp_path, disk, 3)
    flushing = Flushing(logs, StorageConfig(flush_threads=1), Turn(not_expected))
    disk.gate.clear()
    waiting = asyncio.ensure_future(flushing.until_flushed(made))
    await until(lambda: disk.waiting == 1)
    stopping = asyncio.ensure_future(flushing.stop())
    await stays(lambda: not stopping.done(), turns=5)
    disk.gate.set()
    await stopping
    await waiting
    flushing.want(made[0])
    flushing.start()
    assert disk.waiting == 0
    logs.close(clean=False)


async def test_a_lack_of_descriptors_passes(tmp_path: Path) -> None:
    disk = GatedDisk()
    logs, made = several(tmp_path, disk, 1)
    failures: list[DiskError] = []
    flushing = Flushing(logs, StorageConfig(), Turn(not_expected))
    flushing.failed.subscribe(lambda each, error: failures.append(error))
    disk.fault = errno.EMFILE
    waiting = asyncio.ensure_future(flushing.until_flushed(made))
    await until(lambda: disk.syncs == 1)
    disk.fault = 0
    await waiting
    assert made[0].flushed_offset == 1
    assert not failures
    await flushing.stop()
    logs.close(clean=False)
