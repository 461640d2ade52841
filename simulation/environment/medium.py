"""What a simulated disk keeps: bytes, names, and changes of them that are on their way to the medium.

Left to others: when they get there, and what is lost with the power (`disk.py`).
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable
from random import Random
from typing import NamedTuple

folder_of = functools.lru_cache(1 << 14)(posixpath.dirname)
"""The same few names are asked for all the time."""
PAGE_BYTES = 64  # what is written back as one; small, so that small files can have holes


class Content:
    """The bytes of one file, how many of them are safe, and when it was written to last."""

    __slots__ = ("data", "modified_ms", "synced")

    def __init__(self, data: bytes = b"", synced: int = 0) -> None:
        self.data, self.synced = bytearray(data), synced
        self.modified_ms = 0


class Names:
    """Which names there are."""

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
        """The names right below a folder, without the way to it, in their order."""
        below = "/" if folder == "/" else folder + "/"
        start = len(below)
        found = [n[start:] for n in (*self.files, *self.folders) if n.startswith(below)]
        return sorted(name for name in found if name and "/" not in name)

    def drop_orphans(self) -> None:
        """A folder that never reached the medium takes along what was in it."""
        while lost := [f for f in self.folders if f != "/" and folder_of(f) not in self.folders]:
            self.folders.difference_update(lost)
        self.files = {
            name: content for name, content in self.files.items() if folder_of(name) in self.folders
        }


class UnsyncedChange(NamedTuple):
    """A change of names, or of a length, on its way to the medium; who is synced brings it there."""

    of: tuple[object, ...]  # folders, or the content of a file
    do: Callable[[Names], object] | None  # to names; None: a length has changed
    undo: Callable[[], object] | None = None  # of a length


def damage(content: Content, random: Random) -> None:
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
