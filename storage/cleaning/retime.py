"""The records of rewritten batches: unchanged, or with their timestamps relative to another base.

All batches of a piece are done at once: bytes are joined from slices, and no record is handled on its own.
Left to others: which records stay (rewrite.py).
"""

from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from ...protocol.column_fields import INT_BYTES_MAX, LONG_BYTES_MAX, Bytes, Ints, varints
from ...protocol.columns import Columns

Flags: TypeAlias = npt.NDArray[np.bool_]
ATTRIBUTES_BYTES = 1
SIGN = 63


def kept_sections(columns: Columns, keep: Flags, batch_of: Ints, chosen: Flags) -> dict[int, bytes]:
    """For each chosen batch the records that stay, unchanged."""
    rows = np.flatnonzero(keep & chosen[batch_of])
    if not rows.size:
        return {}
    batch = batch_of[rows]
    begins = np.ones(len(rows), bool)  # of a run of adjacent records
    begins[1:] = (rows[1:] != rows[:-1] + 1) | (batch[1:] != batch[:-1])
    firsts = np.flatnonzero(begins)
    lasts = np.append(firsts[1:], len(rows)) - 1
    cuts = _cut(columns, columns.start[rows[firsts]], columns.end[rows[lasts]])
    return _by_batch(cuts, batch[firsts], 1)


def retimed_sections(
    columns: Columns, keep: Flags, batch_of: Ints, chosen: Flags, base_ms: int
) -> dict[int, bytes]:
    """For each chosen batch the records that stay, with timestamps relative to `base_ms`."""
    rows = np.flatnonzero(keep & chosen[batch_of])
    if not rows.size:
        return {}
    start, end = columns.start[rows], columns.end[rows]
    _, cursor = varints(columns.array, start, INT_BYTES_MAX)
    _, body = varints(columns.array, cursor + ATTRIBUTES_BYTES, LONG_BYTES_MAX)
    delta, delta_size = encoded(columns.timestamp[rows] - base_ms)
    length, length_size = encoded(ATTRIBUTES_BYTES + delta_size + end - body)
    head_size = length_size + ATTRIBUTES_BYTES + delta_size
    head_at = np.cumsum(head_size) - head_size
    heads = np.zeros(int(head_size.sum()), np.uint8)  # the attributes of a record are always zero
    _put(heads, head_at, length, length_size)
    _put(heads, head_at + length_size + ATTRIBUTES_BYTES, delta, delta_size)
    view = memoryview(heads.tobytes())
    fronts = map(view.__getitem__, map(slice, head_at.tolist(), (head_at + head_size).tolist()))
    cuts = list(chain.from_iterable(zip(fronts, _cut(columns, body, end), strict=True)))
    return _by_batch(cuts, batch_of[rows], 2)


def encoded(values: Ints) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Signed varints: a row of bytes for each value, and how many of them count."""
    zigzag = ((values << 1) ^ (values >> SIGN)).view(np.uint64)
    rows = np.empty((len(values), LONG_BYTES_MAX), np.uint8)
    size = np.ones(len(values), np.int64)
    for place in range(LONG_BYTES_MAX):
        rest = zigzag >> np.uint64(7)
        more = rest != 0
        rows[:, place] = (zigzag & np.uint64(127)).astype(np.uint8) | (more.astype(np.uint8) << 7)
        size += more
        zigzag = rest
    return rows, size


def _put(out: Bytes, at: Ints, rows: npt.NDArray[np.uint8], size: Ints) -> None:
    for place in range(int(size.max())):
        here = size > place
        out[at[here] + place] = rows[here, place]


def _cut(columns: Columns, start: Ints, end: Ints) -> list[memoryview]:
    view = memoryview(columns.data)
    return list(map(view.__getitem__, map(slice, start.tolist(), end.tolist())))


def _by_batch(cuts: list[memoryview], batch: Ints, cuts_each: int) -> dict[int, bytes]:
    """Join the cuts of each batch; `batch` names it for each `cuts_each` of them."""
    edges = np.flatnonzero(np.append(True, batch[1:] != batch[:-1]))
    bounds = [*(edges * cuts_each).tolist(), len(cuts)]
    return {
        int(name): b"".join(cuts[low:high])
        for name, low, high in zip(batch[edges].tolist(), bounds[:-1], bounds[1:], strict=True)
    }
