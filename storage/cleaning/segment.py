"""The segment that a cleaning writes: `.cleaned` files beside the old ones, synced before they count.

Left to others: what goes into it (rewrite.py), swapping it in (segment/segment_swap.py).
"""

from ...protocol.batches import BatchHeader
from ..disk import Disk
from ..segment.file_names import CLEANED, INDEX, LOG, TIME_INDEX, TRANSACTION_INDEX, file_name
from ..segment.index import OFFSET_ENTRY, RELATIVE_MAX, TIME_ENTRY, OffsetIndex, TimeIndex
from ..segment.transaction_index import Aborted, dump
from .job import DamagedSegment
from .reading import Throttle

FLUSH_BYTES = 1 << 20


class CleanedSegment:
    """Batches with rising offsets from `base_offset` on."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        interval: int,
        index_bytes_max: int,
        throttle: Throttle,
    ) -> None:
        self.base_offset = base_offset
        self.size = 0
        self.copied_bytes = 0  # of batches copied unchanged
        self._disk = disk
        self._directory = directory
        self._throttle = throttle
        self._interval = interval
        self._entries_max = min(index_bytes_max // OFFSET_ENTRY.size, index_bytes_max // TIME_ENTRY.size - 1)
        self._index, self._times = OffsetIndex(), TimeIndex()
        self._unindexed = 0
        self._newest = (-1, base_offset)
        self._aborted: list[Aborted] = []
        self._parts: list[bytes | memoryview] = []
        self._waiting = 0
        self._run: tuple[memoryview, int, int] | None = None  # adjacent batches, copied together
        disk.unlink(self._path(LOG))
        self._file = disk.open(self._path(LOG), create=True)

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self.base_offset, suffix)}{CLEANED}"

    def copy(self, data: memoryview, at: int, header: BatchHeader) -> None:
        """Add a batch unchanged from `data`."""
        if self._run is not None and self._run[0] is data and self._run[2] == at:
            self._run = (data, self._run[1], at + header.size)
        else:
            self._end_run()
            self._run = (data, at, at + header.size)
        self.copied_bytes += header.size
        self._account(header, header.size, header.max_timestamp)

    def add(self, batch: bytes, header: BatchHeader, max_time: int) -> None:
        """Add `batch` in place of the one with `header`."""
        self._end_run()
        self._parts.append(batch)
        self._waiting += len(batch)
        self._account(header, len(batch), max_time)

    def aborted(self, entry: Aborted) -> None:
        """The marker of an aborted transaction stays, and so does its entry in the index."""
        self._aborted.append(entry)

    def _account(self, header: BatchHeader, size: int, max_time: int) -> None:
        """As `Segment.placed`: index entries are where the broker would put them."""
        relative = header.last_offset - self.base_offset
        if max_time > self._newest[0]:
            self._newest = (max_time, header.last_offset)
        if self._unindexed > self._interval and len(self._index) < self._entries_max:
            self._index.append(relative, self.size)
            self._times.append(self._newest[0], self._newest[1] - self.base_offset)
            self._unindexed = 0
        self._unindexed += size
        self.size += size
        if self.size > RELATIVE_MAX or relative > RELATIVE_MAX:
            raise DamagedSegment(f"segment {self.base_offset} is too large for its index")

    def _end_run(self) -> None:
        if self._run is not None:
            data, start, end = self._run
            self._parts.append(data[start:end])
            self._waiting += end - start
            self._run = None

    def flush(self) -> None:
        """Write what has gathered, if it is enough for a system call."""
        self._end_run()
        if self._waiting >= FLUSH_BYTES:
            self._write()

    def _write(self) -> None:
        if self._parts:
            self._file.append(self._parts)
            self._throttle(self._waiting)
            self._parts, self._waiting = [], 0

    def finish(self, written_ms: int) -> None:
        """Write the rest and the indexes, and sync everything.

        Cleaning must not make records younger: the file's modification time becomes `written_ms`, that of the
        last segment in it. Retention uses it for records without timestamps.
        """
        self._end_run()
        self._write()
        self._disk.set_modified_ms(self._path(LOG), written_ms)  # before the sync, which makes it durable
        self._file.sync()
        self._file.close()
        newest, offset = self._newest
        if newest > -1:
            self._times.append(newest, offset - self.base_offset)
        self._disk.replace(self._path(INDEX), self._index.dump())
        self._disk.replace(self._path(TIME_INDEX), self._times.dump())
        if self._aborted:
            self._disk.replace(self._path(TRANSACTION_INDEX), dump(self._aborted))
        self._disk.sync_dir(self._directory)

    def abandon(self) -> None:
        """Delete the files."""
        self._file.close()
        for suffix in (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX):
            self._disk.unlink(self._path(suffix))
