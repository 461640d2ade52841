"""Tail: the last megabyte of a busy partition, so that readers at its end need no system call.

Batches are copied into chunks. A chunk is filled once from front to back and then only read: sockets may
still be sending views of it, so its memory is never written again, not even after a truncation. All tails of
a broker share a budget: one that is not read drops its chunks when others need the room.
Left to others: everything older (segment.py).
"""

from bisect import bisect_left, bisect_right
from collections import deque

from ...protocol.primitives import Buffer
from .memory_budget import MemoryBudget

FIRST_BYTES = 4 << 10  # small, as thousands of partitions may have one record each; then chunks double
CHUNK_BYTES = 256 << 10


class Chunk:
    """Consecutive batches, with their base offsets and positions."""

    __slots__ = ("bases", "fill", "next_offset", "starts", "view", "writable")

    def __init__(self, memory: bytearray | bytes) -> None:
        self.writable = memoryview(memory)
        self.view = self.writable.toreadonly()
        self.fill = 0
        self.bases: list[int] = []
        self.starts: list[int] = []
        self.next_offset = 0


class Tail:
    """The newest chunks of a log; together at most `bytes_max`, or one batch if that is larger."""

    __slots__ = ("_budget", "_chunks", "_held", "bytes_max", "first_offset", "was_read")

    def __init__(self, bytes_max: int, budget: MemoryBudget) -> None:
        self.bytes_max = bytes_max
        self.was_read = False  # since the budget looked last
        self._budget = budget
        self._chunks: deque[Chunk] = deque()
        self._held = 0
        self.first_offset = -1  # -1: holds nothing

    def clear(self) -> None:
        """Forget everything. Views that are still being sent keep their chunks alive."""
        self._budget.forget(self)
        self.let_go()

    def let_go(self) -> None:
        """Drop all chunks: the memory budget needs their room."""
        self._chunks.clear()
        self._held = 0
        self.first_offset = -1

    def add(self, base_offset: int, next_offset: int, batch: Buffer, start: int, size: int) -> None:
        """Keep `batch[start:start + size]`, which has just been appended to the log."""
        chunks = self._chunks
        chunk = chunks[-1] if chunks else None
        assert chunk is None or chunk.next_offset == base_offset, "a tail has no gaps"
        data = batch if start == 0 and size == len(batch) else memoryview(batch)[start : start + size]
        fill = 0
        if size >= CHUNK_BYTES:  # a chunk of its own, copied once
            chunk = self._push(Chunk(bytes(data)), base_offset)
        else:
            if chunk is None or chunk.fill + size > len(chunk.view):
                before = len(chunk.view) if chunk is not None else 0
                room = min(max(FIRST_BYTES, 2 * before, size), CHUNK_BYTES)
                chunk = self._push(Chunk(bytearray(room)), base_offset)
            fill = chunk.fill
            chunk.writable[fill : fill + size] = data
        chunk.bases.append(base_offset)
        chunk.starts.append(fill)
        chunk.fill = fill + size
        chunk.next_offset = next_offset

    def _push(self, chunk: Chunk, base_offset: int) -> Chunk:
        chunks, size = self._chunks, len(chunk.view)
        while chunks and self._held + size > self.bytes_max:
            self._held -= len(chunks.popleft().view)
        chunks.append(chunk)
        self._held += size
        self.first_offset = chunks[0].bases[0] if len(chunks) > 1 else base_offset
        self._budget.holds(self, self._held)  # last: it may drop all chunks, this one too
        return chunk

    def read(self, offset: int, bytes_max: int, end: int, at_least_one: bool) -> list[memoryview]:
        """Complete batches from the one that holds `offset`, which must not be before `first_offset`."""
        self.was_read = True
        parts: list[memoryview] = []
        for chunk in self._from(offset):
            bases, starts = chunk.bases, chunk.starts
            if bases[0] >= end:
                break
            first = max(bisect_right(bases, offset) - 1, 0)
            start = starts[first]
            after = len(bases) if end >= chunk.next_offset else bisect_left(bases, end)
            stop = starts[after] if after < len(bases) else chunk.fill
            if stop - start > bytes_max:
                fitting = bisect_right(starts, start + bytes_max, first, after)
                stop = starts[fitting - 1]
                if stop == start and at_least_one and not parts:
                    stop = starts[first + 1] if first + 1 < len(starts) else chunk.fill
                bytes_max = 0
            if stop > start:
                parts.append(chunk.view[start:stop])
            bytes_max -= stop - start
            if bytes_max <= 0:
                break
        return parts

    def _from(self, offset: int) -> list[Chunk]:
        """The chunks from the one that holds `offset` on; readers are mostly at the end."""
        found = []
        for chunk in reversed(self._chunks):
            found.append(chunk)
            if chunk.bases[0] <= offset:
                break
        found.reverse()
        return found
