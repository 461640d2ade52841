"""The encoder's kernel writes what `BatchBuilder` writes, compiled or not, and nothing beside it."""

from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.client.producer.partitioner import partition_for_key
from strandline.protocol import kernel
from strandline.protocol.kernel import REFUSED, Encoder
from strandline.protocol.records import BatchBuilder, Header, encoded_headers, iterate
from tests.protocol.kernel_forms import encoder_of

TIMESTAMP_MAX = (1 << 63) - 1
FORMS = ("compiled", "plain")
LONG = b"x" * 9000  # its length takes three bytes as a varint


@dataclass
class Rows:
    """Records as the kernel takes them, and as the builder does."""

    values: list[bytes | None]
    keys: list[bytes | None] | None
    headers: list[tuple[Header, ...]] | None
    times: list[int] | None

    @property
    def tails(self) -> list[bytes | None] | None:
        return (
            None if self.headers is None else [encoded_headers(one) if one else None for one in self.headers]
        )

    def append_to(self, builder: BatchBuilder, row: int, timestamp: int) -> None:
        key = None if self.keys is None else self.keys[row]
        headers = () if self.headers is None else self.headers[row]
        time = timestamp if self.times is None else self.times[row]
        builder.append(time, key, self.values[row], headers)


CONTENT = st.one_of(
    st.none(), st.binary(max_size=80), st.integers(60, 70).map(lambda n: b"v" * n), st.just(LONG)
)
NAME = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
HEADERS = st.lists(st.tuples(NAME, st.none() | st.binary(max_size=9)), max_size=3).map(tuple)
TIME = st.one_of(st.integers(0, 20_000), st.integers(0, TIMESTAMP_MAX))


@st.composite
def rows(draw: st.DrawFn) -> Rows:
    count = draw(st.integers(1, 30))

    def column(of: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(of, min_size=count, max_size=count))

    def some(of: st.SearchStrategy[Any]) -> list[Any] | None:
        return column(of) if draw(st.booleans()) else None

    return Rows(column(CONTENT), some(CONTENT), some(HEADERS), some(TIME))


@pytest.fixture(scope="module", params=FORMS)
def encoder(request: pytest.FixtureRequest) -> Encoder:
    """The kernel, or its source as Python."""
    return encoder_of(request.param)


def columns(one: Rows) -> tuple[list[Any], Any]:
    """The same records as columns: the buffers of keys, values and headers, and the places in them."""
    places = np.zeros((6, len(one.values)), np.int64)
    buffers = []
    for nth, column in enumerate((one.keys, one.values, one.tails)):
        column = [None] * len(one.values) if column is None else column
        buffers.append(np.frombuffer(b"".join(each or b"" for each in column), np.uint8))
        lengths = [-1 if each is None else len(each) for each in column]
        places[2 * nth + 1] = lengths
        places[2 * nth] = np.cumsum(np.maximum(lengths, 0)) - np.maximum(lengths, 0)
    return buffers, places


class Lists:
    """The kernel's functions for lists of bytes."""

    def __init__(self, encoder: Encoder, one: Rows) -> None:
        self._encoder = encoder
        self._given = one.values, one.keys, one.tails

    def measured(self, *rest: Any) -> int:
        return self._encoder.list_measured(*self._given, *rest)

    def written(self, *rest: Any) -> int:
        return self._encoder.list_written(*self._given, *rest)


class Columns:
    """The kernel's functions for columns."""

    def __init__(self, encoder: Encoder, one: Rows) -> None:
        self._encoder = encoder
        self._buffers, self._places = columns(one)

    def measured(self, *rest: Any) -> int:
        sizes = (len(buffer) for buffer in self._buffers)
        return self._encoder.columns_measured(*sizes, self._places, *rest)

    def written(self, *rest: Any) -> int:
        return self._encoder.columns_written(*self._buffers, self._places, *rest)


