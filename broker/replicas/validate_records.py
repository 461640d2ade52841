"""Validates the records of a produced batch: keys on compacted topics, every record if configured.

Other batches are checked by header and checksum alone (protocol/batches.py), at no cost per record. Here a
large batch is decoded as columns, without a loop over its records. A batch that cannot be decoded, or would
grow past the cap, is answered with 87 (INVALID_RECORD).
Nor is a header believed whose largest time is before its first: sarama up to 1.45.0 sends none. Retention and
lookups by time go by it, so it is found among the records, and written there.
"""

from ...protocol.batches import (
    TRANSACTIONAL,
    BatchHeader,
    ProduceLimits,
    check_produced,
    check_times,
    read_header,
    stamp_largest_time,
)
from ...protocol.errors import InvalidRecord
from ...protocol.primitives import Malformed
from ...protocol.records import iterate, largest_time
from ...storage.config import INT64_MAX, TopicConfig

FEW = 32  # records; from here on, columns are faster
MANY = 1000  # from here on, for a few bytes of each record too; below, numpy need not be loaded
NOT_INCREASING = "the offsets of its records do not increase"  # no cleaner could tell which is the newest


def checked(
    records: memoryview,
    config: TopicConfig,
    timeless: ProduceLimits | None,
    now_ms: int,
    zstd_allowed: bool,
    looks_inside: bool,
) -> BatchHeader:
    """The header of a batch that the topic accepts. `timeless` is from `timeless_limits`. Raises ApiError."""
    header = read_header(records)
    limits = (timeless if zstd_allowed else None) or limits_at(now_ms, config, zstd_allowed)
    check_produced(records, header, limits)
    if header.max_timestamp < header.base_timestamp and not config.append_time:
        stamp_largest_time(records, 0, _largest_time(records, header))
        header = read_header(records)
        check_times(header, limits)
    if header.attributes & TRANSACTIONAL and header.producer_id < 0:
        raise InvalidRecord("a transactional batch has no producer id")
    if looks_inside:
        look_inside(records, header, needs_keys=config.compacted)
    return header


def look_inside(records: memoryview, header: BatchHeader, needs_keys: bool) -> None:
    """Refuse a batch whose records contradict its header, or lack a key where one is needed."""
    try:
        keyless = _keyless_of_few(records) if header.record_count < FEW else _keyless_of_many(records)
    except Malformed as error:
        raise InvalidRecord(str(error)) from error
    if needs_keys and keyless:
        refusal = InvalidRecord(f"{len(keyless)} records have no key: records of a compacted topic need one")
        refusal.indexes = keyless
        raise refusal


def _largest_time(records: memoryview, header: BatchHeader) -> int:
    try:
        if header.record_count < MANY:
            return min(largest_time(records, header), INT64_MAX)  # the sum of two numbers of a producer
        from ...protocol.columns import decode  # numpy: only where a client asks for it

        return int(decode(records, verify=False).timestamp.max())
    except Malformed as error:
        raise InvalidRecord(str(error)) from error


def _keyless_of_few(records: memoryview) -> list[int]:
    places, previous = [], -1
    for index, record in enumerate(iterate(records, verify=False)):
        if record.offset <= previous:
            raise Malformed(NOT_INCREASING)
        if record.key is None:
            places.append(index)
        previous = record.offset
    return places


def _keyless_of_many(records: memoryview) -> list[int]:
    from ...protocol.columns import decode  # numpy: only where a topic asks for it

    columns = decode(records, verify=False)
    columns.headers()
    if bool((columns.offset[1:] <= columns.offset[:-1]).any()):
        raise Malformed(NOT_INCREASING)
    places: list[int] = (columns.key_length < 0).nonzero()[0].tolist()
    return places


def limits_at(now_ms: int, config: TopicConfig, zstd_allowed: bool) -> ProduceLimits:
    """The limits for a batch that arrives now. Times that the broker replaces may be any."""
    if config.append_time:
        return ProduceLimits(config.max_message_bytes, zstd_allowed, segment_bytes_max=config.segment_bytes)
    return ProduceLimits(
        config.max_message_bytes,
        zstd_allowed,
        now_ms - config.message_timestamp_before_max_ms,
        now_ms + config.message_timestamp_after_max_ms,
        config.segment_bytes,
    )


def timeless_limits(config: TopicConfig) -> ProduceLimits | None:
    """The limits for a batch at any time; None if the topic limits timestamps."""
    farthest = min(config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms)
    if farthest < 1 << 62 and not config.append_time:
        return None
    return ProduceLimits(config.max_message_bytes, segment_bytes_max=config.segment_bytes)
