"""One segment of a log: a run of batches in a .log file, with its .index and .timeindex.

The file in use is open and grows; closed ones are opened when read and let go again by `OpenSegments`.
Left to others: which segment holds what (storage/log.py), damage after a crash (storage/recovery.py).
"""

from collections import OrderedDict
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from ..protocol.batches import HEADER_SIZE, LENGTH_END, MAGIC, BatchHeader, read_header
from .disk import Disk, File
from .index import OFFSET_ENTRY, RELATIVE_MAX, TIME_ENTRY, OffsetIndex, TimeIndex

LOG, INDEX, TIME_INDEX = SUFFIXES = (".log", ".index", ".timeindex")
BLOCK_BYTES = 8192  # read at once when walking from header to header
BOUNDARIES_MAX = 32  # batch starts remembered for readers that go on where they stopped
NO_TIME = -1
FAR = 1 << 63
_read_step = Struct(">qi4xb6xi").unpack_from  # base offset, length, magic, last offset delta


class CorruptBatch(Exception):
    """Bytes in a log, or sent for one, are not the batches they should be."""


class Step(NamedTuple):
    """A batch in passing: where it begins, its offsets, its bytes, and where its header can be read."""

    position: int
    base_offset: int
    next_offset: int
    size: int
    block: bytes
    skip: int


def file_name(offset: int, suffix: str) -> str:
    """Kafka's name for a segment's file: twenty digits, so that names sort as offsets do."""
    return f"{offset:020d}{suffix}"


