"""A leader that names a replica nearer to the consumer (KIP-392), as Apache Kafka's do, without records."""

from typing import Any

import pytest

from strandline.client import Consumer, TopicPartition
from strandline.protocol.apis import Api
from strandline.protocol.error_codes import ErrorCode
from strandline.protocol.messages import fetch
from tests.client.broker_harness import Broker, Double
from tests.client.numbered import fill, take

T0 = TopicPartition("t", 0)
LEADER, NEARER = 1, 2


class Racks:
    """The leader names the nearer one to whoever has a rack; `code` is what that one answers, if anything."""

    def __init__(self, double: Double, named: int = NEARER) -> None:
        self.named = named
        self.code = 0
        self.asked: list[int] = []
        double.copying.add(NEARER)
        double.hook = self

    def __call__(self, broker: Broker, api: int, request: Any) -> Any:
        if api != Api.FETCH:
            return None
        self.asked.append(broker.node)
        if broker.node == LEADER and request.rack_id:
            data = fetch.PartitionData(
                partition_index=0, high_watermark=10, preferred_read_replica=self.named
            )
        elif broker.node == NEARER and self.code:
            data = fetch.PartitionData(partition_index=0, error_code=self.code, high_watermark=-1)
        else:
            return None
        (topic,) = request.topics
        told = fetch.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])
        return fetch.FetchResponse(responses=[told])


def consumer_of(double: Double) -> Consumer:
    return Consumer(
        double.servers,
        topics=["t"],
        client_rack="b",
        auto_offset_reset="earliest",
        fetch_max_wait_ms=20,
    )


def test_the_replica_that_the_leader_names_is_read(run: Any) -> None:
    async def story() -> None:
        async with Double(2) as double:
            (log,) = double.topic("t")
            racks = Racks(double)
            fill(log, range(10))
            async with consumer_of(double) as consumer:
                assert await take(consumer, 10) == list(range(10))
                assert racks.asked[:2] == [LEADER, NEARER]
                fill(log, range(10, 20))
                assert await take(consumer, 10) == list(range(10, 20))
            assert set(racks.asked[1:]) == {NEARER}, "it is believed for as long as metadata is"

    run(story())


@pytest.mark.parametrize("trouble", ["dies", "lags behind", "is none", "is not known"])
def test_where_it_cannot_be_read_the_leader_is(trouble: str, run: Any) -> None:
    """It is not sent back there, and an offset that the replica does not have yet is not lost."""

    async def story() -> None:
        async with Double(2) as double:
            (log,) = double.topic("t")
            racks = Racks(double, 7 if trouble == "is not known" else NEARER)
            fill(log, range(10))
            async with consumer_of(double) as consumer:
                assert await take(consumer, 10) == list(range(10))
                if trouble == "dies":
                    double.kill(NEARER)
                elif trouble != "is not known":
                    none, lags = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.OFFSET_OUT_OF_RANGE
                    racks.code = none if trouble == "is none" else lags
                racks.asked.clear()
                fill(log, range(10, 20))
                assert await take(consumer, 10) == list(range(10, 20))
            assert racks.asked[-1] == LEADER and racks.asked.count(NEARER) <= 2

    run(story())


def test_what_it_says_when_it_is_not_to_be_asked_any_more_is_not_what_the_leader_says(run: Any) -> None:
    """It was asked in time, and answers late that it does not have the offset: that resets nothing."""

    async def story() -> None:
        async with Double(2) as double:
            (log,) = double.topic("t")
            racks = Racks(double)
            fill(log, range(10))
            async with consumer_of(double) as consumer:
                assert await take(consumer, 10) == list(range(10))
                place = consumer._fetcher.places[T0]
                racks.code = ErrorCode.OFFSET_OUT_OF_RANGE

                async def late(broker: Broker, api: int, request: Any) -> Any:
                    if api == Api.FETCH and broker.node == NEARER:
                        place.nearer_until = 0.0
                    return racks(broker, api, request)

                double.hook = late
                fill(log, range(10, 20))
                assert await take(consumer, 10) == list(range(10, 20))

    run(story())
