"""Cold: the data of a read is not in memory, and reading it now would make the event loop wait.

`warm`, in a thread, brings it into memory; `settle`, on the loop, hands over the index that was loaded; then
the read is repeated. Nothing that a thread has read is served. The repeated read is checked again, so a
truncation, a new leader or a deleted segment meanwhile does no harm.
Left to others: the threads, and who waits (broker/replicas/cold_reads.py), data that stays cold all the same
(log/uncached_read.py).
"""

import errno

from ..disk import Disk, DiskError, LogDamaged, disk_error
from .batch_walk import CorruptBatch
from .file_names import LOG
from .index import OffsetIndex
from .index_files import Indexes

AHEAD_BYTES = 2 << 20  # read ahead this much more than asked for: a reader usually goes on
PIECE_BYTES = 1 << 20


class Cold(Exception):
    """Bytes of a segment at `position`, or around `offset`, are on disk only."""

    def __init__(
        self, indexes: Indexes, size: int, *, position: int = -1, offset: int = -1, is_blind: bool = False
    ) -> None:
        """`indexes`: of the segment. `is_blind`: the file system cannot tell what is in memory, so warming
        does not help.
        """
        super().__init__(indexes.stem)
        self.is_blind = is_blind
        self._indexes = indexes
        self._position = position
        self._offset = offset
        self._size = size
        self._version = indexes.version
        self._load = indexes.loader()
        self._index: OffsetIndex | None = None
        self.error: DiskError | None = None

    @property
    def key(self) -> tuple[str, int, int]:
        """Equal for readers that wait for the same data."""
        return self._indexes.stem, self._position, self._offset

    def warm(self) -> None:
        """Read the data into memory. Blocking, for any thread. Sets `error`."""
        path = self._indexes.stem + LOG
        try:
            if self._load is not None:
                self._index = self._load()
            position = self._position
            if position < 0 and self._index is not None:
                position = self._index.floor(self._offset - self._indexes.base_offset)
            warm(self._indexes.disk, path, max(position, 0), self._size + AHEAD_BYTES)
        except FileNotFoundError:
            pass  # deleted meanwhile: the repeated read finds out
        except OSError as error:
            self.error = disk_error(path, error)
        except CorruptBatch as error:
            self.error = LogDamaged(path, OSError(errno.EIO, str(error)))

    def settle(self) -> None:
        """On the loop: give the segment the index that was loaded, if it is still the right one."""
        if self._index is not None and self._indexes.version == self._version:
            self._indexes.lend(self._index)


def warm(disk: Disk, path: str, position: int, size: int) -> None:
    """Read a part of a file into the page cache."""
    file = disk.open(path)
    try:
        stop = position + size
        while position < stop:
            got = len(file.pread(position, min(stop - position, PIECE_BYTES)))
            position += got
            if not got:
                return
    finally:
        file.close()
