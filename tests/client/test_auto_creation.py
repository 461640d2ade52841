"""Brokers that create topics when they are asked for them make only what somebody wants to have now."""

import asyncio
from typing import Any

import pytest

from strandline.client import Consumer, Producer
from strandline.client.consumer import missing_topics
from strandline.protocol.apis import Api
from strandline.protocol.errors import RequestTimedOut, UnknownTopicOrPartition
from tests.client.broker_harness import Broker, Double
from tests.client.numbered import fill
from tests.patience import HANG_S

FRESH: dict[str, Any] = {"metadata_max_age_ms": 30, "retry_backoff_max_ms": 50}


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missing_topics, "MISSING_SECONDS", 0.2)


def creating(double: Double) -> list[str]:
    """Let brokers create what is asked for; what they have created."""
    made: list[str] = []

    def answer(broker: Broker, api: int, request: Any) -> Any:
        if api == Api.METADATA and request.allow_auto_topic_creation:
            for name in [one.name for one in request.topics or () if one.name not in double.topics]:
                double.topic(name)
                made.append(name)

    double.hook = answer
    return made


async def looks(double: Double, count: int = 4) -> None:
    """So many more requests for metadata."""

    def asked() -> int:
        return sum(api == Api.METADATA for broker in double.brokers.values() for api, _ in broker.requests)

    before = asked()
    async with asyncio.timeout(HANG_S):
        while asked() < before + count:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_makes_its_topic_once_and_not_again_when_it_is_deleted(
    run: Any, group: str | None
) -> None:
    async def story() -> None:
        async with Double(1) as double:
            made = creating(double)
            options = FRESH | {"group": group, "auto_offset_reset": "earliest"}
            async with Consumer(double.servers, topics=["t"], **options) as consumer:
                await consumer.poll(100)
                await looks(double)
                assert made == ["t"]
                del double.topics["t"]
                await looks(double)
                with pytest.raises(UnknownTopicOrPartition, match="t does not exist"):
                    await consumer.poll(HANG_S * 1000)
                assert made == ["t"]
                fill(double.topic("t")[0], range(3))
                async with asyncio.timeout(HANG_S):
                    while not (found := await consumer.poll(100)):
                        pass
                assert [one.value for one in found] == [b"0", b"1", b"2"]

    run(story())


def test_a_consumer_that_may_not_make_any_makes_none(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            made = creating(double)
            async with Consumer(
                double.servers, topics=["t"], allow_auto_create_topics=False, **FRESH
            ) as consumer:
                with pytest.raises(UnknownTopicOrPartition):
                    await consumer.poll(HANG_S * 1000)
                with pytest.raises((UnknownTopicOrPartition, TimeoutError)):
                    async with asyncio.timeout(0.2):
                        await consumer.partitions_for("t")
            assert not made

    run(story())


def test_a_producer_makes_a_deleted_topic_again_only_when_somebody_sends_to_it(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            made = creating(double)
            async with Producer(double.servers, **FRESH) as producer:
                await producer.send("t", b"1")
                await producer.send("u", b"1")
                assert made == ["t", "u"]
                del double.topics["t"]
                await looks(double)
                await producer.send("u", b"2")
                assert made == ["t", "u"]
                async with asyncio.timeout(HANG_S):
                    assert (await producer.send("t", b"2")).offset == 0
                assert made == ["t", "u", "t"]
                await looks(double)
                del double.topics["t"]
                async with asyncio.timeout(HANG_S):
                    assert (await producer.send_many("t", [b"3", b"4"]))[1].offset == 1
                assert made == ["t", "u", "t", "t"]

    run(story())


def test_a_topic_for_which_all_records_were_given_up_is_not_made_later(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Producer(double.servers, max_block_ms=500, **FRESH) as producer:
            with pytest.raises((UnknownTopicOrPartition, RequestTimedOut)):
                await producer.send("typo", b"1")
            made = creating(double)
            await looks(double)
            assert not made
            async with asyncio.timeout(HANG_S):
                await producer.send("typo", b"1")
            assert made == ["typo"]

    run(story())
