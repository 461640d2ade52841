"""Membership: what a consumer may still say of partitions that went to others, and how a membership ends."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from double import Double
from double_group import Group
from test_consumer import GROUP, T0, fill, take

from strandline.client import CommitFailed, Consumer, RebalanceListener, TopicPartition

T1 = TopicPartition("t", 1)
BY_HAND: dict[str, Any] = {**GROUP, "enable_auto_commit": False}


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def begin_a_rebalance(double: Double, group: Group, consumer: Consumer) -> None:
    """Return while the consumer waits for a member that will not come."""
    group.members["ghost"] = None
    double.groups.rebalance(group)
    await until(lambda: not consumer.assignment())


def test_a_member_cannot_take_back_what_was_given_to_another(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            _, log = double.topic("t", 2)
            fill(log, 20)
            committed = double.groups.group("g").offsets
            async with Consumer(double.servers, topics=["t"], **BY_HAND) as first:
                assert len(await take(first, 20)) == 20
                async with Consumer(double.servers, topics=["t"], **BY_HAND) as second:
                    assert len(await take(second, 20)) == 20
                    await second.commit({T1: 20})
                    await until(lambda: first.assignment() == {T0})
                    with pytest.raises(CommitFailed, match="t-1"):
                        await first.commit({T1: 10})
                    await first.commit({T0: 0})
                await until(lambda: first.assignment() == {T0, T1})
                with pytest.raises(CommitFailed, match="t-1"):
                    await first.commit({T1: 10})
                assert committed[T1][0] == 20, "it still has the records of the time before"
                assert await first.poll(50) == []
                await first.commit({T1: 10})
                assert committed[T1][0] == 10, "and has not now, and may say what it likes"

    run(story())


def test_until_all_have_joined_what_was_handed_out_is_committed_as_before(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group = double.groups.group("g")
            async with Consumer(double.servers, topics=["t"], **BY_HAND) as consumer:
                assert len(await take(consumer, 20)) == 20
                await begin_a_rebalance(double, group, consumer)
                await consumer.commit({T0: 10})
                assert group.offsets[T0][0] == 10
                await until(lambda: consumer.assignment() == {T0})
                await consumer.commit({T0: 20})
                assert group.offsets[T0][0] == 20, "it came back in the next generation and goes on"

    run(story())


def test_who_closes_amid_a_rebalance_commits_what_it_is_done_with(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group = double.groups.group("g")
            async with Consumer(double.servers, topics=["t"], **GROUP) as consumer:
                async with asyncio.timeout(5):
                    while not await consumer.poll(50):
                        pass
                await begin_a_rebalance(double, group, consumer)
            assert group.offsets[T0][0] == 20

    run(story())


def test_a_revocation_that_closing_interrupts_is_told_again(run: Any) -> None:
    class Committing(RebalanceListener):
        begun = 0

        async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            self.begun += 1
            if self.begun == 1:
                await asyncio.Event().wait()
            await consumer.commit()

    async def story() -> None:
        nonlocal consumer
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group = double.groups.group("g")
            ear = Committing()
            consumer = Consumer(double.servers, topics=["t"], listener=ear, **BY_HAND)
            async with consumer:
                assert len(await take(consumer, 20)) == 20
                group.members["ghost"] = None
                double.groups.rebalance(group)
                await until(lambda: ear.begun)
            assert (ear.begun, group.offsets[T0][0]) == (2, 20)

    consumer: Any = None
    run(story())
