"""Columns as an Arrow RecordBatch with exactly the schema of Spark's `kafka` source.

Keys and values are gathered by the compiled kernel, or by Arrow itself: the buffer is presented as one binary
array whose even slots are the wanted slices and whose odd slots are the bytes between them; `take` then picks
the even slots.
Whoever imports this needs pyarrow, an optional dependency.
Left to others: the content of the columns (columns.py), its use in Spark (client/spark).
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import kernel
from .column_fields import Ints
from .columns import Columns

HEADER_TYPE = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS = pa.field("headers", pa.list_(pa.field("element", HEADER_TYPE)))
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS = SCHEMA.append(HEADERS)


def to_arrow(
    columns: Columns,
    topic: str,
    partition: int,
    include_headers: bool = False,
    names: Sequence[str] | None = None,
) -> pa.RecordBatch:
    """The columns in `names`, or all of them; the headers only if they are asked for."""
    rows = len(columns)
    data = pa.py_buffer(columns.data)
    makers: dict[str, Callable[[], pa.Array]] = {
        "key": lambda: gather(data, columns.key_start, columns.key_length),
        "value": lambda: gather(data, columns.value_start, columns.value_length),
        "topic": lambda: constant_text(topic, rows),
        "partition": lambda: _fixed(pa.int32(), np.full(rows, partition, np.int32)),
        "offset": lambda: _fixed(pa.int64(), columns.offset),
        "timestamp": lambda: _fixed(pa.timestamp("us", tz="UTC"), columns.timestamp * 1000),
        "timestampType": lambda: _fixed(pa.int32(), columns.timestamp_type.astype(np.int32)),
        "headers": lambda: _headers(columns, data),
    }
    schema = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    if names is not None:
        schema = pa.schema([SCHEMA_WITH_HEADERS.field(name) for name in names])
    return pa.RecordBatch.from_arrays([makers[name]() for name in schema.names], schema=schema)


def gather(data: pa.Buffer, start: Ints, length: Ints) -> pa.Array:
    """Slices of `data`, in order and without overlap, as a binary array; a length of -1 is null."""
    rows = len(start)
    null = length < 0
    if null.all():
        return pa.nulls(rows, pa.binary())
    some_null = bool(null.any())
    gathered = _compiled_gather(data, start, length, some_null)
    if gathered is not None:
        return gathered
    offsets = np.empty(2 * rows, np.int32)
    offsets[0::2] = start
    offsets[1::2] = start + (np.maximum(length, 0) if some_null else length)
    slices = pa.Array.from_buffers(pa.binary(), 2 * rows - 1, [None, pa.py_buffer(offsets), data])
    even = np.arange(0, 2 * rows, 2, dtype=np.int32)
    return slices.take(pa.array(even, mask=null) if some_null else pa.array(even))


def _compiled_gather(data: pa.Buffer, start: Ints, length: Ints, some_null: bool) -> pa.Array | None:
    """What `gather` makes of slices of which some are not null, or None."""
    compiled = kernel.compiled()
    if compiled is None:
        return None
    start, length = np.ascontiguousarray(start), np.ascontiguousarray(length)
    offsets = np.empty(len(start) + 1, np.int32)
    valid = np.zeros((len(start) + 7) // 8, np.uint8)
    total = compiled.offsets_of(start, length, data.size, offsets, valid)
    if total == kernel.REFUSED:
        return None
    out = np.empty(total, np.uint8)
    if compiled.gathered(np.frombuffer(data, np.uint8), start, offsets, out) == kernel.REFUSED:
        return None
    buffers = [pa.py_buffer(valid) if some_null else None, pa.py_buffer(offsets), pa.py_buffer(out)]
    return pa.Array.from_buffers(pa.binary(), len(start), buffers)


def constant_text(text: str, rows: int) -> pa.Array:
    """The same text in every row."""
    raw = text.encode()
    offsets = np.arange(rows + 1, dtype=np.int32) * len(raw)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(raw * rows)])


def _fixed(kind: pa.DataType, values: npt.NDArray[np.generic]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _headers(columns: Columns, data: pa.Buffer) -> pa.Array:
    """Headers; null where a record has none, as in Spark's own source."""
    found = columns.headers()
    names = _text(gather(data, found.name_start, found.name_length))
    values = gather(data, found.value_start, found.value_length)
    pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADER_TYPE))
    first = found.first.astype(np.int32)
    none = np.append(first[1:] == first[:-1], False)
    return pa.ListArray.from_arrays(pa.array(first, pa.int32(), mask=none), pairs, type=HEADERS.type)


def _text(raw: pa.Array) -> pa.Array:
    """Header names as text. Names that are not UTF-8 get replacement characters."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([name.decode(errors="replace") for name in raw.to_pylist()], pa.string())
