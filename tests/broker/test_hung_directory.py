"""One log directory hangs: who brings something to its medium waits, and nobody else does, the loop least."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from threading import Event, Timer, current_thread, main_thread
from typing import Any

from strandline.base.types import Offset, TopicPartition
from strandline.broker.replicas.truncation import Cut, carry_out
from strandline.replication.effects import Truncate
from strandline.storage.cleaning.checkpoint import CLEANER_OFFSETS
from strandline.storage.directories.offset_checkpoints import Bounds, Lowered
from strandline.storage.log.checkpoints import HIGH_WATERMARKS, read_offsets
from tests.broker.replica_harness import TP, Cluster, Member, ask, batch, outcome, produce
from tests.broker.storage_harness import Box, box, run, tp
from tests.storage.faulty_disk import Fault, FaultyDisk

SYNCS = ("sync", "sync_dir", "sync_all")
GAP_S_MAX = 15.0  # on a machine with much else to do
RELEASED_AFTER_S = 30.0  # a loop that waits all the same shall fail the test, not hang it


class HangingDisk(FaultyDisk):
    """What is to be on the medium of one directory is not, until it is let go. Tells of the loop's syncs."""

    def __init__(self) -> None:
        super().__init__()
        self.hangs: str | None = None
        self.gate = Event()
        self.waiting = 0
        self.by_the_loop: list[str] = []

    def struck(self, call: str, path: str) -> Fault | None:
        if self.hangs is not None and call in SYNCS and path.startswith(self.hangs):
            if current_thread() is main_thread():
                self.by_the_loop.append(f"{call} {path}")
            self.waiting += 1
            self.gate.wait()
            self.waiting -= 1
        return super().struck(call, path)

    def hang(self, directory: str) -> None:
        self.hangs = directory
        timer = Timer(RELEASED_AFTER_S, self.gate.set)
        timer.daemon = True
        timer.start()


async def beat(gaps: list[float]) -> None:
    """How long the loop was without a turn."""
    loop = asyncio.get_running_loop()
    while True:
        before = loop.time()
        await asyncio.sleep(0.01)
        gaps.append(loop.time() - before)


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.005)


async def cut(b: Box, number: int, to: int) -> None:
    """The partition's new leader has nothing from `to` on."""
    await b.lead(number, leader=2, is_new=False)
    partition = b.replicas.get(tp(number))
    assert not await carry_out([Cut(partition, Truncate(Offset(to), settled=True))])
    assert partition.log.end_offset == to


async def everything_else_goes_on(b: Box) -> None:
    """In the second directory: watermarks, log starts, cuts, flushes, new replicas, deletion."""
    loop, logs, (_, well) = asyncio.get_running_loop(), b.logs, b.dirs
    await b.parts.watermarks.write(well)
    log = b.replicas.get(tp(3)).log
    await b.parts.flushing.until_flushed([log])
    await loop.run_in_executor(None, logs.checkpoint_recovery_points, well)
    log.move_start(1)
    await loop.run_in_executor(None, logs.checkpoint_start_offsets, well)
    await cut(b, 1, 2)
    (answer,) = await b.lead(5)
    assert answer.error_code == 0 and logs.directory_of(tp(5)) == well
    b.append(5, b"new")
    b.replicas.unhost(tp(5))
    await loop.run_in_executor(None, logs.settle_removals)
    (answer,) = await b.lead(5)
    assert answer.error_code == 0, "made again under the name of one that was removed"


def test_only_what_waits_for_that_medium_waits(tmp_path: Path) -> None:
    disk, gaps = HangingDisk(), list[float]()

    async def story() -> None:
        async with box(tmp_path, disk=disk) as b:
            await b.lead(0, 1, 2, 3, 4)
            assert [b.logs.directory_of(tp(n)) == b.dirs[0] for n in range(5)] == [True, False] * 2 + [True]
            for number in range(5):
                b.append(number, b"one", b"two")
                b.append(number, b"three")
            await b.parts.watermarks.write()
            beating = asyncio.ensure_future(beat(gaps))
            disk.hang(b.dirs[0])
            late = asyncio.ensure_future(b.parts.watermarks.write(b.dirs[0]))
            flush = asyncio.ensure_future(
                b.parts.flushing.until_flushed([b.replicas.get(tp(n)).log for n in (0, 2, 4)])
            )
            await until(lambda: disk.waiting >= 2)
            waits = asyncio.ensure_future(cut(b, 0, 2))
            await everything_else_goes_on(b)
            assert not disk.gate.is_set(), "before the directory was well again"
            assert not (waits.done() or late.done() or flush.done())
            disk.gate.set()
            await asyncio.gather(waits, late, flush)
            beating.cancel()

    run(story)
    assert not disk.by_the_loop
    assert max(gaps) < GAP_S_MAX