@pytest.mark.parametrize("kind", [Lists, Columns])
@settings(max_examples=30, deadline=None)
@given(data=st.data(), one=rows(), room=st.integers(0, 600) | st.just(1 << 20))
def test_the_same_bytes_as_one_by_one(
    encoder: Encoder, kind: Any, data: st.DataObject, one: Rows, room: int
) -> None:
    """Any rows in any order, behind some that are in the batch already, as many as there is room for."""
    count = len(one.values)
    order = data.draw(st.none() | st.lists(st.integers(0, count - 1), min_size=1, max_size=count))
    chosen = list(range(count)) if order is None else order
    start = data.draw(st.integers(0, len(chosen)))
    before = data.draw(st.integers(0, 2))
    timestamp = data.draw(TIME)
    truth = BatchBuilder()
    for _ in range(before):
        truth.append(7, None, b"before", ())
    first = timestamp if one.times is None else one.times[chosen[start % len(chosen)]]
    base = 7 if before else first
    prefix = truth.size
    fits, sizes = 0, [0]
    for row in chosen[start:]:
        one.append_to(truth, row, timestamp)
        sizes.append(truth.size - prefix)
        fits += sizes[-1] <= room
    rows = None if order is None else array("q", order)
    times = None if one.times is None else array("q", one.times)
    elapsed = timestamp - base if times is None else -base
    found = array("q", (0, 0))
    tested = kind(encoder, one)
    given = (times, rows, start)
    assert tested.measured(*given, len(chosen), before, elapsed, room, found) == fits
    assert found[0] == sizes[fits]
    written = bytearray(found[0])
    assert tested.written(*given, start + fits, before, elapsed, written) == found[0]
    if fits:
        made = BatchBuilder()
        for _ in range(before):
            made.append(7, None, b"before", ())
        made.extend(written, fits, base, base + found[1])
        truth = BatchBuilder()
        for _ in range(before):
            truth.append(7, None, b"before", ())
        for row in chosen[start : start + fits]:
            one.append_to(truth, row, timestamp)
        assert (made.build(), made.size) == (truth.build(), truth.size)
        assert len(list(iterate(made.build()))) == before + fits
        short = bytearray(len(written) - 1)
        assert tested.written(*given, start + fits, before, elapsed, short) == REFUSED


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_record_is_refused(form: str) -> None:
    encoder, found = encoder_of(form), array("q", (0, 0))
    rest: tuple[Any, ...] = (None, None, 0, 1, 0, 0)
    for values, keys, tails in (
        (["text"], None, None),
        ([bytearray(b"v")], None, None),
        ([b"v"], ["text"], None),
        ([b"v"], None, [1]),
        ([b"v"], [], None),
        ([b"v"], None, [None, None]),
    ):
        assert encoder.list_measured(values, keys, tails, *rest, 1000, found) == REFUSED
        assert encoder.list_written(values, keys, tails, *rest, bytearray(1000)) == REFUSED
    assert encoder.list_checked([b"a", b"bb", None, 3], None, None, 9) == 3
    assert encoder.list_checked([b"a", b"bbb"], [b"k", b"k"], [None, b"t"], 4) == 1
    assert encoder.list_checked([b"a", b"bbb"], [b"k", b"k"], [None, b"t"], 5) == 2
    assert encoder.list_checked([b"a"], [], None, 5) == REFUSED
    assert encoder.list_placed([b"a", "b"], 3, array("q", (0, 0))) == REFUSED


