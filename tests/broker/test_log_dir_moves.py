"""AlterReplicaLogDirs: replicas move to another log directory while they lead and follow."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.handlers import log_dirs
from strandline.broker.replicas.shared import Role
from strandline.broker.upkeep import log_dir_moves
from strandline.broker.upkeep.log_dir_moves import LogDirMoves
from strandline.protocol.errors import ErrorCode, ReplicaNotAvailable, RequestTimedOut
from strandline.protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
)
from strandline.protocol.schema import decode, encode
from strandline.storage.config import TopicConfig
from strandline.storage.log.relocation import MOVED_FROM
from tests.broker.replica_harness import TOPIC, TOPIC_ID
from tests.broker.storage_harness import Box, box, run, tp
from tests.patience import HANG_S
from tests.storage.test_killed_at_any_step import values


class Moving:
    """A broker's storage, and its moves."""

    def __init__(self, b: Box) -> None:
        self.box = b
        self.moves = LogDirMoves(b.logs, b.replicas, b.parts.shared, b.failures.append)
        self.calls: dict[str, int] = {}  # of these methods, which run again and again
        for name in ("_may_take_over", "_resume"):
            setattr(self.moves, name, self._counted(name, getattr(self.moves, name)))
        self.broker = cast(Any, SimpleNamespace(replicas=b.replicas, logs=b.logs, moves=self.moves))

    def _counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        self.calls[name] = 0

        def counted(*arguments: Any) -> Any:
            self.calls[name] += 1
            return method(*arguments)

        return counted

    async def passes(self, name: str, times: int = 3) -> None:
        """Wait until a method has been called so often again, and what follows from it is done."""
        wanted = self.calls[name] + times
        async with asyncio.timeout(20):
            while self.calls[name] < wanted:
                await asyncio.sleep(0.005)

    def ask(self, number: int, directory: str) -> int:
        topics = [AlterReplicaLogDirTopic(name=TOPIC, partitions=[number])]
        request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=directory, topics=topics)])
        answer = log_dirs.alter(self.broker, cast(Any, None), request)
        for version in range(3):
            data = b"".join(map(bytes, encode(answer, version)))
            read, _ = decode(AlterReplicaLogDirsResponse, version, memoryview(data))
            assert read.results[0].partitions[0].error_code == answer.results[0].partitions[0].error_code
        return int(answer.results[0].partitions[0].error_code)

    async def places(self) -> list[list[tuple[int, bool]]]:
        """Of each directory: partitions, and whether they are on their way there."""
        answer = await log_dirs.handle(self.broker, cast(Any, None), DescribeLogDirsRequest())
        return [
            [(p.partition_index, p.is_future_key) for topic in one.topics for p in topic.partitions]
            for one in answer.results
        ]

    async def until_in(self, number: int, directory: str) -> None:
        async with asyncio.timeout(HANG_S):
            while self.box.logs.directory_of(tp(number)) != directory or list(self.moves.coming()):
                await asyncio.sleep(0.005)


@asynccontextmanager
async def moving(root: Path) -> AsyncIterator[Moving]:
    async with box(root) as b:
        made = Moving(b)
        made.moves.start()
        try:
            yield made
        finally:
            await made.moves.stop()


def test_a_leader_leads_on_while_its_log_moves(tmp_path: Path) -> None:
    async def story() -> None:
        async with moving(tmp_path) as m:
            b = m.box
            await b.lead(0, 1)
            for number in range(50):
                b.append(0, b"%d" % number * 2000)
            partition = b.replicas.get(tp(0))
            log, leading = partition.log, partition.leading
            assert (m.ask(0, b.dirs[1]), await m.places()) == (0, [[(0, False)], [(1, False), (0, True)]])
            for number in range(50, 80):
                b.append(0, b"%d" % number * 2000)
                await asyncio.sleep(0.001)
            await m.until_in(0, b.dirs[1])
            assert partition.log is log and partition.leading is leading and log.end_offset == 80
            assert sorted(values(log)) == list(range(80))
            b.append(0, b"after")
            log.flush()
            assert await m.places() == [[], [(0, False), (1, False)]]
            assert [name for name in b.disk.listdir(b.dirs[0]) if name.startswith(TOPIC)] == b.names(
                "-delete"
            )

    run(story)


