"""Readers of committed records: what they see, where they stand, and how far they may go."""

import asyncio
from typing import Any

import pytest

from strandline.client import Consumer, CorruptMessage, Producer, TopicPartition
from strandline.protocol.batches import HEADER_SIZE
from tests.client.broker_harness import Double
from tests.patience import HANG_S

T0 = TopicPartition("t", 0)
READER: dict[str, Any] = {"auto_offset_reset": "earliest", "isolation_level": "read_committed"}


async def take(consumer: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(HANG_S):
        while len(found) < count:
            found += [one.value for one in await consumer.poll(100)]
    return found


async def position(consumer: Consumer, offset: int) -> None:
    async with asyncio.timeout(HANG_S):
        while await consumer.position(T0) != offset:
            assert await consumer.poll(20) == []


def test_an_open_transaction_holds_back_all_that_lies_behind_its_beginning(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            writers = [Producer(double.servers, transactional_id=name) for name in ("a", "b")]
            async with writers[0] as slow, writers[1] as fast, Consumer(double.servers, **READER) as consumer:
                consumer.assign([T0])
                for writer in (slow, fast):
                    await writer.init_transactions()
                    writer.begin()
                await fast.send("t", b"0")  # offsets 0 to 2: fast, slow, fast's marker
                await slow.send("t", b"1")
                await fast.commit()
                assert await take(consumer, 1) == [b"0"]
                assert await consumer.poll(50) == []
                assert await consumer.end_offsets([T0]) == {T0: 1}
                assert (consumer.high_watermark(T0), consumer.lag(T0)) == (3, 0)
                async with Consumer(
                    double.servers, **{**READER, "isolation_level": "read_uncommitted"}
                ) as all_:
                    all_.assign([T0])
                    assert await take(all_, 2) == [b"0", b"1"]
                    await position(all_, 3)
                    assert await all_.end_offsets([T0]) == {T0: 3} and all_.lag(T0) == 0
                await slow.commit()
                assert await take(consumer, 1) == [b"1"]
                await position(consumer, 4)

    run(story())


def test_the_position_and_with_it_the_commit_moves_over_markers_and_aborted_records(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with Producer(double.servers, transactional_id="a") as producer:
                await producer.init_transactions()
                for outcome in ("commit", "abort", "abort"):
                    producer.begin()
                    await producer.send_many("t", [outcome.encode()] * 3)
                    await getattr(producer, outcome)()
            async with Consumer(double.servers, topics=["t"], group="g", **READER) as consumer:
                assert await take(consumer, 3) == [b"commit"] * 3
                await position(consumer, 12)
                assert consumer.lag(T0) == 0
            assert double.groups.group("g").offsets[T0][0] == 12
            async with Consumer(double.servers, **READER) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 6)  # amid an aborted transaction
                await position(consumer, 12)

    run(story())


def test_a_damaged_marker_is_told_and_not_read_past(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            async with Producer(double.servers, transactional_id="a") as producer, producer.transaction():
                producer.send("t", b"x")
            at, batch = log.batches[-1]
            damaged = bytearray(batch)
            damaged[HEADER_SIZE + 5] ^= 0xFF
            log.batches[-1] = (at, bytes(damaged))
            async with Consumer(double.servers, topics=["t"], **READER) as consumer:
                assert await take(consumer, 1) == [b"x"], "what lies before it is good"
                for _ in range(2):
                    with pytest.raises(CorruptMessage, match="t-0"):
                        await consumer.poll(5_000)

    run(story())
