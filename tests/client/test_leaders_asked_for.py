"""Who leads now, of brokers some of which know only what was."""

import asyncio
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.client import Admin, ApiError, Consumer, Producer
from strandline.client.config import ClientConfig
from strandline.client.network.cluster import Cluster
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
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


T0 = TopicPartition("t", 0)
STAYS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR)


@pytest.mark.parametrize("code", STAYS)
def test_a_leader_that_refuses_for_a_time_and_stays_is_trusted_again(run: Any, code: ErrorCode) -> None:
    """It waits for a batch before these, or has no room. Metadata was asked for each second ever after."""

    async def story() -> None:
        async with Double(2) as double:
            (log,) = double.topic("t")
            find, left = double.find, [0]

            def refusing(*asked: Any) -> Any:
                left[0] -= left[0] > 0
                return code if left[0] else find(*asked)

            double.find = refusing  # type: ignore[method-assign]
            async with Producer(double.servers, batch_size=100, retry_backoff_ms=5) as producer:
                await producer.send("t", b"0")
                left[0] = 16
                await asyncio.gather(*(producer.send("t", b"%d" % n) for n in range(1, 60)))
                assert not producer._cluster._doubts and not left[0]
            assert values(log) == [b"%d" % n for n in range(60)]
            async with Consumer(double.servers, auto_offset_reset="earliest") as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 0)
                left[0] = 4
                while not await consumer.poll(100):
                    pass
                assert not consumer._cluster._doubts and not left[0]
            async with Admin(double.servers) as admin:
                left[0] = 4
                await admin.list_offsets({T0: -1})
                assert not admin._cluster._doubts and not left[0]

    run(story())


def test_one_doubt_is_not_a_new_one_each_time(run: Any) -> None:
    """A leader that refuses for hours is looked for quickly, and then at leisure."""

    async def story() -> None:
        cluster = Cluster(ClientConfig(bootstrap_servers="127.0.0.1:1"))
        cluster.doubt(T0, 1, 4)
        cluster._fruitless = 7
        cluster.doubt(T0, 1, 4)
        assert cluster._fruitless == 7
        cluster.served(T0, 1, 3)
        assert cluster._doubts, "who served in the epoch before says nothing of this one"
        cluster.doubt(T0, 2, 5)
        assert cluster._fruitless == 0
        cluster.served(T0, 2, 5)
        assert not cluster._doubts

    run(story())