def test_a_follower_follows_on(tmp_path: Path) -> None:
    async def story() -> None:
        async with moving(tmp_path) as m:
            b = m.box
            await b.lead(0)
            b.append(0, b"mine")
            await b.lead(0, leader=2)
            partition = b.replicas.get(tp(0))
            following = partition.following
            assert partition.role is Role.FOLLOWING and m.ask(0, b.dirs[1]) == 0
            await m.until_in(0, b.dirs[1])
            assert partition.following is following and partition.log.end_offset == 1

    run(story)


def test_what_cannot_be_wished(tmp_path: Path) -> None:
    async def story() -> None:
        async with moving(tmp_path) as m:
            b = m.box
            await b.lead(0, 1)
            assert m.ask(0, "/elsewhere") == ErrorCode.LOG_DIR_NOT_FOUND
            b.logs.interrupted[tp(0)] = b.dirs[1]
            assert m.ask(0, b.dirs[0]) == 0 and not list(m.moves.coming()), "it is there"
            assert not b.logs.interrupted, "the last wish counts"
            assert m.ask(7, b.dirs[0]) == ErrorCode.REPLICA_NOT_AVAILABLE, "it is not here yet"
            for never in (TopicPartition("..", 0), TopicPartition("x" * 30_000, 0), tp(-1)):
                with pytest.raises(ReplicaNotAvailable):
                    m.moves.want(never, b.dirs[0])
            assert list(b.logs.preferred) == [tp(7)], "what never comes takes no place"
            for number in (3, 5, 7):
                assert m.ask(number, b.dirs[0]) == ErrorCode.REPLICA_NOT_AVAILABLE
            await b.lead(3, 5, 7)
            assert {b.logs.directory_of(tp(n)) for n in (3, 5, 7)} == {b.dirs[0]}, "made where it was wished"
            b.replicas.get(tp(1)).fail("it met an impossible state")
            assert m.ask(1, b.dirs[0]) == ErrorCode.KAFKA_STORAGE_ERROR
            b.logs.places.lose(b.dirs[1], "lost")
            assert m.ask(0, b.dirs[1]) == ErrorCode.KAFKA_STORAGE_ERROR
            four = AlterReplicaLogDirTopic(name=TOPIC, partitions=[4])
            refused = log_dirs.refuse_alter(
                AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="x", topics=[four])]),
                RequestTimedOut(),
            )
            assert refused.results[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT

    run(story)


def test_a_wish_to_stay_ends_a_move_and_leaves_no_copy(tmp_path: Path) -> None:
    async def story() -> None:
        async with box(tmp_path) as b:
            m = Moving(b)
            await b.lead(0)
            b.append(0, b"x" * 2000)
            assert m.ask(0, b.dirs[1]) == 0 and m.ask(0, b.dirs[0]) == 0
            assert not list(m.moves.coming())
            assert m.ask(0, b.dirs[1]) == 0
            b.replicas.get(tp(0)).changing = True  # a change of roles holds the last step up
            m.moves.start()
            while not b.names("-future"):
                await asyncio.sleep(0.005)
            await m.passes("_may_take_over")
            assert b.logs.directory_of(tp(0)) == b.dirs[0], "its threads may write to the small files"
            assert m.ask(0, b.dirs[0]) == 0
            async with asyncio.timeout(20):
                while not b.logs.condemned.due(1e9):
                    await asyncio.sleep(0.005)
            b.replicas.get(tp(0)).changing = False
            await m.moves.stop()
            assert b.logs.directory_of(tp(0)) == b.dirs[0] and b.append(0, b"y") == 1

    run(story)


@pytest.mark.parametrize(("error", "is_offline"), [(errno.EIO, True), (errno.ENOSPC, False)])
def test_a_disk_that_fails_keeps_the_replica_where_it_is(
    tmp_path: Path, error: int, is_offline: bool
) -> None:
    async def story() -> None:
        async with moving(tmp_path) as m:
            b = m.box
            await b.lead(0)
            b.append(0, b"x" * 2000)
            fault = b.disk.fail("append", f"{b.dirs[1]}/*", error)
            assert m.ask(0, b.dirs[1]) == 0
            async with asyncio.timeout(20):
                while list(m.moves.coming()):
                    await asyncio.sleep(0.005)
            assert b.logs.directory_of(tp(0)) == b.dirs[0] and b.append(0, b"y") == 1
            assert (b.dirs[1] in b.logs.places.offline) == is_offline
            b.disk.heal(fault)

    run(story)


def test_old_files_that_could_not_be_removed_are_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_dir_moves, "LEAVE_AGAIN_S", 0.05)

    async def story() -> None:
        async with moving(tmp_path) as m:
            b = m.box
            await b.lead(0)
            b.append(0, b"x")
            there = f"{b.dirs[0]}/{tp(0)}"
            fault = b.disk.fail("rename", there, errno.ENOSPC)
            assert m.ask(0, b.dirs[1]) == 0
            async with asyncio.timeout(20):
                while fault.hits < 2:
                    await asyncio.sleep(0.005)
            assert b.logs.directory_of(tp(0)) == b.dirs[1] and b.disk.exists(there)
            assert m.ask(0, b.dirs[0]) == ErrorCode.KAFKA_STORAGE_ERROR, "something is in the way"
            b.disk.heal(fault)
            async with asyncio.timeout(20):
                while m.ask(0, b.dirs[0]) != 0:
                    await asyncio.sleep(0.005)
            await m.until_in(0, b.dirs[0])
            assert not b.logs.places.offline and b.append(0, b"y") == 1

    run(story)


