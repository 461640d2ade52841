"""Disk and File: all access to the file system.

Files are raw descriptors. Once `append` has returned, the data is in the page cache and survives the death of
this process; the proof of intactness relies on that (docs/replication.md). The simulator has its own Disk and
injects its faults there.
Left to others: what a fault means (log/log.py, directories/incarnation.py).
"""

import contextlib
import ctypes
import errno
import os
import resource
import shutil
from collections.abc import Sequence
from threading import current_thread, main_thread
from typing import Protocol

from ..protocol.primitives import Buffer
from .directory_lock import DirectoryLocked as DirectoryLocked
from .directory_lock import RealLock
from .file_systems import lies_in_memory

LIBC = ctypes.CDLL(None, use_errno=True)
IOV_MAX = 1024  # the kernel takes no more buffers in one call
NOWAIT_UNKNOWN = frozenset({errno.EOPNOTSUPP, errno.EINVAL})  # the file system has no RWF_NOWAIT
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
NO_DESCRIPTOR = frozenset({errno.EMFILE, errno.ENFILE})


class DiskError(Exception):
    """A file call failed; `path` says where."""

    def __init__(self, path: str, error: OSError) -> None:
        super().__init__(f"{path}: {error}")
        self.path = path
        self.error = error


class DiskFull(DiskError):
    """No room. The log was truncated to its old end; room may come back by itself."""


class DiskFailed(DiskError):
    """The disk cannot be trusted any more. Nothing may be appended in this directory."""


class NoDescriptor(DiskError):
    """Too many files are open. It passes, and the disk may be well."""


class ReplicaElsewhere(DiskError):
    """A replica that is not new may be in an offline directory, so it is not created empty elsewhere."""


class LeftBehind(DiskError):
    """What a log left when it moved is still there. It is being removed, and the disk may be well."""


class LogDamaged(DiskError):
    """The content of one log is not what was written. The disk itself may be well."""


class NotResident(Exception):
    """Bytes of a file are not in memory: reading them now would wait for the disk. With `is_blind` they may
    be in memory, but the file system cannot tell.
    """

    def __init__(self, position: int, size: int, is_blind: bool = False) -> None:
        super().__init__(f"{size} bytes at {position}")
        self.position = position
        self.size = size
        self.is_blind = is_blind


def disk_error(path: str, error: OSError) -> DiskError:
    """Classify an OSError: a full disk and a lack of descriptors pass; everything else is permanent."""
    if error.errno in FULL:
        return DiskFull(path, error)
    return NoDescriptor(path, error) if error.errno in NO_DESCRIPTOR else DiskFailed(path, error)


