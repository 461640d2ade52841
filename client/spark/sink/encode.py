"""Arrow columns as the records of many batches at once, the inverse of protocol/columns.py.

The compiled encoder writes them, as it does for the producer. Where it is missing numpy does: a record is a
row of pieces: varints, key, varints, value, headers. The varints of all rows are written by numpy, one field
after another. Then Arrow puts the pieces together: all of them stand in one binary array, and `take` picks
them in the order of the records, which costs one copy however the rows are to be sorted.
A record without headers ends with a zero byte. It is written as the first byte of what follows, which saves
a piece for each record.
Pure. Left to others: which rows make a batch (route.py), its header (protocol/records.py).
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ....protocol import kernel
from ....protocol.kernel import REFUSED, Encoder
from ....protocol.primitives import Buffer
from ...producer.bulk import BOUNDLESS
from ...producer.record_columns import RecordColumns, places
from .trouble import BadRow

Ints = npt.NDArray[np.int64]

RECORD_OVERHEAD_BYTES = 24  # at most what the varints of a record take, unless it has headers


class Records(NamedTuple):
    """The records of one batch, as `BatchBuilder.extend` takes them."""

    section: Buffer
    rows: int
    base_timestamp: int
    max_timestamp: int


@dataclass(slots=True)
class Block:
    """Rows as they came; a length of -1 is null."""

    key: pa.Array | None
    key_length: Ints
    value: pa.Array
    value_length: Ints
    timestamp: Ints
    headers: pa.Array | None  # encoded
    headers_length: Ints  # as they are encoded

    @property
    def sizes(self) -> Ints:
        """Bytes of each record: at most so many."""
        return (
            np.maximum(self.key_length, 0)
            + np.maximum(self.value_length, 0)
            + self.headers_length
            + RECORD_OVERHEAD_BYTES
        )


def block(key: pa.Array | None, value: pa.Array, timestamp: Ints, headers: pa.Array | None) -> Block:
    """Rows from their columns: text or binary, text or binary, ms, and headers as Spark has them."""
    key, value = None if key is None else binary(key), binary(value)
    if key is not None and key.null_count == len(key):
        key = None
    tails = None if headers is None or headers.null_count == len(headers) else encoded_headers(headers)
    return Block(
        key,
        np.full(len(value), -1, np.int64) if key is None else lengths(key),
        value,
        lengths(value),
        timestamp,
        tails,
        np.ones(len(value), np.int64) if tails is None else lengths(tails),
    )


def encode(rows: Block, order: Ints, first: Ints) -> list[Records]:
    """Records of the rows at `order`; batch b has `first[b]` up to `first[b + 1]`, at least one.

    Each has bytes of its own: one that waits for its leader must not keep those of all others in memory.
    """
    encoder = kernel.encoder()
    found = None if encoder is None else _by_kernel(encoder, rows, order, first)
    return _by_numpy(rows, order, first) if found is None else found


def _by_kernel(encoder: Encoder, rows: Block, order: Ints, first: Ints) -> list[Records] | None:
    """As `encode`; None for rows that the kernel refuses."""
    key, value, tail = (None if one is None else places(one) for one in (rows.key, rows.value, rows.headers))
    assert value is not None, "rows have values"
    source = RecordColumns(encoder, value, key, tail, np.array(rows.timestamp, np.int64))
    order = np.array(order, np.int64)
    made: list[Records] = []
    for begin, end in pairwise(first.tolist()):
        found = array("q", (0, 0))
        base = int(rows.timestamp[order[begin]])
        if source.measured(order, begin, end, 0, -base, BOUNDLESS, found) != end - begin:
            return None
        section = bytearray(found[0])
        if source.written(order, begin, end, 0, -base, section) == REFUSED:
            return None
        made.append(Records(section, end - begin, base, base + found[1]))
    return made


def _by_numpy(rows: Block, order: Ints, first: Ints) -> list[Records]:
    """As `encode`, in many passes."""
    count = np.diff(first)
    timestamp = rows.timestamp[order]
    base = timestamp[first[:-1]]
    elapsed = timestamp - np.repeat(base, count)
    delta = np.arange(len(order)) - np.repeat(first[:-1], count)
    data, starts = _joined(*_pieces(rows, order, elapsed, delta))
    latest = np.maximum.reduceat(timestamp, first[:-1])
    cuts = starts[first].tolist()
    return [
        Records(bytes(data[cuts[at] : cuts[at + 1]]), size, start, end)
        for at, (size, start, end) in enumerate(
            zip(count.tolist(), base.tolist(), latest.tolist(), strict=True)
        )
    ]


def binary(array: pa.Array) -> pa.Array:
    """Bytes of text or bytes; Spark may send the types for large content."""
    if pa.types.is_large_string(array.type):
        array = array.cast(pa.large_binary())
    return array if pa.types.is_binary(array.type) else array.cast(pa.binary())


def lengths(array: pa.Array) -> Ints:
    """The lengths of binary values; -1 for null."""
    found = pc.binary_length(array)
    if array.null_count:
        found = found.fill_null(-1)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)


def encoded_headers(headers: pa.Array) -> pa.Array:
    """The headers of each row as a record ends with them: their number, then name and value of each."""
    count = np.asarray(pc.list_value_length(headers).fill_null(0), np.int64)
    names, values = headers.flatten().flatten()
    if names.null_count:
        pair = int(np.flatnonzero(np.asarray(names.is_null()))[0])
        row = int(np.searchsorted(np.cumsum(count), pair, side="right"))
        raise BadRow(row, "a header has no key")
    names, values = binary(names), binary(values)
    rows, pairs = len(count), len(names)
    pool = pa.concat_arrays(
        [varints([count]), varints([lengths(names)]), names, varints([lengths(values)]), values]
    )
    before = np.cumsum(count) - count  # pairs of the rows before
    row_at = np.arange(rows) + 4 * before
    pair_at = np.repeat(np.arange(rows), count) + 1 + 4 * np.arange(pairs)
    index = np.empty(rows + 4 * pairs, np.int64)
    index[row_at] = np.arange(rows)
    for piece in range(4):
        index[pair_at + piece] = rows + piece * pairs + np.arange(pairs)
    data, ends = _taken(pool, index)
    offsets = np.append(ends[row_at], ends[-1]).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), data])


def varints(fields: Sequence[Ints | int]) -> pa.Array:
    """Signed varints of all fields of a row, one after another; numbers are the same in all rows.

    All of them are written at their greatest width. Where some are shorter, the bytes too many are left out.
    """
    rows = len(next(field for field in fields if not isinstance(field, int)))
    coded = [np.atleast_1d((field << 1) ^ (field >> 63)) for field in fields]
    tops = [int(each.max(initial=0)) for each in coded]
    widths = [max(1, (top.bit_length() + 6) // 7) for top in tops]
    table = np.empty((rows, sum(widths)), np.uint8)
    kept: npt.NDArray[np.bool_] | None = None
    length = np.full(rows, table.shape[1], np.int64)
    column = 0
    for each, width, top in zip(coded, widths, tops, strict=True):
        low = int(each.min(initial=top))
        varied = each[:1] if low == top else each
        for byte in range(width):
            rest = varied >> (7 * byte)
            table[:, column] = rest if byte == width - 1 else _with_more(rest)
            if byte and low < 1 << (7 * byte):
                kept = np.ones(table.shape, np.bool_) if kept is None else kept
                kept[:, column] = there = rest > 0
                length -= ~there
            column += 1
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(length, out=offsets[1:])
    content = table.ravel() if kept is None else table[kept]
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(content)])


def sizes_of(field: Ints) -> Ints:
    """Bytes of signed varints."""
    coded = (field << 1) ^ (field >> 63)
    size, bound = np.ones(len(coded), np.int64), 1 << 7
    top = int(coded.max(initial=0))
    while bound <= top:
        size += coded >= bound
        bound <<= 7
    return size


def _with_more(rest: Ints) -> Ints:
    """Seven bits, and whether more follow."""
    return (rest & 127) | ((rest > 127).astype(np.int64) << 7)


def _pieces(
    rows: Block, order: Ints, elapsed: Ints, delta: Ints
) -> tuple[list[tuple[pa.Array, Ints | None]], bool]:
    """The pieces of each record, and where not in its place the index; whether each begins with a zero."""
    value_length = rows.value_length[order]
    length = 1 + sizes_of(elapsed) + sizes_of(delta) + sizes_of(value_length)
    length += np.maximum(value_length, 0) + rows.headers_length[order]
    leads = rows.headers is None
    lead: list[Ints | int] = [0] if leads else []
    pieces: list[tuple[pa.Array, Ints | None]] = []
    if rows.key is None:
        head = varints([*lead, length + 1, 0, elapsed, delta, -1, value_length])
        pieces += [(head, None)]
    else:
        key_length = rows.key_length[order]
        length += sizes_of(key_length) + np.maximum(key_length, 0)
        head = varints([*lead, length, 0, elapsed, delta, key_length])
        pieces += [(head, None), (rows.key, order), (varints([value_length]), None)]
    pieces.append((rows.value, order))
    if rows.headers is not None:
        pieces.append((rows.headers, order))
    return pieces, leads


def _joined(pieces: list[tuple[pa.Array, Ints | None]], leads: bool) -> tuple[memoryview, Ints]:
    """All records in one buffer, and where each starts; at the end, where the last one ends."""
    count = len(pieces[0][0])
    arrays = [piece for piece, _ in pieces]
    index = np.empty((count, len(pieces)), np.int64)
    base = 0
    for column, (piece, order) in enumerate(pieces):
        index[:, column] = base + (np.arange(count) if order is None else order)
        base += len(piece)
    flat = index.ravel()
    if leads:
        arrays.append(pa.array([b"\0"], pa.binary()))
        flat = np.append(flat, base)
    data, ends = _taken(pa.concat_arrays(arrays), flat)
    starts = ends[: count * len(pieces) + 1 : len(pieces)] + leads
    return memoryview(data), starts


def _taken(pool: pa.Array, index: Ints) -> tuple[pa.Buffer, Ints]:
    """Those of the slices, in one buffer, and the offsets between them."""
    taken = pc.take(pool, pa.array(index), boundscheck=False)
    _, offsets, data = taken.buffers()
    return data, np.frombuffer(offsets, np.int32, len(index) + 1).astype(np.int64)