def test_a_note_that_cannot_be_removed_is_a_failure_of_that_disk(tmp_path: Path) -> None:
    async def story() -> None:
        async with moving(tmp_path) as m:
            b = m.box
            await b.lead(0, 1, 2)
            b.append(0, b"x")
            b.disk.fail("unlink", f"{b.dirs[1]}/{tp(0)}/{MOVED_FROM}")
            assert m.ask(0, b.dirs[1]) == 0
            async with asyncio.timeout(20):
                while b.dirs[1] not in b.logs.places.offline:
                    await asyncio.sleep(0.005)
            assert not b.failures and b.dirs[0] not in b.logs.places.offline and b.append(2, b"y") == 0

    run(story)


def test_a_move_that_was_given_up_does_not_begin_again(tmp_path: Path) -> None:
    async def story() -> None:
        async with moving(tmp_path) as m:
            b = m.box
            await b.lead(0, 1, 2)
            b.replicas.get(tp(0)).changing = True
            assert m.ask(0, b.dirs[1]) == 0
            while not b.names("-future"):
                await asyncio.sleep(0.005)
            assert m.ask(0, b.dirs[0]) == 0, "the wish is taken back"
            async with asyncio.timeout(20):
                while b.names("-future"):
                    await asyncio.sleep(0.005)
            b.replicas.get(tp(0)).changing = False
            fault = b.disk.fail("append", f"{b.dirs[1]}/*", errno.ENOSPC)
            b.append(2, b"x" * 2000)
            b.append(0, b"x")
            assert m.ask(2, b.dirs[1]) == 0
            async with asyncio.timeout(20):
                while list(m.moves.coming()) or b.names("-future"):
                    await asyncio.sleep(0.005)
            assert fault.hits and len(b.logs.condemned) == 2
        async with moving(tmp_path) as m:
            assert not m.box.logs.interrupted

    run(story)


def test_a_move_that_was_interrupted_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_dir_moves, "LOOK_S", 0.02)

    async def story() -> None:
        async with box(tmp_path) as b:
            m = Moving(b)
            await b.lead(0)
            b.append(0, b"x" * 2000)
            b.replicas.get(tp(0)).changing = True
            m.ask(0, b.dirs[1])
            m.moves.start()
            while not b.names("-future"):
                await asyncio.sleep(0.005)
            await m.moves.stop()
            b.replicas.get(tp(0)).changing = False
            goes_to = b.dirs[1]
        async with moving(tmp_path) as m:
            b = m.box
            assert b.logs.interrupted == {tp(0): goes_to}
            await m.passes("_resume")
            assert b.logs.directory_of(tp(0)) != goes_to, "its replica has no role yet"
            await b.lead(0)
            await m.until_in(0, goes_to)
            assert sorted(values(b.replicas.get(tp(0)).log)) == [0] and not b.logs.interrupted

    run(story)


def test_a_replica_that_is_deleted_on_its_way_is_gone(tmp_path: Path) -> None:
    async def story() -> None:
        async with moving(tmp_path) as m:
            b = m.box
            await b.lead(0)
            b.append(0, b"x" * 2000)
            b.replicas.get(tp(0)).changing = True
            m.ask(0, b.dirs[1])
            while not b.names("-future"):
                await asyncio.sleep(0.005)
            b.replicas.unhost(tp(0))
            async with asyncio.timeout(20):
                while list(m.moves.coming()) or m.moves._wanted:
                    await asyncio.sleep(0.005)
            b.logs.create(tp(0), TOPIC_ID, TopicConfig.of(b.logs.config))
            assert b.logs.get(tp(0)).end_offset == 0  # type: ignore[union-attr]

    run(story)
