"""The records inside a batch, one at a time: a builder for producers, an iterator for small reads.

`BatchBuilder.append` is on the producer's hot path, so its varints come from a table. `iterate` is the
readable reference that the vectorised columns.py is tested against.
Left to others: the header's meaning (batches.py), codecs (compression.py), many records at once (columns.py).
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from .batches import (
    CONTROL,
    HEADER,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL,
    BatchHeader,
    crc_ok,
    headers,
    seal,
)
from .compression import CAP, Codec, compress, decompress
from .errors import ErrorCode, error_for
from .primitives import Buffer, Malformed, unzigzag, varint, zigzag

Header = tuple[str, bytes | None]

RECORD_SIZE_MIN = 7  # length, attributes, two deltas, key, value, headers: a byte each
INT_BYTES_MAX = 5
LONG_BYTES_MAX = 10
LONG_MASK = (1 << 64) - 1
NO_TIMESTAMP = -1
NULL = b"\x01"  # the varint of length -1


class Record(NamedTuple):
    """One record as its reader sees it, with its final offset and timestamp."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]


def signed(value: int) -> bytes:
    """A signed varint, as in all fields of a record."""
    return varint(zigzag(value))


_TABLE = [signed(value) for value in range(4096)]
_TABLE_END = len(_TABLE)


class BatchBuilder:
    """Collects records and seals them as one batch with offsets from 0; the leader stamps the real ones.

    Keys and values are kept by reference until `build`, which may be called again after more appends.
    Producer id, epoch and sequence may be set at any time before it.
    """

    __slots__ = (
        "_base_timestamp",
        "_max_timestamp",
        "_parts",
        "base_sequence",
        "codec",
        "control",
        "count",
        "level",
        "producer_epoch",
        "producer_id",
        "size",
        "transactional",
    )

    def __init__(
        self,
        codec: int = Codec.NONE,
        producer_id: int = -1,
        producer_epoch: int = -1,
        base_sequence: int = -1,
        transactional: bool = False,
        control: bool = False,
        level: int | None = None,
    ) -> None:
        self.codec = codec
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.transactional = transactional
        self.control = control
        self.level = level
        self.count = 0
        self.size = HEADER_SIZE  # of the batch if it were not compressed
        self._base_timestamp = NO_TIMESTAMP
        self._max_timestamp = NO_TIMESTAMP
        self._parts: list[Buffer] = []

    def extend(self, section: Buffer, count: int, base_timestamp: int, max_timestamp: int) -> None:
        """Take `count` records that were encoded elsewhere.

        Their offsets go on from those in the batch, and their timestamps count from its first one, which an
        empty batch takes from `base_timestamp`.
        """
        if self.count:
            assert base_timestamp == self._base_timestamp, "timestamps count from the first one of the batch"
            max_timestamp = max(max_timestamp, self._max_timestamp)
        self._parts.append(section)
        self.count += count
        self.size += len(section)
        self._base_timestamp, self._max_timestamp = base_timestamp, max_timestamp

    def append(
        self,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[Header] | Iterable[Header] = (),
    ) -> int:
        """Add a record; returns its offset within the batch."""
        table = _TABLE
        delta = self.count
        if delta:
            elapsed = timestamp - self._base_timestamp
            if timestamp > self._max_timestamp:
                self._max_timestamp = timestamp
        else:
            self._base_timestamp = self._max_timestamp = timestamp
            elapsed = 0
        head = b"\x00" + (table[elapsed] if 0 <= elapsed < _TABLE_END else signed(elapsed))
        head += table[delta] if delta < _TABLE_END else signed(delta)
        if key is None:
            head += NULL
        else:
            length = len(key)
            head += (table[length] if length < _TABLE_END else signed(length)) + key
        tail = encoded_headers(headers) if headers else b"\x00"
        if value is None:
            head += NULL
            length = len(head) + len(tail)
            prefix = table[length] if length < _TABLE_END else signed(length)
            self._parts += (prefix, head, tail)
        else:
            length = len(value)
            head += table[length] if length < _TABLE_END else signed(length)
            length += len(head) + len(tail)
            prefix = table[length] if length < _TABLE_END else signed(length)
            self._parts += (prefix, head, value, tail)
        self.count = delta + 1
        self.size += length + len(prefix)
        return delta

    @property
    def base_timestamp(self) -> int:
        """Of the first record, which those of all others are counted from."""
        return self._base_timestamp

    def part(self, start: int, stop: int) -> "BatchBuilder":
        """Records `start` up to `stop` in a batch of their own: bytes as they are, but for the deltas."""
        section, pos = b"".join(self._parts), 0
        parts: list[bytes] = []
        times: list[int] = []
        for at in range(stop):
            length, begin = _number(section, pos, INT_BYTES_MAX)
            pos = begin + length
            if at < start:
                continue
            elapsed, rest = _number(section, begin + 1, LONG_BYTES_MAX)
            _, rest = _number(section, rest, INT_BYTES_MAX)
            times.append(self._base_timestamp + elapsed)
            record = b"\0" + signed(times[-1] - times[0]) + signed(at - start) + section[rest:pos]
            parts += (signed(len(record)), record)
        made = BatchBuilder(self.codec, transactional=self.transactional, level=self.level)
        made.extend(b"".join(parts), stop - start, times[0], max(times))
        return made

    def build(self) -> bytes:
        """The sealed batch. It stays uncompressed if the codec does not make it smaller."""
        return bytes(self.sealed())

    def sealed(self) -> bytearray:
        """As `build`, without the last copy."""
        codec, parts = Codec.NONE, self._parts
        if self.codec != Codec.NONE:
            section = b"".join(parts)
            squeezed = compress(self.codec, section, self.level)
            smaller = len(squeezed) < len(section)
            parts, codec = [squeezed if smaller else section], Codec(self.codec) if smaller else codec
        attributes = int(codec)
        attributes |= TRANSACTIONAL if self.transactional else 0
        attributes |= CONTROL if self.control else 0
        batch = bytearray().join((bytes(HEADER_SIZE), *parts))
        header = BatchHeader(
            base_offset=0,
            batch_length=len(batch) - LENGTH_END,
            leader_epoch=-1,
            magic=MAGIC,
            crc=0,
            attributes=attributes,
            last_offset_delta=self.count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            base_sequence=self.base_sequence,
            record_count=self.count,
        )
        HEADER.pack_into(batch, 0, *header)
        seal(batch, 0, len(batch))
        return batch


