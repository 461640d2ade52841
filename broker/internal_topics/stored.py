"""Keys and values of records in internal topics: the version of the format, then the fields.

Left to others: the formats (groups/offset_records.py), what the newest record of each key means.
"""

from typing import TypeVar

from ...protocol.primitives import Buffer, Malformed
from ...protocol.schema import decode, encode, spec_of

T = TypeVar("T")

STORED = -1  # the "API key" of such a message: no request or response has it
NEVER_FLEXIBLE = 99

_VERSION_BYTES = 2


def pack(stored: object, version: int) -> bytes:
    """A key or value as it is in a record."""
    return b"".join((version.to_bytes(_VERSION_BYTES, "big"), *encode(stored, version)))


def version_of(stored: Buffer) -> int:
    """The version of a key's or value's format."""
    if len(stored) < _VERSION_BYTES:
        raise Malformed("a stored key or value must start with its version")
    return int.from_bytes(stored[:_VERSION_BYTES], "big", signed=True)


def unpack(cls: type[T], stored: Buffer) -> T:
    """The fields of a key or value."""
    version = version_of(stored)
    if version not in spec_of(cls).versions:
        raise Malformed(f"{cls.__name__} has the unknown version {version}")
    found, end = decode(cls, version, stored, _VERSION_BYTES)
    if end > len(stored):
        raise Malformed(f"{cls.__name__} ends beyond its record")
    return found
