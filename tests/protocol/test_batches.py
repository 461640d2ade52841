"""The header of a batch: reading, stamping, sealing, and what a leader refuses."""

import struct

import pytest

from strandline.protocol.batches import (
    CONTROL,
    HEADER_SIZE,
    BatchHeader,
    ProduceLimits,
    check_produced,
    crc_ok,
    headers,
    read_header,
    seal,
    stamp,
    stamp_append_time,
)
from strandline.protocol.errors import ApiError, ErrorCode
from strandline.protocol.primitives import Malformed
from strandline.protocol.records import BatchBuilder, iterate

LIMITS = ProduceLimits(message_bytes_max=1 << 20)


def batch(count: int = 3, **state: int) -> bytearray:
    builder = BatchBuilder(**state)  # type: ignore[arg-type]
    for index in range(count):
        builder.append(1000 + index, b"k", b"v%d" % index)
    return bytearray(builder.build())


def changed(data: bytearray, at: int, code: str, value: int) -> bytearray:
    """The batch with one header field changed and sealed again."""
    struct.pack_into(code, data, at, value)
    seal(data, 0, len(data))
    return data


def test_a_header_tells_where_the_batch_ends_and_the_next_begins() -> None:
    data = batch(producer_id=7, producer_epoch=1, base_sequence=2**31 - 2)
    stamp(data, 0, 40, 5)
    header = read_header(data)
    assert (header.size, header.last_offset, header.next_offset) == (len(data), 42, 43)
    assert (header.leader_epoch, header.base_timestamp, header.max_timestamp) == (5, 1000, 1002)
    assert (header.producer_id, header.producer_epoch) == (7, 1)
    assert header.last_sequence == 0, "sequences wrap"
    assert batch() and read_header(batch()).last_sequence == -1


def test_a_stamp_leaves_the_seal_whole() -> None:
    data = batch()
    stamp(data, 0, 1 << 40, 9)
    assert crc_ok(data, 0, read_header(data))


def test_append_time_seals_anew_and_all_records_get_it() -> None:
    data = bytearray(b"xx") + batch()
    stamp_append_time(data, 2, 77_000)
    header = read_header(data, 2)
    assert header.is_log_append_time and crc_ok(data, 2, header)
    assert {record.timestamp for record in iterate(data[2:])} == {77_000}


def test_a_run_ends_at_its_torn_batch() -> None:
    run = batch() + batch(1)
    whole = [(pos, header.record_count) for pos, header in headers(run)]
    assert whole == [(0, 3), (len(batch()), 1)]
    for cut in range(1, len(batch(1))):
        assert [pos for pos, _ in headers(run[:-cut])] == [0]
    assert [pos for pos, _ in headers(run, 0, len(run) - 1)] == [0]
    assert list(headers(b"")) == []


@pytest.mark.parametrize(
    ("at", "code", "value"), [(16, "b", 1), (8, ">i", 48), (8, ">i", -12), (57, ">i", -1)]
)
def test_what_cannot_be_a_batch_is_malformed(at: int, code: str, value: int) -> None:
    with pytest.raises(Malformed):
        list(headers(changed(batch(), at, code, value)))


def test_a_short_header_is_malformed_and_a_short_batch_has_no_good_crc() -> None:
    data = batch()
    for size in range(HEADER_SIZE):
        with pytest.raises(Malformed):
            read_header(data[:size])
    header = read_header(data)
    assert not crc_ok(data[:-1], 0, header)
    assert not crc_ok(data, 1, header)


REFUSED: list[tuple[str, bytearray, ErrorCode]] = [
    ("two batches", batch() + batch(), ErrorCode.INVALID_RECORD),
    ("cut", batch()[:-1], ErrorCode.CORRUPT_MESSAGE),
    ("magic 1", changed(batch(), 16, "b", 1), ErrorCode.INVALID_RECORD),
    ("base offset", changed(batch(), 0, ">q", 1), ErrorCode.INVALID_RECORD),
    ("count", changed(batch(), 57, ">i", 4), ErrorCode.INVALID_RECORD),
    ("no records", batch(0), ErrorCode.INVALID_RECORD),
    ("control", changed(batch(), 21, ">h", CONTROL), ErrorCode.INVALID_RECORD),
    ("append time", changed(batch(), 21, ">h", 8), ErrorCode.INVALID_TIMESTAMP),
    ("codec 5", changed(batch(), 21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ("no sequence", batch(producer_id=3, producer_epoch=0), ErrorCode.INVALID_RECORD),
    ("bit flip", batch()[:-1] + b"\x02", ErrorCode.CORRUPT_MESSAGE),
]


@pytest.mark.parametrize(("name", "data", "code"), REFUSED, ids=[name for name, _, _ in REFUSED])
def test_a_leader_refuses(name: str, data: bytearray, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refusal:
        check_produced(data, read_header(data), LIMITS)
    assert refusal.value.code == code


def code_of(data: bytearray, limits: ProduceLimits) -> ErrorCode | None:
    try:
        check_produced(data, read_header(data), limits)
    except ApiError as error:
        return error.code
    return None


def test_a_leader_takes_what_is_within_the_topics_limits() -> None:
    data = batch()
    assert code_of(data, LIMITS) is None
    assert code_of(data, ProduceLimits(len(data))) is None
    assert code_of(data, ProduceLimits(len(data) - 1)) == ErrorCode.MESSAGE_TOO_LARGE
    assert code_of(data, ProduceLimits(1 << 20, segment_bytes_max=len(data))) is None
    too_large = ProduceLimits(1 << 20, segment_bytes_max=len(data) - 1)
    assert code_of(data, too_large) == ErrorCode.RECORD_LIST_TOO_LARGE
    assert code_of(data, ProduceLimits(1 << 20, timestamp_from=1000, timestamp_until=1002)) is None
    assert code_of(data, ProduceLimits(1 << 20, timestamp_from=1001)) == ErrorCode.INVALID_TIMESTAMP
    assert code_of(data, ProduceLimits(1 << 20, timestamp_until=1001)) == ErrorCode.INVALID_TIMESTAMP
    timeless = bytearray(data)
    timeless[27:43] = b"\xff" * 16
    seal(timeless, 0, len(timeless))
    assert code_of(timeless, ProduceLimits(1 << 20, timestamp_from=1001)) is None, "no time is never wrong"
    zstd = changed(batch(), 21, ">h", 4)
    assert code_of(zstd, LIMITS) is None
    assert code_of(zstd, ProduceLimits(1 << 20, zstd_allowed=False)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_the_layout_is_kafkas() -> None:
    assert BatchHeader._fields[0] == "base_offset"
    data = batch(1)
    assert data[16] == 2
    assert int.from_bytes(data[8:12], "big") == len(data) - 12
