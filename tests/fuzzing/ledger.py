"""The log that only Produce may change: each accepted batch is in it where the answer says, and nothing else.

Bytes that were checked once must stay as they were. Left to others: what other checks there are (watch.py).
"""

import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from strandline.protocol.batches import HEADER_SIZE, LENGTH_END, read_header
from strandline.protocol.error_codes import ErrorCode
from tests.fuzzing.known import STILL

PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Batch:
    """What of a batch the broker may not change: how long it is, and the CRC of all behind it."""

    size: int
    crc: int


@dataclass(slots=True)
class Checked:
    """How much of a file has been checked, and the checksum of that."""

    size: int = 0
    checksum: int = 0


class Ledger:
    """What the logs of STILL must have."""

    def __init__(self) -> None:
        self.awaited: dict[tuple[int, int], Batch] = {}  # by partition and base offset
        self.accepted_bytes = 0
        self.accepted_batches = 0
        self.complaints: list[str] = []
        self._checked: dict[Path, Checked] = {}

    def accepted(self, request: Any, answer: Any) -> None:
        """Note the batches that the log must have now."""
        fine = {
            one.index: one.base_offset
            for topic in answer.responses
            if topic.name == STILL
            for one in topic.partition_responses
            if one.error_code == 0
        }
        if any(
            one.error_code == ErrorCode.REQUEST_TIMED_OUT
            for topic in answer.responses
            if topic.name == STILL
            for one in topic.partition_responses
        ):
            self.complaints.append("a produce timed out after a minute")
        for topic in request.topic_data:
            for one in topic.partition_data:
                if topic.name == STILL and one.index in fine:
                    base = fine.pop(one.index)  # named twice, it is written once
                    self._await(one.index, base, one.records)

    def _await(self, partition: int, base_offset: int, records: Any) -> None:
        header = read_header(records)
        if (partition, base_offset) in self.awaited:
            self.complaints.append(f"{STILL}-{partition} has two batches at offset {base_offset}")
        self.awaited[partition, base_offset] = Batch(len(records), header.crc)
        self.accepted_bytes += len(records)
        self.accepted_batches += 1

    def check(self, directory: Path) -> None:
        """Read what is new in the log. Nothing may be on its way."""
        for path in sorted(directory.rglob(f"{STILL}-*/*.log")):
            self._read(path)
        for (partition, base), _ in list(self.awaited.items())[:3]:
            self.complaints.append(f"{STILL}-{partition}: the accepted batch at {base} is not in the log")
        self.awaited.clear()

    def _read(self, path: Path) -> None:
        checked = self._checked.setdefault(path, Checked())
        with path.open("rb") as file:
            if _checksum(file, checked.size) != checked.checksum:
                self.complaints.append(f"{path}: its first {checked.size} bytes have changed")
                return
            new = file.read()
        self._walk(path, checked.size, new)
        checked.size, checked.checksum = checked.size + len(new), zlib.crc32(new, checked.checksum)

    def _walk(self, path: Path, begins: int, new: bytes) -> None:
        partition, pos = int(path.parent.name.rpartition("-")[2]), 0
        while pos + HEADER_SIZE <= len(new):
            header = read_header(new, pos)
            accepted = self.awaited.pop((partition, header.base_offset), None)
            if accepted != Batch(header.batch_length + LENGTH_END, header.crc):
                break
            pos += header.size
        if pos != len(new):
            self.complaints.append(
                f"{path}: {len(new) - pos} bytes at {begins + pos} are not a batch that was accepted: "
                f"{new[pos : pos + HEADER_SIZE].hex()}"
            )


def _checksum(file: Any, size: int) -> int:
    found = 0
    while size > 0:
        piece = file.read(min(size, PIECE))
        if not piece:
            return -1
        found = zlib.crc32(piece, found)
        size -= len(piece)
    return found
