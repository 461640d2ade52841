"""Reads a log completely, from one offset to another, over all its segments.

`Log.read` stops at the end of a segment; the checks need all of them.
Left to others: what the bytes mean (`committed.py`, `invariants.py`).
"""

from __future__ import annotations

from ...protocol.batches import headers
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


def numbers(data: bytes) -> dict[int, int]:
    """The records of a topic whose values are numbers: offset -> number."""
    return {record.offset: int(record.value or b"-1") for record in iterate(data)}
