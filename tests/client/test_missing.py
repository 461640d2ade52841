"""Topics, partitions and brokers that do not exist: a clear word, soon; what is only new is waited for."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from strandline.client import (
    Admin,
    BrokerNotAvailable,
    BufferExhausted,
    Consumer,
    InvalidPartitions,
    Producer,
    TopicPartition,
    UnknownTopicOrPartition,
)
from strandline.client.consumer import missing_topics
from strandline.client.consumer.missing_topics import MISSING_SECONDS, MissingTopics
from strandline.client.network import cluster
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.cluster import DescribeConfigsResponse, DescribeConfigsResult
from strandline.protocol.messages.log_dirs import AlterReplicaLogDirsResponse, DescribeLogDirsResponse
from tests.client.broker_harness import SWALLOW, Double, Partition
from tests.client.test_producer import values
from tests.patience import HANG_S

T1 = TopicPartition("t", 1)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "PROPAGATION_SECONDS", 0.5)
    monkeypatch.setattr(missing_topics, "MISSING_SECONDS", 0.3)


def test_each_missing_topic_is_told_once_after_a_while() -> None:
    topics = MissingTopics()
    wait = missing_topics.MISSING_SECONDS
    assert wait < MISSING_SECONDS, "as imported before the fixture"
    assert topics.look(["a"], 0.0) == [] and topics.wake_at() == wait
    assert topics.look(["b", "a"], wait) == ["a"] and topics.wake_at() == 2 * wait
    assert topics.look(["b", "a"], 2 * wait) == ["b"] and topics.wake_at() == float("inf")
    assert topics.look(["a"], 3 * wait) == []
    assert topics.look([], 4 * wait) == []
    assert topics.look(["a"], 5 * wait) == [], "it was there meanwhile"
    assert topics.look(["a"], 7 * wait) == ["a"]


def test_poll_tells_of_a_topic_that_does_not_exist_and_reads_it_once_it_does(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            reader: Any = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 100}
            async with Consumer(double.servers, topics=["typo"], **reader) as consumer:
                with pytest.raises(UnknownTopicOrPartition, match="typo"):
                    await consumer.poll(5_000)
                assert await consumer.poll(50) == []
                double.topic("typo")
                async with Producer(double.servers) as producer:
                    await producer.send("typo", b"there")
                assert [one.value for one in await consumer.poll(5_000)] == [b"there"]

    run(story())


def test_a_record_for_an_unknown_topic_is_told_when_the_producer_closes_at_once(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            producer = await Producer(double.servers).start()
            sent = producer.send("typo", b"waits for its topic")
            await producer.close(flush=False)
            with pytest.raises(BufferExhausted, match="closed"):
                async with asyncio.timeout(HANG_S):
                    await sent

    run(story())


def test_who_waits_behind_a_record_for_an_unknown_topic_is_told_that_it_is_unknown(run: Any) -> None:
    """Not that memory was full, which it was not."""

    async def story() -> None:
        async with Double(1) as double, Producer(double.servers, max_block_ms=300) as producer:
            sent = producer.send("typo", b"waits for its topic")
            with pytest.raises(BufferExhausted, match=r"sent to typo .*: brokers know no such topic"):
                await producer._room(0, asyncio.get_running_loop().time() + 0.1, "typo")
            with pytest.raises(UnknownTopicOrPartition):
                await sent

    run(story())


def test_offsets_of_an_unknown_partition_are_refused_soon(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with Consumer(double.servers) as consumer, Admin(double.servers) as admin:
                begun = asyncio.get_running_loop().time()
                for wanted in (T1, TopicPartition("typo", 0)):
                    with pytest.raises(UnknownTopicOrPartition, match=str(wanted)):
                        await consumer.beginning_offsets([wanted])
                with pytest.raises(UnknownTopicOrPartition, match="t-1"):
                    await admin.delete_records({T1: -1})
                assert asyncio.get_running_loop().time() - begun < HANG_S
                waiting = asyncio.ensure_future(consumer.end_offsets([TopicPartition("new", 0)]))
                await asyncio.sleep(0.1)
                double.topic("new")
                assert await waiting == {("new", 0): 0}

    run(story())


def test_settings_of_a_topic_that_is_not_there_are_refused_soon_and_of_a_new_one_waited_for(run: Any) -> None:
    """A broker may be the last to hear of a topic: its word counts when every broker must have heard."""
    known = asyncio.Event()

    def settings(broker: Any, api: int, request: Any) -> Any:
        if api != Api.DESCRIBE_CONFIGS:
            return None
        code = 0 if known.is_set() else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (asked,) = request.resources
        told = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
        return DescribeConfigsResponse(results=[DescribeConfigsResult(error_code=code, **told)])

    async def story() -> None:
        async with Double(1) as double, Admin(double.servers, default_api_timeout_ms=600_000) as admin:
            double.hook = settings
            with pytest.raises(UnknownTopicOrPartition):
                await admin.describe_configs(topic="typo")
            waiting = asyncio.ensure_future(admin.describe_configs(topic="new"))
            await asyncio.sleep(0.1)
            known.set()
            assert await waiting == []

    run(story())


def test_a_partition_that_metadata_lacks_is_looked_for_before_a_record_is_refused(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            logs = double.topic("t")
            async with Producer(double.servers) as producer:
                await producer.send("t", b"0")
                logs.append(Partition(1))
                assert (await producer.send("t", b"1", partition=1)).partition == 1
                with pytest.raises(ValueError, match="partition=-1"):
                    producer.send("t", b"2", partition=-1)
                begun = asyncio.get_running_loop().time()
                wrong = [producer.send("t", b"2", partition=99) for _ in range(50)]
                right = producer.send("t", b"3", partition=1)
                for one in wrong:
                    with pytest.raises(InvalidPartitions, match="it has 2"):
                        await one
                assert (await right).offset == 1, "it is not held up by those before it"
                assert asyncio.get_running_loop().time() - begun < 10, "all were looked for at once"
            assert values(logs[1]) == [b"1", b"3"]

    run(story())


def test_an_administrator_who_asks_about_a_topic_does_not_have_it_created(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Admin(double.servers) as admin:
            with pytest.raises(UnknownTopicOrPartition):
                await admin.list_offsets({T1: -1})
            asked = [one for api, one in double.brokers[1].requests if api == Api.METADATA]
            assert not any(one.allow_auto_topic_creation for one in asked)

    run(story())


def _told_by(broker: Any, api: int, request: Any) -> Any:
    if api == Api.DESCRIBE_CONFIGS:
        (asked,) = request.resources
        told = {"resource_type": asked.resource_type, "resource_name": asked.resource_name}
        return DescribeConfigsResponse(results=[DescribeConfigsResult(**told)])
    if api == Api.DESCRIBE_LOG_DIRS:
        return DescribeLogDirsResponse(results=[])
    return AlterReplicaLogDirsResponse(results=[]) if api == Api.ALTER_REPLICA_LOG_DIRS else None


ASKED_OF_ONE: dict[str, Callable[[Admin, int], Coroutine[Any, Any, Any]]] = {
    "settings": lambda admin, broker: admin.describe_configs(broker=broker),
    "directories": lambda admin, broker: admin.describe_log_dirs([1, broker]),
    "move": lambda admin, broker: admin.alter_replica_log_dirs(broker, {T1: "/data"}),
}


@pytest.mark.parametrize("what", ASKED_OF_ONE)
def test_a_broker_that_is_not_there_is_named_soon_and_one_that_has_just_started_waited_for(
    run: Any, what: str
) -> None:
    """Metadata may come from a broker that has not heard of it; one that is gone is not waited for."""
    ask = ASKED_OF_ONE[what]

    async def story() -> None:
        async with Double(3) as double:
            double.hook = _told_by
            double.hidden.add(3)
            async with Admin(double.servers, default_api_timeout_ms=600_000) as admin:
                with pytest.raises(BrokerNotAvailable, match="no broker 9 is running: the cluster has 1, 2"):
                    await ask(admin, 9)
                waiting = asyncio.ensure_future(ask(admin, 3))
                await asyncio.sleep(0.1)
                double.hidden.clear()
                await waiting
                double.hook = lambda broker, api, request: SWALLOW if broker.node == 3 else None
                waiting = asyncio.ensure_future(ask(admin, 3))
                await asyncio.sleep(0.1)
                double.kill(3)
                with pytest.raises(BrokerNotAvailable, match="no broker 3 is running"):
                    await waiting

    run(story())
