"""Values to bytes and back: bytes, str, json, msgpack, or any function of the caller's.

A tombstone (None) stays None in both directions. The name `str` takes bytes as they are, so that keys of
either kind need no option.
"""

import json
from collections.abc import Callable
from typing import Any

Serializer = Callable[[Any], bytes | None]
Deserializer = Callable[[bytes], Any]


def bytes_out(value: Any) -> bytes | None:
    """Bytes (also a bytearray or memoryview) or None; anything else raises TypeError."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise TypeError(
        f"expected bytes, got {type(value).__name__}; set serializer to 'str', 'json' or 'msgpack'"
    )


def str_out(value: Any) -> bytes | None:
    """Text as UTF-8; bytes pass."""
    return value.encode() if isinstance(value, str) else bytes_out(value)


def json_out(value: Any) -> bytes | None:
    """Compact JSON."""
    return None if value is None else json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def msgpack_out(value: Any) -> bytes | None:
    """MessagePack, imported when first used."""
    import msgpack

    return None if value is None else bytes(msgpack.packb(value))


def bytes_in(data: bytes) -> Any:
    """Bytes as they are."""
    return data


def str_in(data: bytes) -> Any:
    """UTF-8 text."""
    return data.decode()


def json_in(data: bytes) -> Any:
    """A JSON document."""
    return json.loads(data)


def msgpack_in(data: bytes) -> Any:
    """A MessagePack value."""
    import msgpack

    return msgpack.unpackb(data)


SERIALIZERS: dict[str, Serializer] = {
    "bytes": bytes_out,
    "str": str_out,
    "json": json_out,
    "msgpack": msgpack_out,
}
DESERIALIZERS: dict[str, Deserializer] = {
    "bytes": bytes_in,
    "str": str_in,
    "json": json_in,
    "msgpack": msgpack_in,
}


def serializer_for(choice: str | Serializer) -> Serializer:
    """A serializer by name, or the caller's function, with a check of what it returns."""
    if callable(choice):
        return _checked(choice)
    if choice not in SERIALIZERS:
        raise ValueError(
            f"unknown serializer {choice!r}: expected a function or one of {', '.join(SERIALIZERS)}"
        )
    return SERIALIZERS[choice]


def _checked(serializer: Serializer) -> Serializer:
    """Check the result: anything but bytes or None would fail only later, inside the batch."""

    def out(value: Any) -> bytes | None:
        raw = serializer(value)
        if raw is None or isinstance(raw, (bytes, bytearray, memoryview)):
            return bytes_out(raw)
        raise TypeError(f"the serializer must return bytes or None, not {type(raw).__name__}")

    return out


def deserializer_for(choice: str | Deserializer) -> Deserializer:
    """A deserializer by name, or the function itself."""
    if callable(choice):
        return choice
    if choice not in DESERIALIZERS:
        raise ValueError(
            f"unknown deserializer {choice!r}: expected a function or one of {', '.join(DESERIALIZERS)}"
        )
    return DESERIALIZERS[choice]
