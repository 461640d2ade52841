"""What a consumer asks for in a fetch, and what it makes of answers that have nothing for it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from strandline.client import ApiError, ConfigError, Consumer, CorruptMessage, TopicPartition
from strandline.client.config import ConsumerConfig, ProducerConfig, configure
from strandline.client.network import connection
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.fetch import FetchRequest, FetchResponse
from strandline.protocol.records import BatchBuilder
from tests.client.broker_harness import Broker, Double, Partition, fetch_now, on_offsets
from tests.client.numbered import fill, take
from tests.patience import HANG_S

T0 = TopicPartition("t", 0)
OPTIONS: dict[str, Any] = {"fetch_max_wait_ms": 20, "auto_offset_reset": "earliest"}
SMALL = 1000  # bytes of a partition at once


def fetches(double: Double) -> list[FetchRequest]:
    return [one for broker in double.brokers.values() for api, one in broker.requests if api == Api.FETCH]


def on_fetches(double: Double, answer: Callable[[Broker, Any], Any]) -> None:
    double.hook = lambda broker, api, request: answer(broker, request) if api == Api.FETCH else None


@pytest.mark.parametrize("most", [300 << 20, 1 << 40])
def test_more_than_an_answer_can_have_is_not_asked_for(run: Any, most: int) -> None:
    """Neither an answer that is too large for this client would come through, nor a number above 31 bits."""

    async def story() -> None:
        async with Double(1) as double:
            fill(double.topic("t")[0], range(10))
            sizes = {"fetch_max_bytes": most, "max_partition_fetch_bytes": most}
            async with Consumer(double.servers, topics=["t"], **OPTIONS, **sizes) as consumer:
                assert await take(consumer, 10) == list(range(10))
            for one in fetches(double):
                sizes = {one.max_bytes, *(part.partition_max_bytes for part in one.topics[0].partitions)}
                assert max(sizes) <= connection.FRAME_BYTES_MAX // 2

    run(story())


@pytest.mark.parametrize(
    "name",
    [
        "request_timeout_ms",
        "fetch_min_bytes",
        "fetch_max_wait_ms",
        "max_poll_interval_ms",
        "session_timeout_ms",
    ],
)
def test_numbers_that_no_request_can_have_are_refused(name: str) -> None:
    for value in ((1 << 31) - 1, 1 << 31):
        try:
            configure(ConsumerConfig, "h:1", {name: value})
        except ConfigError as refusal:
            assert value == 1 << 31 and name in str(refusal)
        else:
            assert value < 1 << 31


def test_a_member_without_an_assignor_is_refused() -> None:
    with pytest.raises(ConfigError, match="partition_assignment_strategy"):
        configure(ConsumerConfig, "h:1", {"partition_assignment_strategy": ()})


def test_lingering_until_records_are_given_up_is_refused() -> None:
    with pytest.raises(ConfigError, match="linger_ms=2000 must be less than delivery_timeout_ms=2000"):
        configure(ProducerConfig, "h:1", {"linger_ms": 2000, "delivery_timeout_ms": 2000})


def test_an_answer_that_is_too_large_is_told_and_not_fetched_without_end(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: Any = connection.Connection.open
    limited = {**opened.__func__.__kwdefaults__, "frame_bytes_max": 20_000}
    monkeypatch.setattr(opened.__func__, "__kwdefaults__", limited)

    async def story() -> None:
        async with Double(1) as double:
            builder = BatchBuilder()
            builder.append(1, None, b"x" * 30_000)
            double.topic("t")[0].append(builder.build())
            async with Consumer(double.servers, topics=["t"], **OPTIONS) as consumer:
                for _ in range(2):
                    with pytest.raises(CorruptMessage, match=r"t-0: .* a frame of 30\d+ bytes exceeds"):
                        await consumer.poll(HANG_S * 1000)
            assert len(fetches(double)) < 10

    run(story())


def test_an_answer_that_fails_as_a_whole_is_told_and_not_fetched_without_end(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            fill(double.topic("t")[0], range(5))
            whole = FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, responses=[])
            on_fetches(double, lambda broker, request: whole)
            async with Consumer(
                double.servers, topics=["t"], retry_backoff_max_ms=200, **OPTIONS
            ) as consumer:
                with pytest.raises(ApiError, match="t-0: the broker met an unexpected error"):
                    await consumer.poll(HANG_S * 1000)
                await asyncio.sleep(0.3)
                assert len(fetches(double)) < 10
                double.hook = lambda *_: None
                async with asyncio.timeout(HANG_S):
                    while not (found := await _polled(consumer)):
                        pass
                assert found[0] == 0

    run(story())


async def _polled(consumer: Consumer) -> list[int]:
    try:
        return [int(one.value) for one in await consumer.poll(50)]
    except ApiError:  # of the last answer
        return []


def test_a_batch_larger_than_is_asked_for_comes_though_another_partition_always_has_records(run: Any) -> None:
    """Brokers send such a batch only where it is the first one of an answer."""

    def answer(double: Double, busy: Partition, request: FetchRequest) -> FetchResponse:
        fill(busy, range(busy.end, busy.end + 5))
        response, _ = fetch_now(double, double.brokers[1], request)
        sent = 0
        for topic in response.responses:
            for part in topic.partitions:
                if sent and len(part.records) > SMALL:
                    part.records = b""
                sent += len(part.records)
        told: FetchResponse = response
        return told

    async def story() -> None:
        async with Double(1) as double:
            (busy, _), (large,) = double.topic("a", 2), double.topic("b")
            builder = BatchBuilder()
            builder.append(1, None, b"x" * 5 * SMALL)
            large.append(builder.build())
            on_fetches(double, lambda broker, request: answer(double, busy, request))
            async with Consumer(double.servers, max_partition_fetch_bytes=SMALL, **OPTIONS) as consumer:
                consumer.assign([TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)])
                async with asyncio.timeout(HANG_S):
                    while "b" not in {one.topic for one in await consumer.poll(50, max_records=10_000)}:
                        assert busy.end < 5000, "the large batch does not come"

    run(story())


@pytest.mark.parametrize("asked_before", [1, 2])
def test_what_comes_while_a_time_is_looked_up_is_not_skipped(asked_before: int, run: Any) -> None:
    """At first no record is as late; where the log ended is asked for, too. One comes between or after."""
    asked: list[Any] = []

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, range(5))

            def comes(broker: Broker, api: int, request: Any) -> Any:
                if api != Api.LIST_OFFSETS:
                    return None
                told = on_offsets(double, broker, request)
                asked.append(request)
                fill(log, range(5000, 5003) if len(asked) == asked_before else range(0))
                return told

            double.hook = comes
            async with Consumer(double.servers, **OPTIONS) as consumer:
                consumer.assign([T0])
                consumer.seek_to_timestamp(5000, T0)
                assert await take(consumer, 3) == [5000, 5001, 5002]

    run(story())
