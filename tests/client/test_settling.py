"""Where a consumer begins: each partition is looked up by itself, and waits for no other."""

import asyncio
from typing import Any

import pytest

from strandline.client import Consumer, OffsetOutOfRange, RebalanceListener, TopicPartition
from strandline.client.consumer import missing_topics
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode, RebalanceInProgress, TopicAuthorizationFailed
from strandline.protocol.messages.offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.client.broker_harness import Double
from tests.client.test_consumer import GROUP, T0, fill, take
from tests.patience import HANG_S

T1 = TopicPartition("t", 1)
OPTIONS: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}


@pytest.mark.parametrize("group", [None, "g"])
def test_a_partition_without_leader_keeps_no_other_waiting(group: str | None, run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            logs = double.topic("t", 3)
            for log in logs:
                fill(log, 10)
            logs[1].leader = logs[2].leader = -1
            double.groups.group("g").offsets[TopicPartition("t", 2)] = (3, "")
            async with Consumer(double.servers, topics=["t"], group=group, **OPTIONS) as consumer:
                assert await take(consumer, 10) == list(range(10))
                if group is not None:
                    assert await consumer.position(TopicPartition("t", 2)) == 3, "no leader had to be asked"
                logs[1].leader, logs[1].epoch = 1, 1
                assert await take(consumer, 10) == list(range(10)), "and its own come when it has one"

    run(story())


@pytest.mark.parametrize("silent", ["frozen", "refusing"])
def test_a_leader_that_gives_no_offset_keeps_no_other_waiting(silent: str, run: Any) -> None:
    async def story() -> None:
        async with Double(2) as double:
            for log in double.topic("t", 2):
                fill(log, 10)

            def refuse(broker: Any, api: int, request: Any) -> Any:
                if (broker.node, api) != (2, Api.LIST_OFFSETS):
                    return None
                code = ErrorCode.OFFSET_NOT_AVAILABLE
                part = ListOffsetsPartitionResponse(partition_index=1, error_code=code)
                return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])

            if silent == "frozen":
                double.brokers[2].stopped = True
            else:
                double.hook = refuse
            async with Consumer(double.servers[:1], topics=["t"], **OPTIONS) as consumer:
                assert await take(consumer, 10) == list(range(10))
                assert consumer._fetcher.places[T1].position is None
                double.brokers[2].stopped = False
                double.hook = lambda *_: None
                assert await take(consumer, 10) == list(range(10))

    run(story())


def test_a_deleted_topic_is_given_to_nobody_and_keeps_nobody_from_reading(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(missing_topics, "MISSING_SECONDS", HANG_S)  # else who is slow here hears of it

    async def story() -> None:
        async with Double(1) as double:
            for name in ("t", "gone"):
                for log in double.topic(name, 2):
                    fill(log, 10)
            topics = ["t", "gone"]
            async with Consumer(double.servers, topics=topics, metadata_max_age_ms=50, **GROUP) as first:
                assert len(await take(first, 40)) == 40
                del double.topics["gone"]
                async with Consumer(double.servers, topics=topics, **GROUP) as second:
                    async with asyncio.timeout(HANG_S):
                        while len(second.assignment()) != 1 or len(first.assignment()) != 1:
                            await asyncio.gather(first.poll(20), second.poll(20))
                    both = first.assignment() | second.assignment()
                    assert both == {T0, T1}
                async with asyncio.timeout(HANG_S):
                    while first.assignment() != both:
                        await first.poll(20)
                for log in double.topic("gone", 2):
                    fill(log, 5)
                assert len(await take(first, 1)) > 0, "made again, it is read again"

    run(story())


def test_a_partition_that_is_gone_keeps_who_reads_it_from_nothing_else(run: Any) -> None:
    """The group's leader may hear of it later."""

    async def story() -> None:
        async with Double(1) as double:
            for name in ("t", "gone"):
                for log in double.topic(name):
                    fill(log, 10)
            gone = TopicPartition("gone", 0)
            async with Consumer(double.servers, group="g", **OPTIONS) as consumer:
                assert await consumer.partitions_for("gone") == [0]
                del double.topics["gone"]
                consumer.assign([gone, T0])
                assert await take(consumer, 10) == list(range(10))

    run(story())


def test_what_no_attempt_can_mend_is_raised_and_what_can_be_read_is_read(run: Any) -> None:
    async def story() -> None:
        async with Double(2) as double:
            for log in double.topic("t", 2):
                fill(log, 10)

            def forbid(broker: Any, api: int, request: Any) -> Any:
                if (broker.node, api) != (2, Api.LIST_OFFSETS):
                    return None
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                part = ListOffsetsPartitionResponse(partition_index=1, error_code=code)
                return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[part])])

            double.hook = forbid
            async with Consumer(double.servers, topics=["t"], **OPTIONS) as consumer:
                seen, raised = 0, 0
                async with asyncio.timeout(HANG_S):
                    while seen < 10 or raised < 2:
                        try:
                            seen += len(await consumer.poll(200))
                        except TopicAuthorizationFailed:
                            raised += 1

    run(story())


def test_without_a_commit_and_a_policy_each_poll_says_so_without_hurry(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            fill(double.topic("t")[0], 10)
            policy = {"auto_offset_reset": "none", "retry_backoff_ms": 50}
            async with Consumer(double.servers, group="g", **policy) as consumer:  # type: ignore[arg-type]
                consumer.assign([T0])
                for _ in range(2):
                    with pytest.raises(OffsetOutOfRange):
                        await consumer.poll(5_000)
                asked = [api for api, _ in double.brokers[1].requests].count(Api.OFFSET_FETCH)
                assert asked <= 4, "a pause lies between two attempts"
                consumer.seek(T0, 4)
                assert await take(consumer, 6) == list(range(4, 10))

    run(story())


@pytest.mark.parametrize("group", [None, "g"])
def test_who_waits_for_a_position_hears_why_there_is_none(group: str | None, run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with Consumer(double.servers, group=group, auto_offset_reset="none") as consumer:
                consumer.assign([T0])
                with pytest.raises(OffsetOutOfRange):
                    await consumer.position(T0)

    run(story())


def test_what_a_listener_could_not_commit_for_costs_no_partition(run: Any) -> None:
    """The group begins anew while a listener commits: it joins again, and reads what it has kept."""
    heard: list[int] = []

    class Committing(RebalanceListener):
        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            heard.append(len(partitions))
            if len(heard) == 1:
                raise RebalanceInProgress("as its commit was answered")

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 10)
            strategy = {"partition_assignment_strategy": ("cooperative-sticky",)}
            async with Consumer(
                double.servers, topics=["t"], listener=Committing(), **(GROUP | strategy)
            ) as consumer:
                assert await take(consumer, 10) == list(range(10))
        assert heard[0] == 1

    run(story())
