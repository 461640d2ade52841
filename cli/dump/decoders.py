"""Decodes keys and values to text, by a named decoder or as records of `__consumer_offsets`.

Kafka's tool takes Java classes. Those of Kafka's own distribution have a name here; any other is refused.
"""

import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from struct import Struct
from typing import Any
from uuid import UUID

from ...broker.groups.consumer.records import OF_MEMBERS, VALUES, FactKey, GroupKey, MemberKey
from ...broker.groups.offset_records import (
    GroupMetadataValue,
    OffsetCommitKey,
    UnknownKey,
    read_group,
    read_key,
    read_offset,
)
from ...broker.internal_topics.stored import unpack
from ...protocol.primitives import Malformed
from ...protocol.records import Record
from ...protocol.schema import Bytes, Int32, PlainString, decode, fields_of, message, since, spec_of, struct
from ...storage.log.checkpoints import kafka_uuid
from ..console import WrongUsage
from .rows import Decode

Text = Callable[[bytes], str]
INT32, INT64 = Struct(">i"), Struct(">q")
NOT_SENT, NEVER = -1, 99


def _number(shape: Struct) -> Text:
    def text(data: bytes) -> str:
        if len(data) != shape.size:
            return f"({len(data)} bytes, expected {shape.size}: 0x{data.hex()})"
        return str(shape.unpack(data)[0])

    return text


DECODERS: dict[str, Text] = {
    "string": lambda data: data.decode("utf-8", "replace"),
    "integer": _number(INT32),
    "long": _number(INT64),
    "hex": bytes.hex,
}
OF_KAFKA = {
    "StringDecoder": "string",
    "IntegerDecoder": "integer",
    "LongDecoder": "long",
    "DefaultDecoder": "hex",  # Kafka prints the address of an array there
}
PACKAGES = ("org.apache.kafka.tools.api.", "kafka.serializer.")


def decoder(key_class: str, value_class: str) -> Decode:
    """A decoder for keys and values, from the names of two."""
    key_text, value_text = _named(key_class), _named(value_class)

    def text(record: Record) -> tuple[str | None, str | None]:
        key = None if record.key is None else key_text(record.key)
        return key, None if record.value is None else value_text(record.value)

    return text


def _named(name: str) -> Text:
    for package in PACKAGES:
        if name.startswith(package):
            name = OF_KAFKA.get(name.removeprefix(package), name)
    found = DECODERS.get(name)
    if found is None:
        raise WrongUsage(f"{name} is a Java class and cannot run here: expected one of {', '.join(DECODERS)}")
    return found


def offsets_decoder(record: Record) -> tuple[str | None, str | None]:
    """A committed offset or a group's generation, as Kafka 3.9 prints it: JSON with a version."""
    if record.key is None:
        return f"Error at offset {record.offset}, skipping. The record has no key", None
    try:
        key = read_key(record.key)
        if isinstance(key, UnknownKey):
            return f"Unknown record type {key.version} at offset {record.offset}, skipping.", None
        if isinstance(key, FactKey):
            return _of_consumer_group(key, record.key, record.value)
        about = _compact({"type": str(_version(record.key)), "data": as_document(key, _version(record.key))})
        if record.value is None:
            return about, "<DELETE>"
        value = read_offset(record.value) if isinstance(key, OffsetCommitKey) else read_group(record.value)
        version = _version(record.value)
        document = as_document(value, version)
        if isinstance(value, GroupMetadataValue) and value.protocol_type == "consumer":
            _open_members(document)
        return about, _compact({"version": str(version), "data": document})
    except Malformed as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def _of_consumer_group(key: FactKey, stored: bytes, value: bytes | None) -> tuple[str, str]:
    """A fact of a group by the new protocol."""
    whole = unpack(MemberKey if key.subject in OF_MEMBERS else GroupKey, stored)
    about = _compact({"type": str(int(key.subject)), "data": as_document(whole, key.subject)})
    if value is None:
        return about, "<DELETE>"
    version = _version(value)
    document = as_document(unpack(VALUES[key.subject], value), version)
    if document.get("classicMemberMetadata"):
        del document["classicMemberMetadata"]["isThere"]  # a mark on the wire, no field
    return about, _compact({"version": str(version), "data": document})


def _version(stored: bytes) -> int:
    return int.from_bytes(stored[:2], "big", signed=True)


def as_document(found: Any, version: int) -> dict[str, Any]:
    """A message's fields with Kafka's JSON names; only those that its version has."""
    assert is_dataclass(found)
    present = {field.name for field in fields_of(type(found)) if field.present(version)}
    return {
        _camel(field.name): _plain(getattr(found, field.name), version)
        for field in fields(found)
        if field.name in present
    }


def _plain(value: Any, version: int) -> Any:
    if isinstance(value, list):
        return [_plain(one, version) for one in value]
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, UUID):
        return kafka_uuid(value)
    return as_document(value, version) if is_dataclass(value) else value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _compact(document: dict[str, Any]) -> str:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


@struct
class OwnedPartitions:
    """Partitions of a topic in a subscription or an assignment."""

    topic: PlainString
    partitions: list[Int32]


@message(key=NOT_SENT, versions=(0, 3), flexible=NEVER)
class MemberSubscription:
    """The subscription that a member of a `consumer` group sent when it joined."""

    topics: list[PlainString]
    user_data: Bytes | None = None
    owned_partitions: list[OwnedPartitions] = since(1, default=[])
    generation_id: Int32 = since(2, default=-1)
    rack_id: PlainString | None = since(3, default=None)


@message(key=NOT_SENT, versions=(0, 3), flexible=NEVER)
class MemberAssignment:
    """The assignment of a member of a `consumer` group."""

    assigned_partitions: list[OwnedPartitions]
    user_data: Bytes | None = None


def _open_members(document: dict[str, Any]) -> None:
    """Replace the bytes of subscriptions and assignments by their decoded form, where possible."""
    for member in document["members"]:
        for name, cls in (("subscription", MemberSubscription), ("assignment", MemberAssignment)):
            data = b64decode(member[name])
            version = _version(data)
            if len(data) >= 2 and version in spec_of(cls).versions:
                try:
                    member[name] = as_document(decode(cls, version, data, 2)[0], version)
                except Malformed:
                    continue  # keep the bytes
