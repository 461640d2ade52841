"""The data of a simulated disk: bytes, names, and changes that are not durable yet.

Left to others: when changes become durable, and what a power loss takes (`disk.py`).
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable
from random import Random
from typing import NamedTuple

folder_of = functools.lru_cache(1 << 14)(posixpath.dirname)
"""Cached: the same few names are asked for all the time."""
PAGE_BYTES = 64  # the unit of write-back; small, so that small files can have holes


class Content:
    """The bytes of one file, how many of them are synced, and when it was last written."""

    __slots__ = ("data", "modified_ms", "synced")

    def __init__(self, data: bytes = b"", synced: int = 0) -> None:
        self.data, self.synced = bytearray(data), synced
        self.modified_ms = 0


class Names:
    """The paths of files and folders."""

    __slots__ = ("files", "folders")

    def __init__(self) -> None:
        self.files: dict[str, Content] = {}
        self.folders: set[str] = {"/"}

    def put(self, path: str, content: Content) -> None:
        self.files[path] = content

    def make(self, folder: str) -> None:
        self.folders.add(folder)

    def rename(self, source: str, target: str) -> None:
        if source in self.files:
            self.files[target] = self.files.pop(source)
        elif source in self.folders:
            moved = {name: target + name[len(source) :] for name in self.under(source)}
            self.files = {moved.get(name, name): content for name, content in self.files.items()}
            self.folders = {moved.get(name, name) for name in self.folders}

    def remove(self, path: str) -> None:
        for name in self.under(path):
            self.files.pop(name, None)
            self.folders.discard(name)

    def under(self, path: str) -> list[str]:
        if path not in self.folders:
            return [path] if path in self.files else []
        below = path + "/"
        return [n for n in (*self.files, *self.folders) if n == path or n.startswith(below)]

    def inside(self, folder: str) -> list[str]:
        """The names directly in a folder, without its path, sorted."""
        below = "/" if folder == "/" else folder + "/"
        start = len(below)
        found = [n[start:] for n in (*self.files, *self.folders) if n.startswith(below)]
        return sorted(name for name in found if name and "/" not in name)

    def drop_orphans(self) -> None:
        """Drop folders whose parent is gone, and all that was in them."""
        while lost := [f for f in self.folders if f != "/" and folder_of(f) not in self.folders]:
            self.folders.difference_update(lost)
        self.files = {
            name: content for name, content in self.files.items() if folder_of(name) in self.folders
        }


class UnsyncedChange(NamedTuple):
    """A change of names or of a length that is not durable yet; syncing one of `of` makes it durable."""

    of: tuple[object, ...]  # folders, or the content of a file
    do: Callable[[Names], object] | None  # applies a change of names; None: a length has changed
    undo: Callable[[], object] | None = None  # undoes a change of length


def damage(content: Content, random: Random) -> None:
    """Damage unsynced bytes: drop them, keep them, zeros or garbage from some position on, or holes."""
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
