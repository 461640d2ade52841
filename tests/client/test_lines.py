"""Records in line, for room or for their topic: each has an outcome, and nobody waits for those of others."""

import asyncio
from typing import Any

import pytest

from strandline.client import BufferExhausted, Producer, Receipt
from tests.client.broker_harness import Double
from tests.patience import HANG_S


def test_a_record_in_line_has_an_outcome_though_its_producer_closes_in_the_same_turn(run: Any) -> None:
    """The last acknowledgement wakes the sender of the next record before it wakes who closes."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            producer = await Producer(double.servers).start()
            last: list[asyncio.Future[Receipt]] = []
            first = producer.send("t", b"1")
            first.add_done_callback(lambda _: last.append(producer.send("not known yet", b"2")))
            await producer.close()
            async with asyncio.timeout(HANG_S):
                with pytest.raises(BufferExhausted, match="closed"):
                    await last[0]

    run(story())


def test_a_flush_does_not_wait_for_what_comes_later(run: Any) -> None:
    """Others go on sending to a topic that nobody has made yet."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with Producer(double.servers, max_block_ms=300) as producer:
                going_on = True

                async def others() -> None:
                    while going_on:
                        producer.send("missing", b"x").add_done_callback(asyncio.Future.exception)
                        await asyncio.sleep(0.01)

                async with asyncio.TaskGroup() as group:
                    group.create_task(others())
                    await asyncio.sleep(0.05)
                    receipt = producer.send("t", b"1")
                    async with asyncio.timeout(HANG_S):
                        await producer.flush()
                    assert receipt.done()
                    going_on = False

    run(story())


class Odd(Exception):
    """An error that only its author knows."""


def test_whatever_a_partitioner_raises_is_of_its_record_alone(run: Any) -> None:
    def partitioner(key: bytes | None, count: int) -> int:
        if key == b"odd":
            raise Odd("no place for this")
        return 0

    async def story() -> None:
        async with Double(1) as double, Producer(double.servers, partitioner=partitioner) as producer:
            sent = [producer.send("t", b"1", key=key) for key in (b"a", b"odd", b"b")]  # to be made
            await asyncio.sleep(0.05)
            double.topic("t")
            async with asyncio.timeout(HANG_S):
                told = await asyncio.gather(*sent, return_exceptions=True)
            assert [getattr(one, "offset", None) for one in told] == [0, None, 1]
            assert isinstance(told[1], Odd)

    run(story())


def test_records_that_cannot_leave_fill_buffer_memory_also_without_acknowledgements(run: Any) -> None:
    """With acks=0 a record is done when its bytes have left, and not when they lie in memory somewhere."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            options: dict[str, Any] = {"acks": 0, "buffer_memory": 1 << 20, "max_block_ms": 300}
            async with Producer(double.servers, **options) as producer:
                await producer.send("t", b"first")
                for link in double.brokers[1].links:
                    link.transport.pause_reading()
                sent = []
                with pytest.raises(BufferExhausted):
                    for _ in range(1000):
                        await producer.room("t")
                        sent.append(producer.send("t", bytes(200_000)))
                assert sum(one.done() for one in sent) < len(sent)
                for link in double.brokers[1].links:
                    link.transport.resume_reading()
                async with asyncio.timeout(HANG_S):
                    await producer.flush()
                left = sum(one.exception() is None for one in sent)  # the last may have been in line too long
            async with asyncio.timeout(HANG_S):
                while log.end < 1 + left:
                    await asyncio.sleep(0.01)
            assert left >= len(sent) - 2

    run(story())


def test_a_connection_that_takes_no_bytes_is_given_up_in_time_also_without_acknowledgements(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            options: dict[str, Any] = {"acks": 0, "request_timeout_ms": 100, "max_request_size": 1 << 24}
            async with Producer(double.servers, **options) as producer:
                await producer.send("t", b"first")
                for link in list(double.brokers[1].links):
                    link.transport.pause_reading()
                sent = [producer.send("t", bytes(8_000_000)) for _ in range(3)]
                async with asyncio.timeout(HANG_S):
                    await asyncio.gather(*sent)  # on a new connection

    run(story())