class File(Protocol):
    """An open file. Positions are in bytes; every call does all that it was asked or raises OSError."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write all buffers at the end; returns the bytes written. After an OSError a part may be there."""
        ...

    def pread(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        ...

    def pread_now(self, position: int, size: int) -> bytes | bytearray:
        """As `pread`, but never waits for the disk: raises NotResident when it would have to."""
        ...

    def pwrite(self, position: int, data: Buffer) -> None: ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return once the data is on disk (fdatasync). A failed sync must never be retried."""
        ...

    def size(self) -> int: ...

    def share(self) -> "File":
        """A second handle on the file, which a thread may sync and close while this one is in use."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """A held directory lock."""

    def release(self) -> None: ...


class Disk(Protocol):
    """The file system operations that the broker needs. Paths are absolute."""

    def open(self, path: str, create: bool = False) -> File: ...

    def read(self, path: str) -> bytes:
        """All of a small file. FileNotFoundError when there is none."""
        ...

    def replace(self, path: str, data: bytes, sync: bool = True, mode: int = 0o644) -> None:
        """Replace the file's content atomically: readers see the old or the new, never a mixture."""
        ...

    def listdir(self, path: str) -> list[str]:
        """Names in sorted order."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_link(self, path: str) -> bool:
        """Whether `path` is a symbolic link, wherever it points."""
        ...

    def mkdir(self, path: str) -> None:
        """Make the directory and its parents, if they are missing."""
        ...

    def rename(self, source: str, target: str) -> None: ...

    def unlink(self, path: str) -> None: ...

    def rmtree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def sync_all(self, path: str) -> None:
        """Sync the whole file system that `path` is on (syncfs). Blocks."""
        ...

    def lock(self, path: str) -> Lock:
        """Lock the file at `path` until `release` or the process ends. DirectoryLocked if it is held."""
        ...

    def modified_ms(self, path: str) -> int:
        """The file's last modification, in wall time. FileNotFoundError when there is none."""
        ...

    def set_modified_ms(self, path: str, wall_ms: int) -> None:
        """Set the file's last modification to `wall_ms`."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def open_files_max(self) -> int:
        """How many files the process may have open."""
        ...

    def total_bytes(self, path: str) -> int:
        """The size of the file system that `path` is on."""
        ...


class RealFile:
    """A raw descriptor with its end known. Not opened with O_APPEND: pwrite would ignore its position."""

    __slots__ = ("_end", "_fd")

    def __init__(self, path: str, create: bool) -> None:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        self._fd = os.open(path, flags, 0o644)
        self._end = os.fstat(self._fd).st_size

    def append(self, buffers: Sequence[Buffer]) -> int:
        total = 0
        if len(buffers) == 1:
            data = buffers[0]
            total = len(data)
            written = os.pwrite(self._fd, data, self._end)
            self._end += written
            if written == total:
                return written
            buffers = [memoryview(data)[written:]]
        else:
            total = sum(map(len, buffers))
        self._append_all([memoryview(b) for b in buffers if len(b)])
        return total

    def _append_all(self, views: list[memoryview]) -> None:
        while views:
            written = os.pwritev(self._fd, views[:IOV_MAX], self._end)
            if written == 0:
                raise OSError(errno.EIO, "a write wrote nothing")
            self._end += written
            done = 0
            while done < len(views) and written >= len(views[done]):
                written -= len(views[done])
                done += 1
            del views[:done]
            if written:
                views[0] = views[0][written:]

    def pread(self, position: int, size: int) -> bytes:
        data = os.pread(self._fd, size, position)
        if len(data) == size or not data:
            return data
        parts = [data]
        have = len(data)
        while have < size and (data := os.pread(self._fd, size - have, position + have)):
            parts.append(data)
            have += len(data)
        return b"".join(parts)

    def pread_now(self, position: int, size: int) -> bytes | bytearray:
        data = bytearray(min(size, max(self._end - position, 0)))
        try:
            have = os.preadv(self._fd, (data,), position, os.RWF_NOWAIT)
        except BlockingIOError:
            raise NotResident(position, size) from None
        except OSError as error:
            if error.errno not in NOWAIT_UNKNOWN:
                raise
            if lies_in_memory(self._fd):
                return self.pread(position, size)
            raise NotResident(position, size, is_blind=True) from None
        if have < len(data):
            raise NotResident(position + have, size - have)
        return data

    def pwrite(self, position: int, data: Buffer) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, position)
            view = view[written:]
            position += written
            self._end = max(self._end, position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._end = size

    def sync(self) -> None:
        os.fdatasync(self._fd)

    def size(self) -> int:
        return self._end

    def share(self) -> "RealFile":
        twin = RealFile.__new__(RealFile)
        twin._fd, twin._end = os.dup(self._fd), self._end
        return twin

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class ReadOnlyFile:
    """A file opened by a reader outside the broker: needs no write permission, creates nothing."""

    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def pread(self, position: int, size: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""
        parts = []
        while size and (data := os.pread(self._fd, size, position)):
            parts.append(data)
            size -= len(data)
            position += len(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def size(self) -> int:
        """The file's size now: somebody else may be appending."""
        return os.fstat(self._fd).st_size

    def close(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class RealDisk:
    """The operating system's file system."""

    def open(self, path: str, create: bool = False) -> File:
        return RealFile(path, create)

    def read(self, path: str) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return file.read()

    def replace(self, path: str, data: bytes, sync: bool = True, mode: int = 0o644) -> None:
        # a thread and the loop may replace the same file at once: each has its own temporary file
        temporary = f"{path}.tmp" if current_thread() is main_thread() else f"{path}.thread.tmp"
        try:
            self._write_new(temporary, data, sync, mode)
            os.replace(temporary, path)
        except OSError:
            with contextlib.suppress(OSError):  # half a file would take up what little room there is
                os.unlink(temporary)
            raise
        if sync:
            self.sync_dir(os.path.dirname(path))

    def _write_new(self, path: str, data: bytes, sync: bool, mode: int) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
        try:
            os.fchmod(fd, mode)
            view = memoryview(data)
            while view:
                view = view[os.write(fd, view) :]
            if sync:
                os.fsync(fd)
        finally:
            os.close(fd)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def rmtree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_all(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if LIBC.syncfs(fd) != 0:
                error = ctypes.get_errno()
                raise OSError(error, os.strerror(error), path)
        finally:
            os.close(fd)

    def lock(self, path: str) -> Lock:
        return RealLock(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, wall_ms: int) -> None:
        os.utime(path, ns=(wall_ms * 1_000_000, wall_ms * 1_000_000))

    def free_bytes(self, path: str) -> int:
        return shutil.disk_usage(path).free

    def total_bytes(self, path: str) -> int:
        return shutil.disk_usage(path).total

    def open_files_max(self) -> int:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return 1 << 20 if soft == resource.RLIM_INFINITY else soft
