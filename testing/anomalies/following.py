"""Reads histories while they are written: each time what has been added since.

Left to others: the format (history.py).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack

from .history import operation_of
from .operations import Operation


class Following:
    """All histories of a folder, also those that are begun later."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, tuple[int, Any]] = {}  # how many bytes, and what has read them

    def fresh(self) -> Iterator[Operation]:
        """The operations since the last call, file by file. Raises DamagedHistory."""
        for path in sorted(self.folder.glob("*.history")):
            at, unpacker = self._read.get(path) or (0, msgpack.Unpacker())
            with path.open("rb") as file:
                file.seek(at)
                added = file.read()
            unpacker.feed(added)
            entries = list(unpacker)
            self._read[path] = at + len(added), unpacker
            for entry in entries if at else entries[1:]:  # the first is the header
                yield operation_of(path, entry)
