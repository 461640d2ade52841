"""Columns as an Arrow RecordBatch with exactly the schema of Spark's `kafka` source.

Keys and values are gathered by the compiled kernel, or by Arrow itself: the buffer is presented as one binary
array whose even slots are the wanted slices and whose odd slots are the bytes between them; `take` then picks
the even slots. Or they are not gathered: Arrow's views (`binary_view`) name their places in the buffer.
Whoever imports this needs pyarrow, an optional dependency.
Left to others: the content of the columns (columns.py), its use in Spark (client/spark).
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from . import kernel
from .column_fields import Bytes, Ints
from .columns import Columns

TIMESTAMP_MAX = ((1 << 63) - 1) // 1000  # ms
VIEWED = ("key", "value")
VIEW_INLINE = 12  # bytes that are in the view itself
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


class TimestampOutOfRange(OverflowError):
    """The column counts microseconds from 1970 in 64 bits. A producer may write any number of ms."""


def to_arrow(
    columns: Columns,
    topic: str,
    partition: int,
    include_headers: bool = False,
    names: Sequence[str] | None = None,
    views: bool = False,
) -> pa.RecordBatch:
    """The columns in `names`, or all of them; the headers only if they are asked for.

    With `views` keys and values are not copied: they are `binary_view`s of the buffer.
    """
    rows = len(columns)
    data = pa.py_buffer(columns.data)
    taken = view if views else gather
    makers: dict[str, Callable[[], pa.Array]] = {
        "key": lambda: taken(data, columns.key_start, columns.key_length),
        "value": lambda: taken(data, columns.value_start, columns.value_length),
        "topic": lambda: constant_text(topic, rows),
        "partition": lambda: _fixed(pa.int32(), np.full(rows, partition, np.int32)),
        "offset": lambda: _fixed(pa.int64(), columns.offset),
        "timestamp": lambda: _fixed(pa.timestamp("us", tz="UTC"), _micros(columns, topic, partition)),
        "timestampType": lambda: _fixed(pa.int32(), columns.timestamp_type.astype(np.int32)),
        "headers": lambda: _headers(columns, data),
    }
    wanted = SCHEMA_WITH_HEADERS if include_headers else SCHEMA
    fields = list(wanted) if names is None else [SCHEMA_WITH_HEADERS.field(name) for name in names]
    if views:
        viewed = pa.binary_view()
        fields = [field.with_type(viewed) if field.name in VIEWED else field for field in fields]
    return pa.RecordBatch.from_arrays([makers[field.name]() for field in fields], schema=pa.schema(fields))


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


def view(data: pa.Buffer, start: Ints, length: Ints) -> pa.Array:
    """Slices of `data` as a `binary_view` array, which holds `data`; a length of -1 is null."""
    rows = len(start)
    views, valid = np.zeros((rows, 4), np.int32), np.zeros((rows + 7) // 8, np.uint8)
    content = np.frombuffer(data, np.uint8) if data.size else np.zeros(0, np.uint8)
    compiled, null = kernel.compiled(), kernel.REFUSED
    if compiled is not None:
        start, length = np.ascontiguousarray(start), np.ascontiguousarray(length)
        null = compiled.viewed(content, start, length, views, valid)
    if null == kernel.REFUSED:
        views, valid, null = _views(content, start, length)
    buffers = [pa.py_buffer(valid) if null else None, pa.py_buffer(views), data]
    return pa.Array.from_buffers(pa.binary_view(), rows, buffers, null)


def _views(content: Bytes, start: Ints, length: Ints) -> tuple[npt.NDArray[np.int32], Bytes, int]:
    """What the kernel makes: a view is a length, and 12 bytes, or the first four, a buffer and a place."""
    there, inline = length >= 0, np.arange(VIEW_INLINE)
    short = there & (length <= VIEW_INLINE)
    kept = np.where(short, length, np.where(there, 4, 0))[:, None] > inline
    places = np.where(kept, start[:, None] + inline, 0)
    views = np.zeros((len(start), 4), np.int32)
    views[:, 0] = np.where(there, length, 0)
    if len(content):
        views[:, 1:] = np.where(kept, content[places], 0).astype(np.uint8).view(np.int32)
    views[there & ~short, 3] = start[there & ~short]
    return views, np.packbits(there, bitorder="little"), int(len(start) - there.sum())


def constant_text(text: str, rows: int) -> pa.Array:
    """The same text in every row."""
    raw = text.encode()
    offsets = np.arange(rows + 1, dtype=np.int32) * len(raw)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(raw * rows)])


def _fixed(kind: pa.DataType, values: npt.NDArray[np.generic]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


def _micros(columns: Columns, topic: str, partition: int) -> Ints:
    """Raises TimestampOutOfRange."""
    odd = np.flatnonzero((columns.timestamp > TIMESTAMP_MAX) | (columns.timestamp < -TIMESTAMP_MAX))
    if len(odd):
        raise TimestampOutOfRange(
            f"{topic}-{partition}: the record at offset {columns.offset[odd[0]]} has timestamp "
            f"{columns.timestamp[odd[0]]} ms, more microseconds than 64 bits can hold. To read it, leave the "
            "column timestamp out: name the others in `columns`"
        )
    return columns.timestamp * 1000


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
