"""What is shown is what is known now: a leader that cannot tell, or cannot be reached, hides nothing else."""

import asyncio
from typing import Any

import pytest

from strandline.client import Admin, TopicPartition
from strandline.client.consumer.commits import fetch_committed
from strandline.client.consumer.offsets import list_offsets
from strandline.protocol.apis import Api
from strandline.protocol.errors import CoordinatorLoadInProgress, ErrorCode, OffsetNotAvailable
from strandline.protocol.messages.group_offsets import OffsetFetchResponse
from strandline.protocol.messages.log_dirs import DescribeLogDirsResponse, DescribeLogDirsResult
from strandline.protocol.messages.offsets import (
    LATEST,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.client.broker_harness import Double

BRIEFLY_MS = 500
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = {T0: LATEST, T1: LATEST}


def not_available() -> ListOffsetsResponse:
    one = ListOffsetsPartitionResponse(partition_index=1, error_code=ErrorCode.OFFSET_NOT_AVAILABLE)
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[one])])


def loading() -> OffsetFetchResponse:
    return OffsetFetchResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def test_a_leader_that_does_not_know_its_watermark_is_asked_twice_and_left_out(run: Any) -> None:
    async def story() -> None:
        async with Double(2) as double:
            double.topic("t", 2)[0].end = 5
            asked = 0

            def hook(broker: Any, api: int, request: Any) -> Any:
                nonlocal asked
                if (api, broker.node) != (Api.LIST_OFFSETS, 2):
                    return None
                asked += 1
                return not_available()

            double.hook = hook
            async with Admin(double.servers) as admin:
                known = await admin.list_known_offsets(BOTH)
                assert {place: one.offset for place, one in known.items()} == {T0: 5}
                assert asked == 2
                cluster = admin._cluster
                with pytest.raises(OffsetNotAvailable):
                    await list_offsets(cluster, BOTH, 0, cluster.deadline(BRIEFLY_MS))

    run(story())


@pytest.mark.parametrize("api", [Api.LIST_OFFSETS, Api.OFFSET_FETCH], ids=["of a leader", "of a coordinator"])
def test_an_attempt_that_our_own_deadline_cuts_short_does_not_hide_the_reason(api: Api, run: Any) -> None:
    """The broker says why not, and owes the next answer when the time is up: it is that it said."""

    async def story() -> None:
        async with Double(2) as double, Admin(double.servers) as admin:
            double.topic("t", 2)
            cluster, asked = admin._cluster, 0
            assert (await admin.list_known_offsets(BOTH)).keys() == {T0, T1}
            await fetch_committed(cluster, "g", [T0], cluster.deadline())

            def hook(broker: Any, key: int, request: Any) -> Any:
                nonlocal asked
                if key != api or (api == Api.LIST_OFFSETS and broker.node == 1):
                    return None
                asked += 1
                if asked > 1:
                    return asyncio.Event().wait()  # which nobody sets
                return not_available() if api == Api.LIST_OFFSETS else loading()

            double.hook = hook
            if api == Api.LIST_OFFSETS:
                with pytest.raises(OffsetNotAvailable):
                    await list_offsets(cluster, BOTH, 0, cluster.deadline(BRIEFLY_MS))
            else:
                with pytest.raises(CoordinatorLoadInProgress):
                    await fetch_committed(cluster, "g", [T0], cluster.deadline(BRIEFLY_MS))
            assert asked == 2

    run(story())


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_a_leader_that_cannot_be_reached_is_left_out(run: Any, how: str) -> None:
    async def story() -> None:
        async with Double(2) as double, Admin(double.servers) as admin:
            double.topic("t", 2)
            assert (await admin.list_known_offsets(BOTH)).keys() == {T0, T1}
            if how == "killed":
                double.kill(2)
            else:
                double.brokers[2].stopped = True
            assert (await admin.list_known_offsets(BOTH, timeout_ms=BRIEFLY_MS)).keys() == {T0}

    run(story())


def test_a_topic_that_is_gone_is_left_out_and_not_waited_for(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            double.topic("t", 1)
            wanted = {T0: LATEST, TopicPartition("gone", 0): LATEST}
            assert (await admin.list_known_offsets(wanted)).keys() == {T0}
            assert "gone" not in double.topics

    run(story())


@pytest.mark.parametrize("how", ["killed", "frozen"])
def test_log_directories_of_those_that_answer(run: Any, how: str) -> None:
    async def story() -> None:
        async with Double(2) as double, Admin(double.servers) as admin:

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api != Api.DESCRIBE_LOG_DIRS:
                    return None
                return DescribeLogDirsResponse(results=[DescribeLogDirsResult(log_dir=f"/{broker.node}")])

            double.hook = hook
            assert (await admin.describe_known_log_dirs([2, 1])).keys() == {1, 2}
            if how == "killed":
                double.kill(2)
            else:
                double.brokers[2].stopped = True
            known = await admin.describe_known_log_dirs([1, 2], timeout_ms=BRIEFLY_MS)
            assert [each.path for each in known[1]] == ["/1"] and known.keys() == {1}

    run(story())
