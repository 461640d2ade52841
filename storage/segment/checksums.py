"""Holds what is read from a segment's file to the checksums of its batches: each byte once, not at each read.

What was appended had been checked before; a medium may give back something else later. To check all that is
read each time would cost readers that catch up a quarter of their rate.
Left to others: what no checksum covers (batch_walk.py), who wants it (`verifies` in ../log/log.py),
a scan of all (../recovery/scan_segment.py).
Why: docs/decisions/0063-the-first-reader-finds-damage.md
"""

from bisect import bisect_right
from struct import Struct

from crc32c import crc32c

from ...protocol.batches import CRC_FROM, LENGTH_END
from ...protocol.primitives import Buffer

RUNS_MAX = 64
FAR = 1 << 62
_read_sum = Struct(">8xi5xI").unpack_from  # length, checksum


class MatchedBytes:
    """Which bytes of one file have matched: runs of positions, from a batch's start to a batch's end.

    One that is forgotten is only checked once more.
    """

    __slots__ = ("_runs",)

    def __init__(self) -> None:
        self._runs: list[tuple[int, int]] = []  # in order, and apart

    def after(self, position: int) -> int:
        """The end of the run that `position` is in; `position` itself if it is in none."""
        place = bisect_right(self._runs, (position, FAR)) - 1
        return max(self._runs[place][1], position) if place >= 0 else position

    def add(self, start: int, stop: int) -> None:
        """All batches from `start` to `stop` match."""
        runs = self._runs
        first = bisect_right(runs, (start, FAR))
        if first and runs[first - 1][1] >= start:
            first -= 1
            start, stop = runs[first][0], max(stop, runs[first][1])
        last = first
        while last < len(runs) and runs[last][0] <= stop:
            stop = max(stop, runs[last][1])
            last += 1
        runs[first:last] = [(start, stop)]
        if len(runs) > RUNS_MAX:
            del runs[0]

    def cut(self, position: int) -> None:
        """The file ends at `position`, a batch's start; others may be written behind it."""
        self._runs = [(start, min(stop, position)) for start, stop in self._runs if start < position]

    def clear(self) -> None:
        """Nothing is known any more."""
        self._runs.clear()


def mismatch(data: Buffer, start: int, stop: int) -> int:
    """Where in `data`, whole batches from `start` to `stop`, the first one begins that does not match its
    checksum; -1 if all do.
    """
    view = memoryview(data)
    while start < stop:
        length, checksum = _read_sum(view, start)
        after = start + LENGTH_END + length
        if crc32c(view[start + CRC_FROM : after]) != checksum:
            return start
        start = after
    return -1
