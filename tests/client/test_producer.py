"""The producer against a cluster that refuses, dies, moves leaders and forgets to answer."""

import asyncio
from typing import Any

import pytest

from strandline.client import (
    BufferExhausted,
    MessageTooLarge,
    NetworkException,
    NotEnoughReplicas,
    Producer,
    RequestTimedOut,
    UnknownTopicOrPartition,
)
from strandline.local.processes import machine_is_slower
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.broker_harness import SWALLOW, Double
from tests.patience import HANG_S

SOON_S = 0.9  # less than the second for which metadata rests where nothing is in doubt


def refusal(request: Any, code: int) -> ProduceResponse:
    """Every partition of the request refused."""
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                partition_responses=[
                    PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1)
                    for one in topic.partition_data
                ],
            )
            for topic in request.topic_data
        ]
    )


def values(partition: Any) -> list[bytes | None]:
    return [record.value for record in partition.records()]


def test_a_receipt_says_where_the_record_lies(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 3)
            async with Producer(double.servers, serializer="json") as producer:
                receipt = await producer.send(
                    "t", {"id": 7}, key="alice", headers=[("h", b"x")], timestamp_ms=5
                )
                assert receipt[:1] + receipt[2:] == ("t", 0, 5)
                later = producer.send("t", {"id": 8}, partition=receipt.partition)
                assert (await later).offset == 1
            records = double.topics["t"][receipt.partition].records()
            assert (records[0].key, records[0].value) == (b"alice", b'{"id":7}')
            assert records[0].headers == (("h", b"x"),)

    run(story())


def test_send_many_keeps_order_and_fills_batches(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers, linger_ms=5) as producer:
                receipts = await producer.send_many("t", [b"%d" % n for n in range(5000)])
            assert [one.offset for one in receipts] == list(range(5000))
            assert values(log) == [b"%d" % n for n in range(5000)]
            assert len(log.batches) < 50

    run(story())


def test_send_many_has_headers_and_timestamps_for_each_value(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers) as producer:
                await producer.send_many(
                    "t", [b"a", b"b"], headers=[{"h": b"x"}, None], timestamps_ms=iter((5, 9))
                )
                await producer.send_many("t", iter([b"c"]), keys=["k"], timestamps_ms=[7])
                for short in ({"keys": []}, {"headers": []}, {"timestamps_ms": [1, 2]}):
                    with pytest.raises(ValueError, match="argument"):
                        await producer.send_many("t", [b"d"], **short)
                await producer.send("t", b"e", headers={"n": None}, timestamp_ms=1)
            told = [(one.value, one.key, one.headers, one.timestamp) for one in log.records()]
            assert told[:3] == [
                (b"a", None, (("h", b"x"),), 5),
                (b"b", None, (), 9),
                (b"c", b"k", (), 7),
            ]
            assert told[-1] == (b"e", None, (("n", None),), 1)

    run(story())


def test_the_leaders_death_costs_only_time(run: Any) -> None:
    async def story() -> None:
        async with Double(3) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers) as producer:
                await producer.send("t", b"0")
                double.kill(1)
                loop = asyncio.get_running_loop()
                waiting = [producer.send("t", b"%d" % n) for n in range(1, 50)]
                await asyncio.sleep(0.5)
                double.move("t", 0, 2)
                moved = loop.time()
                await asyncio.gather(*waiting)
                assert loop.time() - moved < 0.9 * machine_is_slower(), (
                    "no rest of a second while there is a doubt"
                )
            assert values(log) == [b"%d" % n for n in range(50)]

    run(story())


def test_a_silent_leader_is_left_once_the_cluster_no_longer_lists_it(run: Any) -> None:
    async def story() -> None:
        async with Double(3) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers) as producer:
                await producer.send("t", b"0")
                double.brokers[1].stopped = True
                waiting = producer.send("t", b"1")
                await asyncio.sleep(0.1)
                double.hidden.add(1)
                double.move("t", 0, 3)
                await asyncio.wait_for(waiting, HANG_S)
            assert values(log) == [b"0", b"1"]

    run(story())


