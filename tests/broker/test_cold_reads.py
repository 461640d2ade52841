"""Fetches of records that are not in memory: the loop goes on, the fetch waits, every check is made again."""

import asyncio
import errno
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from pathlib import Path
from threading import Event, current_thread, main_thread
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.broker.fetch.read import COLD_TRIES, CONSUMER, FetchItem, Reading
from strandline.broker.replicas.cold_reads import QUEUE_MAX, THREADS, ColdReads
from strandline.client.network.connection import Connection
from strandline.protocol.batches import headers
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.fetch import FetchResponse
from strandline.storage.disk import Disk, NotResident, RealDisk, RealFile
from strandline.storage.log.uncached_read import ReadApart
from strandline.storage.segment import not_resident
from strandline.storage.segment.not_resident import Cold
from strandline.storage.segment.tail_cache import Tail
from tests.broker.replica_harness import (
    TOPIC,
    TOPIC_ID,
    Cluster,
    ask,
    batch,
    cluster,
    fetch,
    fetched,
    outcome,
    produce,
    until,
)

Story = Callable[[Cluster, Connection], Coroutine[Any, Any, None]]


class Medium:
    """A slow one: nothing is in memory until a thread has been let through, or has failed."""

    def __init__(self) -> None:
        self.asked = Event()
        self.may_answer = Event()
        self.fault = 0
        self.is_warm = False
        self.times = 0

    def warm(self, disk: Disk, path: str, position: int, size: int) -> None:
        self.times += 1
        self.asked.set()
        assert self.may_answer.wait(20)
        if self.fault:
            raise OSError(self.fault, "injected")
        self.is_warm = True


@pytest.fixture
def medium(monkeypatch: pytest.MonkeyPatch) -> Iterator[Medium]:
    slow = Medium()

    def pread_now(file: RealFile, position: int, size: int) -> bytes:
        if not slow.is_warm:
            raise NotResident(position, size)
        return file.pread(position, size)

    monkeypatch.setattr(RealFile, "pread_now", pread_now)
    monkeypatch.setattr(not_resident, "warm", slow.warm)
    yield slow
    slow.may_answer.set()


async def begun(
    stage: Cluster, client: Connection, medium: Medium, max_wait_ms: int
) -> asyncio.Future[FetchResponse]:
    """A fetch that waits for the medium."""
    for value in (b"a", b"b"):
        assert outcome(await ask(client, produce(batch(value))))[0] == 0
    log = stage.members[1].partition.log
    log._tail.clear()
    log.keep_tail = False
    reader = await stage.members[1].connect()
    asking = asyncio.ensure_future(ask(reader, fetch(0, max_wait_ms=max_wait_ms)))
    assert await asyncio.to_thread(medium.asked.wait, 20)
    return asking


def play(directory: Path, story: Story) -> None:
    async def run() -> None:
        async with cluster(directory, 1) as stage:
            await stage.elect(1, (1,))
            client = await stage.members[1].connect()
            await story(stage, client)

    asyncio.run(run())


@pytest.mark.parametrize("max_wait_ms", [0, 100])
def test_a_cold_fetch_waits_and_nobody_waits_for_it(tmp_path: Path, medium: Medium, max_wait_ms: int) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        asking = await begun(stage, client, medium, max_wait_ms)
        assert outcome(await ask(client, produce(batch(b"c"))))[0] == 0, "the loop goes on"
        over = asyncio.get_running_loop().time() + max_wait_ms / 1000 + 0.05
        await until(lambda: asyncio.get_running_loop().time() > over)
        assert not asking.done(), "news it would not wait for, but what it asks for is there"
        medium.may_answer.set()
        only = fetched(await asking)
        assert only.error_code == 0 and bytes(only.records or b"").startswith(bytes(8))
        assert medium.times == 1

    play(tmp_path, story)


def test_who_wants_the_same_shares_one_read(tmp_path: Path, medium: Medium) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        asking = [await begun(stage, client, medium, 1000)]
        for _ in range(3):
            other = await stage.members[1].connect()
            asking.append(asyncio.ensure_future(ask(other, fetch(0, max_wait_ms=1000))))
        await until(lambda: len(stage.members[1].partition.parked) == 4)
        medium.may_answer.set()
        answers = [fetched(each) for each in await asyncio.gather(*asking)]
        assert len({bytes(only.records or b"") for only in answers}) == 1
        assert medium.times == 1

    play(tmp_path, story)


def test_leadership_is_asked_again_when_the_thread_has_read(tmp_path: Path, medium: Medium) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        asking = await begun(stage, client, medium, 1000)
        stage.members[1].partition.resign()
        medium.may_answer.set()
        assert fetched(await asking).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(tmp_path, story)


def test_a_medium_that_fails_takes_the_replica_offline(tmp_path: Path, medium: Medium) -> None:
    async def story(stage: Cluster, client: Connection) -> None:
        medium.fault = errno.EIO
        asking = await begun(stage, client, medium, 1000)
        medium.may_answer.set()
        assert fetched(await asking).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert stage.members[1].partition.offline is not None

    play(tmp_path, story)


def log_in(directory: str) -> Any:
    return SimpleNamespace(directory=f"{directory}/t-0")