class Segment:
    """Batches from `base_offset` on. `size` is what has been appended, and the file's length."""

    __slots__ = (
        "_boundaries", "_file", "_index", "_max_time", "_max_time_offset", "_times",
        "base_offset", "created_ms", "directory", "disk", "first_time", "size", "torn_index", "unindexed",
    )  # fmt: skip

    def __init__(self, disk: Disk, directory: str, base_offset: int, created_ms: int, create: bool) -> None:
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self._file: File | None = disk.open(self.path(LOG), create)
        self._index: OffsetIndex | None = OffsetIndex() if create else None
        self._times: TimeIndex | None = TimeIndex() if create else None
        self._boundaries: dict[int, int] = {}
        self.size = self._file.size()
        self.torn_index = False  # an index file ended within an entry
        self.unindexed = 0  # bytes since the last index entry
        self.first_time: int | None = None  # of the first batch; decides when to roll
        self._max_time: int | None = NO_TIME if create else None
        self._max_time_offset = base_offset

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self.disk.open(self.path(LOG))
        return self._file

    @property
    def index(self) -> OffsetIndex:
        if self._index is None:
            self._index = OffsetIndex.load(self._read(INDEX, OFFSET_ENTRY))
        return self._index

    @property
    def times(self) -> TimeIndex:
        if self._times is None:
            self._times = TimeIndex.load(self._read(TIME_INDEX, TIME_ENTRY.size))
        return self._times

    def _read(self, suffix: str, entry_bytes: int) -> bytes:
        try:
            data = self.disk.read(self.path(suffix))
        except FileNotFoundError:
            return b""
        self.torn_index = self.torn_index or len(data) % entry_bytes != 0
        return data

    def indexes_plausible(self) -> bool:
        """Whether both index files are there and can belong to this segment's data."""
        if not all(self.disk.exists(self.path(suffix)) for suffix in (INDEX, TIME_INDEX)):
            return self.size == 0
        plausible = self.index.plausible(self.size) and self.times.plausible(self.size)
        return plausible and not self.torn_index

    @property
    def newest(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of its batch; (-1, base offset) when empty."""
        if self._max_time is None:
            self._max_time, relative = self.times.last()
            self._max_time_offset = self.base_offset + relative
        return self._max_time, self._max_time_offset

    @property
    def age_from_ms(self) -> int:
        """The newest timestamp, or the segment's creation if its records carry none."""
        newest = self.newest[0]
        return newest if newest >= 0 else self.created_ms

    def placed(self, last_offset: int, size: int, max_time: int, interval: int) -> None:
        """Account for a batch that has been appended: its bytes, its time, an index entry if one is due."""
        if self._max_time is None or max_time > self._max_time:
            self._see_time(max_time, last_offset)
        if self.unindexed > interval:
            self.index.append(last_offset - self.base_offset, self.size)
            self.times.append(self.newest[0], self._max_time_offset - self.base_offset)
            self.unindexed = 0
        self.unindexed += size
        self.size += size

    def _see_time(self, max_time: int, last_offset: int) -> None:
        if max_time > self.newest[0]:
            self._max_time, self._max_time_offset = max_time, last_offset
        if self.first_time is None and self.size == 0:
            self.first_time = max_time

    def must_roll(
        self, size: int, last_offset: int, max_time: int, now_ms: int, limits: "RollLimits"
    ) -> bool:
        """Whether a batch must open a new segment instead of going here."""
        if last_offset - self.base_offset > RELATIVE_MAX:
            return True
        if not self.size:
            return False
        if self.size + size > limits.segment_bytes:
            return True
        if self.first_time is None:
            self.first_time = read_header(self.file.pread(0, HEADER_SIZE)).max_timestamp
        waited = max_time - self.first_time if self.first_time >= 0 else now_ms - self.created_ms
        return (
            waited > limits.segment_ms
            or len(self.index.offsets) >= limits.offset_entries_max
            or len(self.times.times) >= limits.time_entries_max
        )

    def headers(self, position: int = 0, limit: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from `position`, which must be a batch's start, up to `limit`. Reads headers only."""
        stop = self.size if limit is None else limit
        block, at = b"", position
        while position < stop:
            skip = position - at
            if len(block) - skip < HEADER_SIZE:
                block, at, skip = self._block(position), position, 0
            header = read_header(block, skip)
            if header.magic != MAGIC or header.size < HEADER_SIZE or header.last_offset_delta < 0:
                raise CorruptBatch(f"{self.path(LOG)}: no batch at {position}")
            yield position, header
            position += header.size

    def _block(self, position: int) -> bytes:
        block = self.file.pread(position, BLOCK_BYTES)
        if len(block) < HEADER_SIZE:
            raise CorruptBatch(f"{self.path(LOG)}: no batch fits at {position}")
        return block

    def _walk(
        self, position: int, *, reaches: int = FAR, begins: int = FAR, ends: int = FAR
    ) -> "Step | None":
        """The first batch from `position` on that reaches over the offset `reaches`, begins at `begins` or
        later, or ends behind the position `ends`; else the last one. Most batches are only passed by, so
        nothing is made of them.
        """
        block, at, last, stop = b"", position, -1, self.size
        while position < stop:
            skip = position - at
            if skip > last:
                block, at, skip = self._block(position), position, 0
                last = len(block) - HEADER_SIZE
            base_offset, length, magic, delta = _read_step(block, skip)
            size = length + LENGTH_END
            if magic != MAGIC or size < HEADER_SIZE or delta < 0:
                raise CorruptBatch(f"{self.path(LOG)}: no batch at {position}")
            after = position + size
            if base_offset + delta >= reaches or base_offset >= begins or after > ends or after >= stop:
                return Step(position, base_offset, base_offset + delta + 1, size, block, skip)
            position = after
        return None

    def _reach(self, offset: int) -> "Step | None":
        """The first batch that reaches `offset`: it holds it, or stands behind a gap that does."""
        start = self._boundaries.get(offset)
        if start is None:
            start = self.index.floor(offset - self.base_offset)
        found = self._walk(start, reaches=offset)
        return found if found is not None and found.next_offset > offset else None

    def locate(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch that reaches `offset`, and where it begins."""
        found = self._reach(offset)
        return None if found is None else (found.position, read_header(found.block, found.skip))

    def read(self, offset: int, bytes_max: int, end: int, after: int, at_least_one: bool) -> bytes:
        """Whole batches from the one that reaches `offset`, none that begins at `end` or later.

        `after` is the offset that follows the segment's last.
        """
        first = self._reach(offset)
        if first is None or first.base_offset >= end:
            return b""
        start = first.position
        if end < after:
            stop = self._stop(end, start, start + bytes_max)
        else:
            stop = self.size
            self._remember(after, stop)
        if stop - start > bytes_max:
            stop = self._boundary(start, start + bytes_max)
            if stop == start and at_least_one:
                stop = start + first.size
                self._remember(first.next_offset, stop)
        return self.file.pread(start, stop - start) if stop > start else b""

    def _stop(self, end: int, start: int, enough: int) -> int:
        """Where the first batch with a base of at least `end` begins; anything past `enough` will do."""
        known = self._boundaries.get(end)
        if known is not None:
            return known
        floor = max(start, self.index.floor(end - self.base_offset))
        if floor > enough:
            return floor
        found = self._walk(floor, begins=end)
        if found is not None and found.base_offset >= end:
            if found.base_offset == end:
                self._remember(end, found.position)
            return found.position
        if (
            found is not None and found.next_offset == end
        ):  # not inside the last batch: a reader may go on here
            self._remember(end, self.size)
        return self.size

    def _boundary(self, start: int, limit: int) -> int:
        """The last batch boundary in [start, limit]."""
        found = self._walk(max(start, self.index.floor_position(limit)), ends=limit)
        assert found is not None, "whoever asks has a limit within the segment"
        self._remember(found.base_offset, found.position)
        return found.position

    def _remember(self, offset: int, position: int) -> None:
        if len(self._boundaries) >= BOUNDARIES_MAX:
            self._boundaries.clear()
        self._boundaries[offset] = position

    def cut(self, position: int, next_offset: int) -> None:
        """Make the file end at `position`, a batch's start, and the indexes before `next_offset`."""
        index, times = self.index, self.times  # loaded before their file may be gone
        self.file.truncate(position)
        self.size = position
        self._boundaries.clear()
        index.truncate(position)
        times.truncate(next_offset - self.base_offset)
        for suffix in (INDEX, TIME_INDEX):  # they are written again when the segment is closed
            self.disk.unlink(self.path(suffix))
        self._reckon(self.size)

    def _reckon(self, good_bytes: int) -> None:
        """Find the newest timestamp and the index debt again, from the last entry known on."""
        self._max_time, self._max_time_offset = None, self.base_offset
        start = self.index.positions[-1] if len(self.index) else 0
        newest, offset = self.newest
        for _, header in self.headers(min(start, self.times_position()), good_bytes):
            if header.max_timestamp > newest:
                newest, offset = header.max_timestamp, header.last_offset
        self._max_time, self._max_time_offset = newest, offset
        self.unindexed = good_bytes - start
        if self.size == 0:
            self.first_time = None

    def times_position(self) -> int:
        """A position at or before the batch of the last time entry."""
        return self.index.floor(self.times.last()[1]) if len(self.times) else 0

    def take_up(self) -> None:
        """Make a closed segment the one that grows."""
        self._reckon(self.size)

    def adopt_indexes(self, index: OffsetIndex, times: TimeIndex, good_bytes: int) -> None:
        """Replace the indexes by ones built from the data, of which `good_bytes` are to stay."""
        self._index, self._times = index, times
        self._boundaries.clear()
        self._reckon(good_bytes)

    def write_indexes(self) -> None:
        """Write both indexes, ending the time index with the segment's newest timestamp as Kafka does."""
        newest, offset = self.newest
        if newest > NO_TIME:
            self.times.append(newest, offset - self.base_offset)
        self.disk.replace(self.path(INDEX), self.index.dump(), sync=False)
        self.disk.replace(self.path(TIME_INDEX), self.times.dump(), sync=False)

    def sync(self) -> None:
        """Bring data and written indexes to the medium. Opens the files anew, so a thread may call it."""
        for suffix in (LOG, INDEX, TIME_INDEX):
            path = self.path(suffix)
            if suffix == LOG or self.disk.exists(path):
                file = self.disk.open(path)
                try:
                    file.sync()
                finally:
                    file.close()

    @property
    def held(self) -> bool:
        """Whether the segment keeps a descriptor or indexes in memory."""
        return self._file is not None or self._index is not None or self._times is not None

    def release(self) -> None:
        """Close the file and let the indexes go; the next use brings them back."""
        if self._file is not None:
            self._file.close()
            self._file = None
        self._index = self._times = None
        self._boundaries.clear()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class RollLimits:
    """When a segment is full: bytes, age of its first batch, bytes of an index."""

    __slots__ = ("offset_entries_max", "segment_bytes", "segment_ms", "time_entries_max")

    def __init__(self, segment_bytes: int, segment_ms: int, index_bytes_max: int) -> None:
        self.segment_bytes = segment_bytes
        self.segment_ms = segment_ms
        self.offset_entries_max = index_bytes_max // OFFSET_ENTRY
        self.time_entries_max = index_bytes_max // TIME_ENTRY.size - 1  # one is kept for the closing entry


class OpenSegments:
    """Closed segments that are open for reading: the least recently read are let go."""

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self._open: OrderedDict[Segment, None] = OrderedDict()

    def used(self, segment: Segment) -> None:
        self._open[segment] = None
        self._open.move_to_end(segment)
        while len(self._open) > self.count_max:
            self._open.popitem(last=False)[0].release()

    def forget(self, segment: Segment) -> None:
        """The segment is closed, deleted or grows again; it is no longer ours to let go."""
        self._open.pop(segment, None)
