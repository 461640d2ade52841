"""ZooKeeper's `multiRead`, which kazoo lacks: many nodes read in one request.

It saves time because a request costs kazoo and its thread more than a node does.
Left to others: sending it (`kazoo_client.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from kazoo.exceptions import EXCEPTIONS, NoNodeError

NodeFound = tuple[bytes, int, int, int]  # its data; version, czxid and owner of its stat

_GET_DATA, _ERROR = 4, -1
_HEADER = struct.Struct("!iBi")  # kind of operation, whether it is the end, error
_INT = struct.Struct("!i")
_STAT = struct.Struct("!qqqqiiiqiiq")
_GET = _HEADER.pack(_GET_DATA, False, -1)
_END = _HEADER.pack(-1, True, -1)


class ReadMany:
    """The data and stat of each path, or None where there is no node."""

    type = 22
    watcher = None

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def serialize(self) -> bytes:
        """The request's bytes, for kazoo."""
        parts = []
        for path in self.paths:
            name = path.encode()
            parts += [_GET, _INT.pack(len(name)), name, b"\x00"]
        return b"".join((*parts, _END))

    @staticmethod
    def deserialize(answer: bytes, at: int) -> list[NodeFound | None]:
        """Parse the answer, for kazoo. Raises an error that came in place of a node, except NoNode."""
        found: list[NodeFound | None] = []
        while True:
            kind, ends, _ = _HEADER.unpack_from(answer, at)
            at += _HEADER.size
            if ends:
                return found
            if kind == _ERROR:
                (code,) = _INT.unpack_from(answer, at)
                at += _INT.size
                if code != NoNodeError.code:
                    raise _raised(code)
                found.append(None)
                continue
            (size,) = _INT.unpack_from(answer, at)
            at += _INT.size
            data = bytes(answer[at : at + max(size, 0)])
            at += max(size, 0)
            stat = _STAT.unpack_from(answer, at)
            at += _STAT.size
            found.append((data, stat[4], stat[0], stat[7]))


def _raised(code: int) -> Exception:
    error: Any = EXCEPTIONS[code]
    return Exception(code) if error is None else error()
