"""Files that wait to be deleted: when they may go, and deleting them a little at a time.

A file stays for a while after it was renamed, because a thread or another tool may still read it. Then it is
deleted in steps, each a few files or one large one: a gigabyte takes a quarter of a second, and a partition
may have tens of thousands of files.
Left to others: the renaming, after which it is no longer part of a log (segments.py,
directories/log_manager.py); the thread, and the pause between two steps (broker/upkeep/passes.py).
"""

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from heapq import heappop, heappush

from ..disk import Disk
from ..segment.file_names import DIRECTORY_DELETED, FUTURE

STEP_FILES_MAX = 64
STEP_SECONDS_MAX = 0.01  # a step ends with the file that takes it past this


class PendingDeletion:
    """Paths by the time from which they may be deleted. For the event loop only."""

    def __init__(self) -> None:
        self._fresh: list[tuple[int, str]] = []
        self._dated: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._fresh) + len(self._dated)

    def add(self, paths: Iterable[str], delay_ms: int = 0) -> None:
        """They may go `delay_ms` after the next call of `due`."""
        self._fresh += ((delay_ms, path) for path in paths)

    def due(self, now: float) -> list[str]:
        """Take out what may go now. The delay of paths added since the last call starts now."""
        fresh, self._fresh = self._fresh, []
        for delay_ms, path in fresh:
            heappush(self._dated, (now + delay_ms / 1000, path))
        due = []
        while self._dated and self._dated[0][0] <= now:
            due.append(heappop(self._dated)[1])
        return due


class Deletion:
    """Deletes some paths one after the other. For one thread at a time."""

    def __init__(self, disk: Disk, paths: Iterable[str]) -> None:
        self._disk = disk
        self._left = deque(paths)
        self._opened: str | None = None  # the directory whose files are being deleted

    def __bool__(self) -> bool:
        return bool(self._left)

    def step(self, now: Callable[[], float]) -> None:
        """Delete some. Blocking. A path that raises OSError is not retried: the next start finds it."""
        until = now() + STEP_SECONDS_MAX
        for _ in range(STEP_FILES_MAX):
            if not self._left or now() >= until:
                return
            self._delete(self._left.popleft())

    def _delete(self, path: str) -> None:
        if not path.endswith((DIRECTORY_DELETED, FUTURE)):
            self._disk.unlink(path)
        elif path == self._opened:
            self._disk.rmtree(path)
        elif self._disk.exists(path):
            self._opened = path
            self._left.appendleft(path)
            self._left.extendleft(f"{path}/{name}" for name in self._disk.listdir(path))


def delete_now(disk: Disk, paths: Iterable[str]) -> None:
    """Delete at once, where nobody else does. On a broker a thread deletes them, a little at a time."""
    for path in paths:
        with suppress(OSError):  # the next start does
            disk.unlink(path)
