"""OpenSegments: one limit for the files that all segments of the broker hold open.

A segment opens its file on demand and registers it here. Using an open file only sets a mark. When a file
must be closed, one that was marked since the last look is spared (the clock algorithm). Closed segments also
keep indexes in memory, so fewer of them are held, and the least recently read are released first. They share
a budget in bytes with the tails of logs (memory_budget.py).
For the event loop only: a thread that reads a segment opens the file itself.
Why: docs/decisions/0019-files-open-on-demand.md
"""

from collections import OrderedDict
from typing import Protocol

from .memory_budget import MemoryBudget


class Holder(Protocol):
    """Holds an open file and indexes: a segment."""

    touched: bool
    was_read: bool

    @property
    def index_bytes(self) -> int: ...
    def let_go(self) -> None: ...
    def close_file(self) -> None: ...
    def release(self) -> None: ...


class OpenSegments:
    """At most `files_max` open files, and at most `sealed_max` closed segments with an index in memory."""

    __slots__ = ("_files", "_sealed", "files_max", "memory", "sealed_max")

    def __init__(self, sealed_max: int, files_max: int = 1 << 30, memory: MemoryBudget | None = None) -> None:
        self.sealed_max = sealed_max
        self.files_max = files_max
        self.memory = MemoryBudget(1 << 62) if memory is None else memory
        self._sealed: OrderedDict[Holder, None] = OrderedDict()
        self._files: OrderedDict[Holder, None] = OrderedDict()

    @property
    def open_files(self) -> int:
        """How many files are open."""
        return len(self._files)

    def opened(self, segment: Holder) -> None:
        """`segment` has opened its file. It must be used once more to be spared."""
        files = self._files
        while len(files) >= self.files_max:
            oldest, _ = files.popitem(last=False)
            if oldest.touched:
                oldest.touched = False
                files[oldest] = None
            else:
                oldest.close_file()
        files[segment] = None

    def used(self, segment: Holder) -> None:
        """A closed segment was read, or has just been closed."""
        self._sealed[segment] = None
        self._sealed.move_to_end(segment)
        segment.was_read = True
        self.memory.holds(segment, segment.index_bytes)
        while len(self._sealed) > self.sealed_max:
            oldest, _ = self._sealed.popitem(last=False)
            self._files.pop(oldest, None)
            self.memory.forget(oldest)
            oldest.release()

    def grows(self, segment: Holder) -> None:
        """A closed segment is active again: its index stays."""
        self._sealed.pop(segment, None)
        self.memory.forget(segment)

    def forget(self, segment: Holder) -> None:
        """The segment is gone, or has closed its file itself."""
        self._sealed.pop(segment, None)
        self.memory.forget(segment)
        self._files.pop(segment, None)
