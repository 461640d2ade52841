"""A Disk whose calls fail on demand: per call, per path, for a while or for good.

    disk = FaultyDisk()
    disk.fail("sync", "*/t-0/*.log")                       # EIO, until healed
    disk.fail("append", "*.log", ENOSPC, after=3, keep=10)  # the fourth append writes ten bytes and fails
    disk.fill("/data"); ...; disk.make_room("/data")       # no room below a directory

Names of calls are those of the Disk and File protocols. Whatever is not told to fail goes to the disk inside.
"""

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Any
from weakref import WeakSet

from strandline.storage.disk import RealDisk

TAKE_ROOM = ("append", "pwrite", "replace", "mkdir", "create")


@dataclass(eq=False)
class Fault:
    """Which calls fail, and how; `after` of them are let through first, then `times` fail (-1: all)."""

    calls: tuple[str, ...]
    path: str
    errno: int = errno.EIO
    after: int = 0
    times: int = -1
    keep: int = 0  # bytes of an append that are written all the same
    hits: int = 0

    def strikes(self, call: str, path: str) -> bool:
        """Whether this call fails, now that it is made."""
        if call not in self.calls or not fnmatch(path, self.path):
            return False
        if self.after:
            self.after -= 1
            return False
        if self.times == 0:
            return False
        self.times -= self.times > 0
        self.hits += 1
        return True

    def error(self, path: str) -> OSError:
        return OSError(self.errno, os.strerror(self.errno), path)


class FaultyDisk:
    """Wraps a Disk. `calls` is everything that was asked of it, in order, as (call, path)."""

    def __init__(self, inner: Any = None) -> None:
        self.inner = RealDisk() if inner is None else inner
        self.faults: list[Fault] = []
        self.calls: list[tuple[str, str]] = []
        self._filled: dict[str, Fault] = {}
        self.opened: WeakSet[FaultyFile] = WeakSet()

    def fail(self, calls: str, path: str = "*", error: int = errno.EIO, **how: int) -> Fault:
        """Let calls fail, named with spaces between them: `append pread truncate sync open create …`."""
        fault = Fault(tuple(calls.split()), path, error, **how)
        self.faults.append(fault)
        return fault

    def heal(self, *faults: Fault) -> None:
        """These do not fail any more; without any, nothing does."""
        self.faults = [fault for fault in self.faults if faults and fault not in faults]

    def fill(self, directory: str, error: int = errno.ENOSPC) -> Fault:
        """From now on nothing new can be written below `directory`."""
        fault = self._filled[directory] = self.fail(" ".join(TAKE_ROOM), f"{directory}/*", error)
        return fault

    def make_room(self, directory: str) -> None:
        self.heal(self._filled.pop(directory))

    def asked(self, call: str, path: str = "*") -> int:
        """How often such a call was made; `*` stands for any."""
        return sum(fnmatch(each, call) and fnmatch(name, path) for each, name in self.calls)

    def check(self, call: str, path: str) -> None:
        """A call is made: raise if it is to fail."""
        struck = self.struck(call, path)
        if struck is not None:
            raise struck.error(path)

    def struck(self, call: str, path: str) -> Fault | None:
        self.calls.append((call, path))
        return next((fault for fault in self.faults if fault.strikes(call, path)), None)

    # -- the Disk protocol

    def open(self, path: str, create: bool = False) -> "FaultyFile":
        self.check("open", path)
        if create and not self.inner.exists(path):
            self.check("create", path)
        return FaultyFile(self, path, self.inner.open(path, create))

    def replace(self, path: str, data: bytes, sync: bool = True, mode: int = 0o644) -> None:
        self.check("replace", path)
        if sync:
            self.check("sync", path)
        self.inner.replace(path, data, sync, mode)

    def mkdir(self, path: str) -> None:
        if not self.inner.exists(path):
            self.check("mkdir", path)
        self.inner.mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", source)
        self.inner.rename(source, target)
        for file in self.opened:
            if file.path == source:
                file.path = target

    def free_bytes(self, path: str) -> int:
        if any(path == each or path.startswith(f"{each}/") for each in self._filled):
            return 0
        free: int = self.inner.free_bytes(path)
        return free

    def __getattr__(self, call: str) -> Any:
        def ask(path: str, *rest: Any, **named: Any) -> Any:
            self.check(call, path)
            return getattr(self.inner, call)(path, *rest, **named)

        return ask if call != "open_files_max" else self.inner.open_files_max


class FaultyFile:
    """A file of a FaultyDisk."""

    def __init__(self, disk: FaultyDisk, path: str, inner: Any) -> None:
        self._disk, self.path, self._inner = disk, path, inner
        disk.opened.add(self)

    def append(self, buffers: Sequence[Any]) -> int:
        struck = self._disk.struck("append", self.path)
        if struck is None:
            written: int = self._inner.append(buffers)
            return written
        if struck.keep:
            self._inner.append([b"".join(map(bytes, buffers))[: struck.keep]])
        raise struck.error(self.path)

    def share(self) -> "FaultyFile":
        return FaultyFile(self._disk, self.path, self._inner.share())

    def size(self) -> int:
        size: int = self._inner.size()
        return size

    def close(self) -> None:
        self._inner.close()

    def __getattr__(self, call: str) -> Any:
        found = getattr(self._inner, call)

        def ask(*rest: Any, **named: Any) -> Any:
            self._disk.check(call, self.path)
            return found(*rest, **named)

        return ask if callable(found) else found
