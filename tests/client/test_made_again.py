"""A topic that is deleted and made again while a consumer reads it: none of the new records is skipped."""

import asyncio
from typing import Any

import pytest

from strandline.client import Consumer, OffsetOutOfRange, TopicPartition
from strandline.protocol.apis import Api
from strandline.protocol.messages.api_versions import ApiVersionsResponse
from strandline.protocol.messages.metadata import MetadataResponse
from tests.client.broker_harness import Broker, Double, Partition, on_metadata, on_versions
from tests.client.numbered import fill, take
from tests.patience import HANG_S

T0 = TopicPartition("t", 0)
OPTIONS: dict[str, Any] = {"fetch_max_wait_ms": 20, "retry_backoff_max_ms": 50}


def names_only(double: Double) -> None:
    """Brokers that know no Fetch by topic id."""

    def answer(broker: Broker, api: int, request: Any) -> Any:
        if api != Api.API_VERSIONS:
            return None
        told: ApiVersionsResponse = on_versions(double, broker, request)
        for row in told.api_keys:
            if row.api_key == Api.FETCH:
                row.max_version = 12
        return told

    double.hook = answer


@pytest.mark.parametrize("policy", ["earliest", "latest"])
@pytest.mark.parametrize("by_name", [False, True], ids=["by-id", "by-name"])
def test_it_is_read_from_its_beginning(policy: str, by_name: bool, run: Any) -> None:
    """It has more records than had been read of the one before, so the position is within it."""

    async def story() -> None:
        async with Double(1) as double:
            if by_name:
                names_only(double)
            (log,) = double.topic("t")
            fill(log, range(10))
            options = OPTIONS | {"auto_offset_reset": policy, "group": "g", "auto_commit_interval_ms": 20}
            async with Consumer(double.servers, metadata_max_age_ms=50, **options) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 0)
                assert await take(consumer, 10) == list(range(10))
                log = Partition(1)
                again = double.topic("t")
                if by_name:  # else the leader answers of the new one before anybody has told of it
                    again[0] = log
                    async with asyncio.timeout(HANG_S):
                        while consumer._cluster.view.topics["t"].topic_id != double.ids["t"]:
                            await asyncio.sleep(0.01)
                    fill(log, range(100, 130))
                else:
                    fill(again[0], range(100, 130))
                assert await take(consumer, 30) == list(range(100, 130))
                await consumer.poll(50)
            assert double.groups.group("g").offsets[T0][0] == 30

    run(story())


def test_without_a_policy_the_caller_says_where_to_go_on(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            fill(double.topic("t")[0], range(10))
            async with Consumer(double.servers, auto_offset_reset="none", **OPTIONS) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 0)
                assert await take(consumer, 10) == list(range(10))
                fill(double.topic("t")[0], range(100, 130))
                for _ in range(2):
                    with pytest.raises(OffsetOutOfRange, match="created again"):
                        await take(consumer, 1)
                consumer.seek(T0, 3)
                assert await take(consumer, 27) == list(range(103, 130))

    run(story())


def test_who_seeks_before_it_has_heard_of_the_new_topic_means_that_one(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            fill(double.topic("t")[0], range(10))
            async with Consumer(double.servers, auto_offset_reset="latest", **OPTIONS) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 0)
                assert await take(consumer, 10) == list(range(10))
                fill(double.topic("t")[0], range(100, 130))
                consumer.seek(T0, 20)
                assert await take(consumer, 10) == list(range(120, 130))

    run(story())


def test_a_broker_that_lags_makes_nobody_read_it_again(run: Any) -> None:
    """Its metadata has the id of the topic before. No leader has that one any more."""

    async def story() -> None:
        async with Double(2) as double:
            fill(double.topic("t")[0], range(10))
            old = double.ids["t"]
            options = OPTIONS | {"auto_offset_reset": "earliest", "metadata_max_age_ms": 50}
            async with Consumer(double.servers, topics=["t"], **options) as consumer:
                known = consumer._cluster.view.topics
                assert await take(consumer, 10) == list(range(10))
                (log,) = double.topic("t")
                fill(log, range(100, 130))
                assert await take(consumer, 30) == list(range(100, 130))

                def lag(broker: Broker, api: int, request: Any) -> Any:
                    if api != Api.METADATA:
                        return None
                    told: MetadataResponse = on_metadata(double, broker, request)
                    told.topics[0].topic_id = old
                    return told

                double.hook = lag
                async with asyncio.timeout(HANG_S):
                    while known["t"].topic_id != old:
                        await asyncio.sleep(0.01)
                await consumer.poll(100)
                double.hook = lambda *_: None
                fill(log, range(130, 140))
                assert await take(consumer, 10) == list(range(130, 140))

    run(story())
