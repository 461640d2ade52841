"""Who comes while a broker changes its roles is answered when it has, and not told that nobody leads."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from strandline.broker.internal_topics import leads_still
from strandline.broker.network import connection
from strandline.broker.roles import leader_and_isr
from strandline.protocol.batches import read_header
from strandline.protocol.errors import ErrorCode
from tests.broker.replica_harness import (
    Cluster,
    ask,
    batch,
    cluster,
    end_of_epoch,
    fetch,
    fetched,
    list_offsets,
    outcome,
    produce,
    until,
)
from tests.patience import HANG_S


class Gate:
    """The medium: what new leaders write down waits until it is open."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.open = Event()
        self.open.set()
        save = leader_and_isr._save_all

        def slow(*args: Any) -> Any:
            assert self.open.wait(HANG_S)
            return save(*args)

        patch.setattr(leader_and_isr, "_save_all", slow)
        patch.setattr(connection, "HELD_S_MAX", HANG_S)  # half a second passes on a busy machine, too


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def run(directory: Path, gate: Gate, story: Callable[[Cluster], Awaitable[None]]) -> None:
    async def play() -> None:
        async with cluster(directory, 1) as stage:
            try:
                await story(stage)
            finally:
                gate.open.set()

    asyncio.run(play())


async def begin(stage: Cluster, gate: Gate) -> "asyncio.Task[None]":
    """A new epoch for the same leader, which cannot be finished until the gate is open."""
    gate.open.clear()
    task = asyncio.get_running_loop().create_task(stage.elect(1, [1]))
    await until(lambda: stage.members[1].parts.roles.change is not None)
    return task


def test_requests_wait_for_the_role_in_their_order(tmp_path: Path, gate: Gate) -> None:
    async def story(stage: Cluster) -> None:
        await stage.elect(1, [1])
        change = await begin(stage, gate)
        clients = [await stage.members[1].connect() for _ in range(4)]
        deadline = asyncio.get_running_loop().time() + HANG_S
        requests: list[Any] = [produce(batch(b"a")), fetch(0), end_of_epoch(0), list_offsets(-1)]
        waiting = [c.submit(r, deadline=deadline) for c, r in zip(clients, requests, strict=True)]
        behind = clients[0].submit(produce(batch(b"b", b"c")), deadline=deadline)
        # and one of the controller
        await until(lambda: stage.members[1].broker.metrics.handler_tasks >= 5)
        assert not any(one.done() for one in (*waiting, behind))
        gate.open.set()
        await change
        written, read, epoch, end = [await one for one in waiting]
        assert (outcome(written), outcome(await behind)) == ((0, 0), (0, 1))
        assert (fetched(read).error_code, epoch.topics[0].partitions[0].error_code) == (0, 0)
        assert end.topics[0].partitions[0].error_code == 0
        for client in clients:
            await client.close()

    run(tmp_path, gate, story)


def test_a_replica_that_is_being_made_is_waited_for(tmp_path: Path, gate: Gate) -> None:
    async def story(stage: Cluster) -> None:
        change = await begin(stage, gate)
        client = await stage.members[1].connect()
        waiting = client.submit(produce(batch(b"a")), deadline=asyncio.get_running_loop().time() + HANG_S)
        await until(lambda: stage.members[1].broker.metrics.handler_tasks >= 2)
        gate.open.set()
        await change
        assert outcome(await waiting) == (0, 0)
        await client.close()

    run(tmp_path, gate, story)


def test_nobody_waits_for_long_or_twice(tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(stage: Cluster) -> None:
        monkeypatch.setattr(connection, "HELD_S_MAX", 0.05)
        await stage.elect(1, [1])
        change = await begin(stage, gate)
        client = await stage.members[1].connect()
        assert outcome(await ask(client, produce(batch(b"a"))))[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
        gate.open.set()
        await change
        assert outcome(await ask(client, produce(batch(b"a")))) == (0, 0)
        await client.close()

    run(tmp_path, gate, story)


def test_offsets_are_not_told_amid_a_change_of_roles(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever is told a new role may have been replaced long ago, and its log directory may hang."""

    async def story(stage: Cluster) -> None:
        await stage.elect(1, [1])
        partition = stage.members[1].partition
        change = await begin(stage, gate)
        monkeypatch.setattr(leads_still, "HELD_S_MAX", 0.05)
        assert not await leads_still.leads_still(partition)
        monkeypatch.setattr(leads_still, "HELD_S_MAX", HANG_S)
        waiting = asyncio.ensure_future(leads_still.leads_still(partition))
        await asyncio.sleep(0)
        gate.open.set()
        await change
        assert await waiting

    run(tmp_path, gate, story)


def test_a_role_does_not_begin_over_a_log_that_was_cut_meanwhile(tmp_path: Path, gate: Gate) -> None:
    """What new leaders write down tells of the log as it was, though it ends where it ended then."""

    async def story(stage: Cluster) -> None:
        await stage.elect(1, [1])
        client = await stage.members[1].connect()
        for value in (b"a", b"b"):
            assert outcome(await ask(client, produce(batch(value))))[0] == 0
        await client.close()
        change = await begin(stage, gate)
        partition, other = stage.members[1].partition, bytearray(batch(b"c"))
        partition.log.truncate_to(1)
        partition.log.append(memoryview(other), read_header(other), 1, 1000)
        assert partition.log.end_offset == 2
        gate.open.set()
        await change
        assert partition.leading is None and partition.incomplete
        await stage.elect(1, [1])
        assert partition.leading is not None, "told once more, it leads"

    run(tmp_path, gate, story)
