"""OpenSegments: the files that segments hold open, under one bound for the whole broker.

A segment opens its file when it needs it and says so here. Using an open file costs one mark; the marks
are looked at when a file must be closed: one that was used since the last look is spared (a clock). Closed
segments also keep indexes in memory, so fewer of them are held, the least recently read are let go; and they
share a budget in bytes with the tails of logs (memory_budget.py).
All of it belongs to the broker's loop: a thread that reads a segment opens the file for itself.
Why: docs/decisions/0019-files-open-on-demand.md
"""

from collections import OrderedDict
from typing import Protocol

from .memory_budget import MemoryBudget


class Holder(Protocol):
    """What holds an open file, and indexes: a segment."""

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
        """A closed segment is the last one again: its index stays."""
        self._sealed.pop(segment, None)
        self.memory.forget(segment)

    def forget(self, segment: Holder) -> None:
        """The segment is gone; it is no longer ours to let go."""
        self._sealed.pop(segment, None)
        self.memory.forget(segment)
        self._files.pop(segment, None)
