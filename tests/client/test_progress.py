"""What a consumer commits: what its caller is done with, and never less than was committed before."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from strandline.client import Consumer, TopicPartition
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode, UnknownTopicOrPartition
from tests.client.broker_harness import Broker, Double
from tests.client.group_harness import Group
from tests.client.test_consumer import T0, fill
from tests.patience import HANG_S


@pytest.mark.parametrize("policy", ["cut", "latest", "earliest"])
def test_where_the_log_goes_on_says_nothing_of_what_the_caller_works_on(policy: str, run: Any) -> None:
    """The log is cut behind the ten records that the caller has, or what it would read next is gone."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 30)
            committed = double.groups.group("g").offsets
            options: dict[str, Any] = {"group": "g", "fetch_max_wait_ms": 20, "auto_commit_interval_ms": 10}
            reset = "earliest" if policy == "cut" else policy
            async with Consumer(double.servers, auto_offset_reset=reset, **options) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 0)
                assert len(await consumer.poll(5_000, max_records=10)) == 10
                if policy == "cut":
                    del log.batches[2:]
                    log.end, log.epoch = 20, 1
                    fill(log, 20)
                else:
                    del log.batches[:]
                    log.start, log.end = 50, 60
                place = consumer._fetcher.places[T0]
                asked = place.age
                async with asyncio.timeout(20):
                    while place.age == asked or place.position is None:
                        await asyncio.sleep(0.01)
                await consumer._subscription.commit_processed(1_000)
                assert committed[T0][0] == 0, "the caller still works on 0 to 9"
                there = {"cut": 10, "earliest": 50, "latest": 60}[policy]
                assert place.position == there
                await consumer.poll(0, max_records=0)
                await consumer._subscription.commit_processed(1_000)
                assert committed[T0][0] == there, "it came back"

    run(story())


def test_who_has_no_record_in_hand_is_done_with_all_before_where_the_log_goes_on(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            log.start = log.end = 50
            async with Consumer(double.servers, group="g", fetch_max_wait_ms=20) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 10)
                async with asyncio.timeout(20):
                    while consumer._fetcher.places[T0].position != 50:
                        await asyncio.sleep(0.01)
                await consumer._subscription.commit_processed(1_000)
                assert double.groups.group("g").offsets[T0][0] == 50

    run(story())


class Refusals:
    """Answers to commits: what `refuse` says of each partition, the rest is accepted."""

    def __init__(self, double: Double, refuse: Callable[[int, TopicPartition], int]) -> None:
        self.count, self.sent = 0, list[dict[TopicPartition, int]]()
        self._double, self._refuse = double, refuse
        double.hook = self

    def __call__(self, broker: Broker, api: int, request: Any) -> Any:
        if api != Api.OFFSET_COMMIT:
            return None
        self.count += 1
        answer = self._double.groups.commit(Group(), request)
        offsets = {}
        for asked, topic in zip(request.topics, answer.topics, strict=True):
            for wanted, one in zip(asked.partitions, topic.partitions, strict=True):
                partition = TopicPartition(topic.name, one.partition_index)
                offsets[partition] = wanted.committed_offset
                one.error_code = self._refuse(self.count, partition)
                if not one.error_code:
                    self._double.groups.group("g").offsets[partition] = (wanted.committed_offset, "")
        self.sent.append(offsets)
        return answer


ALONE: dict[str, Any] = {"group": "g", "fetch_max_wait_ms": 20, "auto_offset_reset": "earliest"}


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(HANG_S):
        while not condition():
            await asyncio.sleep(0.005)


def test_a_commit_that_must_wait_does_not_come_behind_a_newer_one(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 60)
            is_moving = True
            said = Refusals(double, lambda n, _: ErrorCode.NOT_COORDINATOR if n == 1 or is_moving else 0)
            options = {**ALONE, "auto_commit_interval_ms": 10, "retry_backoff_ms": 300}
            async with Consumer(double.servers, **options) as consumer:
                consumer.assign([T0])
                assert len(await consumer.poll(5_000, max_records=10)) == 10
                await until(lambda: said.count)
                is_moving = False
                await consumer.commit({T0: 51})
                before = len(said.sent)
                await consumer._subscription.commit_processed(1_000)
                assert before == len(said.sent)
                sent = [one[T0] for one in said.sent]
                newer = sent.index(51)
                assert newer > 0 and set(sent[:newer]) == {0}, "it may have tried more than once"
                assert sent[newer:] == [51], "nothing older behind it"
                consumer.seek(T0, 30)
                await until(lambda: len(said.sent) > before)
                assert said.sent[-1] == {T0: 30}, "but what the caller sought is newer"

    run(story())


def test_a_partition_that_is_gone_is_refused_at_once_and_sends_no_other_again(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 2)
            gone = TopicPartition("t", 1)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            said = Refusals(double, lambda n, one: unknown if one == gone else 0)
            options = {**ALONE, "enable_auto_commit": False, "metadata_max_age_ms": 20}
            async with Consumer(double.servers, **options) as consumer:
                consumer.assign([T0, gone])
                for partition in (T0, gone):
                    consumer.seek(partition, 7)
                assert len(await consumer.partitions_for("t")) == 2
                double.topic("t", 1)
                await until(lambda: len(consumer._cluster.view.topics["t"].partitions) == 1)
                with pytest.raises(UnknownTopicOrPartition, match="t-1"):
                    await consumer.commit({T0: 9, gone: 9})
                assert said.sent == [{T0: 9, gone: 9}]
                with pytest.raises(UnknownTopicOrPartition):
                    await consumer._subscription.commit_processed(1_000)
                assert said.sent[1:] == [{gone: 7}], "the other is committed, and by nothing older"

    run(story())


def test_a_coordinator_that_has_not_heard_of_a_new_topic_is_asked_again(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            said = Refusals(double, lambda n, _: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if n < 3 else 0)
            async with Consumer(double.servers, **ALONE) as consumer:
                consumer.assign([T0])
                await consumer.position(T0)
                await consumer.commit({T0: 7})
                assert said.sent == [{T0: 7}] * 3

    run(story())


@pytest.mark.parametrize("is_deleted_first", [True, False])
def test_a_commit_for_a_deleted_topic_ends_when_that_is_known(is_deleted_first: bool, run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            Refusals(double, lambda *_: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            async with Consumer(double.servers, **{**ALONE, "enable_auto_commit": False}) as consumer:
                if not is_deleted_first:
                    consumer.assign([T0])
                    await consumer.position(T0)
                del double.topics["t"]
                with pytest.raises(UnknownTopicOrPartition, match="t-0"):
                    await consumer.commit({T0: 7})

    run(story())


def test_only_what_was_refused_is_sent_again(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 2)
            other = TopicPartition("t", 1)
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            said = Refusals(double, lambda n, one: loading if n == 1 and one == other else 0)
            async with Consumer(double.servers, **ALONE) as consumer:
                await consumer.commit({T0: 7, other: 8})
                assert said.sent == [{T0: 7, other: 8}, {other: 8}]

    run(story())


def test_commits_go_out_in_the_order_of_their_calls(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            said = Refusals(double, lambda n, _: ErrorCode.NOT_COORDINATOR if n < 3 else 0)
            async with Consumer(double.servers, **ALONE) as consumer:
                await asyncio.gather(*(consumer.commit({T0: offset}) for offset in (1, 2, 3)))
                assert [sent[T0] for sent in said.sent] == [1, 1, 1, 2, 3]

    run(story())
