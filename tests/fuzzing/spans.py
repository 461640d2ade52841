"""Where the fields of an encoded message stand, so that one can be changed without encoding all of it again.

The walk follows the schema as the encoder does (protocol/encoder.py), and reads only what that has written:
lengths are believed. Left to others: what is put in the place of a field (variants.py).
"""

import struct
from dataclasses import dataclass
from typing import Any

from strandline.protocol.fields import Field, Fixed, Variable, is_compact
from strandline.protocol.primitives import VARINT1, read_varint, varint
from strandline.protocol.schema import fields_of, spec_of

ITEMS_MAX = 12  # of an array of numbers, each with a span of its own


@dataclass(frozen=True, slots=True)
class Number:
    """A value of fixed size."""

    start: int
    end: int
    name: str
    letter: str
    owner: str  # the class that it is a field of


@dataclass(frozen=True, slots=True)
class Text:
    """A length and as many bytes: text, bytes or records; of null only the length."""

    start: int
    content_at: int
    end: int
    name: str
    wire: Variable
    compact: bool
    nullable: bool
    owner: str

    def sized(self, content: bytes | None) -> bytes:
        """The length that it takes here, and the content."""
        size = -1 if content is None else len(content)
        return length(size, self.compact, self.wire.prefix) + (content or b"")


@dataclass(frozen=True, slots=True)
class Array:
    """A count and the items; `ends` has the position before the first item, then the one behind each."""

    start: int
    ends: tuple[int, ...]
    name: str
    compact: bool
    nullable: bool

    @property
    def end(self) -> int:
        return self.ends[-1]

    def counted(self, count: int) -> bytes:
        """The count as it is written here."""
        return length(count, self.compact, "i")


@dataclass(frozen=True, slots=True)
class Optional:
    """A struct that is there, and may be null: a byte, then the struct."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Tags:
    """A tag buffer: a count, then tagged fields."""

    start: int
    end: int
    count: int


Span = Number | Text | Array | Optional | Tags


def length(size: int, compact: bool, letter: str) -> bytes:
    """A length or a count; null is -1."""
    if not compact:
        return struct.pack(f">{letter}", size)
    return VARINT1[size + 1] if size < 127 else varint(size + 1)


def spans_of(cls: type[Any], version: int, body: bytes) -> tuple[list[Span], int]:
    """The spans of a message that begins at 0, and the position after it."""
    walk = _Walk(body, version, spec_of(cls).is_flexible(version))
    walk.struct(cls)
    return walk.found, walk.pos


class _Walk:
    def __init__(self, body: bytes, version: int, flexible: bool) -> None:
        self.body, self.version, self.flexible = body, version, flexible
        self.pos = 0
        self.found: list[Span] = []

    def struct(self, cls: type[Any]) -> None:
        fields = [field for field in fields_of(cls) if field.present(self.version)]
        for field in fields:
            if field.tag is None:
                self.value(cls.__name__, field)
        if self.flexible:
            self.tags(cls.__name__, {field.tag: field for field in fields if field.tag is not None})

    def value(self, owner: str, field: Field) -> None:
        nullable = field.nullable(self.version)
        if field.array:
            self.array(owner, field, nullable)
        elif isinstance(field.wire, type) and nullable and field.tag is None:
            start = self.pos
            self.pos += 1
            if self.body[start] < 128:
                self.struct(field.wire)
                self.found.append(Optional(start, self.pos))
        else:
            self.item(owner, field, nullable)

    def item(self, owner: str, field: Field, nullable: bool) -> None:
        wire, start = field.wire, self.pos
        if isinstance(wire, Fixed):
            self.pos += wire.size
            self.found.append(Number(start, self.pos, field.name, wire.letter, owner))
        elif isinstance(wire, Variable):
            compact = is_compact(wire, self.flexible)
            size = self.length(compact, wire.prefix)
            content_at = self.pos
            self.pos += max(size, 0)
            self.found.append(
                Text(start, content_at, self.pos, field.name, wire, compact, nullable, owner)
            )  # fmt: skip
        else:
            self.struct(wire)

    def array(self, owner: str, field: Field, nullable: bool) -> None:
        start = self.pos
        count = self.length(self.flexible, "i")
        ends = [self.pos]
        for nth in range(max(count, 0)):
            if nth < ITEMS_MAX or not isinstance(field.wire, Fixed):
                self.item(owner, field, nullable=False)
            else:
                self.pos += field.wire.size
            ends.append(self.pos)
        self.found.append(Array(start, tuple(ends), field.name, self.flexible, nullable))

    def tags(self, owner: str, fields: dict[int, Field]) -> None:
        start = self.pos
        count, self.pos = read_varint(self.body, start)
        for _ in range(count):
            tag, self.pos = read_varint(self.body, self.pos)
            size, self.pos = read_varint(self.body, self.pos)
            stop = self.pos + size
            inside = len(self.found)
            self.value(owner, fields[tag])
            assert self.pos == stop, f"tag {tag} of {owner}"
            del self.found[inside:]  # a change of its length would have to change its size too
        self.found.append(Tags(start, self.pos, count))

    def length(self, compact: bool, letter: str) -> int:
        if compact:
            size, self.pos = read_varint(self.body, self.pos)
            return size - 1
        (size,) = struct.unpack_from(f">{letter}", self.body, self.pos)
        self.pos += struct.calcsize(f">{letter}")
        return int(size)
