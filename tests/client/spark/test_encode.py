"""Many records at once are the bytes that they are one by one."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.client.spark.sink.encode import Ints, block, encode, encoded_headers, lengths, varints
from strandline.client.spark.sink.trouble import BadRow
from strandline.protocol import kernel
from strandline.protocol.column_arrow import HEADERS
from strandline.protocol.compression import Codec
from strandline.protocol.records import BatchBuilder, Header, iterate, signed
from tests.protocol.kernel_forms import encoder_of


@pytest.fixture(autouse=True, params=["compiled", "numpy"])
def form(request: pytest.FixtureRequest) -> Iterator[None]:
    """Which encoder there is."""
    found = None if request.param == "numpy" else encoder_of(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "encoder", lambda: found)
        yield


Row = tuple[bytes | None, bytes | None, int, list[Header] | None]

BYTES = st.none() | st.binary(max_size=12) | st.integers(0, 9000).map(bytes)
ROWS = st.lists(
    st.tuples(
        BYTES,
        BYTES,
        st.integers(0, 1 << 45),
        st.none() | st.lists(st.tuples(st.text(max_size=3), BYTES), max_size=3),
    ),
    min_size=1,
    max_size=200,
)


def built(rows: list[Row], order: Ints, first: Ints, skipped: int = 0) -> list[bytes]:
    """The batches, from columns that begin in the middle of others."""
    ahead: list[Row] = [(b"other", b"row", 5, [("x", b"y")])] * skipped
    keys, values, times, headers = zip(*ahead, *rows, strict=True)
    pairs = [None if each is None else [{"key": k, "value": v} for k, v in each] for each in headers]
    made = block(
        pa.array(keys, pa.binary())[skipped:],
        pa.array(values, pa.binary())[skipped:],
        np.array(times[skipped:], np.int64),
        pa.array(pairs, HEADERS.type)[skipped:],
    )
    batches = []
    for records in encode(made, order, first):
        builder = BatchBuilder()
        builder.extend(*records)
        batches.append(builder.build())
        assert len(batches[-1]) == builder.size
    return batches


def one_by_one(rows: list[Row], order: Ints, first: Ints) -> list[bytes]:
    batches = []
    for begin, end in pairwise(first):
        builder = BatchBuilder()
        for key, value, timestamp, headers in (rows[at] for at in order[begin:end]):
            builder.append(timestamp, key, value, headers or ())
        batches.append(builder.build())
    return batches


@given(rows=ROWS, data=st.data())
def test_the_bytes_are_those_of_records_added_one_by_one(rows: list[Row], data: st.DataObject) -> None:
    count = len(rows)
    order = np.array(data.draw(st.permutations(range(count))), np.int64)
    cuts = data.draw(st.sets(st.integers(0, count)))
    first = np.array(sorted({0, count, *cuts}), np.int64)
    if data.draw(st.booleans()):
        rows = [(key, value, timestamp, None) for key, value, timestamp, _ in rows]
    if data.draw(st.booleans()):
        rows = [(None, value, timestamp, headers) for _, value, timestamp, headers in rows]
    skipped = data.draw(st.sampled_from([0, 3]))
    assert built(rows, order, first, skipped) == one_by_one(rows, order, first)


@given(rows=ROWS)
def test_sizes_are_never_too_small(rows: list[Row]) -> None:
    keys, values, times, headers = zip(*rows, strict=True)
    pairs = [None if each is None else [{"key": k, "value": v} for k, v in each] for each in headers]
    made = block(
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        np.array(times, np.int64),
        pa.array(pairs, HEADERS.type),
    )
    for row, (key, value, timestamp, header) in enumerate(rows):
        builder = BatchBuilder()
        before = builder.size
        builder.append(timestamp, key, value, header or ())
        assert made.sizes[row] >= builder.size - before


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_may_be_compressed(codec: Codec) -> None:
    rows: list[Row] = [(b"k%d" % at, b"value" * 20, at, None) for at in range(100)]
    keys, values, _, _ = zip(*rows, strict=True)
    made = block(pa.array(keys, pa.binary()), pa.array(values, pa.binary()), np.arange(100), None)
    (records,) = encode(made, np.arange(100), np.array([0, 100]))
    builder = BatchBuilder(codec)
    builder.extend(*records)
    batch = builder.build()
    assert [(one.key, one.value, one.timestamp) for one in iterate(batch)] == [row[:3] for row in rows]
    assert (len(batch) < builder.size) == (codec is not Codec.NONE)


@given(fields=st.lists(st.lists(st.integers(-(1 << 61), 1 << 61), min_size=5, max_size=5), min_size=1))
def test_varints_are_those_of_the_protocol(fields: list[list[int]]) -> None:
    made = varints([0, *(np.array(field, np.int64) for field in fields), -1])
    expected = [b"".join(map(signed, (0, *row, -1))) for row in zip(*fields, strict=True)]
    assert made.to_pylist() == expected


def test_text_and_large_types_are_bytes_too() -> None:
    """Spark sends these with spark.sql.execution.arrow.useLargeVarTypes."""
    plain = block(pa.array(["k"]), pa.array([b"v"]), np.array([1]), pa.array([[("n", b"x")]], HEADERS.type))
    pair = pa.struct([("key", pa.large_string()), ("value", pa.large_binary())])
    large = block(
        pa.array(["k"], pa.large_string()),
        pa.array([b"v"], pa.large_binary()),
        np.array([1]),
        pa.array([[("n", b"x")]], pa.list_(pair)),
    )
    one = np.array([0]), np.array([0, 1])
    assert bytes(encode(plain, *one)[0].section) == bytes(encode(large, *one)[0].section)


def test_lengths_tell_null() -> None:
    assert lengths(pa.array([b"abc", None, b""], pa.binary())).tolist() == [3, -1, 0]


def test_a_header_without_a_key_is_told_with_its_row() -> None:
    pairs = [[{"key": "a", "value": b""}], None, [{"key": "a", "value": b""}, {"key": None, "value": b""}]]
    with pytest.raises(BadRow, match="row 2: a header has no key"):
        encoded_headers(pa.array(pairs, HEADERS.type))
