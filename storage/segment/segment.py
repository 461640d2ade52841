"""One segment of a log: a run of batches in a .log file, with its .index and .timeindex.

Its file is opened on demand and may be closed at any time by `OpenSegments`. Every batch that is read is
checked against its neighbours' headers (batch_walk.py) first.
Left to others: which segment holds what (log/segments.py), damage after a crash (recovery/recover_log.py).
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import suppress
from zlib import crc32

import structlog

from ...protocol.batches import HEADER_SIZE, BatchHeader, read_header
from ...protocol.markers import EndMarker
from ...protocol.primitives import Buffer
from ..disk import Disk, File, NotResident
from .batch_walk import (
    CorruptBatch,
    Pread,
    Step,
    WalkRules,
    WalkStart,
    WrongIndex,
    headers,
    marker_in,
    reach,
    whole_batches,
)
from .checksums import MatchedBytes, mismatch
from .file_names import INDEX, LOG, SUFFIXES, TIME_INDEX, TRANSACTION_INDEX, file_name
from .index import RELATIVE_MAX, OffsetIndex, TimeIndex
from .index_files import Indexes
from .not_resident import Cold
from .open_files import OpenSegments
from .roll import RollLimits
from .transaction_index import TransactionIndex

BOUNDARIES_MAX = 32  # batch positions remembered for readers that continue where they stopped
NO_TIME = -1

logger = structlog.get_logger(__name__)

__all__ = ["CorruptBatch", "Segment", "make_files"]


def make_files(disk: Disk, directory: str, base_offset: int, mark: str = "") -> File:
    """Make the empty files of a segment; returns the .log file, open. `mark` is appended to their names.

    The .log comes last: once it exists the segment counts, for Kafka too, and the segment before it must not
    take any more batches. After an OSError none of them is there.
    """
    paths = [f"{directory}/{file_name(base_offset, suffix)}{mark}" for suffix in (INDEX, TIME_INDEX, LOG)]
    there = disk.exists(paths[-1])
    try:
        if not mark:
            disk.unlink(f"{directory}/{file_name(base_offset, TRANSACTION_INDEX)}")
        for path in paths[:-1]:
            disk.open(path, create=True).close()
        return disk.open(paths[-1], create=True)
    except OSError:
        for path in [] if there else reversed(paths):
            with suppress(OSError):  # an index without its log is removed by the next start
                disk.unlink(path)
        raise


class Segment:
    """Batches from `base_offset` on. `size` is the bytes appended, which is the file's length."""

    __slots__ = (
        "_boundaries", "_file", "_matched", "_max_time", "_max_time_offset", "base_offset", "created_ms",
        "directory", "disk", "first_time", "grows", "indexes", "modified_ms", "opened", "size", "touched",
        "transactions", "unindexed", "was_read",
    )  # fmt: skip

    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        created_ms: int,
        create: bool,
        file: File | None = None,
    ) -> None:
        """`create`: make its files now, unless `make_files` has made them and returned `file`."""
        self.disk = disk
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = created_ms
        self.opened: OpenSegments | None = None  # bounds the open files, once the segment is in a log
        self.grows = create
        self.touched = False  # the file was used since `OpenSegments` last looked
        self.was_read = False  # read while closed, since the memory budget last looked
        self.indexes = Indexes(disk, directory, base_offset)
        self.transactions = TransactionIndex(disk, self.path(TRANSACTION_INDEX), base_offset)
        if file is None:
            file = make_files(disk, directory, base_offset) if create else disk.open(self.path(LOG))
        if create:
            self.indexes.begin()
            self.transactions.begin()
        self._file: File | None = file
        self._boundaries: dict[int, int] = {}
        self._matched = MatchedBytes()
        self.size = file.size()
        self.unindexed = 0  # bytes since the last index entry
        self.first_time: int | None = None  # of the first batch; decides when to roll
        self._max_time: int | None = NO_TIME if create else None
        self._max_time_offset = base_offset
        self.modified_ms = NO_TIME  # cached for a closed segment

    def path(self, suffix: str) -> str:
        return f"{self.directory}/{file_name(self.base_offset, suffix)}"

    # -- the file

    def relocate(self, directory: str, grows: bool) -> None:
        """Use the files of that directory, which are the same; of a segment that grows there are no indexes
        there yet.
        """
        self.close()
        self._matched.clear()
        self.indexes.relocate(directory, grows)
        self.directory = directory
        self.transactions.relocate(self.path(TRANSACTION_INDEX), grows)

    def belongs_to(self, opened: OpenSegments) -> None:
        """From now on `opened` decides how long the file stays open."""
        self.opened = opened
        if self._file is not None:
            opened.opened(self)

    @property
    def file(self) -> File:
        """The open file. For the event loop only: a thread that reads opens the file itself."""
        file = self._file
        if file is not None:
            self.touched = True
            return file
        file = self._file = self.disk.open(self.path(LOG))
        self.touched = False
        if self.opened is not None:
            self.opened.opened(self)
        return file

    def apart(self) -> "Segment":
        """A copy for a thread, with its own file and indexes. The thread closes it."""
        size = self.size
        twin = Segment(self.disk, self.directory, self.base_offset, self.created_ms, create=False)
        twin.size = min(twin.size, size)
        return twin

    @property
    def held(self) -> bool:
        """Whether the segment keeps a descriptor or indexes in memory."""
        return self._file is not None or self.indexes.held or self.transactions.held

    def close_file(self) -> None:
        """Give the descriptor back; the next use opens the file again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def release(self) -> None:
        """Close the file and drop the indexes; the next use loads them again."""
        self.close()
        self.indexes.release()
        self.transactions.release()
        self._boundaries.clear()
        self._matched.clear()

    def let_go(self) -> None:
        """Give up the indexes: the memory budget needs their room."""
        self.release()

    @property
    def index_bytes(self) -> int:
        """What the indexes take in memory."""
        return self.indexes.nbytes + self.transactions.nbytes

    def close(self) -> None:
        if self.opened is not None:
            self.opened.forget(self)
        self.close_file()

    def sync(self) -> None:
        """Sync data and written indexes. Opens the files itself, so a thread may call it."""
        for suffix in (*SUFFIXES, TRANSACTION_INDEX):
            path = self.path(suffix)
            if suffix == LOG or self.disk.exists(path):
                file = self.disk.open(path)
                try:
                    file.sync()
                finally:
                    file.close()

    # -- indexes and times

    @property
    def index(self) -> OffsetIndex:
        return self.indexes.offsets

    @property
    def times(self) -> TimeIndex:
        return self.indexes.times

    def indexes_plausible(self) -> bool:
        """Whether both index files are there and can belong to this segment's data."""
        return self.indexes.plausible(self.size) if self.indexes.present() else self.size == 0

    @property
    def newest(self) -> tuple[int, int]:
        """The largest timestamp and the last offset of its batch; (-1, base offset) when empty."""
        if self._max_time is None:
            time, relative = self.indexes.last_time()
            self._max_time_offset = self.base_offset + relative
            self._max_time = time  # set last: a thread may read both
        return self._max_time, self._max_time_offset

    @property
    def age_from_ms(self) -> int:
        """The newest timestamp; without one, the file's last modification, as in Kafka
        (LogSegment.largestTimestamp).
        """
        newest = self.newest[0]
        return newest if newest >= 0 else self.written_ms()

    def written_ms(self) -> int:
        """The file's last modification, in wall time. Raises OSError."""
        if self.grows or self.modified_ms < 0:
            self.modified_ms = self.disk.modified_ms(self.path(LOG))
        return self.modified_ms

    def adopt_indexes(
        self, index: OffsetIndex, times: TimeIndex, newest: tuple[int, int], unindexed: int
    ) -> None:
        """Replace the indexes by ones built from all of the data; also set the newest timestamp and the bytes
        after the last entry.
        """
        self.indexes.take(index, times)
        self._boundaries.clear()
        self._max_time, self._max_time_offset = newest
        self.unindexed = unindexed

    def write_indexes(self) -> None:
        """Write all files completely; the time index ends with the newest timestamp, as in Kafka."""
        newest, offset = self.newest
        if newest > NO_TIME:
            self.times.append(newest, offset - self.base_offset)
        self.indexes.save()
        self.transactions.save()

    # -- growing

    def placed(self, last_offset: int, size: int, max_time: int, interval: int) -> None:
        """Account for an appended batch: its bytes, its timestamp, an index entry if one is due."""
        assert self.grows and size > 0, "batches are appended to the active segment"
        if self._max_time is None or max_time > self._max_time:
            self._see_time(max_time, last_offset)
        if self.unindexed > interval:
            base = self.base_offset
            newest, offset = self.newest
            self.indexes.append(last_offset - base, self.size, newest, offset - base)
            self.unindexed = 0
        self.unindexed += size
        self.size += size

    def _see_time(self, max_time: int, last_offset: int) -> None:
        if max_time > self.newest[0]:
            self._max_time, self._max_time_offset = max_time, last_offset
        if self.first_time is None and self.size == 0:
            self.first_time = max_time

    def first_ms(self) -> int:
        """The timestamp of the first batch; -1 if it has none."""
        if self.first_time is None and self.size:
            self.first_time = read_header(self.file.pread(0, HEADER_SIZE)).max_timestamp
        return NO_TIME if self.first_time is None else self.first_time

    def must_roll(self, size: int, last_offset: int, max_time: int, now_ms: int, limits: RollLimits) -> bool:
        """Whether a batch must open a new segment instead of going here."""
        if last_offset - self.base_offset > RELATIVE_MAX:
            return True
        if not self.size:
            return False
        if self.size + size > limits.segment_bytes:
            return True
        first = self.first_time
        if first is None:
            first = self.first_ms()
        waited = max_time - first if first >= 0 else now_ms - self.created_ms
        if limits.jitter_ms:
            waited += crc32(self.path(LOG).encode()) % limits.jitter_ms
        return waited > limits.segment_ms or self.indexes.full(limits)

    def open_index_files(self) -> dict[str, File]:
        """For `cut`: load the indexes and open their files that exist."""
        self.transactions.load()
        files = self.indexes.open_files()
        try:
            if not self.transactions.is_empty:
                with suppress(FileNotFoundError):
                    files[TRANSACTION_INDEX] = self.disk.open(self.transactions.path)
        except OSError:
            for file in files.values():
                file.close()
            raise
        return files

    def cut(self, position: int, next_offset: int, index_files: Mapping[str, File] | None = None) -> None:
        """Truncate the file to `position`, a batch's start, and the indexes to before `next_offset`.

        `index_files`: from `open_index_files`, so that no new descriptor is needed.
        """
        assert 0 <= position <= self.size and next_offset >= self.base_offset, "a cut makes it no longer"
        if index_files is None:
            files = self.open_index_files()
            try:
                return self.cut(position, next_offset, files)
            finally:
                for file in files.values():
                    file.close()
        newest, offset = self.newest
        self.indexes.cut(position, next_offset - self.base_offset, index_files)
        self.transactions.cut(next_offset, index_files.get(TRANSACTION_INDEX))
        self.file.truncate(position)
        self.size = position
        self._boundaries.clear()
        self._matched.cut(position)
        if position and offset < next_offset:  # the newest batch is still there
            self._max_time, self._max_time_offset = newest, offset
            self.unindexed = position - (self.index.positions[-1] if len(self.index) else 0)
        else:
            self._reckon(position)
        return None

    def seal(self) -> None:
        """Nothing more is appended; its indexes have been written."""
        assert self.grows, "a segment is closed once"
        self.grows = False
        self.modified_ms = NO_TIME

    def take_up(self, reckoned: bool = False) -> None:
        """Make a closed segment the active one; `reckoned` if newest time and index debt are known."""
        self.grows = True
        if not reckoned:
            self._reckon(self.size)

    def _reckon(self, good_bytes: int) -> None:
        """Recompute the newest timestamp and the bytes since the last index entry, by reading headers.

        With each offset entry the time index got the newest time so far. So reading can begin at the last
        entry, unless the offset index was rebuilt without the time index (`paired` is false).
        """
        index, times = self.index, self.times
        start = begin = index.positions[-1] if len(index) else 0
        newest, relative = times.last()
        offset = self.base_offset + relative
        if not self.indexes.paired:
            begin = min(start, index.floor(relative) if len(times) else 0)
        for _, header in self.headers(begin, good_bytes):
            if header.max_timestamp > newest:
                newest, offset = header.max_timestamp, header.last_offset
        self._max_time, self._max_time_offset = newest, offset
        self.unindexed = good_bytes - start
        if self.size == 0:
            self.first_time = None

    # -- finding and reading

    def headers(self, position: int = 0, limit: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """The batches from `position`, a batch's start, up to `limit`. Reads headers only."""
        return headers(self._pread, self.path(LOG), position, self.size if limit is None else limit)

    def marker(self, position: int, header: BatchHeader) -> EndMarker | None:
        """The marker in the batch at `position`, if it is one that ends a transaction."""
        return marker_in(self._pread(position, header.size), 0, header)

    def upper_bound(self, offset: int, nbytes: int) -> int:
        """An offset at or behind the end of `nbytes` of batches from `offset` on, by the offset index.

        0 if they may reach the segment's end, or if the index is not in memory. An entry of Kafka's may point
        to the first batch of the write that holds its offset, so it is the entry behind that counts.
        """
        if not self.indexes.loaded:
            return 0
        index, relative = self.index, offset - self.base_offset
        start, place = 0, bisect_left(index.offsets, relative) + 1
        if relative > 0:
            if place >= len(index):
                return 0
            start = index.positions[place]
        place = bisect_left(index.positions, start + nbytes)
        return self.base_offset + index.offsets[place] + 1 if place < len(index) else 0

    def _pread(self, position: int, size: int) -> bytes:
        return self.file.pread(position, size)

    def locate(self, offset: int, gaps: bool = True) -> tuple[int, BatchHeader] | None:
        """The first batch that reaches `offset`, with its position."""
        found = self._reach(offset, gaps, self._pread, wait=True)
        return None if found is None else (found.position, found.header)

    def _reach(self, offset: int, gaps: bool, pread: Pread, wait: bool) -> Step | None:
        """The first batch that reaches `offset`: it holds it, or comes after a gap that does."""
        where, begin = self.path(LOG), WalkStart(0, self.base_offset)
        last, position = self.index.floor_entry(offset - self.base_offset)
        start = WalkStart(position, last_offset=self.base_offset + last) if position else begin
        try:
            return reach(pread, where, start, self.size, offset, gaps)
        except WrongIndex as wrong:
            logger.warning("index_mismatch", path=where, reason=str(wrong))
            self.indexes.distrust()
            if not (wait or self.grows):
                raise Cold(self.indexes, 0, offset=offset) from None
            self.indexes.restore()
            return reach(pread, where, begin, self.size, offset, gaps)

    def read(
        self,
        offset: int,
        bytes_max: int,
        end: int,
        after: int,
        at_least_one: bool,
        rules: WalkRules,
        wait: bool,
    ) -> Buffer:
        """Complete batches from the one that reaches `offset`; none begins at `end` or later.

        `after` is the segment's end offset (exclusive). Without `wait`, raises Cold instead of waiting for
        the disk.
        """
        if not (wait or self.grows or self.indexes.loaded):
            raise Cold(self.indexes, bytes_max, offset=offset)
        pread: Pread = self.file.pread if wait else self.file.pread_now
        try:
            return self._read(offset, bytes_max, end, after, at_least_one, rules, pread, wait)
        except NotResident as missing:
            raise Cold(
                self.indexes, missing.size, position=missing.position, is_blind=missing.is_blind
            ) from None

    def _read(
        self, offset: int, bytes_max: int, end: int, after: int, at_least_one: bool, rules: WalkRules,
        pread: Pread, wait: bool,
    ) -> Buffer:  # fmt: skip
        start, expected = self._boundaries.get(offset, -1), offset
        if start < 0:
            found = self._reach(offset, rules.gaps, pread, wait)
            if found is None:
                return b""
            start, expected = found.position, found.base_offset
        where, rest = self.path(LOG), self.size - start
        data = pread(start, min(rest, bytes_max + HEADER_SIZE))
        size, following, first = whole_batches(data, where, start, bytes_max, rest, expected, end, rules)
        if first > bytes_max and at_least_one:
            data = pread(start, min(rest, first + HEADER_SIZE))
            size, following, _ = whole_batches(data, where, start, first, rest, expected, end, rules)
        if size == rest and (following > after or (following < after and not rules.gaps)):
            raise CorruptBatch(f"{where}: ends at {following}, but {after} follows")
        if rules.verify:
            self._verify(data, start, start + size)
        if len(self._boundaries) >= BOUNDARIES_MAX:
            self._boundaries.clear()
        self._boundaries[following] = start + size
        return data if wait and size == len(data) else memoryview(data)[:size].toreadonly()

    def _verify(self, data: Buffer, start: int, stop: int) -> None:
        """Hold what has not been yet to its checksums. `data` begins at `start`. Raises CorruptBatch."""
        known = self._matched.after(start)
        if known >= stop:
            return
        wrong = mismatch(data, known - start, stop - start)
        if wrong >= 0:
            raise CorruptBatch(
                f"{self.path(LOG)}: the checksum of the batch at position {start + wrong} does not match"
            )
        self._matched.add(start, stop)
