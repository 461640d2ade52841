"""Chain: the segments of a log in order; the last one grows, the others are closed.

Knows files and offsets, not what records mean. Every disk error is sorted here: a full disk leaves the
chain usable, any other one closes it for appends for good.
Left to others: epochs, producers, the end offset (storage/log.py).
"""

import errno
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ..protocol.primitives import Buffer
from .disk import Disk, DiskFailed, LogDamaged, disk_error
from .segment import LOG, SUFFIXES, CorruptBatch, OpenSegments, RollLimits, Segment


class Chain:
    """Segments with rising base offsets, at least one."""

    __slots__ = ("_opened", "active", "closed", "directory", "disk", "failed", "limits", "segments")

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: Sequence[Segment],
        opened: OpenSegments,
        limits: RollLimits,
    ) -> None:
        assert segments, "a log has at least the segment it appends to"
        self.disk = disk
        self.directory = directory
        self.segments = list(segments)
        self.active = self.segments[-1]
        self.limits = limits
        self.failed = False  # after a disk error other than "full": nothing may be appended any more
        self.closed = False
        self._opened = opened

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn an OSError, or bytes that are no batches, into a DiskError; remember what does not heal."""
        try:
            yield
        except OSError as error:
            trouble = disk_error(self.directory, error)
            self.failed = self.failed or isinstance(trouble, DiskFailed)
            raise trouble from error
        except CorruptBatch as error:
            self.failed = True
            raise LogDamaged(self.directory, OSError(errno.EIO, str(error))) from error

    def fail(self, error: OSError) -> DiskFailed:
        """A sync failed. Whatever it said, it must never be tried again: the pages count as clean now."""
        self.failed = True
        return DiskFailed(self.directory, error)

    def write(self, segment: Segment, data: Buffer) -> None:
        """Append to the active file, or cut it back to what it was and raise."""
        if self.failed or self.closed:
            raise DiskFailed(self.directory, OSError("an earlier disk error closed this log for appends"))
        whole = False
        try:
            segment.file.append((data,))
            whole = True
        except OSError as error:
            self._cut_back(segment)
            trouble = disk_error(segment.path(LOG), error)
            self.failed = self.failed or isinstance(trouble, DiskFailed)
            raise DiskFailed(trouble.path, error) if self.failed else trouble from error
        finally:
            if not whole:  # also when something that is no disk error broke in
                self._cut_back(segment)

    def _cut_back(self, segment: Segment) -> None:
        try:
            segment.file.truncate(segment.size)
        except OSError:
            self.failed = True

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Close the active segment and open one that begins at `base_offset`."""
        with self.guarded():
            self.active.write_indexes()
            fresh = Segment(self.disk, self.directory, base_offset, now_ms, create=True)
        assert fresh.size == 0, f"{fresh.path(LOG)} is already there"
        self._opened.used(self.active)
        self.segments.append(fresh)
        self.active = fresh
        return fresh

    def place_of(self, offset: int) -> int:
        """The place in `segments` of the last one that begins at or before `offset`."""
        return max(bisect_right(self.segments, offset, key=_base_offset) - 1, 0)

    def read(self, offset: int, bytes_max: int, end: int, end_offset: int, at_least_one: bool) -> bytes:
        """Whole batches of one segment, from the one that reaches `offset`, none that begins at `end`."""
        place = self.place_of(offset)
        for segment in self.segments[place:]:
            place += 1
            if segment.base_offset >= end:
                break
            after = self.segments[place].base_offset if place < len(self.segments) else end_offset
            data = segment.read(offset, bytes_max, end, after, at_least_one)
            if segment is not self.active:
                self._opened.used(segment)
            if data or not at_least_one:
                return data
        return b""

    def boundary_before(self, offset: int) -> int:
        """`offset`, or the base offset of the batch in whose middle it lies."""
        found = self.segments[self.place_of(offset)].locate(offset)
        return min(offset, found[1].base_offset) if found else offset

    def cut(self, end: int) -> None:
        """Take away everything from `end`, a batch boundary, on."""
        with self.guarded():
            while self.segments[-1].base_offset > end:
                self._delete(self.segments.pop())
            self.active = self.segments[-1]
            self._opened.forget(self.active)
            found = self.active.locate(end)
            self.active.cut(found[0] if found else self.active.size, end)

    def restart(self, offset: int, now_ms: int) -> None:
        """Take everything away and begin anew at `offset`."""
        with self.guarded():
            while self.segments:
                self._delete(self.segments.pop())
            self.active = Segment(self.disk, self.directory, offset, now_ms, create=True)
            self.segments.append(self.active)

    def retire(self, count: int) -> list[str]:
        """Take the oldest `count` segments out; returns their files, renamed `.deleted`."""
        assert count < len(self.segments), "the active segment stays"
        going, self.segments = self.segments[:count], self.segments[count:]
        renamed = []
        with self.guarded():
            for segment in going:
                self._opened.forget(segment)
                segment.close()
                for path in filter(self.disk.exists, map(segment.path, SUFFIXES)):
                    self.disk.rename(path, f"{path}.deleted")
                    renamed.append(f"{path}.deleted")
        return renamed

    def _delete(self, segment: Segment) -> None:
        self._opened.forget(segment)
        segment.close()
        for suffix in SUFFIXES:
            self.disk.unlink(segment.path(suffix))

    def count_opened(self) -> None:
        """Hand closed segments that were opened in passing to the one who limits them."""
        for segment in self.segments[:-1]:
            if segment.held:
                self._opened.used(segment)

    def close(self) -> None:
        """Close the files; nothing is written."""
        self.closed = True
        for segment in self.segments:
            self._opened.forget(segment)
            segment.close()


def _base_offset(segment: Segment) -> int:
    return segment.base_offset
