r"""Records as bytes for a terminal, a file or a pipe: lines, JSON, or a template. Pure.

A template is kcat's: `%k %s\n`. Keys and values go out as they are there, whatever they hold; so do they with
the format `bytes`, which with an empty delimiter copies values unchanged.
"""

import json
from collections.abc import Callable, Iterable
from enum import Enum
from typing import NamedTuple

from ...client.results import ConsumerRecord, Header, TimestampType
from ..console import Failure, WrongUsage
from ..times import shown
from .text import Format, as_text, decoded, unescaped

Render = Callable[[ConsumerRecord], bytes]


class Part(Enum):
    """What a line may show before the value, in this order, as Kafka's console consumer does."""

    timestamp = "timestamp"
    partition = "partition"
    offset = "offset"
    headers = "headers"
    key = "key"


class Style(NamedTuple):
    """How lines look. `null` stands for a key, a value or a header's value that is none."""

    format: Format = Format.text
    parts: frozenset[Part] = frozenset()
    separator: bytes = b"\t"
    delimiter: bytes = b"\n"
    null: bytes = b"null"


TOKENS = {
    "k": "key",
    "K": "length of the key, -1 for none",
    "s": "value",
    "v": "value",
    "S": "length of the value, -1 for a tombstone",
    "V": "length of the value, -1 for a tombstone",
    "t": "topic",
    "p": "partition",
    "o": "offset",
    "T": "timestamp in milliseconds since 1970",
    "D": "timestamp as a date, in UTC",
    "h": "headers, as name=value,…",
    "%": "a per cent sign",
}


def template(text: str, null: bytes) -> Render:
    r"""What prints a record by a template, in which \n, \t, … are escapes. Raises WrongUsage."""
    parts: list[str | bytes] = []
    rest = text
    while rest:
        plain, found, rest = rest.partition("%")
        if plain:
            parts.append(unescaped(plain, "--template"))
        if found and rest[:1] not in TOKENS:
            known = ", ".join(f"%{token} {meaning}" for token, meaning in TOKENS.items())
            raise WrongUsage(f"--template: %{rest[:1]} is unknown: expected one of {known}")
        if found:
            parts.append(rest[0])
            rest = rest[1:]
    return lambda record: b"".join(
        part if isinstance(part, bytes) else _token(part, record, null) for part in parts
    )


def _token(token: str, record: ConsumerRecord, null: bytes) -> bytes:
    match token:
        case "k":
            return _raw(record.key, null)
        case "s" | "v":
            return _raw(record.value, null)
        case "K":
            return _length(record.key)
        case "S" | "V":
            return _length(record.value)
        case "h":
            return _headers(record.headers, b"=", lambda value: _raw(value, null))
        case "D":
            return shown(record.timestamp).encode()
    plain = {"t": record.topic, "p": record.partition, "o": record.offset, "T": record.timestamp, "%": "%"}
    return str(plain[token]).encode()


def _raw(data: bytes | None, null: bytes) -> bytes:
    return null if data is None else bytes(data)


def _length(data: bytes | None) -> bytes:
    return str(-1 if data is None else len(data)).encode()


def _headers(headers: Iterable[Header], between: bytes, write: Callable[[bytes | None], bytes]) -> bytes:
    return b",".join(name.encode() + between + write(value) for name, value in headers)


def lines(style: Style) -> Render:
    """What prints a record as a line."""

    def plain(data: bytes | None) -> bytes:
        if data is None:
            return style.null
        return bytes(data) if style.format is Format.bytes else (as_text(data) or "").encode()

    def value(record: ConsumerRecord) -> bytes:
        if record.value is None or style.format in (Format.text, Format.bytes):
            return plain(record.value)
        return json.dumps(_decoded(record, style.format), default=as_text).encode()

    shows: dict[Part, Callable[[ConsumerRecord], bytes]] = {
        Part.timestamp: lambda one: f"{_kind(one.timestamp_type)}:{one.timestamp}".encode(),
        Part.partition: lambda one: f"Partition:{one.partition}".encode(),
        Part.offset: lambda one: f"Offset:{one.offset}".encode(),
        Part.headers: lambda one: _headers(one.headers, b":", plain) or b"NO_HEADERS",
        Part.key: lambda one: plain(one.key),
    }
    before = [shows[part] for part in Part if part in style.parts]
    return lambda one: style.separator.join([*(show(one) for show in before), value(one)]) + style.delimiter


def _kind(type: TimestampType) -> str:
    return "LogAppendTime" if type is TimestampType.LOG_APPEND_TIME else "CreateTime"


def rows(format: Format) -> Render:
    """What prints a record as a line of JSON, which `produce --records` reads."""

    def row(record: ConsumerRecord) -> bytes:
        plain = record.value is None or format in (Format.text, Format.bytes)
        whole = {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": as_text(record.key),
            "value": as_text(record.value) if plain else _decoded(record, format),
            "headers": [[name, as_text(content)] for name, content in record.headers],
        }
        return json.dumps(whole, default=as_text).encode() + b"\n"

    return row


def _decoded(record: ConsumerRecord, format: Format) -> object:
    try:
        return decoded(bytes(record.value), format)
    except ValueError as error:
        place = f"{record.topic}-{record.partition}, offset {record.offset}"
        raise Failure(f"the record at {place} is not {format.value}: {error}") from None
