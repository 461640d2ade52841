"""The sparse indexes of a segment: offset -> position, timestamp -> offset. Kafka's entries, byte for byte.

Lookups search arrays in memory. A missing or implausible index is rebuilt from the log.
Left to others: their files (index_files.py), when an entry is due (segment.py).
Why: docs/decisions/0001-kafkas-protocol-and-formats.md
"""

import sys
from array import array
from bisect import bisect_left, bisect_right
from struct import Struct

OFFSET_ENTRY = Struct(">ii")  # last offset of a batch, relative; its position
TIME_ENTRY = Struct(">qi")  # timestamp, relative offset
ABORTED_ENTRY = Struct(">hqqqq")  # .txnindex: version, producer id, first, last and last stable offset
HIGH = 1 if sys.byteorder == "little" else 0  # where the upper half of an int64 stands
RELATIVE_MAX = (1 << 31) - 1  # offsets in a segment are kept relative to its first


class OffsetIndex:
    """The last offset of some batches and the positions of those batches, both rising."""

    __slots__ = ("offsets", "positions")

    def __init__(self) -> None:
        self.offsets = array("i")
        self.positions = array("i")

    @classmethod
    def load(cls, data: bytes) -> "OffsetIndex":
        """From the bytes of an .index file; a torn last entry is left out."""
        index = cls()
        flat = array("i")
        flat.frombytes(data[: len(data) - len(data) % OFFSET_ENTRY.size])
        if sys.byteorder == "little":
            flat.byteswap()
        index.offsets, index.positions = flat[::2], flat[1::2]
        return index

    def dump(self, start: int = 0) -> bytes:
        """The bytes of the entries from `start` on."""
        flat = array("i", bytes(OFFSET_ENTRY.size * (len(self.offsets) - start)))
        flat[::2], flat[1::2] = self.offsets[start:], self.positions[start:]
        if sys.byteorder == "little":
            flat.byteswap()
        return flat.tobytes()

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative: int, position: int) -> None:
        self.offsets.append(relative)
        self.positions.append(position)

    def floor(self, relative: int) -> int:
        """A position at or before the batch that holds `relative`."""
        place = bisect_right(self.offsets, relative)
        return self.positions[place - 1] if place else 0

    def floor_entry(self, relative: int) -> tuple[int, int]:
        """The last entry at or before the batch that holds `relative`: (offset, position), or (0, 0)."""
        place = bisect_right(self.offsets, relative)
        return (self.offsets[place - 1], self.positions[place - 1]) if place else (0, 0)

    def floor_position(self, position: int) -> int:
        """The last indexed batch start at or before `position`."""
        place = bisect_right(self.positions, position)
        return self.positions[place - 1] if place else 0

    def truncate(self, position: int) -> None:
        """Forget batches that begin at or after `position`."""
        place = bisect_left(self.positions, position)
        del self.offsets[place:]
        del self.positions[place:]

    def plausible(self, segment_size: int) -> bool:
        """Whether the entries can belong to a segment of that size. A zero-filled tail cannot."""
        return not self.offsets or (
            self.offsets[0] >= 0
            and self.positions[0] > 0
            and self.offsets[0] <= self.offsets[-1]
            and 0 < self.positions[-1] < segment_size
        )


class TimeIndex:
    """The largest timestamp so far at some places of a segment, with the last offset of its batch."""

    __slots__ = ("offsets", "times")

    def __init__(self) -> None:
        self.times = array("q")
        self.offsets = array("i")

    @classmethod
    def load(cls, data: bytes) -> "TimeIndex":
        """From the bytes of a .timeindex file; a torn last entry is left out."""
        index = cls()
        flat = array("i")
        flat.frombytes(data[: len(data) - len(data) % TIME_ENTRY.size])
        if sys.byteorder == "little":
            flat.byteswap()
        halves = array("i", bytes(8 * (len(flat) // 3)))
        halves[HIGH::2], halves[1 - HIGH :: 2] = flat[::3], flat[1::3]
        index.times.frombytes(halves.tobytes())
        index.offsets = flat[2::3]
        return index

    def dump(self, start: int = 0) -> bytes:
        """The bytes of the entries from `start` on."""
        return b"".join(map(TIME_ENTRY.pack, self.times[start:], self.offsets[start:]))

    def __len__(self) -> int:
        return len(self.times)

    def append(self, time: int, relative: int) -> None:
        """Add an entry if its time is later than the last one's."""
        if not self.times or time > self.times[-1]:
            self.times.append(time)
            self.offsets.append(relative)

    def floor_entry(self, time: int) -> tuple[int, int]:
        """The last entry earlier than `time`; (-1, 0) without one."""
        place = bisect_left(self.times, time)
        return (self.times[place - 1], self.offsets[place - 1]) if place else (-1, 0)

    def truncate(self, relative: int) -> None:
        """Forget entries of `relative` and later offsets."""
        place = bisect_left(self.offsets, relative)
        del self.times[place:]
        del self.offsets[place:]

    def last(self) -> tuple[int, int]:
        """The largest timestamp and its relative offset; (-1, 0) when empty."""
        return (self.times[-1], self.offsets[-1]) if self.times else (-1, 0)

    def plausible(self, entries_max: int) -> bool:
        """Whether these can be a segment's entries: never falling, never below zero, none zero-filled."""
        times, offsets = self.times, self.offsets
        if not times:
            return True
        rising = times[0] <= times[-1] and 0 <= offsets[0] <= offsets[-1]
        return len(times) <= entries_max and rising and (len(times) == 1 or times[-1] > 0)
