"""A file system in memory that loses unsynced data when the power fails.

A process crash keeps everything that was written (the page cache survives). A power loss keeps of each file a
prefix that covers at least what was synced. A cruel one also leaves zeros, garbage or holes after that, and
undoes changes of names and lengths that no sync has made durable. In an ordered journal these changes become
durable in order: syncing a folder, or a file that was truncated, makes all earlier ones durable too. Without
that order each of them survives or vanishes by itself.
A dead process can write nothing. A disk may be full (an append then writes half of its data), folders may be
broken (every call there fails, or only the next one), and descriptors may run out.
Every call made by a thread lets the loop run before it is executed.
Left to others: threads and the time they take (`threads.py`, `loop.py`), bits that flip (tests).
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from random import Random

from ...protocol.primitives import Buffer
from ...storage.disk import DirectoryLocked, NotResident
from .host import CrashedHost, Host, current_host
from .medium import Content, Names, UnsyncedChange, damage, folder_of
from .threads import breathe

SCARCITY = 0.3
COLDNESS = 0.2
"""The share of `pread_now` calls that raise NotResident: the data is not in the page cache."""


class SimDisk:
    """One machine's file system; it outlives the processes that use it."""

    def __init__(self, *, ordered: bool = True) -> None:
        self._names = Names()
        self._safe = Names()
        self._ordered = ordered  # changes of names become durable in order
        self.locks: dict[str, Host] = {}
        self.capacity_bytes = 1 << 40
        self.is_full = False
        self.broken: set[str] = set()  # folders
        self.flawed: set[str] = set()  # folders in which the next call fails
        self.scarce: Random | None = None  # if set, a share of calls finds no descriptor
        self.cold: Random | None = None  # if set, a share of reads is not in the page cache
        self.wall_ms: Callable[[], int] = lambda: 0
        self.on_sync: Callable[[str], None] = lambda path: None
        self._journal: list[UnsyncedChange] = []

    @property
    def files(self) -> dict[str, Content]:
        """The files by path."""
        return self._names.files

    @property
    def folders(self) -> set[str]:
        """The paths of all folders."""
        return self._names.folders

    @property
    def is_troubled(self) -> bool:
        """Whether calls may fail now because of a fault that will pass."""
        return bool(self.broken or self.flawed or self.scarce)

    def lose_power(self, keep: float, cruelty: Random | None = None) -> None:
        """Keep of every file its synced part and a share `keep` (0…1) of the rest.

        With `cruelty` the rest may also be damaged, and changes that are not durable yet may be undone.
        """
        self._lose_names(cruelty)
        for name in sorted(self.files):
            content = self.files[name]
            if cruelty is not None and cruelty.random() < 0.5:
                damage(content, cruelty)
            else:
                del content.data[content.synced + int((len(content.data) - content.synced) * keep) :]
            content.synced = len(content.data)

    def _lose_names(self, cruelty: Random | None) -> None:
        """Undo changes of names and lengths: none, the last ones, or any."""
        changes = self._journal
        if cruelty is None:
            kept = [True] * len(changes)
        elif self._ordered:
            count = cruelty.randint(0, len(changes))
            kept = [place < count for place in range(len(changes))]
        else:
            share = cruelty.random()
            kept = [cruelty.random() < share for _ in changes]
        for change, stays in zip(changes[::-1], kept[::-1], strict=True):
            if change.undo is not None and not stays:
                change.undo()
        for change, stays in zip(changes, kept, strict=True):
            if change.do is not None and stays:
                change.do(self._safe)
        self._safe.drop_orphans()
        self._journal.clear()
        self._names.files, self._names.folders = dict(self._safe.files), set(self._safe.folders)

    # ------------------------------------------------------------ the Disk protocol

    def open(self, path: str, create: bool = False) -> SimFile:
        self._reached(path)
        self._descriptor(path)
        if path in self.folders:
            raise IsADirectoryError(21, "is a directory", path)
        if path not in self.files:
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            self._put(path, Content())
        return SimFile(self, path, self.files[path], current_host())

    def read(self, path: str) -> bytes:
        self._reached(path)
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        return bytes(self.files[path].data)

    def replace(self, path: str, data: bytes, sync: bool = True, mode: int = 0o644) -> None:
        self._reached(path)
        self._put(path, Content(data, len(data) if sync else 0))
        if sync:
            self.sync_dir(folder_of(path))

    def listdir(self, path: str) -> list[str]:
        self._reached(path)
        self._descriptor(path)
        if path in self.files:
            raise NotADirectoryError(20, "not a directory", path)
        if path not in self.folders:
            raise FileNotFoundError(2, "no such directory", path)
        return self._names.inside(path)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def is_link(self, path: str) -> bool:
        return False

    def mkdir(self, path: str) -> None:
        self._reached(path)
        while path not in self.folders:
            self._make(path)
            path = folder_of(path)

    def rename(self, source: str, target: str) -> None:
        self._reached(source)
        if source not in self.files and source not in self.folders:
            raise FileNotFoundError(2, "no such file", source)
        self._change(lambda names: names.rename(source, target), source, target)

    def unlink(self, path: str) -> None:
        self._reached(path)
        if path in self.files:
            self._change(lambda names: names.remove(path), path)

    def rmtree(self, path: str) -> None:
        self._reached(path)
        self._change(lambda names: names.remove(path), path)

    def sync_dir(self, path: str) -> None:
        self._reached(path)
        self.on_sync(path)
        if path not in self.folders:
            raise FileNotFoundError(2, "no such directory", path)
        self.settle(path)

    def sync_all(self, path: str) -> None:
        self._reached(path)
        self.on_sync(path)
        for content in self.files.values():
            content.synced = len(content.data)
        self._settle(self._journal)

    def lock(self, path: str) -> SimLock:
        self._reached(path)
        holder = self.locks.get(path)
        if holder is not None and holder.alive:
            raise DirectoryLocked(f"{path} is held by another process")
        if path not in self.files:
            self._put(path, Content())
        self.locks[path] = current_host()
        return SimLock(self, path)

    def modified_ms(self, path: str) -> int:
        self._reached(path)
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        return self.files[path].modified_ms

    def set_modified_ms(self, path: str, wall_ms: int) -> None:
        self._reached(path)
        self.files[path].modified_ms = wall_ms

    def free_bytes(self, path: str) -> int:
        if self.is_full:
            return 0
        return self.capacity_bytes - sum(len(content.data) for content in self.files.values())

    def open_files_max(self) -> int:
        return 1 << 16

    def total_bytes(self, path: str) -> int:
        return self.capacity_bytes

    # ------------------------------------------------------------ changes that are not durable yet

    def settle(self, synced: object) -> None:
        """A folder or a content was synced: its changes (if ordered, all before them too) are durable."""
        if not self._ordered:
            self._settle([change for change in self._journal if synced in change.of])
            return
        for place in range(len(self._journal), 0, -1):
            if synced in self._journal[place - 1].of:
                self._settle(self._journal[:place])
                return

    def _settle(self, changes: Sequence[UnsyncedChange]) -> None:
        for change in changes:
            if change.do is not None:
                change.do(self._safe)
        done = set(map(id, changes))
        self._journal = [change for change in self._journal if id(change) not in done]

    def cut(self, content: Content, size: int) -> None:
        """Truncate a file, or extend it with zeros."""
        whole, synced = bytes(content.data), content.synced

        def undo() -> None:
            kept = b"" if self._ordered else bytes(content.data)  # written since: it is kept
            content.data[:], content.synced = kept + whole[len(kept) :], max(synced, len(kept))

        self._journal.append(UnsyncedChange((content,), None, undo))
        del content.data[size:]
        content.data.extend(bytes(size - len(content.data)))
        content.synced = min(content.synced, size)

    def _make(self, folder: str) -> None:
        self._change(lambda names: names.make(folder), folder)

    def _put(self, path: str, content: Content) -> None:
        if folder_of(path) not in self.folders:
            raise FileNotFoundError(2, "no such directory", path)
        self.grow(path)
        content.modified_ms = self.wall_ms()
        self._change(lambda names: names.put(path, content), path)

    def _change(self, do: Callable[[Names], object], *paths: str) -> None:
        """Names change at `paths`: at once for the process, later durably."""
        do(self._names)
        self._journal.append(UnsyncedChange(tuple(folder_of(path) for path in paths), do))

    def _reached(self, path: str = "/") -> None:
        breathe()
        if not current_host().alive:
            raise CrashedHost("a dead process writes nothing")
        self.work(path)

    def work(self, path: str) -> None:
        """A call at `path`: it fails in a broken folder."""
        if self.broken or self.flawed:
            self._fail(path)

    def _fail(self, path: str) -> None:
        for folder in (*self.broken, *self.flawed):
            if path == folder or path.startswith(f"{folder}/"):
                self.flawed.discard(folder)
                raise OSError(errno.EIO, "input/output error", path)

    def _descriptor(self, path: str) -> None:
        """The call needs a file descriptor: it may fail with EMFILE."""
        if self.scarce is not None and self.scarce.random() < SCARCITY:
            raise OSError(errno.EMFILE, "too many open files", path)

    def grow(self, path: str) -> None:
        """Something new is about to be written: it fails if the disk is full."""
        if self.is_full:
            raise OSError(errno.ENOSPC, "no space left on device", path)