async def test_few_read_at_once_and_a_bounded_number_waits() -> None:
    let_go = Event()
    done: list[int] = []
    reads = ColdReads(asyncio.get_running_loop(), lambda: None, None, 1)
    log = log_in("a")

    def blocked() -> None:
        assert let_go.wait(20)

    for place in range(THREADS + QUEUE_MAX):
        assert reads.run(log, place, blocked, partial(done.append, place))
    assert not reads.run(log, "one more", lambda: None, lambda: None)
    let_go.set()
    await until(lambda: len(done) == THREADS + QUEUE_MAX)
    await reads.stop()


async def test_a_directory_that_hangs_keeps_nobody_from_reading_in_another() -> None:
    let_go = Event()
    done: list[str] = []
    reads = ColdReads(asyncio.get_running_loop(), lambda: None, None, 2)

    def blocked() -> None:
        assert let_go.wait(20)

    for place in range(THREADS + QUEUE_MAX):
        reads.run(log_in("hanging"), place, blocked, lambda: None)
    for place in range(3):
        assert reads.run(log_in("whole"), f"whole {place}", lambda: None, partial(done.append, "whole"))
    await until(lambda: len(done) == 3)
    let_go.set()
    await reads.stop()


class Forgetful(RealDisk):
    """A file system that always says it would have to wait. Who reads logs all the same is noted."""

    def __init__(self, is_blind: bool = False) -> None:
        self.is_blind = is_blind  # it says so because it cannot tell
        self.by_threads = 0
        self.by_the_loop: list[str] = []

    def open(self, path: str, create: bool = False) -> RealFile:
        return ForgetfulFile(self, path, create)

    def noted(self, path: str) -> None:
        if path.endswith(".log"):
            if current_thread() is main_thread():
                self.by_the_loop.append(path)
            else:
                self.by_threads += 1


class ForgetfulFile(RealFile):
    """One of its files."""

    def __init__(self, disk: Forgetful, path: str, create: bool) -> None:
        super().__init__(path, create)
        self._disk, self._path = disk, path

    def pread(self, position: int, size: int) -> bytes:
        self._disk.noted(self._path)
        return super().pread(position, size)

    def pread_now(self, position: int, size: int) -> bytes:
        raise NotResident(position, size, self._disk.is_blind)


@pytest.fixture
def no_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest records are not kept in memory either."""
    monkeypatch.setattr(Tail, "add", lambda *_: None)


async def filled(stage: Cluster, count: int) -> Connection:
    """Some small segments, of which nothing is in memory."""
    log = stage.members[1].partition.log
    log.configure(log.config.model_copy(update={"segment_bytes": 300}))
    client = await stage.members[1].connect()
    for number in range(count):
        assert outcome(await ask(client, produce(batch(b"%d" % number))))[0] == 0
    assert len(log.segments) > 2
    return client


@pytest.mark.usefixtures("no_tail")
@pytest.mark.parametrize("is_blind", [False, True])
async def test_where_nothing_stays_in_memory_threads_read_and_never_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_blind: bool
) -> None:
    brought: list[Cold] = []
    warm = Cold.warm

    def noted(cold: Cold) -> None:
        warm(cold)
        brought.append(cold)

    monkeypatch.setattr(Cold, "warm", noted)

    async with cluster(tmp_path, 2, disk=lambda: Forgetful(is_blind)) as stage:
        await stage.elect(1, (1,))
        count = 12
        client = await filled(stage, count)
        offset = 0
        while offset < count:
            only = fetched(await ask(client, fetch(offset)))
            batches = [header for _, header in headers(only.records)]
            assert batches[0].base_offset == offset
            offset = batches[-1].next_offset
        follower = stage.members[2].partition.log
        await until(lambda: follower.end_offset == count)
        disk = stage.members[1].disk
        assert isinstance(disk, Forgetful)
        assert disk.by_threads > 0 and not disk.by_the_loop
        assert not any(cold.is_blind for cold in brought), "that would be in vain"


@pytest.mark.usefixtures("no_tail")
async def test_what_a_thread_has_read_of_a_log_that_was_cut_meanwhile_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, may_end, warm = Event(), Event(), ReadApart.warm

    def held(apart: ReadApart) -> None:
        warm(apart)
        read.set()
        assert may_end.wait(20)

    monkeypatch.setattr(ReadApart, "warm", held)

    async with cluster(tmp_path, 1, disk=Forgetful) as stage:
        await stage.elect(1, (1,))
        client = await filled(stage, 9)
        asking = asyncio.ensure_future(ask(client, fetch(8)))
        assert await asyncio.to_thread(read.wait, 20)
        partition = stage.members[1].partition
        partition.log.truncate_to(8)
        partition.append(memoryview(bytearray(batch(b"another"))), 1)
        may_end.set()
        assert b"another" in bytes(fetched(await asking).records)


@pytest.mark.usefixtures("no_tail")
async def test_threads_read_no_more_for_a_fetch_than_it_takes(tmp_path: Path) -> None:
    """However many of its partitions are cold."""

    async with cluster(tmp_path, 1, disk=Forgetful) as stage:
        await stage.elect(1, (1,))
        await filled(stage, 9)
        partition, bytes_max = stage.members[1].partition, 200
        items = [FetchItem(TOPIC, TOPIC_ID, fetch(n).topics[0].partitions[0]) for n in range(8)]
        for item in items:
            item.partition, item.cold_tries = partition, COLD_TRIES
        reading = Reading(CONSUMER, items, bytes_max, 0)
        reading.read()
        assert sum(item.apart.bytes_max for item in items if item.apart) <= bytes_max
        await until(lambda: (reading.read() and not reading.is_cold) or reading.nbytes > 0)
        assert reading.nbytes <= bytes_max
