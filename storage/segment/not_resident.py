"""Cold: what was asked for is not in memory, and reading it now would make the broker's loop wait.

`warm` brings it into memory and is for a thread; `settle`, on the loop, puts what it has found in its place;
then the same is asked again. Nothing that a thread has read is served: what is asked again is checked
again, so a truncation, a new leader or a deleted segment meanwhile needs no further thought.
Left to others: the threads, and who waits (broker/replicas/cold_reads.py), what stays cold all the same
(log/uncached_read.py).
"""

import errno
from typing import TYPE_CHECKING

from ..disk import Disk, DiskError, LogDamaged, disk_error
from .batch_walk import CorruptBatch
from .index import OffsetIndex

if TYPE_CHECKING:
    from .segment import Segment

AHEAD_BYTES = 2 << 20  # a reader that has begun goes on: so much more than it asked for is brought
PIECE_BYTES = 1 << 20


class Cold(Exception):
    """Bytes of `segment` from `position`, or about `offset`, are on the medium only."""

    def __init__(
        self, segment: "Segment", size: int, *, position: int = -1, offset: int = -1, is_blind: bool = False
    ) -> None:
        """`is_blind`: whether they are in memory can never be said, so to bring them there is in vain."""
        super().__init__(segment.directory, segment.base_offset)
        self.is_blind = is_blind
        self._segment = segment
        self._position = position
        self._offset = offset
        self._size = size
        self._version = segment.indexes.version
        self._load = segment.indexes.loader()
        self._index: OffsetIndex | None = None
        self.error: DiskError | None = None

    @property
    def key(self) -> tuple[str, int, int]:
        """The same for those who wait for the same."""
        return self._segment.indexes.stem, self._position, self._offset

    def warm(self) -> None:
        """Blocking, for any thread. How it went stands in `error`."""
        path = self._segment.path(".log")
        try:
            if self._load is not None:
                self._index = self._load()
            position = self._position
            if position < 0 and self._index is not None:
                position = self._index.floor(self._offset - self._segment.base_offset)
            warm(self._segment.disk, path, max(position, 0), self._size + AHEAD_BYTES)
        except FileNotFoundError:
            pass  # deleted meanwhile: who asks again learns that
        except OSError as error:
            self.error = disk_error(path, error)
        except CorruptBatch as error:
            self.error = LogDamaged(path, OSError(errno.EIO, str(error)))

    def settle(self) -> None:
        """On the loop: lend the segment the index that was loaded, if it is still the right one."""
        if self._index is not None and self._segment.indexes.version == self._version:
            self._segment.indexes.lend(self._index)


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