def encoded_headers(headers: Iterable[Header]) -> bytes:
    """The headers as a record ends with them: their number, then name and value of each."""
    parts: list[bytes] = []
    count = 0
    for name, value in headers:
        raw = name.encode()
        parts += (signed(len(raw)), raw)
        parts += (NULL,) if value is None else (signed(len(value)), value)
        count += 1
    return b"".join((signed(count), *parts))


def check_crc(buf: Buffer, pos: int, header: BatchHeader) -> None:
    """Raise CorruptMessage for a batch that is not as it was sealed."""
    if not crc_ok(buf, pos, header):
        raise error_for(ErrorCode.CORRUPT_MESSAGE, f"the batch at offset {header.base_offset} fails its CRC")


def open_batch(buf: Buffer, pos: int, header: BatchHeader, *, verify: bool, cap: int) -> Buffer:
    """The record section of the batch at `pos`, decompressed, with a plausible record count.

    Every record takes at least seven bytes, and the count is checked against that, so a caller may allocate
    by the count.
    """
    if verify:
        check_crc(buf, pos, header)
    section: Buffer = memoryview(buf)[pos + HEADER_SIZE : pos + header.size]
    if header.codec != Codec.NONE:
        section = decompress(header.codec, section, cap)
    if header.record_count * RECORD_SIZE_MIN > len(section):
        raise Malformed(f"{header.record_count} records do not fit in {len(section)} bytes")
    return section


def iterate(buf: Buffer, verify: bool = True, cap: int = CAP) -> Iterator[Record]:
    """All records of a run of batches in order, control records included; a torn last batch is left out."""
    for pos, header in headers(buf):
        yield from records_of(open_batch(buf, pos, header, verify=verify, cap=cap), header)


