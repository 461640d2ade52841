"""Columns of Arrow, ready for the compiled encoder: nothing is copied but the bytes that are sent.

Values and keys are binary or text (also large, of fixed size, views, dictionaries); null is a tombstone, or
no key. Headers are lists of pairs, as Spark has them, or maps; timestamps are Arrow's, or milliseconds since
1970; a null among them, or among partitions, leaves the choice to the producer.
Left to others: the loops (protocol/record_encoder.py), lists (record_lists.py), which records go where
(bulk.py). numpy and pyarrow are imported by whoever has Arrow to send, and not by others.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.errors import MessageTooLarge
from ...protocol.kernel import Encoder
from ...protocol.records import encoded_headers
from ..arguments import checked_headers
from .accumulator import RECORD_OVERHEAD_BYTES
from .record_lists import Row, rows_of

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Given = Any  # a table, a record batch, or a reader of them

EXPECTED = {
    "key": "binary or string",
    "value": "binary or string",
    "headers": "list<struct<key: string, value: binary>> or map<string, binary>",
    "timestamp": "timestamp, or int64 of milliseconds since 1970",
    "partition": "int32 or another integer",
}


class Names(NamedTuple):
    """Which columns are sent. None: the one of that name, if there is one."""

    value: str
    key: str | None
    headers: str | None
    timestamp: str | None
    partition: str | None


class Places(NamedTuple):
    """Values in a buffer: where each starts, and how long it is; -1 is null."""

    data: Bytes
    starts: Ints
    lengths: Ints


class Columns(NamedTuple):
    """The columns of a batch of rows, as they are sent: bytes, bytes, lists, ms and numbers."""

    value: Any
    key: Any
    headers: Any
    timestamp: Any
    partition: Any


def batches(given: Given) -> Iterator[Any]:
    """The record batches of whatever was given."""
    if isinstance(given, pa.RecordBatch):
        yield given
    elif isinstance(given, pa.Table):
        yield from given.to_batches()
    elif isinstance(given, pa.RecordBatchReader):
        yield from given
    else:
        kind = type(given).__name__
        raise TypeError(f"expected a pyarrow Table, RecordBatch or RecordBatchReader, got {kind}")


def columns_of(batch: Any, names: Names) -> Columns:
    """The columns of a batch that are sent; raises ValueError or TypeError for what cannot be."""
    found: dict[str, Any] = {}
    for what, name in zip(Names._fields, names, strict=True):
        at = batch.schema.get_all_field_indices(what if name is None else name)
        if not at and name is None:
            found[what] = None
        elif len(at) != 1:
            there = ", ".join(batch.schema.names) or "none"
            raise ValueError(
                f"{len(at)} columns are named {name or what!r}, expected one; there are: {there}"
            )
        else:
            found[what] = _column(what, batch.schema.names[at[0]], batch.column(at[0]))
    return Columns(**found)


def _column(what: str, name: str, column: Any) -> Any:
    """A column in the form in which it is sent."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if pa.types.is_null(kind) and what != "value":
        return None
    form = _FORMS[what](kind)
    if form is None:
        raise TypeError(f"column {name!r}, the {what}, is of type {kind}; expected {EXPECTED[what]}")
    if kind == form:
        return column
    try:  # what is finer than a millisecond is cut off, and nothing else
        return pc.cast(column, options=pc.CastOptions(form, allow_time_truncate=True))
    except pa.ArrowInvalid as trouble:
        raise ValueError(f"column {name!r}, the {what}, has what cannot be sent: {trouble}") from trouble


def _bytes_form(kind: Any) -> Any:
    is_type = pa.types
    if is_type.is_large_binary(kind) or is_type.is_large_string(kind):
        return pa.large_binary()
    views = [getattr(is_type, name, lambda _: False) for name in ("is_binary_view", "is_string_view")]
    small = (is_type.is_binary, is_type.is_string, is_type.is_fixed_size_binary, is_type.is_null, *views)
    return pa.binary() if any(check(kind) for check in small) else None


def _headers_form(kind: Any) -> Any:
    if pa.types.is_map(kind):
        pair = [kind.key_type, kind.item_type]
    elif (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and pa.types.is_struct(kind.value_type):
        pair = [field.type for field in kind.value_type]
    else:
        return None
    fair = len(pair) == 2 and pa.types.is_string(pair[0]) and _bytes_form(pair[1]) is not None
    return kind if fair else None


def _timestamp_form(kind: Any) -> Any:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("ms", kind.tz)
    return kind if pa.types.is_int64(kind) else None


def _partition_form(kind: Any) -> Any:
    return pa.int64() if pa.types.is_integer(kind) else None


_FORMS = {
    "key": _bytes_form,
    "value": _bytes_form,
    "headers": _headers_form,
    "timestamp": _timestamp_form,
    "partition": _partition_form,
}


def places(column: Any) -> Places:
    """Where the values of a binary or large binary array are."""
    kind = np.dtype(np.int64 if pa.types.is_large_binary(column.type) else np.int32)
    _, offsets, content = column.buffers()
    if offsets is None:  # some arrays without rows
        return Places(np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64))
    ends = np.frombuffer(offsets, kind, len(column) + 1, kind.itemsize * column.offset).astype(np.int64)
    lengths = np.diff(ends)
    if column.null_count:
        lengths[np.asarray(column.is_null())] = -1
    return Places(np.frombuffer(content or b"", np.uint8), ends[:-1], lengths)


