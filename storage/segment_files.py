"""A partition's directory read from outside the broker: segments and indexes, Strandline's or Kafka's.

Nothing is locked, created or changed, and no write permission is needed, so the broker may be running or
stopped. What cannot be a batch raises `Damaged`, with file and position.
Left to others: the records as a user wants them (reader.py), printing (cli/dump/command.py).
"""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from ..protocol.batches import HEADER_SIZE, BatchHeader, check_shape, crc_ok, read_header
from ..protocol.primitives import Malformed
from .disk import ReadOnlyFile
from .segment.batch_walk import Placed, runs
from .segment.file_names import CLEANED, INDEX, LOG, NAME_DIGITS, SWAP
from .segment.index import OFFSET_ENTRY, TIME_ENTRY

WINDOW_BYTES = 4 << 20

Run = tuple[int, memoryview, list[Placed]]  # position in the file, batches, and where they are in these bytes


class Damaged(ValueError):
    """Bytes that cannot be what a broker wrote: `path`, `position` and `problem`."""

    def __init__(self, path: str | Path, position: int, problem: str) -> None:
        super().__init__(f"{path}, position {position}: {problem}")
        self.path = str(path)
        self.position = position
        self.problem = problem


class BatchInFile(NamedTuple):
    """A complete batch and its position."""

    position: int
    header: BatchHeader
    data: memoryview

    @property
    def valid(self) -> bool:
        """Whether its checksum matches."""
        return crc_ok(self.data, 0, self.header)


class SegmentFile:
    """A .log file, opened for reading. `size` is its size when it was opened, at most `bytes_max`."""

    window_bytes = WINDOW_BYTES

    def __init__(self, path: str | Path, bytes_max: int | None = None) -> None:
        self.path = Path(path)
        self._file = ReadOnlyFile(str(path))
        size = self._file.size()
        self.size = size if bytes_max is None else min(size, bytes_max)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def runs(self, position: int = 0, window_bytes: int = 0) -> Iterator[Run]:
        """Complete batches from `position`, a batch's start, in pieces of a window or of one larger batch.

        A batch that runs past the end of the file is left out: it is a torn write, or an append in progress.
        """
        try:
            for data, found in runs(self._file.pread, position, self.size, window_bytes or self.window_bytes):
                yield position, data, found
                position += len(data)
        except Malformed as error:
            raise Damaged(self.path, position, f"cannot read a batch: {error}") from error

    def batches(self, position: int = 0, window_bytes: int = 0) -> Iterator[BatchInFile]:
        """The complete batches from `position` on, one at a time."""
        for start, data, found in self.runs(position, window_bytes):
            for at, header in found:
                yield BatchInFile(start + at, header, data[at : at + header.size])

    def batch_at(self, position: int) -> BatchInFile | None:
        """The batch that begins at `position`; None if none can."""
        if not 0 <= position <= self.size - HEADER_SIZE:
            return None
        header = read_header(self._file.pread(position, HEADER_SIZE))
        try:
            check_shape(header)
        except Malformed:
            return None
        if header.size > self.size - position:
            return None
        return BatchInFile(position, header, memoryview(self._file.pread(position, header.size)))


def segment_paths(directory: str | Path) -> dict[int, Path]:
    """The directory's segments by base offset, ascending.

    A cleaned segment that is being swapped in counts already, as it does for recovery
    (segment/segment_swap.py), because some of the old ones may be gone.
    """
    names = _names(directory)
    found = {int(name[:NAME_DIGITS]): name for name in names if name[NAME_DIGITS:] == LOG}
    unfinished = {name[:NAME_DIGITS] for name in names if name.endswith(CLEANED)}
    for name in names:
        if name[NAME_DIGITS:] == LOG + SWAP and name[:NAME_DIGITS] not in unfinished:
            found[int(name[:NAME_DIGITS])] = name
    return {base: Path(directory, found[base]) for base in sorted(found)}


def _names(directory: str | Path) -> set[str]:
    """Names that begin as a segment's. Listed until two listings agree: one may miss a renamed file."""
    before, now = None, set[str]()
    while before != now:
        before, now = now, {path.name for path in Path(directory).iterdir()}
    return {name for name in now if is_number(name[:NAME_DIGITS]) and len(name) > NAME_DIGITS}


def base_offsets(directory: str | Path) -> list[int]:
    """The base offsets of the directory's segments, ascending."""
    return list(segment_paths(directory))


def place_of(bases: list[int], offset: int) -> int:
    """The place of the last segment that begins at or before `offset`; the first one if none does."""
    return max(bisect_right(bases, offset) - 1, 0)


def is_number(text: str) -> bool:
    """Decimal digits and nothing else."""
    return text.isascii() and text.isdigit()


def offset_entries(data: bytes) -> list[tuple[int, int]]:
    """(relative offset, position) of an .index; empty space after the entries is left out."""
    return list(OFFSET_ENTRY.iter_unpack(filled(data, OFFSET_ENTRY.size)))


def time_entries(data: bytes) -> list[tuple[int, int]]:
    """(timestamp, relative offset) of a .timeindex; empty space after the entries is left out."""
    return list(TIME_ENTRY.iter_unpack(filled(data, TIME_ENTRY.size)))


def filled(data: bytes, entry_bytes: int) -> bytes:
    """The complete entries of an index file. Kafka preallocates an active one: zeros follow the last."""
    used = -(-len(data.rstrip(b"\0")) // entry_bytes) * entry_bytes
    return data[: min(used, len(data) - len(data) % entry_bytes)]


class Floor(NamedTuple):
    """Where a search begins, by the index: at `entry` (offset, position), or at the segment's start."""

    position: int
    entries: int
    entry: tuple[int, int] | None
    note: str = ""


def floor_of(segment: SegmentFile, base_offset: int, offset: int) -> Floor:
    """The position of a batch at or before the one with `offset`, by the index, if the log agrees with it."""
    try:
        entries = offset_entries(segment.path.with_suffix(INDEX).read_bytes())
    except OSError:
        return Floor(0, 0, None, "the index is missing")  # an index is optional
    place = bisect_right(entries, offset - base_offset, key=_first) - 1
    if place < 0:
        return Floor(0, len(entries), None)
    entry = base_offset + entries[place][0], entries[place][1]
    found = segment.batch_at(entry[1])
    if found is None or not found.valid or found.header.last_offset != entry[0]:
        return Floor(0, len(entries), entry, "ignored: the segment has no batch there")
    return Floor(entry[1], len(entries), entry)


def _first(entry: tuple[int, int]) -> int:
    return entry[0]
