"""Records as columns: equal to records one by one, whatever the shape of the run, and as hard to fool.

All of it holds for numpy, for the compiled kernel, and for the kernel's source.
"""

import random
import struct
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol import column_arrow, column_fields, columns, kernel
from strandline.protocol.batches import CONTROL, headers, seal, stamp, stamp_append_time
from strandline.protocol.compression import Codec
from strandline.protocol.errors import CorruptMessage
from strandline.protocol.primitives import Malformed
from strandline.protocol.records import BatchBuilder, Record, iterate
from tests.protocol.kernel_forms import FORMS, kernel_of

Values = list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]


@pytest.fixture(scope="module", params=FORMS, autouse=True)
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Which decoder it is."""
    decoder = kernel_of(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "compiled", lambda: decoder)
        yield request.param


def values_of(source: random.Random, count: int, shape: str) -> Values:
    """`even` records have one size, `odd` ones have all there is."""
    if shape == "even":
        return [(10_000, None, b"%0100d" % index, []) for index in range(count)]
    sizes = [0, 1, 5, 63, 64, 100, 9000]
    found: Values = []
    for index in range(count):
        key = source.choice([None, b"", source.randbytes(source.choice(sizes[:5]))])
        value = source.choice([None, source.randbytes(source.choice(sizes)), b"same" * 30])
        pairs = [
            (f"h{at}", source.choice([None, b"", b"x" * 80])) for at in range(source.choice([0, 0, 1, 3]))
        ]
        found.append((10_000 + source.choice([index, -index, 2**33, index * 1000]), key, value, pairs))
    return found


def batch(values: Values, base_offset: int = 0, codec: Codec = Codec.NONE, kind: str = "plain") -> bytes:
    builder = BatchBuilder(codec, control=kind == "control")
    for timestamp, key, value, pairs in values:
        builder.append(timestamp, key, value, pairs)
    data = bytearray(builder.build())
    stamp(data, 0, base_offset, 1)
    if kind == "append_time":
        stamp_append_time(data, 0, 99_000 + base_offset)
    return bytes(data)


def run_of(source: random.Random, batches: int, count_max: int, codecs: list[Codec]) -> bytes:
    parts, offset = [], 5
    for _ in range(batches):
        count = source.randint(1, count_max)
        kind = source.choice(["plain"] * 6 + ["append_time", "control"])
        values = values_of(source, count, source.choice(["even", "odd"]))
        parts.append(batch(values, offset, source.choice(codecs), kind))
        offset += count + source.choice([0, 0, 4])
    return b"".join(parts)


def data_records(run: bytes) -> list[Record]:
    return [
        record
        for pos, header in headers(run)
        if not header.is_control
        for record in iterate(run[pos : pos + header.size])
    ]


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 1 << 62).map(random.Random),
    st.sampled_from([(1, 300), (3, 40), (40, 4), (30, 30)]),
    st.sampled_from([[Codec.NONE], list(Codec)]),
)
def test_columns_equal_records(source: random.Random, shape: tuple[int, int], codecs: list[Codec]) -> None:
    run = run_of(source, *shape, codecs)
    want = data_records(run)
    found = columns.decode(memoryview(run + run[: source.randint(0, 60)]))
    assert list(found.rows()) == want
    assert found.next_offset == [header for _, header in headers(run)][-1].next_offset
    lo, hi = sorted((source.randint(0, found.next_offset), source.randint(0, found.next_offset)))
    inside = [record for record in want if lo <= record.offset < hi]
    assert list(columns.decode(run, lo, hi).rows()) == inside
    pieces = columns.runs(run, lo, hi, rows_max=source.randint(1, 50), bytes_max=source.choice([1, 1 << 20]))
    assert [record for piece in pieces for record in piece.rows()] == inside


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 62).map(random.Random), st.sampled_from([(1, 300), (40, 9), (3, 60)]))
def test_all_ways_to_the_starts_agree(source: random.Random, shape: tuple[int, int]) -> None:
    run = run_of(source, *shape, [Codec.NONE])
    data = columns.decode(run)
    sections = [
        column_fields.Section(pos + 61, pos + header.size, header.record_count)
        for pos, header in headers(run)
    ]
    lockstep = column_fields.lockstep(data.array, sections)
    if len(data):
        assert (lockstep == column_fields.strides(run, data.array, sections)).all()


def test_rows_know_who_set_their_timestamp() -> None:
    run = batch(values_of(random.Random(1), 3, "even")) + batch([(1, b"k", None, [])], 3, kind="append_time")
    found = columns.decode(run)
    assert found.timestamp_type.tolist() == [0, 0, 0, 1]
    assert found.timestamp.tolist() == [10_000] * 3 + [99_003]


def test_arrow_has_the_schema_of_sparks_kafka_source() -> None:
    pairs: Values = [
        (1_000, b"k", b"value", [("a", b"1"), ("b", None)]),
        (1_001, None, None, []),
        (1_002, b"", b"", [("ü", b"")]),
    ]
    for codec in (Codec.NONE, Codec.GZIP):
        table = column_arrow.to_arrow(
            columns.decode(batch(pairs * 9, 40, codec)), "t", 3, include_headers=True
        )
        table.validate(full=True)
        rows = table.slice(0, 3).to_pylist()
        assert [row["key"] for row in rows] == [b"k", None, b""]
        assert [row["value"] for row in rows] == [b"value", None, b""]
        assert [row["offset"] for row in rows] == [40, 41, 42]
        assert [row["timestamp"].timestamp() for row in rows] == [1.0, 1.001, 1.002]
        assert {(row["topic"], row["partition"], row["timestampType"]) for row in rows} == {("t", 3, 0)}
        assert [row["headers"] for row in rows] == [
            [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
            None,
            [{"key": "ü", "value": b""}],
        ]
    plain = column_arrow.to_arrow(columns.decode(batch(pairs)), "t", 3)
    header = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    spark = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", pa.timestamp("us", tz="UTC")),
            ("timestampType", pa.int32()),
        ]
    )
    assert plain.schema.equals(spark)
    assert table.schema.equals(spark.append(pa.field("headers", pa.list_(pa.field("element", header)))))
    assert column_arrow.to_arrow(columns.decode(b""), "t", 3, include_headers=True).num_rows == 0


def test_a_header_name_that_is_no_text_does_not_stop_the_others() -> None:
    data = bytearray(batch([(1, None, b"v", [("name", b"x")])]))
    data[data.index(b"name")] = 0xFF
    seal(data, 0, len(data))
    names = (
        column_arrow.to_arrow(columns.decode(data), "t", 0, include_headers=True)
        .column("headers")
        .to_pylist()
    )
    assert names == [[{"key": "\ufffdame", "value": b"x"}]]
    assert next(columns.decode(data).rows()) == next(iterate(data))


def test_only_control_batches_still_move_the_next_offset() -> None:
    run = batch([(1, b"k", b"v", [])], 8, kind="control")
    found = columns.decode(run, 8)
    assert (len(found), found.next_offset) == (0, 9)
    assert columns.decode(b"", 8).next_offset == 8


def test_the_seal_is_verified_first() -> None:
    data = bytearray(batch(values_of(random.Random(1), 9, "even")))
    data[-2] ^= 1
    with pytest.raises(CorruptMessage):
        columns.decode(data)
    assert len(columns.decode(data, verify=False)) == 9


@pytest.mark.parametrize("count", [2**31 - 1, 1001, 999, 0])
@pytest.mark.parametrize("shape", ["even", "odd"])
@pytest.mark.parametrize("batches", [1, 20])
def test_a_lying_count_is_malformed(count: int, shape: str, batches: int) -> None:
    data = bytearray(batch(values_of(random.Random(1), 1000, shape)))
    struct.pack_into(">i", data, 57, count)
    seal(data, 0, len(data))
    with pytest.raises(Malformed):
        columns.decode(bytes(data) * batches)


def test_the_cap_is_for_all_batches_of_a_piece() -> None:
    data = batch([(1, None, bytes(1 << 20), [])], 0, Codec.ZSTD)
    with pytest.raises(Malformed):
        columns.decode(data * 10, cap=4 << 20)
    assert len(columns.decode(data * 3, cap=4 << 20)) == 3
    assert sum(map(len, columns.runs(data * 10, cap=4 << 20, bytes_max=2 << 20))) == 10


def test_in_pieces_a_batch_may_be_as_large_as_the_cap_whatever_came_before_it() -> None:
    small = batch([(1, None, bytes(1 << 20), [])], 0, Codec.ZSTD)
    large = batch([(1, None, bytes(4 << 20), [])], 1, Codec.ZSTD)
    pieces = columns.runs(small + large, cap=(4 << 20) + 100, bytes_max=2 << 20)
    assert sum(map(len, pieces)) == 2
    with pytest.raises(Malformed):
        list(columns.runs(small + large, cap=4 << 20, bytes_max=2 << 20))


def test_damage_makes_no_batch_one_of_control() -> None:
    """The bit that says so is under the CRC: such a batch was passed over, and its records were missing."""
    data = bytearray(batch(values_of(random.Random(1), 9, "even")))
    data[22] ^= 0x20
    with pytest.raises(CorruptMessage):
        columns.decode(data)
    assert len(columns.decode(data, verify=False)) == 0


def outcome(data: bytes) -> list[Record] | type[Exception]:
    try:
        return [wrapped(record) for record in iterate(data, cap=1 << 20)]
    except (Malformed, CorruptMessage) as error:
        return type(error)


def outcome_of_columns(data: bytes) -> list[Record] | type[Exception]:
    try:
        return list(columns.decode(data, lo=-(2**63), cap=1 << 20).rows())
    except (Malformed, CorruptMessage) as error:
        return type(error)


def wrapped(record: Record) -> Record:
    """Offsets and timestamps past 64 bits wrap in vectors."""
    low = [(number + 2**63) % 2**64 - 2**63 for number in record[:2]]
    return Record(low[0], low[1], *record[2:])


@pytest.mark.slow
def test_tens_of_thousands_of_damaged_batches_fool_nobody(form: str) -> None:
    source = random.Random(4)
    whole = [
        batch(values_of(source, source.randint(1, 5), shape), source.randint(0, 9), codec)
        for shape in ("even", "odd")
        for codec in [Codec.NONE] * 5 + list(Codec)
    ]
    whole = [data for data in whole if len(data) < 4000]
    decoded, turns = 0, {"numpy": 30_000, "compiled": 30_000, "plain": 10_000}[form]
    for turn in range(turns):
        data = bytearray(source.choice(whole))
        for _ in range(source.randint(1, 3)):
            at = source.randrange(len(data)) if turn % 3 else source.randrange(min(90, len(data)))
            data[at] = source.choice([0, 1, 2, 127, 128, 255, source.randrange(256)])
        if turn % 10:
            seal(data, 0, len(data))
        found = outcome_of_columns(bytes(data))
        decoded += isinstance(found, list)
        if turn % 8 == 0 and not data[22] & CONTROL:
            assert found == outcome(bytes(data)), (turn, data)
    assert turns // 10 < decoded < turns // 10 * 9
