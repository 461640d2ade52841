"""Coordinators read their logs when they begin to lead, also if a read fails at first."""

import asyncio
import errno
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.broker.internal_topics import loading
from strandline.protocol.errors import NotCoordinator
from strandline.protocol.primitives import Slices
from strandline.storage.disk import DiskError, DiskFailed, NoDescriptor
from tests.broker import group_harness
from tests.broker.coordinator_harness import TP, TransactionStage, X
from tests.broker.group_harness import MemoryLog, Stage
from tests.broker.test_group_forgetting import commit, kept
from tests.patience import HANG_S

T0 = TopicPartition("t", 0)
TOO_MANY = NoDescriptor("/data", OSError(errno.EMFILE, "too many open files"))
BROKEN = DiskFailed("/data", OSError(errno.EIO, "broken"))


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "READ_AGAIN_S", (0.001, 0.002))


def fails_at_first(log: MemoryLog, times: int, monkeypatch: pytest.MonkeyPatch) -> list[DiskError]:
    """Its first reads fail. Returns the list for what is told of that."""
    told: list[DiskError] = []
    read, tries = log.read, iter(range(times))

    def now_and_then(offset: int, bytes_max: int, end: int) -> Slices:
        if next(tries, None) is not None:
            raise TOO_MANY
        return read(offset, bytes_max, end)

    monkeypatch.setattr(log, "read", now_and_then)
    return told


async def served(coordinator: Any) -> None:
    async with asyncio.timeout(HANG_S):
        while coordinator.is_loading:
            await asyncio.sleep(0.001)


async def test_transactions_whose_log_cannot_be_read_for_a_moment_are_served_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No other broker would: this one leads the partition, and goes on leading it."""
    stage = await TransactionStage().lead()
    producer = await stage.init()
    stage.add(producer, X)
    stage.commit()
    next = TransactionStage(stage.config, stage.log, stage.clock, next_id=stage.next_id)
    told = fails_at_first(stage.log, 3, monkeypatch)
    monkeypatch.setattr(next.partition, "disk_failed", told.append)
    await next.lead(loaded=False)
    await served(next.coordinator)
    assert told == [TOO_MANY] * 3
    assert next.state() == "Ongoing"
    await next.coordinator.stop()
    await stage.coordinator.stop()


async def test_groups_whose_log_cannot_be_read_for_a_moment_are_served_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stage = await Stage().lead()
    commit(stage, T0)
    stage.commit()
    known = kept(stage)
    assert known
    next, partition = Stage(stage.config, stage.log, stage.clock), group_harness.Partition(stage.log)
    told = fails_at_first(stage.log, 3, monkeypatch)
    monkeypatch.setattr(partition, "disk_failed", told.append)
    next.groups.start()
    next.groups.on_leading(partition)
    await served(next.groups)
    assert told == [TOO_MANY] * 3
    assert kept(next) == known
    await next.groups.stop()
    await stage.groups.stop()


async def test_who_resigns_because_of_its_disk_reads_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = await TransactionStage().lead()
    await stage.init()
    next = TransactionStage(stage.config, stage.log, stage.clock)
    reads = []

    def broken(*where: int) -> Slices:
        reads.append(where)
        raise BROKEN

    monkeypatch.setattr(stage.log, "read", broken)
    monkeypatch.setattr(next.partition, "disk_failed", lambda error: next.coordinator.on_resigned(TP))
    await next.lead(loaded=False)
    await served(next.coordinator)
    with pytest.raises(NotCoordinator):
        next.coordinator.find("t")
    assert len(reads) == 1
    await next.coordinator.stop()
    await stage.coordinator.stop()
