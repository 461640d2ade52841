"""Wire types of fields: what the declarations (schema.py) hand to the compiler.

Left to others: how a declaration is read (schema.py), the code for it (decoder.py, encoder.py).
"""

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from ..base.values import dataclass
from .primitives import Buffer, UnknownTag

Decoder: TypeAlias = Callable[[Buffer, int, list[UnknownTag] | None], tuple[Any, int]]
Encoder: TypeAlias = Callable[[Any, list[Buffer]], None]
FieldsOf: TypeAlias = Callable[[type[Any]], "list[Field]"]

EVERY_VERSION = 1 << 15


@dataclass(frozen=True, slots=True)
class Fixed:
    """A wire type of fixed size, named by its `struct` letter; a UUID is sixteen raw bytes."""

    letter: str

    @property
    def is_uuid(self) -> bool:
        """Whether the raw bytes stand for a `uuid.UUID`."""
        return self.letter == "16s"

    @property
    def size(self) -> int:
        """Bytes on the wire."""
        return struct.calcsize(">" + self.letter)


@dataclass(frozen=True, slots=True)
class Variable:
    """A length-prefixed run of bytes: text ("str"), a copy ("bytes") or a view into the frame ("view")."""

    kind: str
    prefix: str  # `struct` letter of the length in versions that are not flexible
    compact: bool = True  # whether the length is a varint in flexible versions


@dataclass(frozen=True, slots=True)
class Field:
    """One field as the compiler wants it."""

    name: str
    wire: Fixed | Variable | type[Any]
    array: bool = False
    nullable_from: int | None = None  # the first version that may carry null
    first: int = 0
    until: int = EVERY_VERSION
    tag: int | None = None
    default: Any = None

    def present(self, version: int) -> bool:
        """Whether the field is on the wire in `version`."""
        return self.first <= version <= self.until

    def nullable(self, version: int) -> bool:
        """Whether the value may be null in `version`."""
        return self.nullable_from is not None and version >= self.nullable_from


def is_compact(wire: Variable, flexible: bool) -> bool:
    """Whether the length of `wire` is a varint of length + 1."""
    return flexible and wire.compact


def least_bytes(field: Field, fields_of: FieldsOf, version: int, flexible: bool) -> int:
    """The fewest bytes that a value of `field` takes, to check a claimed array length."""
    if field.tag is not None or not field.present(version):
        return 0
    if field.array:
        return 1 if flexible else 4
    if isinstance(field.wire, type) and field.nullable(version):
        return 1
    return least_item_bytes(field.wire, fields_of, version, flexible)


def least_item_bytes(
    wire: Fixed | Variable | type[Any], fields_of: FieldsOf, version: int, flexible: bool
) -> int:
    """The fewest bytes of one value of `wire`, as an element of an array."""
    if isinstance(wire, Fixed):
        return wire.size
    if isinstance(wire, Variable):
        return 1 if is_compact(wire, flexible) else struct.calcsize(">" + wire.prefix)
    inside = sum(least_bytes(f, fields_of, version, flexible) for f in fields_of(wire))
    return max(1, inside + flexible)
