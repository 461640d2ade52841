"""A commit bears the leader epoch of the last record before it, so that a truncation is noticed (KIP-320)."""

from typing import Any

import pytest

from strandline.client import Consumer, TopicPartition
from strandline.protocol.apis import Api
from strandline.protocol.error_codes import ErrorCode
from strandline.protocol.messages import fetch, metadata
from tests.client.broker_harness import Broker, Double, on_metadata
from tests.client.numbered import fill, take

T0 = TopicPartition("t", 0)
GROUP: dict[str, Any] = {
    "group": "g",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "heartbeat_interval_ms": 50,
    "fetch_max_wait_ms": 20,
}


@pytest.mark.parametrize("way", ["poll", "iterate", "poll_batch", "auto"])
def test_a_commit_bears_the_epoch_of_the_record_before_it(way: str, run: Any) -> None:
    """Also where later records, of later epochs, are fetched already."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, range(10))
            double.move("t", 0, 1)
            fill(log, range(10, 20))
            group = double.groups.group("g")
            async with Consumer(
                double.servers, topics=["t"], **GROUP | {"enable_auto_commit": way == "auto"}
            ) as consumer:
                start = 0
                for end, epoch in ((5, 0), (15, 1), (20, 1)) if way != "poll_batch" else ((20, 1),):
                    while way == "poll" and start < end:
                        start += len(await consumer.poll(50, max_records=end - start))
                    while way == "poll_batch" and start < end:
                        start += sum(one.record_count for one in await consumer.poll_batch(50))
                    while start < end:
                        await anext(consumer)
                        start += 1
                    if way != "auto":
                        await consumer.commit()
                        assert (group.offsets[T0][0], group.epochs[T0]) == (end, epoch)
            assert (group.offsets[T0][0], group.epochs[T0]) == (20, 1)

    run(story())


def test_what_was_truncated_while_nobody_read_is_noticed_by_who_goes_on(run: Any) -> None:
    """An unclean election, and others have written to the offsets that the group has read."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, range(20))
            async with Consumer(double.servers, topics=["t"], **GROUP) as consumer:
                assert await take(consumer, 20) == list(range(20))
                await consumer.commit()
            del log.batches[2:]
            log.end = 10
            double.move("t", 0, 1)
            fill(log, range(100, 120))
            async with Consumer(double.servers, topics=["t"], **GROUP) as consumer:
                assert await take(consumer, 20) == list(range(100, 120))

    run(story())


def test_a_leader_that_was_replaced_is_not_asked_for_what_a_later_one_has_written(run: Any) -> None:
    """Its log ends before the commit: to believe it would be to read all again, or to miss what is new."""

    async def story() -> None:
        async with Double(2) as double:
            (log,) = double.topic("t")
            fill(log, range(10))
            double.move("t", 0, 2)
            fill(log, range(10, 20))
            async with Consumer(double.servers, topics=["t"], **GROUP) as consumer:
                assert await take(consumer, 20) == list(range(20))
                await consumer.commit()
            fill(log, range(20, 25))
            lag = 5

            def lagging(broker: Broker, api: int, request: Any) -> Any:
                nonlocal lag
                if api == Api.METADATA and request.topics and lag:
                    lag -= 1
                    answer: metadata.MetadataResponse = on_metadata(double, broker, request)
                    answer.topics[0].partitions[0] = metadata.MetadataResponsePartition(
                        partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1, 2], isr_nodes=[1]
                    )
                    return answer
                if api != Api.FETCH or broker.node != 1:
                    return None
                code, topic = ErrorCode.OFFSET_OUT_OF_RANGE, request.topics[0]
                data = fetch.PartitionData(partition_index=0, error_code=code, high_watermark=-1)
                told = fetch.FetchableTopicResponse(
                    topic=topic.topic, topic_id=topic.topic_id, partitions=[data]
                )
                return fetch.FetchResponse(responses=[told])

            double.hook = lagging
            async with Consumer(double.servers, topics=["t"], **GROUP) as consumer:
                assert await take(consumer, 5) == list(range(20, 25))
            assert not lag

    run(story())
