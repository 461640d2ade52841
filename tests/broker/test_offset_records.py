"""Kafka's record formats in `__consumer_offsets`, held against bytes written by hand."""

from dataclasses import replace
from struct import pack

import pytest

from strandline.broker.coordinator_partitions import java_hash, partition_of
from strandline.broker.groups.offset_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read_group,
    read_key,
    read_offset,
)
from strandline.protocol.primitives import Malformed


def string(text: str) -> bytes:
    return pack(">h", len(text.encode())) + text.encode()


def blob(data: bytes) -> bytes:
    return pack(">i", len(data)) + data


def test_an_offset_key_is_version_group_topic_partition() -> None:
    raw = b"\x00\x01\x00\x02g1\x00\x06orders\x00\x00\x00\x07"
    assert offset_key("g1", "orders", 7) == raw
    assert read_key(raw) == OffsetCommitKey(group="g1", topic="orders", partition=7)
    assert read_key(b"\x00\x00" + raw[2:]) == OffsetCommitKey(group="g1", topic="orders", partition=7)


def test_a_group_key_is_version_2_and_the_group() -> None:
    assert group_key("g1") == b"\x00\x02\x00\x02g1"
    assert read_key(b"\x00\x02\x00\x02g1") == GroupMetadataKey(group="g1")


def test_keys_from_the_future_are_told_apart() -> None:
    assert read_key(b"\x00\x63\x00\x02g1") == UnknownKey(99)


def test_an_offset_value_is_written_as_version_3() -> None:
    value = OffsetCommitValue(offset=42, leader_epoch=5, metadata="note", commit_timestamp=1_700_000_000_000)
    raw = pack(">hqi", 3, 42, 5) + string("note") + pack(">q", 1_700_000_000_000)
    assert offset_value(value) == raw
    assert read_offset(raw) == value


def test_an_offset_with_its_own_expiry_is_written_as_version_1() -> None:
    value = OffsetCommitValue(offset=42, metadata="", commit_timestamp=10, expire_timestamp=99)
    raw = pack(">hq", 1, 42) + string("") + pack(">qq", 10, 99)
    assert offset_value(value) == raw
    assert read_offset(raw) == value


@pytest.mark.parametrize("version", [0, 2])
def test_older_offset_values_are_read(version: int) -> None:
    raw = pack(">hq", version, 42) + string("m") + pack(">q", 10)
    assert read_offset(raw) == OffsetCommitValue(offset=42, metadata="m", commit_timestamp=10)


def test_the_flexible_offset_value_is_read() -> None:
    raw = pack(">hqi", 4, 42, 5) + b"\x02m" + pack(">q", 10) + b"\x00"
    assert read_offset(raw) == OffsetCommitValue(offset=42, leader_epoch=5, metadata="m", commit_timestamp=10)


MEMBER = MemberMetadata(
    member_id="c-1",
    group_instance_id="i-1",
    client_id="c",
    client_host="/127.0.0.1",
    rebalance_timeout=60_000,
    session_timeout=10_000,
    subscription=b"\x00\x01",
    assignment=b"\x09",
)
GENERATION = GroupMetadataValue(
    protocol_type="consumer",
    generation=3,
    protocol="range",
    leader="c-1",
    current_state_timestamp=77,
    members=[MEMBER],
)


def test_a_generation_is_written_as_version_3() -> None:
    raw = pack(">h", 3) + string("consumer") + pack(">i", 3) + string("range") + string("c-1")
    raw += pack(">qi", 77, 1)
    raw += string("c-1") + string("i-1") + string("c") + string("/127.0.0.1")
    raw += pack(">ii", 60_000, 10_000) + blob(b"\x00\x01") + blob(b"\x09")
    assert group_value(GENERATION) == raw
    assert read_group(raw) == GENERATION


def test_an_emptied_group_has_neither_protocol_nor_leader() -> None:
    value = GroupMetadataValue(protocol_type="consumer", generation=4, current_state_timestamp=77, members=[])
    raw = pack(">h", 3) + string("consumer") + pack(">ihhqi", 4, -1, -1, 77, 0)
    assert group_value(value) == raw
    assert read_group(raw) == value


def test_the_oldest_generation_is_read() -> None:
    raw = pack(">h", 0) + string("consumer") + pack(">i", 3) + string("range") + string("c-1") + pack(">i", 1)
    raw += string("c-1") + string("c") + string("/h") + pack(">i", 10_000) + blob(b"s") + blob(b"a")
    read = read_group(raw)
    assert (read.current_state_timestamp, read.members[0].rebalance_timeout) == (-1, -1)
    assert read.members[0].group_instance_id is None


@pytest.mark.parametrize("raw", [b"", b"\x00", b"\x00\x09abc", b"\x00\x03\x00\x00", b"\xff\xff"])
def test_damaged_values_are_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        read_offset(raw)
    with pytest.raises(Malformed):
        read_group(raw)


def test_a_member_that_stands_twice_is_malformed() -> None:
    """A group has each member once, which its rules assert: such a record would end the broker."""
    raw = group_value(replace(GENERATION, members=[MEMBER, MEMBER]))
    with pytest.raises(Malformed, match="names a member twice"):
        read_group(raw)


@pytest.mark.parametrize(
    ("text", "number"),
    [("", 0), ("a", 97), ("testgroup", java_hash("testgroup")), ("polygenelubricants", -(1 << 31))],
)
def test_java_hash(text: str, number: int) -> None:
    assert java_hash(text) == number


def test_java_hash_counts_utf16_units() -> None:
    high, low = 0xD83D, 0xDE00  # the two halves of U+1F600
    assert java_hash("\U0001f600") == 31 * high + low


def test_partitions_are_kafkas() -> None:
    assert partition_of("testgroup", 50) == 27
    assert partition_of("polygenelubricants", 50) == 0  # the hash whose absolute value does not exist
    assert all(0 <= partition_of(f"group-{n}", 50) < 50 for n in range(500))
