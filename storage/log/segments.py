"""Segments: the segments of a log in order; the last one is active, the others are closed.

Knows files and offsets, not what records mean. Every disk error is classified here: a full disk or a lack of
descriptors leaves the chain usable, any other error closes it for appends for good.
Left to others: epochs, producers, the end offset (log.py).
"""

import errno
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter

from ...protocol.primitives import Buffer
from ..disk import FULL, NO_DESCRIPTOR, Disk, DiskError, DiskFailed, File, LogDamaged, disk_error
from ..segment.batch_walk import WalkRules
from ..segment.file_names import (
    CLEANED,
    DELETED,
    GONE,
    LOG,
    SNAPSHOT,
    SUFFIXES,
    TRANSACTION_INDEX,
    file_name,
)
from ..segment.open_files import OpenSegments
from ..segment.segment import CorruptBatch, Segment
from ..segment.segment_swap import swap
from .restart import NewBeginning

PASSING = FULL | NO_DESCRIPTOR
IN_CUT = (*SUFFIXES, TRANSACTION_INDEX)
RETIRED = (*IN_CUT, SNAPSHOT)  # a segment's producer snapshot goes with it

_base_offset = attrgetter("base_offset")


class Segments:
    """Segments with rising base offsets, at least one."""

    __slots__ = (
        "_opened", "active", "closed", "damaged", "directory", "disk", "failed", "generation",
        "segments",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        directory: str,
        segments: Sequence[Segment],
        opened: OpenSegments,
    ) -> None:
        assert segments, "a log has at least its active segment"
        bases = [segment.base_offset for segment in segments]
        assert bases == sorted(set(bases)), "each segment begins after the one before"
        self.disk = disk
        self.directory = directory
        self.segments = list(segments)
        self.active = self.segments[-1]
        self.generation = 0  # rises whenever records are removed, or all files are others
        self.failed = False  # after a disk error other than "full": nothing may be appended any more
        self.damaged = False  # it failed because of its content, not because of the disk
        self.closed = False
        self.belongs_to(opened)

    def belongs_to(self, opened: OpenSegments) -> None:
        """From now on `opened` decides which files stay open."""
        self._opened = opened
        for segment in self.segments:
            segment.belongs_to(opened)

    def relocate(self, directory: str) -> None:
        """The same files are in this directory now. Whoever read the others in a thread asks again."""
        self.generation += 1
        self.directory = directory
        for segment in self.segments:
            segment.relocate(directory, grows=segment is self.active)

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Turn an OSError, or bytes that are not batches, into a DiskError; a permanent one is remembered."""
        try:
            yield
        except OSError as error:
            trouble = disk_error(self.directory, error)
            if isinstance(trouble, DiskFailed):
                self.failed, self.damaged = True, False
            raise trouble from error
        except CorruptBatch as error:
            self.damaged = self.damaged or not self.failed
            self.failed = True
            raise LogDamaged(self.directory, OSError(errno.EIO, str(error))) from error

    @contextmanager
    def all_or_closed(self) -> Iterator[None]:
        """The body must not stop halfway, so any failure in it closes the log for appends.

        Even a full disk, which passes elsewhere. The disk may be well then (LogDamaged), but this log is no
        longer what others think it is, until the next start has checked it.
        """
        try:
            with self.guarded():
                yield
        except DiskError as error:
            if self.failed:
                raise
            self.failed = self.damaged = True
            raise LogDamaged(self.directory, error.error) from error

    def to_append(self) -> Segment:
        """The active segment, with its first batch's timestamp loaded: `must_roll` needs it."""
        segment = self.active
        if segment.first_time is None and segment.size:
            with self.guarded():
                segment.first_ms()
        return segment

    def fail(self, error: OSError) -> DiskFailed:
        """A sync failed. Never retry it, whatever the error: the kernel counts the pages as clean now."""
        self.failed, self.damaged = True, False
        return DiskFailed(self.directory, error)

    def insist_on_open(self) -> None:
        """DiskFailed if nothing may be appended, or written to the files beside it, any more."""
        if self.failed or self.closed:
            raise DiskFailed(self.directory, OSError("an earlier disk error closed this log for appends"))

    def write(self, segment: Segment, data: Buffer) -> None:
        """Append to the active file; on failure truncate it to its old size and raise."""
        assert segment is self.active, "closed segments do not change"
        if self.failed or self.closed:
            self.insist_on_open()
        file = self._file_of(segment)
        try:
            file.append((data,))
        except OSError as error:
            self._cut_back(segment)
            trouble = disk_error(segment.path(LOG), error)
            self.failed = self.failed or isinstance(trouble, DiskFailed)
            raise DiskFailed(trouble.path, error) if self.failed else trouble from error
        except BaseException:
            self._cut_back(segment)
            raise

    def _file_of(self, segment: Segment) -> File:
        """Its open file. If it cannot be opened, nothing was written, so there is nothing to truncate."""
        try:
            return segment.file
        except OSError as error:
            trouble = disk_error(segment.path(LOG), error)
            self.failed = self.failed or isinstance(trouble, DiskFailed)
            raise trouble from error

    def _cut_back(self, segment: Segment) -> None:
        try:
            segment.file.truncate(segment.size)
        except OSError:
            self.failed = True

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Close the active segment and open one that begins at `base_offset`."""
        assert base_offset > self.active.base_offset, "each segment begins after the one before"
        with self.guarded():
            self.active.write_indexes()
            fresh = Segment(self.disk, self.directory, base_offset, now_ms, create=True)
        assert fresh.size == 0, f"{fresh.path(LOG)} already exists"
        self.active.seal()  # only now: if `fresh` could not be made, it stays active
        fresh.belongs_to(self._opened)
        self._opened.used(self.active)
        self.segments.append(fresh)
        self.active = fresh
        return fresh

    def place_of(self, offset: int) -> int:
        """The place in `segments` of the last one that begins at or before `offset`."""
        return max(bisect_right(self.segments, offset, key=_base_offset) - 1, 0)

    def read(
        self,
        offset: int,
        bytes_max: int,
        end: int,
        end_offset: int,
        at_least_one: bool,
        rules: WalkRules,
        wait: bool,
    ) -> Buffer:
        """Complete batches of one segment, from the one that reaches `offset`; none begins at `end`."""
        for place in range(self.place_of(offset), len(self.segments)):
            segment, last = self.segments[place], place + 1 == len(self.segments)
            if segment.base_offset >= end:
                break
            after = end_offset if last else self.segments[place + 1].base_offset
            data = segment.read(offset, bytes_max, end, after, at_least_one, rules, wait)
            if not last:
                self._opened.used(segment)
            if data or not (at_least_one or segment.locate(offset) is None):
                return data  # else compaction has left nothing from `offset` on: try the next segment
        return b""

    def tells_end(self, end: int) -> bool:
        """Whether a scan would find the log's `end`: compaction may have removed the last batch before it."""
        if self.active.base_offset == end:
            return True
        with self.guarded():
            found = self.active.locate(end - 1)
        return found is not None and found[1].next_offset == end

    def boundary_before(self, offset: int) -> int:
        """`offset`, or the base offset of the batch that it lies inside."""
        found = self.segments[self.place_of(offset)].locate(offset)
        return min(offset, found[1].base_offset) if found else offset

    def leaving(self, end: int) -> list[tuple[str, int]]:
        """What a cut at `end` would remove: files, and from which position on."""
        place = self.place_of(end)
        found = self.segments[place].locate(end)
        behind = [(segment.path(LOG), 0) for segment in self.segments[place + 1 :] if segment.size]
        return [(self.segments[place].path(LOG), found[0]), *behind] if found else behind

    @contextmanager
    def ready_to_cut(self, end: int) -> Iterator[Callable[[], list[str]]]:
        """A function that cuts at `end`, a batch boundary, and returns removed files, renamed for deletion.

        It needs no new descriptor: everything is opened before it is yielded.
        """
        segment = self.segments[self.place_of(end)]
        with self.guarded():
            found = segment.locate(end)
            position = segment.size if found is None else found[0]
            index_files = segment.open_index_files()
        try:
            with self.guarded():
                segment.file.size()
            yield partial(self._cut, end, position, index_files)
        finally:
            for file in index_files.values():
                file.close()

    def _cut(self, end: int, position: int, index_files: Mapping[str, File]) -> list[str]:
        assert self.segments[0].base_offset <= end, "the first segment stays"
        renamed: list[str] = []
        while self.segments[-1].base_offset > end:
            renamed += self._take_out(self.segments.pop(), IN_CUT)
        self.segments = list(self.segments)  # another list, for those who note what it holds
        self.active = self.segments[-1]
        self._opened.grows(self.active)
        self.active.take_up(reckoned=True)  # by the cut
        self.active.cut(position, end, index_files)
        assert self.active.size == position, "nothing is left behind the cut"
        return renamed

    def restart(self, start: int, fresh: NewBeginning) -> list[str]:
        """Replace all segments by `fresh`; returns the old files, renamed for deletion.

        Segments before the log's `start` go first, then the others from the last one back. So a crash in
        between leaves a log with the same start. Run it within `all_or_closed`.
        """
        assert fresh.segment.size == 0, "a log restarts without records"
        old, self.segments, self.active = self.segments, [fresh.segment], fresh.segment
        renamed: list[str] = []
        while len(old) > 1 and old[1].base_offset <= start:
            renamed += self._take_out(old.pop(0), IN_CUT)
        while old:
            renamed += self._take_out(old.pop(), IN_CUT)
        fresh.put_in_place()
        self.active.belongs_to(self._opened)
        return renamed

    def retire(self, count: int) -> list[str]:
        """Remove the oldest `count` segments; returns their files, renamed for deletion."""
        assert 0 <= count < len(self.segments), "the active segment is not deleted"
        going, self.segments = self.segments[:count], self.segments[count:]
        renamed: list[str] = []
        with self.guarded():
            for segment in going:
                renamed += self._take_out(segment, RETIRED)
        return renamed

    def replace(self, bases: Sequence[int]) -> list[str]:
        """Put the finished cleaned segment in place of those at `bases`; returns their renamed files.

        An empty one is left out, unless the log begins with it. Its file is opened before anything is
        renamed: without a descriptor nothing changes, and a later cleaning tries again.
        """
        assert bases, "a cleaned segment takes the place of some"
        place = self.place_of(bases[0])
        old = self.segments[place : place + len(bases)]
        assert [segment.base_offset for segment in old] == list(bases), (
            "the segments have not changed meanwhile"
        )
        assert old[-1] is not self.active, "the active segment is not compacted"
        with self.guarded():
            file = self.disk.open(f"{self.directory}/{file_name(bases[0], LOG)}{CLEANED}")
        for segment in old:
            segment.close()
        with self.all_or_closed():  # if it stops halfway, the next start finishes it
            try:
                gone = swap(self.disk, self.directory, bases)
            except OSError:
                file.close()
                raise
            fresh = Segment(self.disk, self.directory, bases[0], old[0].created_ms, create=False, file=file)
            if not self.disk.exists(fresh.transactions.path):
                fresh.transactions.begin()
            paths = [segment.path(SNAPSHOT) for segment in old[1:]]
            if not fresh.size and place:
                fresh.close_file()
                paths += map(fresh.path, RETIRED)
            gone += filter(None, map(self._condemn, paths))
        kept = [fresh] if fresh.size or not place else []
        for segment in kept:
            segment.belongs_to(self._opened)
            self._opened.used(segment)
        self.segments = [*self.segments[:place], *kept, *self.segments[place + len(old) :]]
        assert self.segments[-1] is self.active, "appends go on where they went"
        return gone

    def _take_out(self, segment: Segment, suffixes: Sequence[str]) -> list[str]:
        """Rename a segment's files. Deleting a large one takes long, so a thread does that later."""
        segment.close()
        if segment.transactions.is_empty:
            suffixes = [suffix for suffix in suffixes if suffix != TRANSACTION_INDEX]
        return list(filter(None, (self._condemn(segment.path(suffix)) for suffix in suffixes)))

    def _condemn(self, path: str) -> str | None:
        """Rename a file so that it is no longer part of the log; None if there is no such file."""
        gone = f"{path}{GONE}{DELETED}"
        try:
            self.disk.rename(path, gone)
        except FileNotFoundError:
            return None
        except OSError as error:
            if error.errno not in FULL:  # even a rename may need room
                raise
            self.disk.unlink(path)
            return None
        return gone

    def was_read(self, segment: Segment) -> None:
        """A segment's indexes were used."""
        if segment is not self.active:
            self._opened.used(segment)

    def count_opened(self) -> None:
        """Report closed segments that were opened on the way to `opened`, which limits them."""
        for segment in self.segments[:-1]:
            if segment.held:
                self._opened.used(segment)

    def close(self) -> None:
        """Close the files; nothing is written."""
        self.closed = True
        for segment in self.segments:
            segment.close()
