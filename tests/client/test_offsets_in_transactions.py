"""Requests of a transaction that are not answered as hoped for: they are not repeated for ever, an abort does
not wait for them, and one that arrives late counts for no later transaction.
"""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from strandline.client import (
    RequestTimedOut,
    TopicPartition,
    TransactionAborted,
    UnknownTopicOrPartition,
)
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.client.broker_harness import SWALLOW, Double
from tests.client.test_transactions import add_with, asked, committed, transactional
from tests.patience import HANG_S

T0, T7 = TopicPartition("t", 0), TopicPartition("t", 7)
FOR_EVER = {"max_block_ms": 1_000 * HANG_S, "delivery_timeout_ms": 1_000 * HANG_S}


def unknown(broker: Any, api: int, request: TxnOffsetCommitRequest) -> Any:
    """The group's coordinator knows partition 0 and no other."""
    if api != Api.TXN_OFFSET_COMMIT:
        return None
    topics = [
        TxnOffsetCommitResponseTopic(
            name=topic.name,
            partitions=[
                TxnOffsetCommitResponsePartition(
                    partition_index=one.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if one.partition_index else 0,
                )
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    return TxnOffsetCommitResponse(topics=topics)


def nothing(broker: Any, api: int, request: Any) -> Any:
    """All is answered as usual."""
    return None


async def goes_on(double: Double, producer: Any, epoch: int = 0) -> None:
    """The next transaction is as good as any; nothing of the ones before is seen."""
    double.hook = nothing
    async with asyncio.timeout(HANG_S), producer.transaction():
        await producer.send("t", b"next")
        await producer.send_offsets({T0: 9}, "g")
    assert double.groups.group("g").offsets == {T0: (9, "")}
    assert await committed(double) == [b"next"]
    assert double.topics["t"][0].headers()[-1].producer_epoch == epoch


async def until_asked(double: Double, api: Api, times: int = 1) -> None:
    async with asyncio.timeout(HANG_S):
        while len(asked(double, api)) < times:
            await asyncio.sleep(0.01)


def test_offsets_that_are_never_taken_fail_their_transaction_in_time(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            double.hook = unknown
            async with transactional(double, delivery_timeout_ms=300) as producer:
                await producer.init_transactions()
                producer.begin()
                await producer.send("t", b"half")
                why = "g: t-7: the offsets of t-7 were not taken within delivery_timeout_ms = 300"
                async with asyncio.timeout(HANG_S):
                    with pytest.raises(UnknownTopicOrPartition, match=why):
                        await producer.send_offsets({T0: 1, T7: 3}, "g")
                with pytest.raises(UnknownTopicOrPartition, match=why):
                    await producer.commit()
                await producer.abort()
                await goes_on(double, producer)
            assert double.transactions.known["tx"].ends == [False, True]

    run(story())


@pytest.mark.parametrize("how", ["time is up", "cancelled", "the block goes on"])
def test_a_block_whose_offsets_are_not_taken_is_aborted(run: Any, how: str) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            double.hook = unknown
            async with transactional(double, max_block_ms=100) as producer, asyncio.timeout(HANG_S):
                if how == "time is up":
                    with pytest.raises(RequestTimedOut, match=r"g: t-7: call it again .*, or abort\(\)"):
                        async with producer.transaction():
                            await producer.send("t", b"half")
                            await producer.send_offsets({T7: 3}, "g")
                elif how == "cancelled":
                    with pytest.raises(TimeoutError):
                        async with producer.transaction(), asyncio.timeout(0.1):
                            await producer.send_offsets({T7: 3}, "g")
                else:
                    with pytest.raises(RuntimeError, match=r"cannot commit: the outcome of send_offsets\(\)"):
                        async with producer.transaction():
                            with suppress(RequestTimedOut):
                                await producer.send_offsets({T7: 3}, "g")
                times = len(asked(double, Api.TXN_OFFSET_COMMIT))
                await goes_on(double, producer)
                assert len(asked(double, Api.TXN_OFFSET_COMMIT)) == times + 1, "nothing is repeated"
            assert double.transactions.known["tx"].ends == [False, True]

    run(story())


def test_an_abort_ends_offsets_that_another_task_sends(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            double.hook = unknown
            async with transactional(double, **FOR_EVER) as producer:
                await producer.init_transactions()
                producer.begin()
                sending = asyncio.create_task(producer.send_offsets({T7: 3}, "g"))
                await until_asked(double, Api.TXN_OFFSET_COMMIT, 2)
                async with asyncio.timeout(HANG_S):
                    await producer.abort()
                    with pytest.raises(TransactionAborted):
                        await sending
                await goes_on(double, producer)
            assert double.transactions.known["tx"].ends == [False, True]

    run(story())


def test_a_producer_that_closes_meanwhile_aborts(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            double.hook = unknown
            async with transactional(double, **FOR_EVER) as producer:
                await producer.init_transactions()
                producer.begin()
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await producer.send_offsets({T7: 3}, "g")
            assert double.transactions.known["tx"].ends == [False]

    run(story())


@pytest.mark.parametrize("fails", [True, False], ids=["after it has failed", "while it waits"])
def test_offsets_that_arrive_late_do_not_count_for_the_next_transaction(run: Any, fails: bool) -> None:
    """They come with the epoch of the transaction that was aborted, and the next one has another."""
    late: list[TxnOffsetCommitRequest] = []

    def silent(broker: Any, api: int, request: Any) -> Any:
        if api != Api.TXN_OFFSET_COMMIT:
            return None
        late.append(request)
        return SWALLOW

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            double.hook = silent
            times = {"delivery_timeout_ms": 100} if fails else FOR_EVER
            async with transactional(double, request_timeout_ms=200, **times) as producer:
                await producer.init_transactions()
                producer.begin()
                sending = asyncio.create_task(producer.send_offsets({T0: 3}, "g"))
                await until_asked(double, Api.TXN_OFFSET_COMMIT)
                if fails:
                    with pytest.raises(Exception, match="the offsets of t-0 were not taken"):
                        await sending
                async with asyncio.timeout(HANG_S):
                    await producer.abort()
                    if not fails:
                        with pytest.raises(TransactionAborted):
                            await sending
                double.hook = nothing
                async with producer.transaction():
                    await producer.send_offsets({T0: 9}, "g")
                    (request,) = late
                    answer = double.transactions.answer(Api.TXN_OFFSET_COMMIT, request)
                    (code,) = [one.error_code for topic in answer.topics for one in topic.partitions]
                    assert code == ErrorCode.PRODUCER_FENCED
                await goes_on(double, producer, epoch=1)
            assert double.transactions.known["tx"].ends == [False, True, True]

    run(story())


def test_a_group_that_was_added_without_an_answer_is_in_no_later_transaction(run: Any) -> None:
    """The coordinator has the transaction open, which its producer does not know for sure."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")

            def silent(broker: Any, api: int, request: Any) -> Any:
                if api != Api.ADD_OFFSETS_TO_TXN:
                    return None
                double.transactions.answer(api, request)
                return SWALLOW

            double.hook = silent
            async with transactional(double, request_timeout_ms=200, **FOR_EVER) as producer:
                await producer.init_transactions()
                producer.begin()
                sending = asyncio.create_task(producer.send_offsets({T0: 3}, "g"))
                await until_asked(double, Api.ADD_OFFSETS_TO_TXN)
                async with asyncio.timeout(HANG_S):
                    await producer.abort()
                    with pytest.raises(TransactionAborted):
                        await sending
                assert double.transactions.known["tx"].ends == [False]
                assert double.transactions.known["tx"].groups == set()
                await goes_on(double, producer, epoch=1)

    run(story())


def test_an_abort_does_not_wait_for_a_partition_that_the_coordinator_does_not_know(run: Any) -> None:
    refused = add_with(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            double.hook = lambda broker, api, request: (
                refused(request) if api == Api.ADD_PARTITIONS_TO_TXN else None
            )
            async with transactional(double, **FOR_EVER) as producer:
                await producer.init_transactions()
                producer.begin()
                sent = producer.send("t", b"deleted meanwhile")
                await until_asked(double, Api.ADD_PARTITIONS_TO_TXN, 2)
                async with asyncio.timeout(HANG_S):
                    await producer.abort()
                    with pytest.raises(TransactionAborted):
                        await sent
                await goes_on(double, producer)

    run(story())


def test_offsets_that_several_tasks_send_at_once_are_all_sent(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 4)
            parts = [TopicPartition("t", number) for number in range(4)]
            async with transactional(double) as producer, asyncio.timeout(HANG_S), producer.transaction():
                await asyncio.gather(*(producer.send_offsets({one: 1}, "g") for one in parts))
            assert double.groups.group("g").offsets == dict.fromkeys(parts, (1, ""))

    run(story())