def records_of(opened: Buffer, header: BatchHeader) -> Iterator[Record]:
    """All records of a batch that `open_batch` has opened."""
    section, pos = bytes(opened), 0
    for _ in range(header.record_count):
        try:
            record, pos = _record(section, pos, header)
        except IndexError as error:
            raise Malformed("record ends beyond its batch") from error
        yield record
    if pos != len(section):
        raise Malformed("bytes are left after the last record")


def _record(section: bytes, pos: int, header: BatchHeader) -> tuple[Record, int]:
    length, pos = _number(section, pos, INT_BYTES_MAX)
    end = pos + length
    if length < RECORD_SIZE_MIN - 1 or end > len(section):
        raise Malformed(f"record of {length} bytes does not fit in its batch")
    elapsed, pos = _number(section, pos + 1, LONG_BYTES_MAX)
    delta, pos = _number(section, pos, INT_BYTES_MAX)
    key, pos = _bytes(section, pos, end)
    value, pos = _bytes(section, pos, end)
    found: tuple[Header, ...] = ()
    if section[pos]:
        found, pos = _headers(section, pos, end)
    else:
        pos += 1
    if pos != end:
        raise Malformed("record length does not match its fields")
    if not 0 <= delta <= header.last_offset_delta:
        raise Malformed(f"offset delta {delta} is outside the batch")
    timestamp = header.max_timestamp if header.is_log_append_time else header.base_timestamp + elapsed
    return Record(header.base_offset + delta, timestamp, key, value, found), end


def _number(buf: bytes, pos: int, bytes_max: int) -> tuple[int, int]:
    byte = buf[pos]
    pos += 1
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), pos
    result = byte & 127
    for shift in range(7, 7 * bytes_max, 7):
        byte = buf[pos]
        pos += 1
        result |= (byte & 127) << shift
        if byte < 128:
            return unzigzag(result & LONG_MASK), pos
    raise Malformed("varint has no end")


def _bytes(buf: bytes, pos: int, end: int) -> tuple[bytes | None, int]:
    length, pos = _number(buf, pos, INT_BYTES_MAX)
    if length == -1:
        return None, pos
    after = pos + length
    if length < 0 or after > end:
        raise Malformed(f"field of {length} bytes does not fit in its record")
    return buf[pos:after], after


def _headers(buf: bytes, pos: int, end: int) -> tuple[tuple[Header, ...], int]:
    count, pos = _number(buf, pos, INT_BYTES_MAX)
    if not 0 <= count <= end - pos:
        raise Malformed(f"{count} headers do not fit in their record")
    found: list[Header] = []
    for _ in range(count):
        name, pos = _bytes(buf, pos, end)
        if name is None:
            raise Malformed("header has no name")
        value, pos = _bytes(buf, pos, end)
        found.append((name.decode(errors="replace"), value))
    return tuple(found), pos


def first_without_key(buf: Buffer, cap: int = CAP) -> int | None:
    """Index of the first record without a key, which compacted topics refuse. The CRC was checked before."""
    for index, record in enumerate(iterate(buf, verify=False, cap=cap)):
        if record.key is None:
            return index
    return None


def largest_time(buf: Buffer, header: BatchHeader, cap: int = CAP) -> int:
    """The largest time of the records of one batch, which are read no further. The CRC was checked before."""
    section, end = bytes(open_batch(buf, 0, header, verify=False, cap=cap)), 0
    newest = -LONG_MASK
    try:
        for _ in range(header.record_count):
            length, pos = _number(section, end, INT_BYTES_MAX)
            elapsed, _ = _number(section, pos + 1, LONG_BYTES_MAX)
            end = pos + length
            if length < RECORD_SIZE_MIN - 1 or end > len(section):
                raise Malformed(f"record of {length} bytes does not fit in its batch")
            if elapsed > newest:
                newest = elapsed
    except IndexError as error:
        raise Malformed("record ends beyond its batch") from error
    if end != len(section):
        raise Malformed("bytes are left after the last record")
    return header.base_timestamp + newest
