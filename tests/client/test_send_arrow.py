"""Tables of Arrow as records: the same with the compiled encoder, its source as Python, and one by one."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from strandline.client import MessageTooLarge, Producer
from strandline.client import sync as blocking
from strandline.client.network import cluster
from strandline.client.producer.partitioner import partition_for_key
from strandline.protocol import kernel
from strandline.protocol.errors import InvalidPartitions
from tests.client.broker_harness import Double
from tests.client.test_bulk import form as form
from tests.protocol.kernel_forms import encoder_of

MAP = pa.map_(pa.string(), pa.binary())
STRUCTS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def sent(run: Any, table: Any, partitions: int = 1, **columns: Any) -> tuple[list[Any], Any]:
    """The logs that a table has become, and the receipts."""

    async def story() -> Any:
        async with Double(1) as double:
            logs = double.topic("t", partitions)
            async with Producer(double.servers, batch_size=400, list_batch_size=400) as producer:
                receipts = await producer.send_arrow("t", table, **columns)
            return [log.records() for log in logs], receipts

    found: tuple[list[Any], Any] = run(story())
    return found


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.string(),
        pa.large_binary(),
        pa.large_string(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.binary_view(),
        pa.string_view(),
        pa.binary(3),
    ],
    ids=str,
)
def test_a_column_of_bytes_or_text(run: Any, form: str, kind: Any) -> None:
    given = [None if n % 5 == 0 else f"{n:03}" for n in range(100)]
    plain = pa.array(given).cast(pa.binary()) if kind == pa.binary(3) else pa.array(given)
    column = plain.dictionary_encode() if pa.types.is_dictionary(kind) else plain.cast(kind)
    table = pa.table({"value": column}).slice(7, 60)
    (log,), receipts = sent(run, table)
    assert [one.value for one in log] == [None if one is None else one.encode() for one in given[7:67]]
    assert [one.offset for one in receipts] == list(range(60))


@pytest.mark.parametrize("headers", [MAP, STRUCTS], ids=["map", "structs"])
def test_all_columns(run: Any, form: str, headers: Any) -> None:
    count = 80
    keys = [None if n % 4 == 0 else b"k%d" % n for n in range(count)]
    pairs = [None if n % 3 == 0 else [("a", b"%d" % n), ("b", None)][: n % 3] for n in range(count)]
    if headers == STRUCTS:
        given = pa.array(
            [None if p is None else [{"key": a, "value": b} for a, b in p] for p in pairs], STRUCTS
        )
    else:
        given = pa.array(pairs, MAP)
    asked = [n % 3 if n % 8 == 1 else None for n in range(count)]
    times = [None if n % 10 == 0 else datetime.fromtimestamp(n, UTC) for n in range(count)]
    table = pa.table(
        {
            "id": pa.array(keys, pa.binary()),
            "value": pa.array([b"%d" % n for n in range(count)], pa.binary()),
            "headers": given,
            "timestamp": pa.array(times, pa.timestamp("us", "UTC")),
            "partition": pa.array(asked, pa.int32()),
            "other": pa.array(range(count)),
        }
    )
    table = pa.concat_tables([table.slice(0, 30), table.slice(30)])
    logs, receipts = sent(run, table, 3, key="id")
    assert len(receipts) == count == sum(map(len, logs))
    for n, receipt in enumerate(receipts):
        record = logs[receipt.partition][receipt.offset]
        assert (record.key, record.value) == (keys[n], b"%d" % n)
        assert record.headers == tuple(pairs[n] or ())
        assert record.timestamp == receipt.timestamp
        assert record.timestamp == 1000 * n or times[n] is None
        key = keys[n]
        if asked[n] is not None:
            assert receipt.partition == asked[n]
        elif key is not None:
            assert receipt.partition == partition_for_key(key, 3)


def test_milliseconds_readers_and_one_partition(run: Any, form: str) -> None:
    batch = pa.record_batch({"value": ["a", "b"], "timestamp": pa.array([5, None], pa.int64())})
    reader = pa.RecordBatchReader.from_batches(batch.schema, [batch, batch.slice(0, 0), batch])
    logs, _ = sent(run, reader, 4, partition=2)
    assert [one.value for one in logs[2]] == [b"a", b"b", b"a", b"b"]
    assert logs[2][0].timestamp == 5 and logs[2][1].timestamp > 1_600_000_000_000
    assert sent(run, batch.slice(0, 0))[1] == []


@pytest.mark.parametrize(
    ("columns", "options", "kind", "words"),
    [
        (
            {"value": [1]},
            {},
            TypeError,
            "column 'value', the value, is of type int64; expected binary or str",
        ),
        ({"key": ["a"]}, {}, ValueError, "0 columns are named 'value', expected one; there are: key"),
        ({"value": ["a"]}, {"key": "id"}, ValueError, "0 columns are named 'id'"),
        ({"value": ["a"], "key": [1.5]}, {}, TypeError, "column 'key', the key, is of type double"),
        (
            {"value": ["a"], "headers": ["b"]},
            {},
            TypeError,
            "'headers', the headers, is of type string; expe",
        ),
        ({"value": ["a"], "timestamp": ["b"]}, {}, TypeError, "expected timestamp, or int64 of milliseconds"),
        ({"value": ["a"], "timestamp": [-1]}, {}, ValueError, "row 0 has the timestamp -1: expected 1970 or"),
        (
            {"value": ["a"], "partition": ["0"]},
            {},
            TypeError,
            "the partition, is of type string; expected in",
        ),
        ({"value": ["a", "b"], "partition": [0, -1]}, {}, ValueError, "row 1 asks for partition -1"),
        (
            {"value": ["a"], "timestamp": pa.array([2**62], pa.timestamp("s"))},
            {},
            ValueError,
            "column 'timestamp', the timestamp, has what cannot be sent: ",
        ),
        ({"value": ["a", "b"], "partition": [0, 9]}, {}, InvalidPartitions, "t has no partition 9: it has 1"),
        (
            {"value": ["a", "b" * 2_000_000]},
            {},
            MessageTooLarge,
            "bytes, more than max_request_size = 1048576",
        ),
    ],
)
def test_what_cannot_be_sent(
    run: Any, monkeypatch: pytest.MonkeyPatch, columns: Any, options: Any, kind: Any, words: str
) -> None:
    monkeypatch.setattr(cluster, "PROPAGATION_SECONDS", 0.02)
    with pytest.raises(kind, match=words):
        sent(run, pa.table(columns), **options)


def test_all_of_a_table_is_checked_before_any_is_sent(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "encoder", lambda: encoder_of("plain"))
    chunks = [pa.table({"value": ["a"]}), pa.table({"value": ["b" * 2_000_000]})]

    async def story() -> None:
        async with Double(1) as double, Producer(double.servers) as producer:
            (log,) = double.topic("t")
            with pytest.raises(MessageTooLarge, match="row 1 has") as caught:
                await producer.send_arrow("t", pa.concat_tables(chunks))
            await producer.flush()
            assert (log.records(), caught.value.receipts) == ([], [])  # type: ignore[attr-defined]

    run(story())


def test_what_is_no_table_and_what_needs_a_serializer(run: Any) -> None:
    with pytest.raises(
        TypeError, match="expected a pyarrow Table, RecordBatch or RecordBatchReader, got list"
    ):
        sent(run, [b"a"])

    async def story() -> None:
        async with Double(1) as double, Producer(double.servers, serializer="json") as producer:
            with pytest.raises(ValueError, match="it needs the serializers 'bytes' or 'str'"):
                await producer.send_arrow("t", pa.table({"value": ["a"]}))

    run(story())


def test_blocking(servers: list[str]) -> None:
    with blocking.Admin(servers) as admin, blocking.Producer(servers) as producer:
        admin.create_topic("arrow", 1, 1)
        receipts = producer.send_arrow("arrow", pa.table({"value": ["a", "b"], "k": ["c", None]}), key="k")
        assert [one.offset for one in receipts] == [0, 1]
