"""Reads a log completely, from one offset to another, over all its segments.

`Log.read` stops at the end of a segment; the checks need all of them.
Left to others: what the bytes mean (`committed.py`, `invariants.py`).
"""

from __future__ import annotations

from ...protocol.batches import headers
from ...protocol.markers import read_marker
from ...protocol.records import iterate
from ...storage.log.log import Log

READ_BYTES_MAX = 1 << 30


def read(log: Log, start: int, end: int) -> bytes:
    """Complete batches from the one that holds `start`; none begins at `end` or later."""
    found = bytearray()
    at = start
    while at < end:
        part = b"".join(bytes(each) for each in log.read(at, READ_BYTES_MAX, end).parts)
        if not part:
            break  # compaction has left nothing after it
        for _, header in headers(part):
            at = header.next_offset
        found += part
    return bytes(found)


def whole(log: Log) -> bytes:
    """All of a log."""
    return read(log, log.start_offset, log.end_offset)


def contents(data: bytes) -> dict[int, bytes]:
    """The records of a topic, markers of transactions included: offset -> value."""
    return {record.offset: bytes(record.value or b"") for record in iterate(data)}


def newest(data: bytes) -> dict[bytes, tuple[int, bytes]]:
    """The newest value of each key: key -> (offset, value). What was aborted or is open does not count.

    Replicas compact each for itself, but what they keep of a key is the same.
    """
    found: dict[bytes, tuple[int, bytes | None]] = {}
    pending: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
    for position, header in headers(data):
        records = [
            (bytes(record.key or b""), (record.offset, None if record.value is None else bytes(record.value)))
            for record in iterate(data[position : position + header.size])
        ]
        if header.is_control:
            marker = read_marker(data, position, header)
            ended = pending.pop(header.producer_id, {})
            _keep(found, ended if marker is not None and marker.committed else {})
        elif header.is_transactional:
            _keep(pending.setdefault(header.producer_id, {}), dict(records))
        else:
            _keep(found, dict(records))
    return {key: (offset, value) for key, (offset, value) in found.items() if value is not None}


def _keep(found: dict[bytes, tuple[int, bytes | None]], more: dict[bytes, tuple[int, bytes | None]]) -> None:
    """The later one of each key, by offset."""
    for key, one in more.items():
        if key not in found or found[key][0] < one[0]:
            found[key] = one


def numbers(data: bytes) -> dict[int, int]:
    """The records of a topic whose values are numbers: offset -> number."""
    return {record.offset: int(record.value or b"-1") for record in iterate(data)}
