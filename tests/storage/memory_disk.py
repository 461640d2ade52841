"""A file system in a dictionary, which can be copied, and which dies at the nth change asked of it."""

from collections.abc import Sequence

from strandline.protocol.primitives import Buffer


class Died(Exception):
    """The process has ended here."""


class MemoryDisk:
    """As much of a Disk as cleaning, swapping and finishing swaps need. Everything lies in one folder."""

    def __init__(self, files: dict[str, bytes] | None = None, changes_max: int = 1 << 60) -> None:
        self.files = {name: bytearray(data) for name, data in (files or {}).items()}
        self.changes = 0
        self.changes_max = changes_max

    def copy(self, changes_max: int = 1 << 60) -> "MemoryDisk":
        return MemoryDisk({name: bytes(data) for name, data in self.files.items()}, changes_max)

    def change(self) -> None:
        if self.changes == self.changes_max:
            raise Died
        self.changes += 1

    def open(self, path: str, create: bool = False) -> "MemoryFile":
        if path not in self.files:
            if not create:
                raise FileNotFoundError(2, "no such file", path)
            self.change()
            self.files[path] = bytearray()
        return MemoryFile(self, self.files[path])

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        return bytes(self.files[path])

    def replace(self, path: str, data: bytes, sync: bool = True, mode: int = 0o644) -> None:
        self.change()
        self.files[path] = bytearray(data)

    def listdir(self, path: str) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self.files if name.rpartition("/")[0] == path)

    def exists(self, path: str) -> bool:
        return path in self.files

    def rename(self, source: str, target: str) -> None:
        if source not in self.files:
            raise FileNotFoundError(2, "no such file", source)
        self.change()
        self.files[target] = self.files.pop(source)

    def unlink(self, path: str) -> None:
        if path in self.files:
            self.change()
            del self.files[path]

    def modified_ms(self, path: str) -> int:
        return 0

    def set_modified_ms(self, path: str, wall_ms: int) -> None:
        self.change()

    def sync_dir(self, path: str) -> None:
        pass

    def sync_all(self, path: str) -> None:
        pass


class MemoryFile:
    """A handle."""

    def __init__(self, disk: MemoryDisk, data: bytearray) -> None:
        self._disk = disk
        self._data = data

    def append(self, buffers: Sequence[Buffer]) -> int:
        self._disk.change()
        before = len(self._data)
        for buffer in buffers:
            self._data += buffer
        return len(self._data) - before

    def pread(self, position: int, size: int) -> bytes:
        return bytes(self._data[position : position + size])

    def sync(self) -> None:
        pass

    def size(self) -> int:
        return len(self._data)

    def close(self) -> None:
        pass
