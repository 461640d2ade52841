"""Files in memory that forget what was not synced.

A process crash keeps everything that was written (the page cache survives). A power loss keeps of each file
a prefix that covers at least what was synced; a cruel one also leaves zeros, garbage or holes behind that,
and takes back the last changes of names and lengths. Those reach the medium in their order, as in the
journal of a file system: a synced folder, or a synced file that had been cut, brings all before it along.
The dead process's handles reach nothing. A disk may be full, which cuts an append in its middle, and folders
may be broken: then every call there fails, or the next one.
Left to others: threads that a slow disk keeps (`loop.py`), bits that flip (tests).
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from ..protocol.primitives import Buffer
from ..storage.disk import DirectoryLocked
from .loop import CrashedHost, Host, current_host

PAGE_BYTES = 64  # what is written back as one; small, so that small files can have holes


class _Content:
    """The bytes of one file and how many of them are safe."""

    __slots__ = ("data", "synced")

    def __init__(self, data: bytes = b"", synced: int = 0) -> None:
        self.data, self.synced = bytearray(data), synced


class _Change(NamedTuple):
    """A change of names, or of a length, on its way to the medium; who is synced brings it there."""

    of: tuple[object, ...]  # folders, or the content of a file
    undo: Callable[[], object]


class SimDisk:
    """One machine's file system; it outlives the processes that use it."""

    def __init__(self) -> None:
        self.files: dict[str, _Content] = {}
        self.folders: set[str] = {"/"}
        self.locks: dict[str, Host] = {}
        self.capacity_bytes = 1 << 40
        self.is_full = False
        self.broken: set[str] = set()  # folders
        self.flawed: set[str] = set()  # folders in which the next call fails
        self._journal: list[_Change] = []

    def lose_power(self, keep: float, cruelty: Random | None = None) -> None:
        """Keep of every file its synced part and a share `keep` (0…1) of the rest.

        With `cruelty` the rest may also be damaged, and changes that no sync has made sure may be taken back.
        """
        if cruelty is not None:
            kept = cruelty.randint(0, len(self._journal))
            for change in reversed(self._journal[kept:]):
                change.undo()
        self._journal.clear()
        for name in sorted(self.files):
            content = self.files[name]
            if cruelty is not None and cruelty.random() < 0.5:
                _damage(content, cruelty)
            else:
                del content.data[content.synced + int((len(content.data) - content.synced) * keep) :]
            content.synced = len(content.data)

    # ------------------------------------------------------------ the Disk protocol

    def open(self, path: str, create: bool = False) -> SimFile:
        self._reached(path)
        if path in self.folders:
            raise IsADirectoryError(21, "is a directory", path)
        if path not in self.files:
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            self._put(path, _Content())
        return SimFile(self, path, self.files[path], current_host())

    def read(self, path: str) -> bytes:
        self._reached(path)
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        return bytes(self.files[path].data)

    def replace(self, path: str, data: bytes, sync: bool = True, mode: int = 0o644) -> None:
        self._reached(path)
        self._put(path, _Content(data, len(data) if sync else 0))
        if sync:
            self.sync_dir(posixpath.dirname(path))

    def listdir(self, path: str) -> list[str]:
        self._reached(path)
        if path in self.files:
            raise NotADirectoryError(20, "not a directory", path)
        if path not in self.folders:
            raise FileNotFoundError(2, "no such directory", path)
        inside = [
            name for name in (*self.files, *self.folders) if posixpath.dirname(name) == path and name != "/"
        ]
        return sorted(posixpath.basename(name) for name in inside)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def is_link(self, path: str) -> bool:
        return False

    def mkdir(self, path: str) -> None:
        self._reached(path)
        while path not in self.folders:
            self._make(path)
            path = posixpath.dirname(path)

    def rename(self, source: str, target: str) -> None:
        self._reached(source)
        if source not in self.files and source not in self.folders:
            raise FileNotFoundError(2, "no such file", source)
        self._remember(source, target)
        if source in self.files:
            self.files[target] = self.files.pop(source)
            return
        moved = {name: target + name[len(source) :] for name in self._under(source)}
        self.files = {moved.get(name, name): content for name, content in self.files.items()}
        self.folders = {moved.get(name, name) for name in self.folders}

    def unlink(self, path: str) -> None:
        self._reached(path)
        if path in self.files:
            self._remember(path)
            del self.files[path]

    def rmtree(self, path: str) -> None:
        self._reached()
        self._remember(path)
        for name in self._under(path):
            self.files.pop(name, None)
            self.folders.discard(name)

    def sync_dir(self, path: str) -> None:
        self._reached(path)
        if path not in self.folders:
            raise FileNotFoundError(2, "no such directory", path)
        self.settle(path)

    def sync_all(self, path: str) -> None:
        self._reached(path)
        for content in self.files.values():
            content.synced = len(content.data)
        self._journal.clear()

    def lock(self, path: str) -> SimLock:
        self._reached(path)
        holder = self.locks.get(path)
        if holder is not None and holder.alive:
            raise DirectoryLocked(f"{path} is held by another process")
        self.files.setdefault(path, _Content())
        self.locks[path] = current_host()
        return SimLock(self, path)

    def free_bytes(self, path: str) -> int:
        if self.is_full:
            return 0
        return self.capacity_bytes - sum(len(content.data) for content in self.files.values())

    def open_files_max(self) -> int:
        return 1 << 16

    def total_bytes(self, path: str) -> int:
        return self.capacity_bytes

    # ------------------------------------------------------------ what is on its way to the medium

    def settle(self, synced: object) -> None:
        """A folder or a content was synced: its changes, and all before them, cannot be taken back."""
        for place in range(len(self._journal), 0, -1):
            if synced in self._journal[place - 1].of:
                del self._journal[:place]
                return

    def cut(self, content: _Content, size: int) -> None:
        """Shorten a file, or fill it up with zeros."""
        whole, synced = bytes(content.data), content.synced

        def undo() -> None:
            content.data[:], content.synced = whole, synced

        self._changed(undo, content)
        del content.data[size:]
        content.data.extend(bytes(size - len(content.data)))
        content.synced = min(content.synced, size)

    def _make(self, folder: str) -> None:
        self.folders.add(folder)
        self._changed(lambda: self.folders.discard(folder), posixpath.dirname(folder))

    def _put(self, path: str, content: _Content) -> None:
        if posixpath.dirname(path) not in self.folders:
            raise FileNotFoundError(2, "no such directory", path)
        self.grow(path)
        before = self.files.get(path)

        def undo() -> None:
            if before is None:
                del self.files[path]
            else:
                self.files[path] = before

        self._changed(undo, posixpath.dirname(path))
        self.files[path] = content

    def _remember(self, *paths: str) -> None:
        """Names are about to change at `paths`."""
        files, folders = dict(self.files), set(self.folders)

        def undo() -> None:
            self.files, self.folders = files, folders

        self._changed(undo, *map(posixpath.dirname, paths))

    def _changed(self, undo: Callable[[], object], *of: object) -> None:
        self._journal.append(_Change(of, undo))

    def _under(self, path: str) -> list[str]:
        return [n for n in (*self.files, *self.folders) if n == path or n.startswith(path + "/")]

    def _reached(self, path: str = "/") -> None:
        if not current_host().alive:
            raise CrashedHost("a dead process writes nothing")
        self.work(path)

    def work(self, path: str) -> None:
        """A call is made at `path`: it fails in a broken folder."""
        if self.broken or self.flawed:
            self._fail(path)

    def _fail(self, path: str) -> None:
        for folder in (*self.broken, *self.flawed):
            if path == folder or path.startswith(f"{folder}/"):
                self.flawed.discard(folder)
                raise OSError(errno.EIO, "input/output error", path)

    def grow(self, path: str) -> None:
        """Something new is about to be written."""
        if self.is_full:
            raise OSError(errno.ENOSPC, "no space left on device", path)


