"""Records that never came into a batch, in transactions: for want of their topic, their partition, or room.

Nobody may wait for their receipts: who only calls `send` and commits must hear of them from `commit`.
"""

import asyncio
import gc
from typing import Any

import pytest

from strandline.client import (
    BufferExhausted,
    InvalidPartitions,
    InvalidTopic,
    RequestTimedOut,
    TransactionAborted,
    UnknownTopicOrPartition,
)
from strandline.client.network import cluster
from strandline.client.producer.transactions import Transactions
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.metadata import MetadataResponseTopic
from strandline.protocol.messages.transactions import AddPartitionsToTxnResponse
from tests.client.broker_harness import HANDLERS, Broker, Double
from tests.client.test_transactions import committed, transactional
from tests.client.transaction_harness import added
from tests.patience import HANG_S


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PROPAGATION_SECONDS", 0.2)


def illegal(double: Double, name: str) -> None:
    """Metadata refuses this topic for its name."""

    def hook(broker: Broker, api: int, request: Any) -> Any:
        if api != Api.METADATA or not any(one.name == name for one in request.topics or ()):
            return None
        answer: Any = HANDLERS[api](double, broker, request)
        answer.topics = [one for one in answer.topics if one.name != name]
        answer.topics.append(
            MetadataResponseTopic(
                error_code=ErrorCode.INVALID_TOPIC_EXCEPTION, name=name, is_internal=False, partitions=[]
            )
        )
        return answer

    double.hook = hook


@pytest.mark.parametrize("wrong", ["partition", "topic", "name"])
def test_a_record_that_has_nowhere_to_go_fails_its_transaction(run: Any, wrong: str) -> None:
    where: dict[str, dict[str, Any]] = {
        "partition": {"topic": "t", "partition": 9},
        "topic": {"topic": "typo"},
        "name": {"topic": "not legal"},
    }
    error = {
        "partition": InvalidPartitions,
        "topic": UnknownTopicOrPartition,
        "name": InvalidTopic,
    }[wrong]

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            illegal(double, "not legal")
            async with transactional(double, max_block_ms=1_000) as producer:
                with pytest.raises(error):
                    async with producer.transaction():
                        producer.send("t", b"half")
                        producer.send(value=b"nowhere", **where[wrong])
                producer.begin()
                await producer.send("t", b"sent, and then")
                with pytest.raises(error):
                    await producer.send(value=b"nowhere", **where[wrong])
                with pytest.raises(error):
                    await producer.commit()
                await producer.abort()
                async with producer.transaction():
                    producer.send("t", b"whole")
            assert await committed(double) == [b"whole"]

    run(story())


def test_a_list_that_is_sent_in_part_fails_its_transaction(run: Any) -> None:
    """Its caller is told by `send_many`, and may have caught that."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double, max_block_ms=500, buffer_memory=20_000) as producer:
                await producer.init_transactions()
                producer.begin()
                assert await producer.partitions_for("t") == [0]
                double.brokers[1].stopped = True  # so no room comes
                sending = asyncio.create_task(producer.send_many("t", [b"x" * 5_000] * 8))
                await asyncio.sleep(0.8)
                double.brokers[1].stopped = False
                with pytest.raises(BufferExhausted):
                    await sending
                with pytest.raises(BufferExhausted):
                    await producer.commit()
                await producer.abort()
            assert await committed(double) == []

    run(story())


def test_an_abort_does_not_wait_for_a_topic(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double, max_block_ms=1_000 * HANG_S) as producer:
                await producer.init_transactions()
                async with asyncio.timeout(HANG_S / 2):
                    with pytest.raises(KeyError):
                        async with producer.transaction():
                            waits = producer.send("typo", b"for its topic")
                            await asyncio.sleep(0.05)
                            raise KeyError
                with pytest.raises(TransactionAborted, match="before it was sent"):
                    await waits
                async with producer.transaction():
                    producer.send("t", b"next")
            assert await committed(double) == [b"next"]

    run(story())


def test_asyncio_does_not_complain_of_receipts_that_nobody_waits_for(run: Any) -> None:
    """A line for each record of an aborted transaction would tell what the caller knows already."""
    complaints: list[str] = []

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: complaints.append(context["message"]))
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double, linger_ms=1_000) as producer:
                with pytest.raises(KeyError):
                    async with producer.transaction():
                        for _ in range(3):
                            producer.send("t", b"lingers")
                        raise KeyError
                with pytest.raises(InvalidPartitions):
                    async with producer.transaction():
                        producer.send("t", b"nowhere", partition=9)

                gc.collect()

    run(story())
    assert complaints == []


@pytest.mark.parametrize("ended_by", ["commit", "abort"])
def test_no_abort_waits_for_a_partition_that_cannot_join(run: Any, ended_by: str) -> None:
    """Its topic was deleted after its leader was found: the coordinator says so whenever it is asked."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            double.topic("gone")

            def refuse(broker: Broker, api: int, request: Any) -> Any:
                if api != Api.ADD_PARTITIONS_TO_TXN or request.v3_and_below_topics[0].name != "gone":
                    return None
                told = added(request.v3_and_below_topics[0], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[told])

            double.hook = refuse
            async with transactional(double, delivery_timeout_ms=300) as producer:
                await producer.init_transactions()
                producer.begin()
                lost = producer.send("gone", b"x")
                if ended_by == "commit":
                    with pytest.raises(RequestTimedOut):
                        await producer.commit()
                else:
                    await asyncio.sleep(0.1)
                async with asyncio.timeout(HANG_S / 2):
                    await producer.abort()
                assert isinstance(
                    lost.exception(), RequestTimedOut if ended_by == "commit" else TransactionAborted
                )
                async with producer.transaction():
                    producer.send("t", b"1")
            assert await committed(double) == [b"1"]

    run(story())


class Odd(Exception):
    """An error that only its author knows."""


def test_whatever_fails_a_transaction_its_block_aborts_it(run: Any) -> None:
    """Also what is no error of a broker, as of a partitioner: the next one can begin."""

    def partitioner(key: bytes | None, count: int) -> int:
        if key == b"odd":
            raise Odd("no place for this")
        return 0

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double, partitioner=partitioner) as producer, asyncio.timeout(HANG_S):
                with pytest.raises(Odd):
                    async with producer.transaction():
                        producer.send("t", b"half", key=b"odd")  # it waits in line: its topic is not known
                async with producer.transaction():
                    await producer.send("t", b"whole", key=b"even")
            assert await committed(double) == [b"whole"]

    run(story())


def test_an_abort_that_fails_in_any_way_hides_no_error_of_the_block(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(transactions: Transactions) -> None:
        raise Odd("of the abort")

    monkeypatch.setattr(Transactions, "abort", fails)

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double) as producer:
                with pytest.raises(Odd, match="of the block"):
                    async with producer.transaction():
                        raise Odd("of the block")

    run(story())