def test_nothing_goes_to_a_new_leader_while_the_old_one_has_not_answered(run: Any) -> None:
    """It may never have heard of this producer, and would take the later number for the first one."""

    async def story() -> None:
        async with Double(2) as double:
            (log,) = double.topic("t")
            first, came = log.leader, list[int]()
            refused = asyncio.Event()

            async def late(request: Any) -> ProduceResponse:
                await refused.wait()
                return refusal(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api != Api.PRODUCE:
                    return None
                came.append(broker.node)
                return late(request) if broker.node == first else None

            double.hook = hook
            async with Producer(double.servers, retry_backoff_ms=1) as producer:
                sent = [producer.send("t", b"0")]
                while not came:
                    await asyncio.sleep(0.001)
                double.move("t", 0, 3 - first)
                await producer._cluster.refreshed(asyncio.get_running_loop().time() + HANG_S)
                sent.append(producer.send("t", b"1"))
                await asyncio.sleep(0.05)
                assert came == [first]
                refused.set()
                await asyncio.gather(*sent)
            assert values(log) == [b"0", b"1"]

    run(story())


@pytest.mark.parametrize("refused_first", [1, 2, 4])
def test_a_leader_that_has_not_heard_of_its_role_is_asked_with_one_batch_alone(
    run: Any, refused_first: int
) -> None:
    """It refuses the first and takes a later one: before that it knows no number of the producer's."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            refused = iter(range(refused_first))

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api == Api.PRODUCE and next(refused, None) is not None:
                    return refusal(request, ErrorCode.NOT_LEADER_OR_FOLLOWER)
                return None

            double.hook = hook
            async with Producer(double.servers, batch_size=1, retry_backoff_ms=1) as producer:
                await asyncio.gather(*(producer.send("t", b"%d" % n) for n in range(9)))
            assert values(log) == [b"%d" % n for n in range(9)]

    run(story())


def test_lost_answers_are_no_duplicates_and_keep_order(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            count = 0

            def hook(broker: Any, api: int, request: Any) -> Any:
                nonlocal count
                if api != Api.PRODUCE:
                    return None
                count += 1
                if count % 4 == 0:
                    for topic in request.topic_data:
                        for one in topic.partition_data:
                            log.append(bytes(one.records))
                    return refusal(request, ErrorCode.REQUEST_TIMED_OUT)
                if count % 4 == 2:
                    return refusal(request, ErrorCode.NOT_ENOUGH_REPLICAS)
                return None

            double.hook = hook
            async with Producer(double.servers, batch_size=100, retry_backoff_ms=1) as producer:
                sent = []
                for n in range(200):
                    sent.append(producer.send("t", b"%d" % n))
                    if n % 7 == 0:
                        await asyncio.sleep(0)
                receipts = await asyncio.gather(*sent)
            assert values(log) == [b"%d" % n for n in range(200)]
            assert [one.offset for one in receipts] == list(range(200))

    run(story())


def test_connections_that_break_are_no_duplicates_either(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers, batch_size=200, retry_backoff_ms=5) as producer:
                sent = []
                for n in range(300):
                    sent.append(producer.send("t", b"%d" % n))
                    await asyncio.sleep(0.001)
                    if n % 60 == 30:
                        for link in list(double.brokers[1].links):
                            link.transport.abort()
                await asyncio.gather(*sent)
            assert values(log) == [b"%d" % n for n in range(300)]

    run(story())


def test_a_batch_given_up_makes_the_rest_start_over(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            doomed = 0

            def hook(broker: Any, api: int, request: Any) -> Any:
                nonlocal doomed
                if api == Api.PRODUCE:
                    doomed += 1
                    if doomed == 2:
                        return refusal(request, ErrorCode.MESSAGE_TOO_LARGE)
                return None

            double.hook = hook
            async with Producer(double.servers, retry_backoff_ms=1) as producer:
                await producer.send("t", b"0")
                refused = producer.send("t", b"1")
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                rest = [producer.send("t", b"%d" % n) for n in range(2, 6)]
                with pytest.raises(MessageTooLarge) as caught:
                    await refused
                assert caught.value.uncertain is False  # type: ignore[attr-defined]
                await asyncio.gather(*rest)
            assert values(log) == [b"0", b"2", b"3", b"4", b"5"]
            assert len(log.producers) == 2

    run(story())


def test_batches_over_the_topics_limit_are_split(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api == Api.PRODUCE and len(request.topic_data[0].partition_data[0].records) > 1000:
                    return refusal(request, ErrorCode.MESSAGE_TOO_LARGE)
                return None

            double.hook = hook
            async with Producer(double.servers, retry_backoff_ms=1, linger_ms=5) as producer:
                sent = [producer.send("t", b"%d" % n * 20) for n in range(500)]
                refused = producer.send("t", b"x" * 2000)
                receipts = await asyncio.gather(*sent)
                with pytest.raises(MessageTooLarge):
                    await refused
            assert [receipt.offset for receipt in receipts] == list(range(500))
            assert values(log) == [b"%d" % n * 20 for n in range(500)]

    run(story())


def test_what_is_not_acknowledged_in_time_fails(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            double.hook = lambda broker, api, request: (
                refusal(request, ErrorCode.NOT_ENOUGH_REPLICAS) if api == Api.PRODUCE else None
            )
            async with Producer(double.servers, delivery_timeout_ms=1000) as producer:
                with pytest.raises(RequestTimedOut) as caught:
                    await producer.send("t", b"x")
                assert caught.value.uncertain is False  # type: ignore[attr-defined]
            async with Producer(double.servers, retries=0) as producer:
                with pytest.raises(NotEnoughReplicas):
                    await producer.send("t", b"x")
            double.hook = lambda broker, api, request: SWALLOW if api == Api.PRODUCE else None
            async with Producer(double.servers, delivery_timeout_ms=1000) as producer:
                with pytest.raises(RequestTimedOut) as caught:
                    await producer.send("t", b"x")
                assert caught.value.uncertain is True  # type: ignore[attr-defined]

    run(story())


def test_memory_is_bounded(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers, buffer_memory=4000, max_block_ms=1500) as producer:
                with pytest.raises(MessageTooLarge):
                    producer.send("t", b"x" * (2 << 20))
                await producer.partitions_for("t")
                sent = []
                with pytest.raises(BufferExhausted):
                    for _ in range(1000):
                        sent.append(producer.send("t", b"x" * 100))
                assert 30 < len(sent) < 90
                await asyncio.gather(*sent)
                await producer.send_many("t", [b"x" * 100] * 500)
                assert len(values(log)) == len(sent) + 500
                double.hook = lambda broker, api, request: SWALLOW if api == Api.PRODUCE else None
                stuck = [producer.send("t", b"x" * 100) for _ in range(40)]
                with pytest.raises(BufferExhausted):
                    await stuck[-1]
                wrong: list[Any] = []
                asyncio.get_running_loop().set_exception_handler(lambda _, what: wrong.append(what))
                await producer.close(flush=False)
                assert all(isinstance(one.exception(), NetworkException | BufferExhausted) for one in stuck)
                assert stuck[0].exception().uncertain, "it was under way"
                assert not wrong, "an answer that comes after the end finds what it answers"

    run(story())


def test_a_close_that_is_cancelled_gives_up_what_is_queued_and_disconnects(run: Any) -> None:
    """A timeout round it, or a task that is cancelled while its `async with` ends: nobody closes it again."""

    async def story() -> None:
        async with Double(2) as double, asyncio.timeout(HANG_S):
            double.topic("t")
            asked = asyncio.Event()

            def swallow(broker: Any, api: int, request: Any) -> Any:
                if api == Api.PRODUCE:
                    asked.set()
                    return SWALLOW
                return None

            double.hook = swallow
            producer = await Producer(double.servers).start()
            stuck = producer.send("t", b"x")
            closing = asyncio.ensure_future(producer.close())
            await asked.wait()
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            with pytest.raises(NetworkException, match="was closed before the record was acknowledged"):
                await stuck
            while any(broker.links for broker in double.brokers.values()):
                await asyncio.sleep(0.001)

    run(story())


def test_topics_come_late_or_never(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Producer(double.servers, max_block_ms=1500) as producer:
            early = [producer.send("t", b"%d" % n) for n in range(3)]
            await asyncio.sleep(0.1)
            double.topic("t")
            await asyncio.gather(*early)
            assert values(double.topics["t"][0]) == [b"0", b"1", b"2"]
            with pytest.raises(UnknownTopicOrPartition):
                await producer.send("never", b"x")

    run(story())


@pytest.mark.parametrize("acks", [0, 1])
def test_weaker_acknowledgements(run: Any, acks: int) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers, acks=acks, compression_type="gzip") as producer:
                receipts = [await producer.send("t", b"x" * 100) for _ in range(3)]
            assert [one.offset for one in receipts] == ([-1] * 3 if acks == 0 else [0, 1, 2])
            async with asyncio.timeout(HANG_S):
                while values(log) != [b"x" * 100] * 3:  # with acks=0 it may still be on its way
                    await asyncio.sleep(0.001)
            assert log.headers()[0].producer_id == -1

    run(story())


def test_no_server_is_a_clear_error(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            servers = double.servers
        with pytest.raises(NetworkException):
            async with Producer(servers, default_api_timeout_ms=200):
                pass

    run(story())
