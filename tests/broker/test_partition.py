"""One replica when its disk or its topic's settings get in the way."""

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.replicas.local_appends import append_local
from strandline.broker.replicas.shared import Role
from strandline.protocol.batches import read_header
from strandline.protocol.errors import ErrorCode, NotLeaderOrFollower
from strandline.storage.disk import DiskFailed, DiskFull
from tests.broker.replica_harness import TP, ask, batch, cluster, fetch, fetched, outcome, produce, until
from tests.patience import HANG_S


async def test_a_full_disk_refuses_writes_and_a_broken_one_ends_the_replica(tmp_path: Path) -> None:
    async with cluster(tmp_path, 1) as stage:
        await stage.elect(1, [1])
        client = await stage.members[1].connect()
        partition = stage.members[1].partition
        assert outcome(await ask(client, produce(batch(b"a")))) == (0, 0)
        real = partition.log.append

        def refuse(error: Exception) -> Any:
            def append(*_: Any) -> int:
                raise error

            return append

        partition.log.append = refuse(DiskFull("x", OSError(errno.ENOSPC, "full")))
        assert outcome(await ask(client, produce(batch(b"b"))))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        assert partition.role is Role.LEADING
        assert fetched(await ask(client, fetch(0))).error_code == 0
        partition.log.append = real
        assert outcome(await ask(client, produce(batch(b"b")))) == (0, 1)
        partition.log.append = refuse(DiskFailed("x", OSError(errno.EIO, "broken")))
        assert outcome(await ask(client, produce(batch(b"c"))))[0] == ErrorCode.KAFKA_STORAGE_ERROR
        partition.log.append = real
        assert partition.role is Role.OFFLINE
        assert fetched(await ask(client, fetch(0))).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        stage.epoch += 1
        assert await stage.tell(stage.members[1], 1, [1], 1) == ErrorCode.KAFKA_STORAGE_ERROR
        await client.close()


async def test_who_leads_no_more_keeps_no_records_in_memory(tmp_path: Path) -> None:
    """Nobody reads the end of a follower's log."""

    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"a"))))[0] == 0
        memory = stage.members[1].logs._open_segments.memory
        assert memory.nbytes > 0
        await stage.elect(2, [1, 2])
        assert memory.nbytes == 0
        other = await stage.members[2].connect()
        assert outcome(await ask(other, produce(batch(b"b"))))[0] == 0
        await until(lambda: stage.members[1].partition.log.end_offset == 2)
        assert memory.nbytes == 0 and stage.members[2].logs._open_segments.memory.nbytes > 0
        await client.close()
        await other.close()


async def test_nothing_is_acknowledged_before_it_is_flushed_if_so_configured(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2, storage={"flush_before_ack": True}) as stage:
        await stage.elect(1, [1, 2])
        client = await stage.members[1].connect()
        for value in (b"a", b"b"):
            assert outcome(await ask(client, produce(batch(value))))[0] == 0
        for member in stage.members.values():
            assert member.partition.log.flushed_offset == 2
        await client.close()


async def test_a_follower_flushes_what_it_has_before_it_says_so(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2, storage={"flush_before_ack": True}) as stage:
        await stage.elect(1, [1, 2])
        for member in stage.members.values():  # what an earlier leader left in memory
            records = memoryview(bytearray(batch(b"a")))
            member.partition.log.append(records, read_header(records), 0, 1000)
        assert [m.partition.log.flushed_offset for m in stage.members.values()] == [0, 0]
        await stage.elect(1, [1, 2])
        follower = stage.members[1].partition.leading.progress_of(2)
        await until(lambda: follower.end_offset == 1)
        assert stage.members[2].partition.log.flushed_offset == 1


async def test_what_the_broker_itself_appends_is_told_when_committed(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        await stage.elect(1, [1, 2])
        replicas = stage.members[1].replicas
        told: list[tuple[int, int]] = []
        deadline = asyncio.get_running_loop().time() + HANG_S
        append_local(
            replicas.get,
            TP,
            bytearray(batch(b"a")),
            lambda code, offset: told.append((code, offset)),
            deadline,
        )
        assert told == []
        await until(lambda: told == [(0, 0)])
        other = TopicPartition("t", 9)
        append_local(replicas.get, other, bytearray(batch(b"a")), lambda c, o: told.append((c, o)), deadline)
        assert told[1:] == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]
        with pytest.raises(NotLeaderOrFollower):
            replicas.get(other)


async def test_hooks_hear_of_leadership_but_not_of_every_epoch(tmp_path: Path) -> None:
    async with cluster(tmp_path, 2) as stage:
        heard: list[str] = []
        stage.members[1].parts.shared.on_leading.subscribe(lambda partition: heard.append(f"+{partition.tp}"))
        stage.members[1].parts.shared.on_resigned.subscribe(lambda tp: heard.append(f"-{tp}"))
        await stage.elect(1, [1, 2])
        await stage.elect(1, [1, 2])
        await stage.elect(2, [1, 2])
        assert heard == ["+t-0", "+t-0", "-t-0"]
