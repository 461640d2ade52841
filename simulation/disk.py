"""Files in memory that forget what was not synced.

A process crash keeps everything that was written (the page cache survives); a power loss keeps of each
file a prefix that covers at least what was synced. The dead process's handles reach nothing.
Left to others: bit rot, full and failing disks (a later world).
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence

from ..protocol.primitives import Buffer
from ..storage.disk import DirectoryLocked
from .loop import CrashedHost, Host, current_host


class _Content:
    """The bytes of one file and how many of them are safe."""

    __slots__ = ("data", "synced")

    def __init__(self, data: bytes = b"", synced: int = 0) -> None:
        self.data, self.synced = bytearray(data), synced


class SimDisk:
    """One machine's file system; it outlives the processes that use it."""

    def __init__(self) -> None:
        self.files: dict[str, _Content] = {}
        self.folders: set[str] = {"/"}
        self.locks: dict[str, Host] = {}
        self.capacity_bytes = 1 << 40

    def lose_power(self, keep: float) -> None:
        """Keep of every file its synced part and a share `keep` (0…1) of the rest."""
        for name in sorted(self.files):
            content = self.files[name]
            kept = content.synced + int((len(content.data) - content.synced) * keep)
            del content.data[kept:]
            content.synced = kept

    # ------------------------------------------------------------ the Disk protocol

    def open(self, path: str, create: bool = False) -> SimFile:
        self._reached()
        if path not in self.files:
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            self._parent(path)
            self.files[path] = _Content()
        return SimFile(self.files[path], current_host())

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        return bytes(self.files[path].data)

    def replace(self, path: str, data: bytes, sync: bool = True, mode: int = 0o644) -> None:
        self._reached()
        self._parent(path)
        self.files[path] = _Content(data, len(data) if sync else 0)

    def listdir(self, path: str) -> list[str]:
        if path not in self.folders:
            raise FileNotFoundError(2, "no such directory", path)
        inside = [
            name for name in (*self.files, *self.folders) if posixpath.dirname(name) == path and name != "/"
        ]
        return sorted(posixpath.basename(name) for name in inside)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def mkdir(self, path: str) -> None:
        self._reached()
        while path not in self.folders:
            self.folders.add(path)
            path = posixpath.dirname(path)

    def rename(self, source: str, target: str) -> None:
        self._reached()
        if source in self.files:
            self.files[target] = self.files.pop(source)
            return
        if source not in self.folders:
            raise FileNotFoundError(2, "no such file", source)
        moved = {name: target + name[len(source) :] for name in self._under(source)}
        self.files = {moved.get(name, name): content for name, content in self.files.items()}
        self.folders = {moved.get(name, name) for name in self.folders}

    def unlink(self, path: str) -> None:
        self._reached()
        self.files.pop(path, None)

    def rmtree(self, path: str) -> None:
        self._reached()
        for name in self._under(path):
            self.files.pop(name, None)
            self.folders.discard(name)

    def sync_dir(self, path: str) -> None:
        self._reached()

    def lock(self, path: str) -> SimLock:
        self._reached()
        holder = self.locks.get(path)
        if holder is not None and holder.alive:
            raise DirectoryLocked(f"{path} is held by another process")
        self.files.setdefault(path, _Content())
        self.locks[path] = current_host()
        return SimLock(self, path)

    def free_bytes(self, path: str) -> int:
        return self.capacity_bytes - sum(len(content.data) for content in self.files.values())

    def _under(self, path: str) -> list[str]:
        return [n for n in (*self.files, *self.folders) if n == path or n.startswith(path + "/")]

    def _parent(self, path: str) -> None:
        if posixpath.dirname(path) not in self.folders:
            raise FileNotFoundError(2, "no such directory", path)

    def _reached(self) -> None:
        if not current_host().alive:
            raise CrashedHost("a dead process writes nothing")


class SimFile:
    """A handle of one process; it dies with it."""

    __slots__ = ("_content", "_owner")

    def __init__(self, content: _Content, owner: Host) -> None:
        self._content, self._owner = content, owner

    def _mine(self) -> bytearray:
        if not self._owner.alive:
            raise CrashedHost("a dead process writes nothing")
        return self._content.data

    def append(self, buffers: Sequence[Buffer]) -> int:
        data = self._mine()
        before = len(data)
        for buffer in buffers:
            data += buffer
        return len(data) - before

    def pread(self, position: int, size: int) -> bytes:
        return bytes(self._content.data[position : position + size])

    def pwrite(self, position: int, data: Buffer) -> None:
        self._mine()[position : position + len(data)] = data

    def truncate(self, size: int) -> None:
        data = self._mine()
        del data[size:]
        data.extend(bytes(size - len(data)))
        self._content.synced = min(self._content.synced, size)

    def sync(self) -> None:
        self._content.synced = len(self._mine())

    def size(self) -> int:
        return len(self._content.data)

    def close(self) -> None:
        """The content stays with the disk."""


class SimLock:
    """A held lock file."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locks.pop(self._path, None)
