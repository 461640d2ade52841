"""Wire primitives: buffers, varints, unknown tagged fields, and the error `Malformed`.

Compiled codecs call these in the rare or long cases; the frequent ones are inlined.
Left to others: what a field is (fields.py), records inside a batch (records.py).
"""

import functools
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias
from uuid import UUID

Buffer: TypeAlias = bytes | bytearray | memoryview

NO_UUID = UUID(int=0)
VARINT1 = tuple(bytes((n,)) for n in range(128))
LENGTH_LIMIT = 1 << 31  # no length on the wire is larger than a signed 32-bit number


class Malformed(ValueError):
    """The peer sent bytes that are not a valid message; the connection ends."""


class UnknownTag(NamedTuple):
    """A tagged field that we do not know, as it was in the frame."""

    struct: str
    tag: int
    data: bytes


class Slices:
    """Record bytes in several buffers that are sent one after the other, never joined."""

    __slots__ = ("nbytes", "parts")

    def __init__(self, parts: Iterable[Buffer] = ()) -> None:
        self.parts: list[Buffer] = list(parts)
        self.nbytes = sum(map(len, self.parts))

    def __len__(self) -> int:
        return self.nbytes

    def append(self, part: Buffer) -> None:
        """Add `part` at the end."""
        self.parts.append(part)
        self.nbytes += len(part)

    def __bytes__(self) -> bytes:
        return b"".join(self.parts)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Slices):
            return bytes(self) == bytes(other)
        if isinstance(other, bytes | bytearray | memoryview):
            return bytes(self) == other
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Slices({len(self.parts)} parts, {self.nbytes} bytes)"


def varint(value: int) -> bytes:
    """An unsigned varint: seven bits a byte, lowest first. Batch sizes take two or three bytes."""
    if value < 1 << 14:
        return VARINT1[value] if value < 0x80 else bytes((value & 0x7F | 0x80, value >> 7))
    if value < 1 << 21:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def long_varint(buf: Buffer, pos: int, first: int) -> tuple[int, int]:
    """Finish an unsigned 32-bit varint whose first byte, just before `pos`, had its high bit set."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = buf[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= LENGTH_LIMIT:
                raise Malformed("a varint exceeds the largest length")
            return value, pos
    raise Malformed("a varint has more than five bytes")


def read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    """An unsigned 32-bit varint and the position after it."""
    first = buf[pos]
    return (first, pos + 1) if first < 0x80 else long_varint(buf, pos + 1, first)


def zigzag(value: int) -> int:
    """A signed 64-bit number as the unsigned one on the wire: 0, -1, 1, -2 become 0, 1, 2, 3."""
    return (value << 1) ^ (value >> 63)


def unzigzag(value: int) -> int:
    """The inverse of `zigzag`."""
    return (value >> 1) ^ -(value & 1)


def read_tag(buf: Buffer, pos: int, last: int, end: int) -> tuple[int, int, int]:
    """The head of one tagged field: its tag, the end of its data, the start of its data."""
    tag, pos = buf[pos], pos + 1
    if tag >= 0x80:
        tag, pos = long_varint(buf, pos, tag)
    size, pos = buf[pos], pos + 1
    if size >= 0x80:
        size, pos = long_varint(buf, pos, size)
    if tag <= last:
        raise Malformed(f"tag {tag} follows tag {last}")
    if size > end - pos:
        raise Malformed(f"tag {tag} ends beyond the frame")
    return tag, pos + size, pos


def skip_tags(
    buf: Buffer, pos: int, count: int, end: int, struct: str, unknown: list[UnknownTag] | None
) -> int:
    """Skip tagged fields; keep them in `unknown` if given. `count` is the first byte of their number."""
    if count >= 0x80:
        count, pos = long_varint(buf, pos, count)
    last = -1
    for _ in range(count):
        last, stop, pos = read_tag(buf, pos, last, end)
        if unknown is not None:
            unknown.append(UnknownTag(struct, last, bytes(buf[pos:stop])))
        pos = stop
    return pos


@functools.lru_cache(maxsize=4096)
def uuid_of(raw: bytes) -> UUID:
    """The UUID of sixteen bytes, cached: topic ids come in every fetch, and making a UUID is slow."""
    return UUID(bytes=raw)
