"""Whole fetches handed over at once: as lists of bytes and as Arrow, what records one by one would be."""

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from strandline.client import Batch, Consumer, Producer, TopicPartition
from strandline.protocol.column_arrow import SCHEMA, SCHEMA_WITH_HEADERS
from strandline.protocol.compression import Codec
from strandline.protocol.records import BatchBuilder
from tests.client.broker_harness import Double
from tests.patience import HANG_S

T0 = TopicPartition("t", 0)
READER: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}


def fill(log: Any, count: int = 40) -> None:
    """Batches of ten records, some compressed; keys, tombstones and headers here and there."""
    for first in range(0, count, 10):
        builder = BatchBuilder(Codec.LZ4 if first % 20 else Codec.NONE)
        for n in range(first, first + 10):
            headers = [("n", b"%d" % n), ("none", None)] if n % 4 == 0 else []
            builder.append(
                1000 + n, None if n % 3 else b"k%d" % n, None if n % 5 == 0 else b"%d" % n, headers
            )
        log.append(builder.build())


async def whole(consumer: Consumer, count: int) -> list[Batch]:
    found: list[Batch] = []
    async with asyncio.timeout(HANG_S):
        while sum(batch.record_count for batch in found) < count:
            found += await consumer.poll_batch(200)
    return found


def test_lists_and_arrow_say_what_the_records_say(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log)
            async with Consumer(double.servers, topics=["t"], **READER) as consumer:
                records = []
                while len(records) < 40:
                    records += await consumer.poll(200)
            async with Consumer(double.servers, **READER) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 3)
                batches = await whole(consumer, 37)
                assert await consumer.position(T0) == 40
            wanted = records[3:]
            assert [key for batch in batches for key in list(batch.keys())] == [one.key for one in wanted]
            assert [value for batch in batches for value in batch.values()] == [one.value for one in wanted]
            assert all(batch.to_arrow().schema == SCHEMA for batch in batches)
            table = pa.Table.from_batches([batch.to_arrow(include_headers=True) for batch in batches])
            table.validate(full=True)
            assert table.schema == SCHEMA_WITH_HEADERS
            assert [
                (
                    row["topic"],
                    row["partition"],
                    row["offset"],
                    row["key"],
                    row["value"],
                    row["timestampType"],
                )
                for row in table.to_pylist()
            ] == [(one.topic, one.partition, one.offset, one.key, one.value, 0) for one in wanted]
            assert [one.timestamp * 1000 for one in wanted] == table["timestamp"].cast("int64").to_pylist()
            pairs = [
                None if row is None else tuple((one["key"], one["value"]) for one in row)
                for row in table["headers"].to_pylist()
            ]
            assert pairs == [one.headers or None for one in wanted]
            assert batches[0].to_arrow(["offset", "value"]).schema.names == ["offset", "value"]
            for batch in batches:
                names = ["value", "headers", "key"]
                viewed = batch.to_arrow(names, views=True)
                assert [str(kind) for kind in viewed.schema.types[::2]] == ["binary_view"] * 2
                assert viewed.to_pylist() == batch.to_arrow(names).to_pylist()

    run(story())


def test_views_outlive_their_batch_and_what_came_after_it(run: Any) -> None:
    """They are views of the memory that was received, which is received into again when nobody holds it."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            options = {**READER, "fetch_max_bytes": 10_000}
            async with Consumer(double.servers, topics=["t"], **options) as consumer:
                held: list[pa.RecordBatch] = []
                for n in range(30):
                    builder = BatchBuilder(Codec.NONE)
                    builder.append(n, None, b"%d" % n * 5000)
                    log.append(builder.build())
                    held += [batch.to_arrow(["value"], views=True) for batch in await whole(consumer, 1)]
            values = pa.Table.from_batches(held)["value"].to_pylist()
            assert values == [b"%d" % n * 5000 for n in range(30)]

    run(story())


def test_batches_leave_out_markers_and_what_was_aborted(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with Producer(double.servers, transactional_id="a") as producer:
                await producer.init_transactions()
                for outcome in ("commit", "abort", "commit"):
                    producer.begin()
                    await producer.send_many("t", [outcome.encode()] * 3)
                    await getattr(producer, outcome)()
            options = {**READER, "isolation_level": "read_committed"}
            async with Consumer(double.servers, topics=["t"], **options) as consumer:
                batches = await whole(consumer, 6)
                values = [value for batch in batches for value in batch.values()]
                assert values == [b"commit"] * 6
                assert await consumer.position(T0) == 12

    run(story())


def test_a_name_that_is_no_column_is_refused(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 10)
            async with Consumer(double.servers, topics=["t"], **READER) as consumer:
                (batch,) = await whole(consumer, 10)
                with pytest.raises(ValueError, match="'values' is no column: expected some of key, value"):
                    batch.to_arrow(["offset", "values"])

    run(story())


@pytest.mark.parametrize("ms", [1_700_000_000_000_000_000, (1 << 63) - 1])
def test_a_time_that_no_column_can_hold_is_told(ms: int, run: Any) -> None:
    """As of a producer that writes nanoseconds: its microseconds would be those of another time."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            builder = BatchBuilder()
            for timestamp in (1000, ms):
                builder.append(timestamp, None, b"x")
            log.append(builder.build())
            async with Consumer(double.servers, topics=["t"], **READER) as consumer:
                (batch,) = await whole(consumer, 2)
            assert batch.columns.timestamp.tolist() == [1000, ms]
            with pytest.raises(OverflowError, match=f"t-0: the record at offset 1 has timestamp {ms} ms"):
                batch.to_arrow()
            assert batch.to_arrow(["offset", "value"]).num_rows == 2

    run(story())
