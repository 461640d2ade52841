"""What callers give by mistake is refused at once and in words, and nothing else is harmed by it."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from strandline.client import (
    Admin,
    CommittedOffset,
    Consumer,
    GroupMetadata,
    InvalidTopic,
    Producer,
    TopicPartition,
)
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode, RequestTimedOut
from strandline.protocol.messages.group_admin import ListedGroup, ListGroupsResponse
from tests.client.broker_harness import Double
from tests.client.test_transactions import asked, transactional
from tests.client.test_unsent_in_transactions import illegal
from tests.patience import HANG_S

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("offsets", "group", "why"),
    [
        ({T0: -1}, "g", "t-0: offset -1 is negative"),
        ({T0: CommittedOffset(-7)}, "g", "t-0: offset -7 is negative"),
        ({T0: "3"}, "g", "t-0: expected an offset of type int, got '3'"),
        ({"t-0": 3}, "g", "expected a TopicPartition, of a topic and a number, got 't-0'"),
        ({T0: 3}, "", "expected a group, got an empty name"),
        ({T0: 3}, GroupMetadata(""), "expected a group, got an empty name"),
        ({T0: 3}, None, r"expected a consumer's group_metadata\(\) or a group's name, got None"),
    ],
)
def test_offsets_that_cannot_be_sent_leave_the_transaction_as_it_is(
    run: Any, offsets: Any, group: Any, why: str
) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with transactional(double) as producer, producer.transaction():
                with pytest.raises((TypeError, ValueError), match=why):
                    await producer.send_offsets(offsets, group)
                producer.send("t", b"goes on")
            assert double.transactions.known["tx"].ends == [True]
            assert not asked(double, Api.ADD_OFFSETS_TO_TXN)

    run(story())


def test_partitions_are_no_text(run: Any) -> None:
    calls: list[Callable[[Consumer], Any]] = [
        lambda one: one.assign(["t-0"]),
        lambda one: one.assign(["t0"]),  # two letters are no pair
        lambda one: one.assign(T0),
        lambda one: one.seek("t0", 3),  # type: ignore[arg-type]
        lambda one: one.commit({"t0": 3}),  # type: ignore[dict-item]
        lambda one: one.committed("t0"),  # type: ignore[arg-type]
        lambda one: one.end_offsets(["t0"]),
    ]

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with Consumer(double.servers, group="g") as consumer:
                for call in calls:
                    with pytest.raises(TypeError, match="expected a TopicPartition"):
                        made = call(consumer)
                        if made is not None:
                            await made
                with pytest.raises(ValueError, match="negative"):
                    await consumer.commit({T0: -1})
                assert not asked(double, Api.OFFSET_COMMIT)
                pairs: list[Any] = [("t", 0), ("t", np.int64(0))]
                for pair in pairs:
                    consumer.assign([pair])
                    assert consumer.assignment() == {T0}

    run(story())


def test_partitions_of_an_administrator_are_no_text(run: Any) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda one: one.alter_partition_reassignments({"t0": [1]}),
        lambda one: one.list_partition_reassignments(["t0"]),
        lambda one: one.alter_replica_log_dirs(1, {"t0": "/data"}),
        lambda one: one.list_offsets({"t0": -1}),
        lambda one: one.list_known_offsets({"t0": -1}),
        lambda one: one.elect_leaders("preferred", ["t0"]),
        lambda one: one.delete_records({"t0": 3}),
        lambda one: one.delete_group_offsets("g", ["t0"]),
        lambda one: one.list_group_offsets("g", ["t0"]),
        lambda one: one.alter_group_offsets("g", {"t0": 3}),
        lambda one: one.describe_producers(["t0"]),
        lambda one: one.find_hanging_transactions(["t0"]),
    ]

    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            for call in calls:
                with pytest.raises(TypeError, match="expected a TopicPartition"):
                    await call(admin)

    run(story())


def test_one_name_is_no_list_of_its_letters(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            for name in ("ab", "a", "b"):
                double.topic(name)
            await admin.delete_topics("ab")
            assert sorted(double.topics) == ["a", "b"]
            assert [one.name for one in await admin.describe_topics("a")] == ["a"]

    run(story())


def test_states_of_groups_are_known(run: Any) -> None:
    """A broker answers a state that does not exist with no group at all."""

    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            seen: list[list[str]] = []

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api != Api.LIST_GROUPS:
                    return None
                seen.append(request.states_filter)
                return ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")])

            double.hook = hook
            with pytest.raises(ValueError, match=r"no such state of groups: Stabil; expected .*Stable"):
                await admin.list_groups(["Stabil", "Empty"])
            assert [one.group for one in await admin.list_groups("stable")] == ["g"]
            assert seen == [["Stable"]]

    run(story())


def test_words_of_an_administrator(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            double.topic("t")
            with pytest.raises(ValueError, match="expected read_uncommitted or read_committed"):
                await admin.list_offsets({T0: -1}, isolation_level="read-committed")
            with pytest.raises(ValueError, match="'prefered': expected preferred or unclean"):
                await admin.elect_leaders("prefered")

    run(story())


def test_a_topic_whose_name_is_not_legal_is_told_once(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            illegal(double, "not legal")
            async with Consumer(double.servers, topics=["not legal", "t"]) as consumer:
                with pytest.raises(InvalidTopic, match="not legal"):
                    await consumer.poll(5_000)
                assert await consumer.poll(50) == []

    run(story())


def test_why_an_operation_asks_again_is_told_when_its_time_is_up(run: Any) -> None:
    from strandline.protocol.messages.group_offsets import (
        TxnOffsetCommitResponse,
        TxnOffsetCommitResponsePartition,
        TxnOffsetCommitResponseTopic,
    )

    def hook(broker: Any, api: int, request: Any) -> Any:
        if api != Api.TXN_OFFSET_COMMIT:
            return None
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        part = TxnOffsetCommitResponsePartition(partition_index=0, error_code=code)
        return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="t", partitions=[part])])

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            double.hook = hook
            async with transactional(double, max_block_ms=1500) as producer:
                await producer.init_transactions()
                producer.begin()
                why = "send_offsets.* the last answer is UNKNOWN_TOPIC_OR_PARTITION: g: t-0: call it again"
                with pytest.raises(Exception, match=why):
                    await producer.send_offsets({T0: 3}, "g")
                double.hook = lambda broker, api, request: None
                async with asyncio.timeout(HANG_S):
                    while not await taken(producer):
                        pass
                await producer.commit()
            assert double.groups.group("g").offsets[T0][0] == 3

    async def taken(producer: Producer) -> bool:
        with suppress(RequestTimedOut):  # on a busy machine
            await producer.send_offsets({T0: 3}, "g")
            return True
        return False

    run(story())


def test_a_name_that_no_broker_reads_is_refused_at_once(run: Any) -> None:
    """They would close the connection, and whatever else this client asks for is not answered either."""
    name = "x" * 32_768

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with Producer(double.servers) as producer, Consumer(double.servers) as consumer:
                with pytest.raises(ValueError, match="a topic name of 32768 bytes"):
                    producer.send(name, b"1")
                with pytest.raises(ValueError, match="a topic name of 32768 bytes"):
                    await producer.send_many(name, [b"1"])
                with pytest.raises(ValueError, match="a topic name of 32768 bytes"):
                    consumer.subscribe([name])
                assert await producer.partitions_for("t") == [0]

    run(story())
