"""One pass over a closed segment: blocks of complete batches, decoded in pieces of bounded size.

Left to others: what is done with a piece (clean.py, rewrite.py).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import TypeAlias

from ...protocol.batches import BatchHeader
from ...protocol.columns import Opened
from ...protocol.errors import ApiError
from ...protocol.primitives import Buffer, Malformed
from ...protocol.records import iterate, open_batch
from ..disk import File
from ..segment.batch_walk import Placed, runs
from .job import DamagedSegment

BLOCK_BYTES = 4 << 20
PIECE_ROWS_MAX = 1 << 16
PIECE_BYTES_MAX = 16 << 20
BATCH_BYTES_MAX = 1 << 30  # decompressed
NEVER = 1 << 63

Throttle: TypeAlias = Callable[[int], None]  # told of bytes read or written; it may wait

ABORT, COMMIT = 0, 1
_control_type = Struct(">hh").unpack_from  # version, type


@dataclass(slots=True)
class Piece:
    """Some neighbouring batches of `data`, and the records of those that were wanted."""

    data: memoryview
    batches: list[Placed] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)


def blocks(file: File, size: int, throttle: Throttle) -> Iterator[tuple[memoryview, list[Placed]]]:
    """Complete batches, up to `size`."""
    position = 0
    try:
        for data, found in runs(file.pread, position, size, BLOCK_BYTES):
            throttle(len(data))
            yield data, found
            position += len(data)
    except Malformed as error:
        raise DamagedSegment(f"position {position}: {error}") from error
    if position < size:
        raise DamagedSegment(f"position {position}: the last batch is truncated")


def pieces(
    file: File,
    size: int,
    throttle: Throttle,
    wanted: Callable[[BatchHeader], bool],
    verified_from: int = NEVER,
) -> Iterator[Piece]:
    """All batches of a segment; those that have records and are `wanted` are opened.

    Checksums from offset `verified_from` on are not verified again.
    """
    for data, batches in blocks(file, size, throttle):
        piece, rows, nbytes = Piece(data), 0, 0
        for at, header in batches:
            piece.batches.append((at, header))
            if header.record_count and wanted(header):
                piece.opened.append(
                    (at, header, opened(data, at, header, header.base_offset < verified_from))
                )
                rows += header.record_count
                nbytes += len(piece.opened[-1][2])
            if rows >= PIECE_ROWS_MAX or nbytes >= PIECE_BYTES_MAX:
                yield piece
                piece, rows, nbytes = Piece(data), 0, 0
        if piece.batches:
            yield piece


def opened(data: memoryview, at: int, header: BatchHeader, verify: bool = True) -> Buffer:
    """The records of a batch, checked and decompressed."""
    try:
        return open_batch(data, at, header, verify=verify, cap=BATCH_BYTES_MAX)
    except (Malformed, ApiError) as error:
        raise DamagedSegment(f"batch at offset {header.base_offset}: {error}") from error


def control_type(data: memoryview, at: int, header: BatchHeader) -> int | None:
    """The type of a control batch: ABORT, COMMIT or another; None if it has been emptied."""
    try:
        for record in iterate(data[at : at + header.size]):
            if record.key is None or len(record.key) < 4:
                raise DamagedSegment(f"control batch at offset {header.base_offset} has no type")
            return int(_control_type(record.key)[1])
    except (Malformed, ApiError) as error:
        raise DamagedSegment(f"control batch at offset {header.base_offset}: {error}") from error
    return None
