"""Partitions that the caller assigns itself, with a group that keeps its offsets."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from strandline.client import Consumer, TopicPartition
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.group_offsets import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tests.client.broker_harness import Double
from tests.client.numbered import fill, take
from tests.client.test_consumer import GROUP, T0
from tests.client.test_membership import until

T1 = TopicPartition("t", 1)
SOON: dict[str, Any] = {**GROUP, "auto_commit_interval_ms": 20}


class Reading(NamedTuple):
    """A consumer of the group that has T0 and has read some of its twenty records."""

    double: Double
    consumer: Consumer
    committed: Any  # of the group


@asynccontextmanager
async def reading(count: int = 20, options: dict[str, Any] = GROUP) -> AsyncIterator[Reading]:
    async with Double(1) as double:
        first, _ = double.topic("t", 2)
        fill(first, range(20))
        async with Consumer(double.servers, **options) as consumer:
            consumer.assign([T0])
            assert await take(consumer, count) == list(range(count))
            yield Reading(double, consumer, double.groups.group("g").offsets)


def test_the_progress_of_partitions_that_assign_drops_is_committed(run: Any) -> None:
    """What the caller is done with, at once, and what it still has in hand when it comes back."""

    async def story() -> None:
        async with reading(10, SOON) as (double, consumer, committed):
            assert len(await consumer.poll(1_000, 4)) == 4
            consumer.assign([T1])
            assert consumer.assignment() == {T1}
            await until(lambda: committed.get(T0, (0, ""))[0])  # 0 may be committed before
            assert committed[T0][0] == 10, "four are still in hand"
            fill(double.topics["t"][1], range(5))
            assert await take(consumer, 5) == list(range(5))
            await until(lambda: committed[T0][0] == 14)
            await until(lambda: not consumer._subscription._dropped_places)

    run(story())


def test_closing_commits_what_was_dropped(run: Any) -> None:
    async def story() -> None:
        async with reading() as (_, consumer, committed):
            consumer.assign([])
        assert committed[T0][0] == 20

    run(story())


def test_what_was_dropped_of_a_topic_that_is_deleted_is_let_go_of(run: Any) -> None:
    """Nothing of it can be committed any more, and nobody shall be told of that for ever."""

    async def story() -> None:
        async with reading(20, SOON | {"metadata_max_age_ms": 50}) as (double, consumer, _):
            double.hook = lambda broker, api, request: refused(request) if api == Api.OFFSET_COMMIT else None
            del double.topics["t"]
            consumer.assign([])
            assert T0 in consumer._subscription._dropped_places
            await until(lambda: not consumer._subscription._dropped_places)

    def refused(request: Any) -> OffsetCommitResponse:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        one = OffsetCommitResponsePartition(partition_index=0, error_code=code)
        return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(name="t", partitions=[one])])

    run(story())


def test_a_partition_that_is_assigned_again_goes_on_where_it_was(run: Any) -> None:
    async def story() -> None:
        async with reading(7) as (_, consumer, committed):
            consumer.pause(T0)
            consumer.assign([])
            consumer.assign([T0])
            assert await take(consumer, 13) == list(range(7, 20)), "and is not paused"
        assert committed[T0][0] == 20

    run(story())


def test_what_others_have_committed_meanwhile_is_no_progress_of_ours(run: Any) -> None:
    """The group was taken back; what is read from there on is committed again."""

    async def story() -> None:
        async with reading(20, SOON) as (_, consumer, committed):
            await consumer.poll(0)
            await until(lambda: committed.get(T0, (0, ""))[0] == 20)
            consumer.assign([])
            await until(lambda: not consumer._subscription._dropped_places)
            committed[T0] = (5, "")
            consumer.assign([T0])
            assert await take(consumer, 15) == list(range(5, 20))
            await consumer.poll(0)
            await until(lambda: committed[T0][0] == 20)

    run(story())


@pytest.mark.parametrize("commits", [True, False])
def test_what_the_caller_commits_itself_of_a_dropped_partition_stands(run: Any, commits: bool) -> None:
    async def story() -> None:
        async with reading() as (_, consumer, committed):
            consumer.assign([])
            if commits:
                await consumer.commit({T0: 3})
        assert committed[T0][0] == (3 if commits else 20)

    run(story())
