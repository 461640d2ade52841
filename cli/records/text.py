"""Bytes as text and back: formats of values, escapes on the command line, lines of records as JSON. Pure."""

import base64
import json
import re
from enum import StrEnum
from typing import Any

import msgpack

from ..console import WrongUsage

BASE64 = "base64:"
"""Marks bytes that are no text. Text that begins like this is shown in base64, too, to be read back."""


class Format(StrEnum):
    """How a piece of input or output represents a value."""

    text = "text"
    bytes = "bytes"
    json = "json"
    msgpack = "msgpack"


ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "0": b"\0", "\\": b"\\"}
ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|.|$)", re.DOTALL)


def unescaped(text: str, option: str) -> bytes:
    r"""The bytes of an option in which \n, \r, \t, \0, \\ and \xNN stand for a byte. Raises WrongUsage."""
    found, at = b"", 0
    for escape in ESCAPE.finditer(text):
        found += text[at : escape.start()].encode()
        name, at = escape[1], escape.end()
        if len(name) == len("xNN"):
            found += bytes.fromhex(name[1:])
        elif name in ESCAPES:
            found += ESCAPES[name]
        else:
            raise WrongUsage(rf"{option}: \{name} is unknown: expected \n, \r, \t, \0, \\ or \xNN")
    return found + text[at:].encode()


def as_text(data: Any) -> str | None:
    """Bytes as text, or as base64 if they are not UTF-8."""
    if data is None or isinstance(data, str):
        return data
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        text = BASE64
    return BASE64 + base64.b64encode(bytes(data)).decode() if text.startswith(BASE64) else text


def from_text(text: str, place: str) -> bytes:
    """What `as_text` was given. Raises WrongUsage."""
    if not text.startswith(BASE64):
        return text.encode()
    try:
        return base64.b64decode(text.removeprefix(BASE64), validate=True)
    except ValueError:
        raise WrongUsage(f"{place}: expected base64 after {BASE64!r}") from None


def encoded(data: bytes, format: Format, place: str) -> bytes:
    """A value as it is sent: as it is, or what the JSON in it means. Raises WrongUsage."""
    if format in (Format.text, Format.bytes):
        return data
    try:
        value = json.loads(data)
    except ValueError as error:
        raise WrongUsage(f"{place} is not JSON: {error}") from None
    return packed(value, format)


def packed(value: Any, format: Format) -> bytes:
    """A value in msgpack, or in JSON."""
    if format is Format.msgpack:
        made: bytes = msgpack.packb(value)
        return made
    return json.dumps(value, separators=(",", ":")).encode()


def decoded(value: bytes, format: Format) -> Any:
    """What a value in JSON or msgpack means. Raises ValueError."""
    if format is Format.json:
        return json.loads(value)
    try:
        return msgpack.unpackb(value)
    except msgpack.UnpackException as error:
        raise ValueError(str(error) or type(error).__name__) from None