class SimFile:
    """A file handle of one process; nothing can be written through it once that process is dead."""

    __slots__ = ("_content", "_disk", "_owner", "_path")

    def __init__(self, disk: SimDisk, path: str, content: Content, owner: Host) -> None:
        self._disk, self._path, self._content, self._owner = disk, path, content, owner

    def _mine(self) -> bytearray:
        breathe()
        if not self._owner.alive:
            raise CrashedHost("a dead process writes nothing")
        self._disk.work(self._path)
        return self._content.data

    def _changed(self) -> bytearray:
        mine = self._mine()
        self._content.modified_ms = self._disk.wall_ms()
        return mine

    def append(self, buffers: Sequence[Buffer]) -> int:
        data = self._changed()
        before = len(data)
        for buffer in buffers:
            data += buffer
        if self._disk.is_full:
            del data[(before + len(data)) // 2 :]
            self._disk.grow(self._path)
        return len(data) - before

    def pread(self, position: int, size: int) -> bytes:
        breathe()
        self._disk.work(self._path)
        return bytes(self._content.data[position : position + size])

    def pread_now(self, position: int, size: int) -> bytes:
        cold = self._disk.cold
        if cold is not None and cold.random() < COLDNESS:
            raise NotResident(position, size)
        return self.pread(position, size)

    def pwrite(self, position: int, data: Buffer) -> None:
        mine = self._changed()
        mine.extend(bytes(max(position - len(mine), 0)))
        mine[position : position + len(data)] = data
        self._content.synced = min(self._content.synced, position)

    def truncate(self, size: int) -> None:
        self._changed()
        self._disk.cut(self._content, size)

    def sync(self) -> None:
        self._content.synced = len(self._mine())
        self._disk.on_sync(self._path)
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