class RecordColumns:
    """Records as the encoder takes them from columns; also which of them fit into a batch."""

    def __init__(
        self, encoder: Encoder, value: Places, key: Places | None, tail: Places | None, times: Ints | None
    ) -> None:
        """`tail` are encoded headers."""
        self.count = len(value.starts)
        self.times = times
        self.partitions: Ints | None = None  # that rows ask for; -1: they do not
        self._encoder = encoder
        self._key = key
        self._places = np.zeros((6, self.count), np.int64)
        columns = (key, value, tail)
        for nth, column in enumerate(columns):
            if column is None:
                self._places[2 * nth + 1] = -1
            else:
                self._places[2 * nth], self._places[2 * nth + 1] = column.starts, column.lengths
        self._data = [np.empty(0, np.uint8) if column is None else column.data for column in columns]

    @property
    def highest(self) -> int:
        """The highest partition that a row asks for, -1 if none does."""
        return -1 if self.partitions is None else int(self.partitions.max(initial=-1))

    @property
    def sizes(self) -> Ints:
        """Bytes of key, value and headers."""
        found: Ints = np.maximum(self._places[1::2], 0).sum(axis=0)
        return found

    def placed(self, partitions: int) -> "Any | None":
        """The partition of each row: as it asks, or by its key; -1 without both. None: all are without."""
        if self._key is None:
            return self.partitions
        chosen = np.empty(self.count, np.int64)
        done = self._encoder.columns_placed(
            self._data[0], self._places[0], self._places[1], partitions, chosen
        )
        assert done == self.count, "keys lie within their buffer"
        if self.partitions is not None:
            np.copyto(chosen, self.partitions, where=self.partitions >= 0)
        return chosen

    def measured(self, *rest: Any) -> int:
        """How many of these records there is room for."""
        key, value, tail = (len(data) for data in self._data)
        return self._encoder.columns_measured(key, value, tail, self._places, self.times, *rest)

    def written(self, *rest: Any) -> int:
        """Write them."""
        key, value, tail = self._data
        return self._encoder.columns_written(key, value, tail, self._places, self.times, *rest)


def records_of(encoder: Encoder, columns: Columns, bytes_max: int, now_ms: int, first: int) -> RecordColumns:
    """Check a batch of rows. `first` is the number of its first row."""
    key = None if columns.key is None or columns.key.null_count == len(columns.key) else places(columns.key)
    tail = None if columns.headers is None else places(_tails(columns.headers, first))
    times = None if columns.timestamp is None else _times(columns.timestamp, now_ms, first)
    rows = RecordColumns(encoder, places(columns.value), key, tail, times)
    if columns.partition is not None and columns.partition.null_count < rows.count:
        rows.partitions = _partitions(columns.partition, first)
    sizes = rows.sizes + RECORD_OVERHEAD_BYTES
    if rows.count and int(sizes.max()) > bytes_max:
        row = int(np.argmax(sizes > bytes_max))
        raise MessageTooLarge(
            f"row {first + row} has {sizes[row]} bytes, more than max_request_size = {bytes_max}"
        )
    return rows


def pieces(given: Given, names: Names, is_placed: bool) -> Iterator[tuple[Columns, int]]:
    """The columns that are sent of each batch of rows, and the number of its first row. `is_placed`: the
    caller has said to which partition all go."""
    count = 0
    for batch in batches(given):
        columns = columns_of(batch, names)
        yield (columns._replace(partition=None) if is_placed else columns), count
        count += batch.num_rows


def checked(
    encoder: Encoder, given: Given, found: Iterator[tuple[Columns, int]], bytes_max: int, now_ms: int
) -> Iterable[RecordColumns]:
    """Rows for the encoder: of a table all at once, so that all are checked before any is sent; what a reader
    brings as it comes."""
    each = (records_of(encoder, columns, bytes_max, now_ms, first) for columns, first in found)
    return list(each) if isinstance(given, pa.Table) else each


def rows(columns: Columns, given: int | None, now_ms: int, first: int) -> Iterator[Row]:
    """The same for those who send record by record."""
    times = None if columns.timestamp is None else _times(columns.timestamp, now_ms, first).tolist()
    partitions: int | list[Any] | None = given
    if columns.partition is not None:
        partitions = [None if one < 0 else one for one in _partitions(columns.partition, first).tolist()]
    headers = None if columns.headers is None else [_pairs(one) for one in columns.headers.to_pylist()]
    key = None if columns.key is None else columns.key.to_pylist()
    return rows_of((columns.value.to_pylist(), key, headers, times), partitions)


def _pairs(headers: Any) -> Sequence[Any] | None:
    """Headers of a row as pairs: structs come as dictionaries, maps as pairs."""
    if headers is None:
        return None
    return [tuple(one.values()) if isinstance(one, dict) else one for one in headers]


def _tails(column: Any, first: int) -> Any:
    found: list[bytes | None] = []
    try:
        for one in column.to_pylist():
            found.append(encoded_headers(checked_headers(_pairs(one) or ())) if one else None)
    except (TypeError, ValueError) as trouble:
        trouble.add_note(f"they are the headers of row {first + len(found)}")
        raise
    return pa.array(found, pa.large_binary())


def _times(column: Any, now_ms: int, first: int) -> Ints:
    found: Ints = np.array(pc.fill_null(column.cast(pa.int64()), now_ms), np.int64)  # Arrow's is read-only
    if len(found) and int(found.min()) < 0:
        row = int(np.argmax(found < 0))
        raise ValueError(f"row {first + row} has the timestamp {found[row]}: expected 1970 or later")
    return found


def _partitions(column: Any, first: int) -> Ints:
    wanted = np.asarray(pc.fill_null(column, 0), np.int64)
    if len(wanted) and int(wanted.min()) < 0:
        row = int(np.argmax(wanted < 0))
        raise ValueError(f"row {first + row} asks for partition {wanted[row]}: expected 0 or more")
    found: Ints = np.where(np.asarray(column.is_null()), -1, wanted)
    return found
