"""Record batch v2 without its records: the 61-byte header, the CRC, and the fields that a leader stamps.

A broker assigns offsets to batches and never opens them: the CRC does not cover base offset and leader epoch,
so a batch is stored as the producer sealed it.
Left to others: the records inside (records.py, columns.py), their compression (compression.py), sequence
numbers (storage/log/producer_state.py), keys of compacted topics (`records.first_without_key`).
Why: docs/decisions/0004-opaque-batches.md
"""

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from ..base.values import dataclass
from .errors import ApiError, ErrorCode, error_for
from .primitives import Buffer, Malformed

HEADER_SIZE = 61
MAGIC = 2
LENGTH_END = 12  # `batch_length` counts what follows it
CRC_FROM = 21  # the CRC covers the attributes and everything after them

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
OF_BROKERS = LOG_APPEND_TIME | CONTROL  # what only a broker may set
UNTIMELY = "timestamp is outside message.timestamp.before.max.ms and message.timestamp.after.max.ms"

HEADER = Struct(">qiibIhiqqqhii")
BASE_OFFSET = Struct(">q")
LEADER_EPOCH = Struct(">i")
CRC = Struct(">I")
ATTRIBUTES = Struct(">h")
TIMESTAMP = Struct(">q")

LEADER_EPOCH_AT = 12
CRC_AT = 17
ATTRIBUTES_AT = 21
MAX_TIMESTAMP_AT = 35
SEQUENCES = 1 << 31  # sequences wrap from 2^31-1 to 0

_unpack = HEADER.unpack_from


class BatchHeader(NamedTuple):
    """The fixed part of a record batch, as on the wire and on disk."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the complete batch, header included."""
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """The next batch's lowest base offset; it stays even if compaction removes the last records."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def last_sequence(self) -> int:
        """-1 for a batch without a producer's sequence."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) % SEQUENCES


