"""Record batches as columns: many records decoded at once with numpy, for bulk readers.

Offsets, timestamps and the places of keys and values are arrays over one buffer; nothing is copied until
someone asks for it (`column_arrow.to_arrow`, `Columns.rows`). The CRC is verified first. Content with a good
CRC is still checked: every record must chain to the next one and up to its batch's end.
Left to others: records one by one (records.py), the loops below this (column_fields.py), Arrow
(column_arrow.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from .batches import BatchHeader, headers
from .column_fields import INT_BYTES_MAX, LONG_BYTES_MAX, Bytes, Ints, Section, record_starts, varints
from .compression import CAP, Codec
from .primitives import Buffer, Malformed
from .records import RECORD_SIZE_MIN, Header, Record, open_batch

DATA_MAX = (1 << 31) - 1  # Arrow's binary offsets are 32-bit
OFFSET_MAX = (1 << 63) - 1
NEVER = 1 << 62  # no limit on rows or bytes

Opened = tuple[int, BatchHeader, Buffer]  # a batch's position, its header, its records from `open_batch`


@dataclass(slots=True)
class HeaderColumns:
    """The headers of all records in order: those of record i are `first[i]` up to `first[i + 1]`."""

    first: Ints
    name_start: Ints
    name_length: Ints
    value_start: Ints
    value_length: Ints  # -1 for null


@dataclass(slots=True)
class Columns:
    """Records as arrays over `data`; a length of -1 means null."""

    data: Buffer
    array: Bytes
    next_offset: int  # after the last batch that was read, even if its records were left out
    offset: Ints
    timestamp: Ints
    timestamp_type: Ints  # 0: CreateTime, from the producer; 1: LogAppendTime
    key_start: Ints
    key_length: Ints
    value_start: Ints
    value_length: Ints
    headers_at: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.offset)

    def headers(self) -> HeaderColumns:
        """Decode the record headers, which few readers need; Malformed if they do not fill their records."""
        count, cursor = varints(self.array, self.headers_at)
        if count.size and (int(count.min()) < 0 or bool((count > self.end - cursor).any())):
            raise Malformed("headers do not fit in their record")
        first = np.zeros(len(count) + 1, np.int64)
        np.cumsum(count, out=first[1:])
        total = int(first[-1])
        name_start, name_length, value_start, value_length = np.zeros((4, total), np.int64)
        index, ordinal = np.flatnonzero(count), 0
        while index.size:
            to, at, end = first[index] + ordinal, cursor[index], self.end[index]
            name_length[to], name_start[to] = length, at = varints(self.array, at)
            _check_lengths(length, at, end, least=0)
            value_length[to], value_start[to] = length, at = varints(self.array, at + length)
            _check_lengths(length, at, end, least=-1)
            cursor[index] = at + np.maximum(length, 0)
            ordinal += 1
            index = index[count[index] > ordinal]
        if bool((cursor != self.end).any()):
            raise Malformed("record length does not match its fields")
        return HeaderColumns(first, name_start, name_length, value_start, value_length)

    def rows(self) -> Iterator[Record]:
        """The same records as from `records.iterate`."""
        data, found = bytes(self.data), self.headers()
        names = _cut(data, found.name_start, found.name_length)
        values = _cut(data, found.value_start, found.value_length)
        pairs: list[Header] = [
            ((name or b"").decode(errors="replace"), value) for name, value in zip(names, values, strict=True)
        ]
        first = found.first.tolist()
        for index, (offset, timestamp, key, value) in enumerate(
            zip(
                self.offset.tolist(),
                self.timestamp.tolist(),
                _cut(data, self.key_start, self.key_length),
                _cut(data, self.value_start, self.value_length),
                strict=True,
            )
        ):
            yield Record(offset, timestamp, key, value, tuple(pairs[first[index] : first[index + 1]]))

    def between(self, lo: int, hi: int) -> "Columns":
        """Only the records with `lo <= offset < hi`."""
        inside = (self.offset >= lo) & (self.offset < hi)
        if inside.all():
            return self
        columns = (getattr(self, field.name)[inside] for field in fields(self)[3:])
        return Columns(self.data, self.array, self.next_offset, *columns)


def decode(
    buf: Buffer, lo: int | None = None, hi: int | None = None, verify: bool = True, cap: int = CAP
) -> Columns:
    """All data records of a run of batches; together at most `cap` bytes after decompression."""
    found = list(runs(buf, lo, hi, verify, cap, rows_max=NEVER, bytes_max=NEVER))
    return found[0] if found else _columns(b"", [], 0 if lo is None else lo)


def runs(
    buf: Buffer,
    lo: int | None = None,
    hi: int | None = None,
    verify: bool = True,
    cap: int = CAP,
    rows_max: int = 1 << 16,
    bytes_max: int = 32 << 20,
) -> Iterator[Columns]:
    """`decode` in pieces of complete batches, each up to either bound; `cap` is for each piece.

    Control batches and batches outside of [lo, hi) are skipped unopened, and so is a torn last batch.
    """
    lo = 0 if lo is None else lo
    hi = OFFSET_MAX if hi is None else hi
    opened: list[Opened] = []
    next_offset, rows, nbytes = lo, 0, 0
    for pos, header in headers(buf):
        next_offset = header.next_offset
        if header.is_control or header.last_offset < lo or header.base_offset >= hi:
            continue
        section = open_batch(buf, pos, header, verify=verify, cap=cap - nbytes)
        if header.record_count == 0:
            if len(section):
                raise Malformed("bytes are left after the last record")
            continue
        opened.append((pos, header, section))
        rows += header.record_count
        nbytes += len(section)
        if rows >= rows_max or nbytes >= bytes_max:
            yield joined(buf, opened, next_offset).between(lo, hi)
            opened, rows, nbytes = [], 0, 0
    if opened or next_offset != lo:
        yield joined(buf, opened, next_offset).between(lo, hi)


def joined(buf: Buffer, opened: list[Opened], next_offset: int) -> Columns:
    """The records of opened batches, none of them empty.

    If all are uncompressed they are read in place; otherwise all are copied into one buffer.
    """
    batches: list[tuple[Section, BatchHeader]] = []
    if all(header.codec == Codec.NONE for _, header, _ in opened):
        for pos, header, section in opened:
            end = pos + header.size
            batches.append((Section(end - len(section), end, header.record_count), header))
        return _columns(buf, batches, next_offset)
    end = 0
    for _, header, section in opened:
        start, end = end, end + len(section)
        batches.append((Section(start, end, header.record_count), header))
    return _columns(b"".join(section for _, _, section in opened), batches, next_offset)


def _columns(data: Buffer, batches: list[tuple[Section, BatchHeader]], next_offset: int) -> Columns:
    array = np.frombuffer(data, np.uint8) if len(data) else np.zeros(1, np.uint8)
    if not batches:
        return Columns(data, array, next_offset, *np.zeros((10, 0), np.int64))
    if len(data) > DATA_MAX:
        raise Malformed(f"{len(data)} bytes of records exceed the limit of {DATA_MAX}")
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
    return Columns(
        data,
        array,
        next_offset,
        offset,
        timestamp,
        kind,
        key_start,
        key_length,
        value_start,
        value_length,
        headers_at,
        starts,
        end,
    )


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


def _cut(data: bytes, start: Ints, length: Ints) -> list[bytes | None]:
    return [
        None if size < 0 else data[at : at + size]
        for at, size in zip(start.tolist(), length.tolist(), strict=True)
    ]
