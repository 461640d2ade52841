"""Records decoded to columns by numpy alone: the decoder that is always there, and the judge of all others.

Each field of all records at once, and each header of all records by its number. Reads are clipped to the
buffer; that every record chains to the next one and up to its batch's end is verified afterwards.
Left to others: where records start, varints (column_fields.py), the faster way (record_kernel.py).
"""

import numpy as np

from .batches import BatchHeader
from .column_fields import INT_BYTES_MAX, LONG_BYTES_MAX, Bytes, Ints, Section, record_starts, varints
from .primitives import Buffer, Malformed
from .records import RECORD_SIZE_MIN

Batches = list[tuple[Section, BatchHeader]]


def rows_of(data: Buffer, array: Bytes, batches: Batches) -> tuple[Ints, ...]:
    """The number columns of `Columns`, in their order; Malformed if anything does not fit."""
    sections = [section for section, _ in batches]
    heads = [header for _, header in batches]
    starts = record_starts(data, array, sections)
    end, cursor = _chained(array, starts, sections)
    elapsed, cursor = varints(array, cursor + 1, LONG_BYTES_MAX)
    delta, cursor = varints(array, cursor)
    key_length, key_start = varints(array, cursor)
    value_length, value_start = varints(array, key_start + np.maximum(key_length, 0))
    headers_at = value_start + np.maximum(value_length, 0)
    if int(key_length.min()) < -1 or int(value_length.min()) < -1:
        raise Malformed("field has a negative length")
    plain = array.take(headers_at, mode="clip") == 0
    if not np.where(plain, headers_at + 1 == end, headers_at + 1 < end).all():
        raise Malformed("record length does not match its fields")
    count = np.array([section.records for section in sections], np.int64)
    _check_deltas(delta, count, heads)
    offset = delta + np.repeat(np.array([head.base_offset for head in heads], np.int64), count)
    timestamp = elapsed + np.repeat(np.array([head.base_timestamp for head in heads], np.int64), count)
    kind = np.repeat(np.array([head.is_log_append_time for head in heads], np.int64), count)
    if any(head.is_log_append_time for head in heads):
        appended = np.repeat(np.array([head.max_timestamp for head in heads], np.int64), count)
        timestamp = np.where(kind == 1, appended, timestamp)
    return offset, timestamp, kind, key_start, key_length, value_start, value_length, headers_at, starts, end


def headers_of(array: Bytes, headers_at: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Which headers each record has, and their places: the start and length of names, and of values."""
    count, cursor = varints(array, headers_at)
    if count.size and (int(count.min()) < 0 or bool((count > end - cursor).any())):
        raise Malformed("headers do not fit in their record")
    first = np.zeros(len(count) + 1, np.int64)
    np.cumsum(count, out=first[1:])
    places = np.zeros((4, int(first[-1])), np.int64)
    name_start, name_length, value_start, value_length = places
    index, ordinal = np.flatnonzero(count), 0
    while index.size:
        to, at, stop = first[index] + ordinal, cursor[index], end[index]
        name_length[to], name_start[to] = length, at = varints(array, at)
        _check_lengths(length, at, stop, least=0)
        value_length[to], value_start[to] = length, at = varints(array, at + length)
        _check_lengths(length, at, stop, least=-1)
        cursor[index] = at + np.maximum(length, 0)
        ordinal += 1
        index = index[count[index] > ordinal]
    if bool((cursor != end).any()):
        raise Malformed("record length does not match its fields")
    return first, places


def _chained(array: Bytes, starts: Ints, sections: list[Section]) -> tuple[Ints, Ints]:
    """Ends of the records and the starts of their fields. Each record must end where the next one starts."""
    length, cursor = varints(array, starts, INT_BYTES_MAX)
    end = cursor + length
    expected = np.empty_like(starts)
    expected[:-1] = starts[1:]
    last = np.cumsum([section.records for section in sections]) - 1
    expected[last] = [section.end for section in sections]
    if int(length.min()) < RECORD_SIZE_MIN - 1 or bool((end != expected).any()):
        raise Malformed("records do not fill their batch")
    return end, cursor


def _check_deltas(delta: Ints, count: Ints, heads: list[BatchHeader]) -> None:
    highest = np.maximum.reduceat(delta, np.cumsum(count) - count)
    if int(delta.min()) < 0 or bool((highest > [head.last_offset_delta for head in heads]).any()):
        raise Malformed("offset delta is outside the batch")


def _check_lengths(length: Ints, start: Ints, end: Ints, least: int) -> None:
    if int(length.min()) < least or bool((start + length > end).any()):
        raise Malformed("header does not fit in its record")
