"""What `produce` reads: lines, other pieces or whole files, from files or standard input as it comes.

Left to others: sending (produce.py).
"""

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

from ..console import Failure, WrongUsage
from .text import Format, encoded, from_text, packed

CHUNK_BYTES = 1 << 16
Header = tuple[str, bytes | None]


class Shape(NamedTuple):
    """How input becomes records. Without a delimiter each file, or standard input, is one record."""

    format: Format = Format.text
    delimiter: bytes | None = b"\n"
    key: bytes | None = None
    key_separator: bytes | None = None
    null: bytes | None = None
    as_rows: bool = False  # lines of JSON, as `consume --json` prints them
    same_partitions: bool = False
    headers: tuple[Header, ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class Outgoing(NamedTuple):
    """A record that is to be sent."""

    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]
    timestamp_ms: int | None
    partition: int | None


async def records(files: list[Path] | None, shape: Shape) -> AsyncIterator[Outgoing]:
    """The records in the files, or in standard input. Raises WrongUsage for input that is wrong."""
    number = 0
    async for piece in _pieces(files, shape):
        number += 1
        yield record(piece, shape, number)


def record(piece: bytes, shape: Shape, number: int) -> Outgoing:
    """The record in one piece of input. Raises WrongUsage, with the piece's number. Pure."""
    place = f"input line {number}" if shape.delimiter == b"\n" else f"input record {number}"
    if shape.as_rows:
        return _from_row(piece, shape, place)
    key, value = shape.key, piece
    if shape.key_separator is not None:
        before, found, after = piece.partition(shape.key_separator)
        key, value = (before, after) if found else (shape.key, piece)
    is_null = shape.null is not None and value == shape.null
    whole = None if is_null else encoded(value, shape.format, place)
    if key is not None and key == shape.null:
        key = None
    return Outgoing(key, whole, shape.headers, shape.timestamp_ms, shape.partition)


def _from_row(piece: bytes, shape: Shape, place: str) -> Outgoing:
    try:
        row = json.loads(piece)
    except ValueError as error:
        raise WrongUsage(f"{place} is not JSON: {error}") from None
    if not isinstance(row, dict) or "value" not in row:
        raise WrongUsage(f"{place}: expected an object with `value`, as `consume --json` prints it")
    timestamp, partition = row.get("timestamp"), row.get("partition")
    for name, number in (("timestamp", timestamp), ("partition", partition)):
        if number is not None and (not isinstance(number, int) or isinstance(number, bool)):
            raise WrongUsage(f"{place}: {name} is {number!r}: expected a number")
    own = partition if shape.same_partitions else None
    return Outgoing(
        _field(row.get("key", None), f"{place}, key") if row.get("key") is not None else shape.key,
        _value(row["value"], shape.format, f"{place}, value"),
        (*_own_headers(row.get("headers") or [], place), *shape.headers),
        timestamp if shape.timestamp_ms is None else shape.timestamp_ms,
        own if shape.partition is None else shape.partition,
    )


def _value(value: Any, format: Format, place: str) -> bytes | None:
    if value is None or format in (Format.text, Format.bytes):
        return _field(value, place)
    return packed(value, format)


def _field(value: Any, place: str) -> bytes | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise WrongUsage(f"{place} is {value!r}: expected text or null; --format json takes any value")
    return from_text(value, place)


def _own_headers(given: Any, place: str) -> list[Header]:
    try:
        return [(str(name), _field(content, f"{place}, header {name}")) for name, content in given]
    except (TypeError, ValueError):
        raise WrongUsage(f"{place}: headers are {given!r}: expected [[name, value], …]") from None


async def _pieces(files: list[Path] | None, shape: Shape) -> AsyncIterator[bytes]:
    """The pieces of the files, or of standard input as they come: each line is sent once it is typed."""
    if not files:
        async for piece in _pieces_of(sys.stdin.fileno(), shape):
            yield piece
        return
    for path in files:
        with path.open("rb") as file:
            async for piece in _pieces_of(file.fileno(), shape):
                yield piece


async def _pieces_of(file: int, shape: Shape) -> AsyncIterator[bytes]:
    # lines of text may end with CR LF, as Windows writes them; whoever wants bytes gets them as they are
    drop = b"\r" if shape.delimiter == b"\n" and shape.format is not Format.bytes else b""
    rest = b""
    while chunk := await _read(file):
        if shape.delimiter is None:
            rest += chunk
            continue
        *pieces, rest = (rest + chunk).split(shape.delimiter)
        for piece in pieces:
            yield piece.removesuffix(drop)
    if rest or shape.delimiter is None:
        yield rest


async def _read(file: int) -> bytes:
    """Read what is there, in a daemon thread: an executor's thread would delay Ctrl-C."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def tell(chunk: bytes, trouble: OSError | None) -> None:
        if answer.done():
            return
        if trouble is None:
            answer.set_result(chunk)
        else:
            answer.set_exception(Failure(f"the input cannot be read: {trouble.strerror or trouble}"))

    def work() -> None:
        chunk, trouble = b"", None
        try:
            chunk = os.read(file, CHUNK_BYTES)
        except OSError as error:
            trouble = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(tell, chunk, trouble)

    threading.Thread(target=work, daemon=True, name="reads the input").start()
    return await answer
