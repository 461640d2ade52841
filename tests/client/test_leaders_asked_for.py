"""Who leads now, of brokers some of which know only what was."""

import asyncio
from typing import Any

import pytest

from strandline.client import ApiError, Producer
from strandline.protocol.apis import Api
from strandline.protocol.messages.metadata import MetadataRequest
from tests.client.broker_harness import Double, on_metadata
from tests.patience import HANG_S


def values(partition: Any) -> list[bytes | None]:
    return [record.value for record in partition.records()]


def test_a_broker_that_hears_nothing_any_more_is_not_asked_for_ever(run: Any) -> None:
    """It was deposed and says so, and its metadata names itself: others know better, and must be asked."""

    async def story() -> None:
        async with Double(3) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers[:1]) as producer:
                await producer.send("t", b"0")
                old = on_metadata(double, double.brokers[1], MetadataRequest(topics=None))
                double.hook = lambda broker, api, request: (
                    old if (broker.node, api) == (1, Api.METADATA) else None
                )
                double.move("t", 0, 2)
                await asyncio.wait_for(producer.send("t", b"1"), HANG_S)
            assert values(log) == [b"0", b"1"]

    run(story())


def test_who_knows_only_what_was_is_asked_after_those_that_were_down_for_long(run: Any) -> None:
    async def story() -> None:
        async with Double(2) as double:
            first, _ = double.topic("t", 2)
            often = {"retry_backoff_max_ms": 50, "delivery_timeout_ms": 1500, "request_timeout_ms": 500}
            async with Producer(double.servers, **often) as producer:
                await producer.send("t", b"0", partition=0)
                double.kill(2)
                with pytest.raises(ApiError):
                    await producer.send("t", b"1", partition=1)
                old = on_metadata(double, double.brokers[1], MetadataRequest(topics=None))
                double.hook = lambda broker, api, request: (
                    old if (broker.node, api) == (1, Api.METADATA) else None
                )
                await double.revive(2)
                double.move("t", 0, 2)
                await asyncio.wait_for(producer.send("t", b"2", partition=0), HANG_S)
            assert values(first) == [b"0", b"2"]

    run(story())
