"""The records of `__consumer_offsets`: Kafka's formats for committed offsets and group metadata.

A key's version says what the record is about (0 or 1: an offset, 2: a group, 3 to 8: a fact of a group, see
consumer/records.py). A value starts with the version of its own format. A null value deletes. We write what
Kafka 3.9 writes (offset values v3, group values v3) and read every version up to the flexible v4.
Left to others: versions in front of keys and values (internal_topics/stored.py), what the newest record of
each key means (offset_loading.py), batches (protocol/records.py).
"""

from typing import TypeAlias

from ...base.values import dataclass
from ...protocol.primitives import Buffer, Malformed
from ...protocol.schema import Bytes, Int32, Int64, String, message, since, spec_of, struct
from ..internal_topics.stored import NEVER_FLEXIBLE, STORED, pack, unpack, version_of
from .consumer.records import FactKey, read_fact_key

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
GROUP_VALUE_VERSION = 3
NO_TIMESTAMP = -1


@message(key=STORED, versions=(0, 1), flexible=NEVER_FLEXIBLE)
class OffsetCommitKey:
    """The record is the offset that a group committed for a partition."""

    group: String
    topic: String
    partition: Int32


@message(key=STORED, versions=(2, 2), flexible=NEVER_FLEXIBLE)
class GroupMetadataKey:
    """The record is a group's last generation."""

    group: String


@message(key=STORED, versions=(0, 4), flexible=4)
class OffsetCommitValue:
    """A committed offset. Only version 1 carries its own expiry."""

    offset: Int64
    leader_epoch: Int32 = since(3, default=-1)
    metadata: String
    commit_timestamp: Int64
    expire_timestamp: Int64 = since(1, default=NO_TIMESTAMP, until=1)


@struct
class MemberMetadata:
    """A member of the generation, with what it was assigned."""

    member_id: String
    group_instance_id: String | None = since(3, default=None)
    client_id: String
    client_host: String
    rebalance_timeout: Int32 = since(1, default=-1)
    session_timeout: Int32
    subscription: Bytes
    assignment: Bytes


@message(key=STORED, versions=(0, 4), flexible=4)
class GroupMetadataValue:
    """A completed generation, or an emptied group (no protocol, no leader, no members)."""

    protocol_type: String
    generation: Int32
    protocol: String | None = None
    leader: String | None = None
    current_state_timestamp: Int64 = since(2, default=NO_TIMESTAMP)
    members: list[MemberMetadata]


Key: TypeAlias = OffsetCommitKey | GroupMetadataKey | FactKey


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """A key of a version that we do not know; its record is skipped."""

    version: int


def offset_key(group: str, topic: str, partition: int) -> bytes:
    return pack(OffsetCommitKey(group=group, topic=topic, partition=partition), OFFSET_KEY_VERSION)


def group_key(group: str) -> bytes:
    return pack(GroupMetadataKey(group=group), GROUP_KEY_VERSION)


def offset_value(value: OffsetCommitValue) -> bytes:
    """An offset with an expiry of its own is written as version 1, any other as version 3."""
    version = OFFSET_VALUE_VERSION if value.expire_timestamp == NO_TIMESTAMP else 1
    return pack(value, version)


def group_value(value: GroupMetadataValue) -> bytes:
    return pack(value, GROUP_VALUE_VERSION)


def read_key(key: Buffer) -> Key | UnknownKey:
    """What a record is about."""
    version = version_of(key)
    if version in spec_of(OffsetCommitKey).versions:
        return unpack(OffsetCommitKey, key)
    if version in spec_of(GroupMetadataKey).versions:
        return unpack(GroupMetadataKey, key)
    return read_fact_key(key) or UnknownKey(version)


def read_offset(value: Buffer) -> OffsetCommitValue:
    return unpack(OffsetCommitValue, value)


def read_group(value: Buffer) -> GroupMetadataValue:
    found = unpack(GroupMetadataValue, value)
    if len({member.member_id for member in found.members}) != len(found.members):
        raise Malformed("a group's record names a member twice")
    return found
