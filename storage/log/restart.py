"""The one segment of a log that restarts at another offset, made before anything is removed.

So a disk without room, or a process without descriptors, fails while the log is still complete. Until the old
files have gone, the new ones have temporary names.
Left to others: what goes (segments.py), what else changes with it (log.py).
"""

from contextlib import suppress

from ..disk import Disk
from ..segment.file_names import LOG_LAST, TRANSACTION_INDEX, UNFINISHED, file_name
from ..segment.segment import Segment, make_files

MARK = f".begin{UNFINISHED}"


class NewBeginning:
    """An empty segment that is not in its place yet."""

    def __init__(self, disk: Disk, directory: str, offset: int, now_ms: int) -> None:
        """Make the files. After an OSError none of them is there."""
        self._disk = disk
        self._stem = f"{directory}/{file_name(offset, '')}"
        file = make_files(disk, directory, offset, MARK)
        self.segment = Segment(disk, directory, offset, now_ms, create=True, file=file)

    def put_in_place(self) -> None:
        """Give the files their names, which nothing else may have. Raises OSError."""
        self._disk.unlink(self._stem + TRANSACTION_INDEX)
        for suffix in LOG_LAST:
            self._disk.rename(f"{self._stem}{suffix}{MARK}", f"{self._stem}{suffix}")

    def give_up(self) -> None:
        """Delete the files: the log stays as it is."""
        self.segment.close_file()
        for suffix in LOG_LAST:
            with suppress(OSError):  # the next start does it
                self._disk.unlink(f"{self._stem}{suffix}{MARK}")