def _damage(content: _Content, random: Random) -> None:
    """What was not synced: nothing of it, all of it, zeros or garbage from somewhere on, or holes in it."""
    data, synced = content.data, content.synced
    kind = random.randrange(5)
    start = random.randint(synced, len(data))
    if kind == 0:
        del data[synced:]
    elif kind == 1:
        data[start:] = bytes(len(data) - start)
    elif kind == 2:
        data[start:] = random.randbytes(len(data) - start)
    elif kind == 3:
        for page in range(synced, len(data), PAGE_BYTES):
            if random.random() < 0.3:
                data[page : page + PAGE_BYTES] = bytes(len(data[page : page + PAGE_BYTES]))


class SimFile:
    """A handle of one process; it dies with it."""

    __slots__ = ("_content", "_disk", "_owner", "_path")

    def __init__(self, disk: SimDisk, path: str, content: _Content, owner: Host) -> None:
        self._disk, self._path, self._content, self._owner = disk, path, content, owner

    def _mine(self) -> bytearray:
        if not self._owner.alive:
            raise CrashedHost("a dead process writes nothing")
        self._disk.work(self._path)
        return self._content.data

    def append(self, buffers: Sequence[Buffer]) -> int:
        data = self._mine()
        before = len(data)
        for buffer in buffers:
            data += buffer
        if self._disk.is_full:
            del data[(before + len(data)) // 2 :]
            self._disk.grow(self._path)
        return len(data) - before

    def pread(self, position: int, size: int) -> bytes:
        self._disk.work(self._path)
        return bytes(self._content.data[position : position + size])

    def pread_now(self, position: int, size: int) -> bytes:
        return self.pread(position, size)

    def pwrite(self, position: int, data: Buffer) -> None:
        mine = self._mine()
        mine.extend(bytes(max(position - len(mine), 0)))
        mine[position : position + len(data)] = data
        self._content.synced = min(self._content.synced, position)

    def truncate(self, size: int) -> None:
        self._mine()
        self._disk.cut(self._content, size)

    def sync(self) -> None:
        self._content.synced = len(self._mine())
        self._disk.settle(self._content)

    def size(self) -> int:
        return len(self._content.data)

    def share(self) -> SimFile:
        return self

    def close(self) -> None:
        """The content stays with the disk."""


class SimLock:
    """A held lock file."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk, self._path = disk, path

    def release(self) -> None:
        self._disk.locks.pop(self._path, None)
