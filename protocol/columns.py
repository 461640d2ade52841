"""Record batches as columns: many records decoded at once, for bulk readers.

Offsets, timestamps and the places of keys and values are arrays over one buffer; nothing is copied until
someone asks for it (`column_arrow.to_arrow`, `Columns.rows`). The CRC is verified first. Content with a good
CRC is still checked: every record must chain to the next one and up to its batch's end.

The compiled kernel decodes where there is one. What it refuses goes to numpy, which says what is wrong.
Left to others: records one by one (records.py), the loops below this (column_baseline.py, record_kernel.py),
which of them runs (kernel.py), Arrow (column_arrow.py).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from struct import Struct

import numpy as np

from . import column_baseline, kernel
from .batches import LOG_APPEND_TIME, BatchHeader, headers
from .column_baseline import Batches
from .column_fields import Bytes, Ints, Section
from .compression import CAP, Codec
from .primitives import Buffer, Malformed
from .records import Header, Record, check_crc, open_batch

DATA_MAX = (1 << 31) - 1  # Arrow's binary offsets are 32-bit
OFFSET_MAX = (1 << 63) - 1
NEVER = 1 << 62  # no limit on rows or bytes
_BATCH = Struct("=8q")  # a batch as the kernel takes it

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

    def keys(self) -> list[bytes | None]:
        """All keys as bytes."""
        return _cut(self.data, self.key_start, self.key_length)

    def values(self) -> list[bytes | None]:
        """All values as bytes."""
        return _cut(self.data, self.value_start, self.value_length)

    def headers(self) -> HeaderColumns:
        """Decode the record headers, which few readers need; Malformed if they do not fill their records."""
        found = _compiled_headers(self.array, self.headers_at, self.end)
        if found is None:
            found = column_baseline.headers_of(self.array, self.headers_at, self.end)
        first, places = found
        return HeaderColumns(first, *places)

    def rows(self) -> Iterator[Record]:
        """The same records as from `records.iterate`."""
        found = self.headers()
        names = _cut(self.data, found.name_start, found.name_length)
        values = _cut(self.data, found.value_start, found.value_length)
        pairs: list[Header] = [
            ((name or b"").decode(errors="replace"), value) for name, value in zip(names, values, strict=True)
        ]
        first = found.first.tolist()
        for index, (offset, timestamp, key, value) in enumerate(
            zip(
                self.offset.tolist(),
                self.timestamp.tolist(),
                self.keys(),
                self.values(),
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
    batches: Iterable[tuple[int, BatchHeader]] | None = None,
) -> Iterator[Columns]:
    """`decode` in pieces of complete batches, each up to either bound. `cap` is for each batch then: one that
    fits alone must not fail for what came before it.

    Control batches and batches outside of [lo, hi) are skipped unopened, and so is a torn last batch; that a
    batch is one of control is believed under a good CRC only. Who has looked at the headers already, and
    wants some of the batches only, gives them in `batches`.
    """
    lo = 0 if lo is None else lo
    hi = OFFSET_MAX if hi is None else hi
    opened: list[Opened] = []
    next_offset, rows, nbytes = lo, 0, 0
    for pos, header in headers(buf) if batches is None else batches:
        next_offset = header.next_offset
        if header.last_offset < lo or header.base_offset >= hi:
            continue
        if header.is_control:
            if verify:
                check_crc(buf, pos, header)
            continue
        room = cap if bytes_max < NEVER else cap - nbytes
        section = open_batch(buf, pos, header, verify=verify, cap=room)
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
    batches: Batches = []
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


def _columns(data: Buffer, batches: Batches, next_offset: int) -> Columns:
    array = np.frombuffer(data, np.uint8) if len(data) else np.zeros(1, np.uint8)
    if not batches:
        return Columns(data, array, next_offset, *np.zeros((10, 0), np.int64))
    if len(data) > DATA_MAX:
        raise Malformed(f"{len(data)} bytes of records exceed the limit of {DATA_MAX}")
    rows = _compiled_rows(array, batches)
    if rows is None:
        rows = column_baseline.rows_of(data, array, batches)
    return Columns(data, array, next_offset, *rows)


def _compiled_rows(array: Bytes, batches: Batches) -> tuple[Ints, ...] | None:
    """What `column_baseline.rows_of` finds, or None."""
    compiled = kernel.compiled()
    if compiled is None:
        return None
    table, total = bytearray(), 0
    for (start, end, records), head in batches:
        append_time = head.attributes & LOG_APPEND_TIME
        base = head.base_offset, head.base_timestamp
        table += _BATCH.pack(
            start, end, records, *base, append_time, head.max_timestamp, head.last_offset_delta
        )
        total += records
    rows = np.empty((10, total), np.int64)
    done = compiled.fields(array, np.frombuffer(table, np.int64).reshape(-1, 8), rows)
    return None if done == kernel.REFUSED else tuple(rows)


def _compiled_headers(array: Bytes, headers_at: Ints, end: Ints) -> tuple[Ints, Ints] | None:
    """What `column_baseline.headers_of` finds, or None."""
    compiled = kernel.compiled()
    if compiled is None:
        return None
    headers_at, end = np.ascontiguousarray(headers_at), np.ascontiguousarray(end)
    first = np.empty(len(end) + 1, np.int64)
    total = compiled.header_counts(array, headers_at, end, first)
    if total == kernel.REFUSED:
        return None
    places = np.empty((4, total), np.int64)
    done = compiled.header_places(array, headers_at, end, first, places)
    return None if done == kernel.REFUSED else (first, places)


def _cut(data: Buffer, start: Ints, length: Ints) -> list[bytes | None]:
    compiled = kernel.compiled()
    if compiled is not None:
        found: list[bytes | None] = []
        array = np.frombuffer(data, np.uint8) if len(data) else np.zeros(0, np.uint8)
        done = compiled.slices(array, np.ascontiguousarray(start), np.ascontiguousarray(length), found)
        if done != kernel.REFUSED:
            return found
    data = bytes(data)
    return [
        None if size < 0 else data[at : at + size]
        for at, size in zip(start.tolist(), length.tolist(), strict=True)
    ]
