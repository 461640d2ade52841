"""The functions of the notation: record batches, good ones and such with one fault, and long texts.

`batch(a k:v k:~ pid=7 epoch=0 seq=3 codec=gzip time=1000 txn=1 magic=1 count=9 …)`: a record is its value, or
its key and value; `~` is null. Every number of a header can be given, before the CRC is made.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from strandline.protocol.batches import HEADER, HEADER_SIZE, BatchHeader, read_header, seal
from strandline.protocol.compression import Codec
from strandline.protocol.records import BatchBuilder

TIME = 1_700_000_000_000  # of records that are given none: the same for both brokers


def batch(records: Sequence[Any], options: Mapping[str, Any]) -> bytes:
    """A batch of format 2, sealed; `crc=bad` and `cut=9` damage it behind that."""
    given = {name: value if name in ("codec", "crc") else int(value) for name, value in options.items()}
    builder = BatchBuilder(
        codec=Codec[str(given.pop("codec", "none")).upper()],
        producer_id=given.pop("pid", -1),
        producer_epoch=given.pop("epoch", -1),
        base_sequence=given.pop("seq", -1),
        transactional=bool(given.pop("txn", 0)),
        control=bool(given.pop("control", 0)),
    )
    time = given.pop("time", TIME)
    for nth, record in enumerate(records):
        key, colon, value = (
            record.decode().partition(":") if isinstance(record, bytes) else record.partition(":")
        )
        if not colon:
            key, value = "~", key
        builder.append(time + nth, *(None if text == "~" else text.encode() for text in (key, value)))
    data = bytearray(builder.build())
    crc, cut = given.pop("crc", "good"), given.pop("cut", 0)
    header = read_header(data)._replace(**{NAMES[name]: value for name, value in given.items()})
    _write(data, header)
    if crc == "bad":
        data[17] ^= 1
    return bytes(data[: len(data) - cut])


NAMES = {
    "magic": "magic",
    "count": "record_count",
    "delta": "last_offset_delta",
    "base": "base_offset",
    "length": "batch_length",
    "attributes": "attributes",
    "leader": "leader_epoch",
    "first": "base_timestamp",
    "last": "max_timestamp",
}


def _write(data: bytearray, header: BatchHeader) -> None:
    if len(data) >= HEADER_SIZE:
        HEADER.pack_into(data, 0, *header)
        seal(data, 0, len(data))


def join(parts: Sequence[Any], _options: Mapping[str, Any]) -> bytes:
    """Several batches, one behind the other."""
    return b"".join(parts)


def long(what: Sequence[Any], _options: Mapping[str, Any]) -> bytes:
    """`long(x 5000)`: that text as often."""
    text, count = what
    return str(text).encode() * int(count)


def hexadecimal(digits: Sequence[Any], _options: Mapping[str, Any]) -> bytes:
    """`hex(00 ff)`."""
    return bytes.fromhex("".join(digits))


def subscription(topics: Sequence[Any], options: Mapping[str, Any]) -> bytes:
    """What consumers send as the metadata of their protocol: version 0, topics, no user data."""
    names = [str(each).encode() for each in topics]
    found = struct.pack(">hi", int(options.get("version", 0)), len(names))
    found += b"".join(struct.pack(">h", len(name)) + name for name in names)
    return found + struct.pack(">i", -1)


CALLS: dict[str, Callable[[Sequence[Any], Mapping[str, Any]], bytes]] = {
    "batch": batch,
    "join": join,
    "long": long,
    "hex": hexadecimal,
    "subscription": subscription,
}
