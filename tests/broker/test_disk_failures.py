"""What a broker remembers of a log directory that has failed."""

import asyncio
from types import SimpleNamespace
from typing import Any

from strandline.broker.disk_failures import DiskFailures
from strandline.controller import documents
from strandline.controller.registry import Create, OpResult
from strandline.protocol.kinds import BrokerId, TopicPartition
from strandline.storage.disk import DiskError, DiskFailed, DiskFull, LogDamaged

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class World:
    """Two log directories, and what became known of them."""

    def __init__(self) -> None:
        self.noted = 0
        self.doubtful: list[TopicPartition | None] = []
        self.failures: list[BaseException] = []
        self.created: list[str] = []
        self.logs = SimpleNamespace(dirs=["/x", "/y"], directory_of=lambda tp: "/x" if tp == A else "/y")
        self.dir_ids = {"/x": "id-x", "/y": "id-y"}
        anything: Any = self
        self.failing = DiskFailures(BrokerId(1), anything, anything.logs, anything, self.failures.append)

    def note_doubt(self, partition: TopicPartition | None) -> None:
        self.noted += 1
        self.doubtful.append(partition)

    async def multi(self, ops: list[Create]) -> list[OpResult]:
        self.created += [op.path for op in ops]
        return [op.path for op in ops]

    def fail(self, tp: TopicPartition, error: type[DiskError]) -> None:
        replica: Any = SimpleNamespace(tp=tp)
        self.failing.happened(replica, error("/file", OSError(5, "Input/output error")))


def test_a_full_disk_is_not_a_failed_one() -> None:
    async def story() -> None:
        world = World()
        world.fail(A, DiskFull)
        await asyncio.sleep(0)
        assert (world.noted, world.created, world.failures) == (0, [], [])

    asyncio.run(story())


def test_a_failed_directory_is_noted_once_and_reported() -> None:
    async def story() -> None:
        world = World()
        world.fail(A, DiskFailed)
        world.fail(A, DiskFailed)
        await asyncio.sleep(0.01)
        await world.failing.stop()
        assert world.noted == 1
        assert world.created[-1] == f"{documents.failed_dirs_path(1)}/id-x"
        assert world.failures == []

    asyncio.run(story())


def test_a_damaged_log_is_one_replicas_matter() -> None:
    async def story() -> None:
        world = World()
        world.fail(A, LogDamaged)
        await world.failing.stop()
        assert (world.doubtful, world.created, world.failures) == ([A], [], [])

    asyncio.run(story())


def test_without_any_directory_the_broker_ends() -> None:
    async def story() -> None:
        world = World()
        world.fail(A, DiskFailed)
        world.fail(B, DiskFailed)
        await world.failing.stop()
        assert [str(failure) for failure in world.failures] == ["every log directory has failed"]

    asyncio.run(story())