@dataclass(frozen=True, slots=True)
class ProduceLimits:
    """What a leader checks in a produced batch; `timestamp_*` are None if the topic has no such limit."""

    message_bytes_max: int
    zstd_allowed: bool = True
    timestamp_from: int | None = None
    timestamp_until: int | None = None
    segment_bytes_max: int = (1 << 31) - 1


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`, unchecked: magic and lengths may be anything."""
    if pos < 0 or len(buf) - pos < HEADER_SIZE:
        raise Malformed(f"a batch header needs {HEADER_SIZE} bytes, only {len(buf) - pos} are left")
    return BatchHeader._make(_unpack(buf, pos))


def headers(buf: Buffer, pos: int = 0, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
    """The complete batches of a run, with their positions. A torn tail is no error: fetches end anywhere."""
    stop = len(buf) if end is None else min(end, len(buf))
    while stop - pos >= HEADER_SIZE:
        header = BatchHeader._make(_unpack(buf, pos))
        check_shape(header)
        after = pos + header.batch_length + LENGTH_END
        if after > stop:
            return
        yield pos, header
        pos = after


def check_shape(header: BatchHeader) -> None:
    """Raise Malformed unless this can be a v2 batch at all. After it, `size` is safe to step by."""
    if header.magic != MAGIC:
        raise Malformed(f"batch of magic {header.magic}: expected {MAGIC}")
    if header.batch_length < HEADER_SIZE - LENGTH_END:
        raise Malformed(f"batch of {header.batch_length + LENGTH_END} bytes is shorter than its header")
    if header.last_offset_delta < 0 or header.record_count < 0:
        raise Malformed("batch with a negative count")


def crc_ok(buf: Buffer, pos: int, header: BatchHeader) -> bool:
    """Whether the CRC matches; False also if the batch is not complete."""
    size = header.size
    end = pos + size
    if size < HEADER_SIZE or end > len(buf):
        return False
    return crc32c(memoryview(buf)[pos + CRC_FROM : end]) == header.crc


def stamp(buf: bytearray | memoryview, pos: int, base_offset: int, epoch: int) -> None:
    """Set a batch's base offset and leader epoch. The CRC does not cover them."""
    BASE_OFFSET.pack_into(buf, pos, base_offset)
    LEADER_EPOCH.pack_into(buf, pos + LEADER_EPOCH_AT, epoch)


def stamp_append_time(buf: bytearray | memoryview, pos: int, ms: int) -> None:
    """Set LogAppendTime `ms` for all records of the batch, and write its CRC again, which covers this."""
    header = read_header(buf, pos)
    ATTRIBUTES.pack_into(buf, pos + ATTRIBUTES_AT, header.attributes | LOG_APPEND_TIME)
    TIMESTAMP.pack_into(buf, pos + MAX_TIMESTAMP_AT, ms)
    seal(buf, pos, header.size)


def stamp_largest_time(buf: bytearray | memoryview, pos: int, ms: int) -> None:
    """Set the largest time of the batch's records, which its header lacks, and write its CRC again."""
    TIMESTAMP.pack_into(buf, pos + MAX_TIMESTAMP_AT, ms)
    seal(buf, pos, read_header(buf, pos).size)


def seal(buf: bytearray | memoryview, pos: int, size: int) -> None:
    """Write the CRC of the batch at `pos`."""
    CRC.pack_into(buf, pos + CRC_AT, crc32c(memoryview(buf)[pos + CRC_FROM : pos + size]))


def check_produced(buf: Buffer, header: BatchHeader, limits: ProduceLimits) -> None:
    """Refuse what a client may not write: `buf` is all it sent for the partition, `header` its first batch.

    The record count is taken from the header unchecked; if it is wrong, readers find the batch Malformed.
    """
    base_offset, length, _, magic, crc, attributes, last_delta, _, _, producer, _, sequence, count = header
    size = length + LENGTH_END
    if (
        magic == MAGIC
        and HEADER_SIZE <= size == len(buf)
        and size <= limits.message_bytes_max
        and size <= limits.segment_bytes_max
        and base_offset == 0
        and 0 < count == last_delta + 1
        and not attributes & OF_BROKERS
        and (producer < 0 or sequence >= 0)
        and not _codec_refused(attributes & CODEC_MASK, limits)
        and not _untimely(header, limits)
        and crc32c(memoryview(buf)[CRC_FROM:]) == crc
    ):
        return
    raise _fault(buf, header, limits)


def check_times(header: BatchHeader, limits: ProduceLimits) -> None:
    """Refuse a batch with records outside of the topic's bounds, as `check_produced` does."""
    if _untimely(header, limits):
        raise error_for(ErrorCode.INVALID_TIMESTAMP, UNTIMELY)


def _fault(buf: Buffer, header: BatchHeader, limits: ProduceLimits) -> ApiError:
    """Which rule a refused batch breaks first."""
    shape = (
        (
            ErrorCode.CORRUPT_MESSAGE,
            header.size < HEADER_SIZE or header.size > len(buf),
            "batch length out of range",
        ),
        (ErrorCode.INVALID_RECORD, header.magic != MAGIC, "only record batches of magic 2 are accepted"),
        (
            ErrorCode.INVALID_RECORD,
            header.size < len(buf),
            "expected exactly one batch per partition and request",
        ),
        (
            ErrorCode.MESSAGE_TOO_LARGE,
            header.size > limits.message_bytes_max,
            "batch is larger than max.message.bytes",
        ),
        (
            ErrorCode.RECORD_LIST_TOO_LARGE,
            header.size > limits.segment_bytes_max,
            "batch is larger than segment.bytes",
        ),
    )
    fields = (
        # first, before any field is trusted: damage in transit is worth a retry
        (ErrorCode.CORRUPT_MESSAGE, not crc_ok(buf, 0, header), "CRC of the batch does not match"),
        (ErrorCode.INVALID_RECORD, header.base_offset != 0, "a produced batch must have base offset 0"),
        (ErrorCode.INVALID_RECORD, header.record_count <= 0, "batch has no records"),
        (
            ErrorCode.INVALID_RECORD,
            header.last_offset_delta + 1 != header.record_count,
            "offsets in the batch have gaps",
        ),
        (ErrorCode.INVALID_RECORD, header.is_control, "producers must not send control batches"),
        (
            ErrorCode.INVALID_RECORD,
            header.producer_id >= 0 and header.base_sequence < 0,
            "batch has a producer id but no sequence",
        ),
        (
            ErrorCode.INVALID_TIMESTAMP,
            header.is_log_append_time,
            "producers must not set LogAppendTime: the leader does",
        ),
        (
            ErrorCode.INVALID_TIMESTAMP,
            _untimely(header, limits),
            UNTIMELY,
        ),
        (
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            _codec_refused(header.codec, limits),
            "compression codec not supported",
        ),
    )
    return next(error_for(code, reason) for code, broken, reason in (*shape, *fields) if broken)


def _untimely(header: BatchHeader, limits: ProduceLimits) -> bool:
    if header.max_timestamp < 0:
        return False  # its records have no timestamps
    late = limits.timestamp_until is not None and header.max_timestamp > limits.timestamp_until
    return late or (limits.timestamp_from is not None and header.base_timestamp < limits.timestamp_from)


def _codec_refused(codec: int, limits: ProduceLimits) -> bool:
    zstd = 4
    return codec > zstd or (codec == zstd and not limits.zstd_allowed)
