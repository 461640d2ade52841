"""Interceptors see and change what passes, and what they break stays their own."""

from collections.abc import Mapping
from typing import Any

import pytest

from strandline.client import (
    CommittedOffset,
    Consumer,
    ConsumerInterceptor,
    ConsumerRecord,
    NotEnoughReplicas,
    Producer,
    ProducerInterceptor,
    ProducerRecord,
    Receipt,
    TopicPartition,
)
from strandline.client import sync as blocking
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from tests.client.broker_harness import Double
from tests.client.test_producer import refusal, values
from tests.patience import HANG_S

T0 = TopicPartition("t", 0)


class Stamped(ProducerInterceptor):
    """Adds its mark to every value, and keeps what it is told."""

    def __init__(self, mark: bytes) -> None:
        self.mark = mark
        self.heard: list[tuple[Receipt, BaseException | None]] = []
        self.closed = 0

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return record._replace(value=record.value + self.mark)

    def on_acknowledgement(self, receipt: Receipt, error: BaseException | None) -> None:
        self.heard.append((receipt, error))

    def close(self) -> None:
        self.closed += 1


class Broken(ProducerInterceptor, ConsumerInterceptor):
    """Raises at every call."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ArithmeticError("on_send")

    def on_acknowledgement(self, receipt: Receipt, error: BaseException | None) -> None:
        raise LookupError("on_acknowledgement")

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        raise OSError("on_consume")

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        raise ValueError("on_commit")

    def close(self) -> None:
        raise RuntimeError("close")


class Doubling(ConsumerInterceptor):
    """Leaves out odd values and hands even ones out twice."""

    def __init__(self) -> None:
        self.commits: list[Mapping[TopicPartition, CommittedOffset]] = []
        self.closed = 0

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return [one for one in records if int(one.value) % 2 == 0 for _ in range(2)]

    def on_commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self.commits.append(offsets)

    def close(self) -> None:
        self.closed += 1


def test_what_one_interceptor_returns_the_next_one_gets_and_a_broken_one_is_passed_over(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            first, second = Stamped(b"1"), Stamped(b"2")
            async with Producer(double.servers, interceptors=[first, Broken(), second]) as producer:
                receipt = await producer.send("t", b"v", timestamp_ms=5)
                await producer.send_many("t", [b"a", b"b"])
            assert values(log) == [b"v12", b"a12", b"b12"]
            for one in (first, second):
                assert one.heard[0] == (receipt, None)
                assert [heard.offset for heard, _ in one.heard] == [0, 1, 2]
                assert one.closed == 1

    run(story())


def test_interceptors_hear_of_records_that_fail_and_of_those_that_were_never_queued(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            double.hook = lambda broker, api, request: (
                refusal(request, ErrorCode.NOT_ENOUGH_REPLICAS) if api == Api.PRODUCE else None
            )
            heard = Stamped(b"")
            async with Producer(double.servers, interceptors=[heard], delivery_timeout_ms=1000) as producer:
                with pytest.raises(TypeError):
                    producer.send("t", b"v", timestamp_ms="now")  # type: ignore[arg-type]
                with pytest.raises(Exception, match="NOT_ENOUGH_REPLICAS"):
                    await producer.send("t", b"v")
            (unqueued, wrong), (failed, late) = heard.heard
            assert unqueued == ("t", -1, -1, -1) and isinstance(wrong, TypeError)
            assert failed == ("t", 0, -1, -1) and NotEnoughReplicas.code.name in str(late)

    run(story())


def test_a_consumer_hands_out_what_its_interceptors_return_and_they_hear_of_commits(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with Producer(double.servers) as producer:
                await producer.send_many("t", [b"%d" % n for n in range(6)])
            doubling = Doubling()
            reader: Any = {
                "group": "g",
                "auto_offset_reset": "earliest",
                "interceptors": [Broken(), doubling],
            }
            async with Consumer(double.servers, topics=["t"], **reader) as consumer:
                found = [await anext(consumer) for _ in range(5)]
                assert [one.value for one in found] == [b"0", b"0", b"2", b"2", b"4"]
                await consumer.commit({T0: 3})
                assert doubling.commits == [{T0: CommittedOffset(3)}]
                with pytest.raises(RuntimeError, match="use poll"):
                    await consumer.poll_batch()
                consumer.seek(T0, 0)
                assert [one.value for one in await consumer.poll()] == [b"0", b"0", b"2", b"2", b"4", b"4"]
                assert await consumer.position(T0) == 6, "what was left out counts as read"
            assert doubling.commits[-1] == {T0: CommittedOffset(6, leader_epoch=0)} and doubling.closed == 1

    run(story())


def test_blocking_clients_have_interceptors_too(servers: list[str]) -> None:
    heard = Stamped(b"!")
    with blocking.Producer(servers, interceptors=[heard]) as producer, blocking.Admin(servers) as admin:
        admin.create_topic("t", 1)
        producer.send("t", b"v").result(HANG_S)
    assert [receipt.offset for receipt, _ in heard.heard] == [0]
    reader: Any = {"auto_offset_reset": "earliest"}
    with blocking.Consumer(servers, topics=["t"], **reader) as consumer:
        assert next(consumer).value == b"v!"