@pytest.mark.parametrize("form", FORMS)
def test_places_outside_of_the_arguments_are_refused(form: str) -> None:
    """The rows, the lists, the buffers and the arrays hold each other within bounds."""
    encoder, found = encoder_of(form), array("q", (0, 0))
    values, time, out = [b"a", b"b"], array("q", (1,)), bytearray(100)
    for wrong in (
        (None, None, 0, 3),
        (None, None, -1, 1),
        (None, None, 2, 1),
        (time, None, 0, 1),
        (None, array("q", (2,)), 0, 1),
        (None, array("q", (-1,)), 0, 1),
        (None, array("q", (0,)), 0, 2),
    ):
        assert encoder.list_measured(values, None, None, *wrong, 0, 0, 99, found) == REFUSED
        assert encoder.list_written(values, None, None, *wrong, 0, 0, out) == REFUSED
        data, places = columns(Rows([b"a", b"b"], None, None, None))
        assert encoder.columns_measured(0, 2, 0, places, *wrong, 0, 0, 99, found) == REFUSED
        assert encoder.columns_written(*data, places, *wrong, 0, 0, out) == REFUSED
    assert encoder.list_measured(values, None, None, None, None, 0, 1, 0, 0, 99, time) == REFUSED
    for row, number in ((0, -1), (1, -2), (1, 3), (0, 2**62), (1, 2**62), (1, 1 << 31)):
        for column in range(3):
            data = [np.frombuffer(b"ab", np.uint8)] * 3
            places = np.zeros((6, 1), np.int64)
            places[2 * column + 1] = 1
            places[2 * column + row] = number
            assert encoder.columns_measured(2, 2, 2, places, None, None, 0, 1, 0, 0, 99, found) == REFUSED
            assert encoder.columns_written(*data, places, None, None, 0, 1, 0, 0, out) == REFUSED
            given = places[2 * column], places[2 * column + 1]
            assert encoder.columns_placed(data[0], *given, 3, array("q", (0,))) == REFUSED
    assert encoder.grouped(array("q", (3,)), array("q", (0, 0, 0, 0)), array("q", (0,))) == REFUSED
    assert encoder.grouped(array("q", (-2,)), array("q", (0, 0)), array("q", (0,))) == REFUSED
    assert encoder.inverted(array("q", (1,)), array("q", (0,))) == REFUSED
    assert not any(out)


@settings(max_examples=30, deadline=None)
@given(keys=st.lists(st.none() | st.binary(max_size=40), max_size=20), partitions=st.integers(1, 1000))
def test_a_key_goes_where_kafka_puts_it(encoder: Encoder, keys: list[bytes | None], partitions: int) -> None:
    truth = [-1 if key is None else partition_for_key(key, partitions) for key in keys]
    placed = array("q", bytes(8 * len(keys)))
    assert encoder.list_placed(keys, partitions, placed) == len(keys)
    assert placed.tolist() == truth
    (data, _, _), places = columns(Rows(keys, keys, None, None))
    again = np.zeros(len(keys), np.int64)
    assert encoder.columns_placed(data, places[0], places[1], partitions, again) == len(keys)
    assert again.tolist() == truth


@settings(max_examples=20, deadline=None)
@given(places=st.lists(st.integers(-1, 4), max_size=30))
def test_groups_keep_the_order_of_rows(encoder: Encoder, places: list[int]) -> None:
    first, order = array("q", bytes(8 * 7)), array("q", bytes(8 * len(places)))
    assert encoder.grouped(array("q", places), first, order) == len(places)
    for place in range(-1, 5):
        there = order[first[place + 1] : first[place + 2]].tolist()
        assert there == [row for row, one in enumerate(places) if one == place]
    back = array("q", bytes(8 * len(places)))
    assert encoder.inverted(order, back) == len(places)
    assert [order[at] for at in back] == list(range(len(places)))


@pytest.mark.parametrize("form", FORMS)
def test_rows_without_a_place_get_one_in_blocks(form: str) -> None:
    encoder, places = encoder_of(form), array("q", [-1, 7, -1, -1, -1, -1, 8, -1])
    assert encoder.spread(places, array("q"), 2) == 6
    assert places.count(-1) == 6
    assert encoder.spread(places, array("q", (3, 4)), 0) == REFUSED
    assert encoder.spread(places, array("q", (3, 4)), 2) == 6
    assert places.tolist() == [3, 7, 3, 4, 4, 3, 8, 3]


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    name = kernel.ENCODER_VARIABLE
    assert kernel.encoder_choice({name: "python"}).kernel is None
    with pytest.raises(ValueError, match="STRANDLINE_ENCODER is 'fast': it may be 'python' or 'compiled'"):
        kernel.encoder_choice({name: "fast"})
    assert kernel.encoder_choice({}).kernel is kernel.built_encoder().kernel
    monkeypatch.setattr(kernel, "built_encoder", lambda: kernel.Found(None, "none was built"))
    with pytest.raises(ImportError, match="STRANDLINE_ENCODER is compiled, and there is no kernel: none was"):
        kernel.encoder_choice({name: "compiled"})