def test_a_cut_while_it_is_written_down_how_far_a_log_is_clean(tmp_path: Path) -> None:
    """What is being written says more than the cut leaves: it is lowered in the thread, never on the loop."""
    disk, gaps = HangingDisk(), list[float]()

    async def story() -> None:
        async with box(tmp_path, disk=disk) as b:
            await b.lead(0, 1, 2, 3, 4)
            for number in range(5):
                b.append(number, b"one", b"two")
                b.append(number, b"three")
            await b.parts.watermarks.write()
            path = f"{b.dirs[0]}/{CLEANER_OFFSETS}"
            beating = asyncio.ensure_future(beat(gaps))
            disk.hang(path)
            with ThreadPoolExecutor(1) as cleaner:
                noted = cleaner.submit(b.logs.cleaned.note, tp(0), 3, 0)
                await until(lambda: disk.waiting == 1)
                lower = b.parts.shared.lower

                def late(cuts: Mapping[TopicPartition, Bounds]) -> Lowered:
                    lowered = lower(cuts)
                    if tp(0) in cuts:
                        noted.result(RELEASED_AFTER_S)
                    return lowered

                b.parts.shared.lower = late
                waits = asyncio.ensure_future(cut(b, 0, 2))
                await until(lambda: b.logs._promises.is_bound(tp(0)))
                await everything_else_goes_on(b)
                assert not disk.gate.is_set() and not waits.done()
                disk.gate.set()
                await waits
            beating.cancel()
            assert b.logs.cleaned.get(tp(0)) == 2 == read_offsets(b.logs.disk, path)[tp(0)]

    run(story)
    assert not disk.by_the_loop
    assert max(gaps) < GAP_S_MAX


def test_a_command_that_names_a_hung_directory_is_obeyed_in_the_others(tmp_path: Path) -> None:
    """New logs, leaders and followers; the cuts of one answer; logs that are removed."""
    disk, gaps = HangingDisk(), list[float]()

    async def story() -> None:
        async with box(tmp_path, disk=disk) as b:
            await b.lead(0, 1, 2, 3)
            for number in range(4):
                b.append(number, b"one", b"two")
                b.append(number, b"three")
            await b.lead(2, 3, leader=2, is_new=False, unclean=True)
            beating = asyncio.ensure_future(beat(gaps))
            disk.hang(b.dirs[0])
            told = asyncio.ensure_future(b.lead(0, 1, 4, 5, is_new=True))
            await until(lambda: is_led(b, 1) and is_led(b, 5))
            assert not (is_led(b, 0) or is_led(b, 4) or told.done())
            followers = [b.replicas.get(tp(number)) for number in (2, 3)]
            cuts = [Cut(each, Truncate(Offset(2), settled=True)) for each in followers]
            cutting = asyncio.ensure_future(carry_out([*cuts]))
            await until(lambda: followers[1].log.end_offset == 2)
            assert followers[0].log.end_offset == 3 and not cutting.done()
            for number in (0, 1):
                b.replicas.unhost(tp(number))
            assert not disk.gate.is_set(), "before the directory was well again"
            disk.gate.set()
            assert [error.error_code for error in await told] == [0] * 4
            assert not await cutting and followers[0].log.end_offset == 2
            beating.cancel()

    run(story)
    assert not disk.by_the_loop
    assert max(gaps) < GAP_S_MAX


