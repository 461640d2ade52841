"""The lock of a log directory: only one process at a time works in it.

Left to others: which file it is (directories/incarnation.py), who takes it (storage/disk.py).
"""

import fcntl
import os
from struct import Struct

FLOCK = Struct("hhqqi4x")
WHOLE_FILE = FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)  # struct flock: from 0 to the end


class DirectoryLocked(Exception):
    """Another process holds this log directory."""


class RealLock:
    """A record lock of the open file: the kernel releases it when the process ends, however it ends.

    Kafka locks the same file in this way. An flock would let both run on one directory.
    """

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.fcntl(self._fd, fcntl.F_OFD_SETLK, WHOLE_FILE)
        except BlockingIOError:
            os.close(self._fd)
            raise DirectoryLocked(f"{path} is held by another process") from None

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


def is_held(path: str) -> bool:
    """Whether a process of this machine holds the lock. Asks only: no right to write is needed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        kind, *_ = FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_OFD_GETLK, WHOLE_FILE))
    finally:
        os.close(fd)
    return bool(kind != fcntl.F_UNLCK)