def test_a_watermark_of_a_log_that_was_made_anew_while_its_writer_waited(tmp_path: Path) -> None:
    """What the old log of that name had committed is no promise of the new one."""
    disk = HangingDisk()

    async def story() -> None:
        async with box(tmp_path, disk=disk) as b:
            await b.lead(0, 1, 2, 3)
            b.append(1, b"one", b"two")
            disk.hang(f"{b.dirs[0]}/{HIGH_WATERMARKS}")
            writing = asyncio.ensure_future(b.parts.watermarks.write())
            await until(lambda: disk.waiting)
            b.replicas.unhost(tp(1))
            await b.lead(1)
            assert b.logs.directory_of(tp(1)) == b.dirs[1]
            assert not disk.gate.is_set(), "before the first directory was well again"
            disk.gate.set()
            await writing
            said = read_offsets(b.logs.disk, f"{b.dirs[1]}/{HIGH_WATERMARKS}")
            assert said.get(tp(1), 0) == b.replicas.get(tp(1)).log.end_offset == 0

    run(story)


@asynccontextmanager
async def two_brokers(root: Path, disk: HangingDisk, **options: Any) -> AsyncIterator[Cluster]:
    """Each has two directories, and a partition in each. Broker 1, which leads both, has that disk."""
    stage = Cluster(root)
    for id in (1, 2):
        member = Member(stage, id, root, **{"log_dirs": f"{root}/{id}x,{root}/{id}y", **options})
        member.disk = disk if id == 1 else FaultyDisk()
        await member.start()
        stage.members[id] = member
    try:
        await give_to(stage, 1, [1, 2])
        await put(stage, 1, b"both", 0, 1, acks=-1)
        yield stage
    finally:
        disk.gate.set()
        for member in stage.members.values():
            await member.stop()


async def give_to(stage: Cluster, leader: int, isr: list[int]) -> None:
    await stage.elect(leader, isr)
    for member in stage.members.values():
        await stage.tell(member, leader, isr, 0, index=1)


async def put(stage: Cluster, leader: int, value: bytes, *numbers: int, acks: int = 1) -> None:
    client = await stage.members[leader].connect()
    for number in numbers:
        assert outcome(await ask(client, produce(batch(value), acks, index=number)))[0] == 0
    await client.close()


async def follows_in_the_other_directory(stage: Cluster, disk: HangingDisk) -> None:
    """Broker 2 leads. The replica of broker 1 that lies well follows it, the other one when it can."""
    follower = stage.members[1]
    hung, well = follower.partition.log, follower.replicas.get(tp(1)).log
    assert follower.logs.directory_of(TP) != follower.logs.directory_of(tp(1))
    disk.hang(follower.logs.directory_of(TP))
    await give_to(stage, 2, [2])
    await put(stage, 2, b"new", 0)
    await until(lambda: disk.waiting)
    for count in (2, 3):
        await put(stage, 2, b"more", 1)
        await until(lambda count=count: well.end_offset == count)
    assert not disk.gate.is_set(), "before the directory was well again"
    disk.gate.set()
    await until(lambda: (hung.end_offset, hung.epochs.latest) == (2, 1))
    await put(stage, 2, b"newer", 0)
    await until(lambda: hung.end_offset == 3)
    assert not disk.by_the_loop


def test_what_one_replica_must_cut_first_keeps_no_other_from_following(tmp_path: Path) -> None:
    disk = HangingDisk()

    async def story() -> None:
        async with two_brokers(tmp_path, disk) as stage:
            leader, other = stage.members[1].partition, stage.members[2]
            other.parts.fetchers.drop(other.partition)
            await until(lambda: not leader.parked)
            await put(stage, 1, b"only", 0)
            assert (leader.log.end_offset, other.partition.log.end_offset) == (2, 1)
            await follows_in_the_other_directory(stage, disk)

    run(story)


def test_what_one_replica_must_flush_first_keeps_no_other_from_following(tmp_path: Path) -> None:
    disk = HangingDisk()

    async def story() -> None:
        async with two_brokers(tmp_path, disk, storage={"flush_before_ack": True}) as stage:
            await follows_in_the_other_directory(stage, disk)

    run(story)


def is_led(b: Box, number: int) -> bool:
    partition = b.replicas.find(tp(number))
    return partition is not None and partition.leading is not None and partition.leader_epoch == b.epoch
