"""Indexes: the two indexes of a segment, in memory and in their files.

Lookups use the arrays in memory. In an active segment new entries go to the files in groups: each group
opens, writes and closes the file. So no descriptor is held, and an append pays a hundredth of the work. After
a crash or a failed write a file may end before its log does. The append to the log counts all the same
(KAFKA-7866), and the next group begins where the file is known to be good.
Left to others: when an entry is due (segment.py), what a crash has left (recovery/recover_log.py).
Why: docs/decisions/0017-index-files-follow.md
"""

from collections.abc import Callable, Mapping
from contextlib import suppress

import structlog

from ..disk import Disk, File
from .batch_walk import index_of
from .file_names import INDEX, LOG, TIME_INDEX
from .index import OFFSET_ENTRY, TIME_ENTRY, OffsetIndex, TimeIndex
from .roll import RollLimits

GROUP_ENTRIES = 128  # so many go to the files at once,
GROUP_BYTES = 2 << 20  # or fewer, when the files are this many bytes of log behind
OVERHEAD = 250  # bytes of an index without entries
UNKNOWN = -1  # the file's content cannot be continued: write all of it

logger = structlog.get_logger(__name__)


class Indexes:
    """Both indexes of one segment. `version` changes when an offset index loaded before is out of date."""

    __slots__ = (
        "_distrusted", "_offsets", "_saved", "_saved_times", "_saved_up_to", "_times", "base_offset",
        "disk", "paired", "stem", "torn", "version",
    )  # fmt: skip

    def __init__(self, disk: Disk, directory: str, base_offset: int) -> None:
        self.disk = disk
        self.base_offset = base_offset
        self.stem = f"{directory}/{base_offset:020d}"
        self.version = 0
        self._distrusted = False  # the offset index was wrong
        self.torn = False  # a file ended within an entry
        self.paired = True  # each offset entry was made together with a time entry
        self._offsets: OffsetIndex | None = None
        self._times: TimeIndex | None = None
        self._saved = self._saved_times = UNKNOWN  # so many entries are in the file
        self._saved_up_to = 0  # the position in the log that the files reach to

    def begin(self) -> None:
        """The files have just been made and are empty."""
        self._offsets, self._times = OffsetIndex(), TimeIndex()
        self._saved = self._saved_times = 0

    @property
    def offsets(self) -> OffsetIndex:
        if self._offsets is None:
            self._offsets = OffsetIndex.load(self._read(INDEX, OFFSET_ENTRY.size))
            self._saved = len(self._offsets)
            self.version += 1
        return self._offsets

    @property
    def times(self) -> TimeIndex:
        if self._times is None:
            self._times = TimeIndex.load(self._read(TIME_INDEX, TIME_ENTRY.size))
            self._saved_times = len(self._times)
        return self._times

    @property
    def loaded(self) -> bool:
        """Whether the offset index is in memory."""
        return self._offsets is not None

    @property
    def held(self) -> bool:
        """Whether either index is in memory."""
        return self._offsets is not None or self._times is not None

    @property
    def nbytes(self) -> int:
        """What they take in memory."""
        offsets = 0 if self._offsets is None else OFFSET_ENTRY.size * len(self._offsets) + OVERHEAD
        times = 0 if self._times is None else TIME_ENTRY.size * len(self._times) + OVERHEAD
        return offsets + times

    def _read(self, suffix: str, entry_bytes: int) -> bytes:
        try:
            data = self.disk.read(self.stem + suffix)
        except FileNotFoundError:
            return b""
        self.torn = self.torn or len(data) % entry_bytes != 0
        return data

    def present(self) -> bool:
        """Whether both files are there."""
        return all(self.disk.exists(self.stem + suffix) for suffix in (INDEX, TIME_INDEX))

    def plausible(self, segment_size: int) -> bool:
        """Whether the files' content can belong to a segment of that size."""
        fits = self.offsets.plausible(segment_size) and self.times.plausible(segment_size)
        return fits and not self.torn

    def last_time(self) -> tuple[int, int]:
        """The last entry of the time index, without loading all of it; (-1, 0) without one."""
        if self._times is None:
            try:
                file = self.disk.open(self.stem + TIME_INDEX)
            except FileNotFoundError:
                return -1, 0
            try:
                place = file.size() // TIME_ENTRY.size - 1
                if place < 0:
                    return -1, 0
                time, relative = TIME_ENTRY.unpack(file.pread(place * TIME_ENTRY.size, TIME_ENTRY.size))
                return time, relative
            finally:
                file.close()
        return self._times.last()

    def take(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        """Replace both by ones made from the log; the next save writes the files completely."""
        self._offsets, self._times = offsets, times
        self._saved = self._saved_times = UNKNOWN
        self._distrusted = self.torn = False
        self.paired = True
        self.version += 1

    # -- an index that is loaded in a thread, or that was found to be wrong

    def distrust(self) -> None:
        """An entry of the offset index is wrong: do not use the file any more."""
        self._distrusted = True
        self.version += 1

    def loader(self) -> Callable[[], OffsetIndex] | None:
        """A function for a thread that gets the offset index for `lend`; None if a good one is in memory."""
        if self._offsets is not None and not self._distrusted:
            return None
        return self._made_again if self._distrusted else self._loaded

    def _loaded(self) -> OffsetIndex:
        try:
            return OffsetIndex.load(self.disk.read(self.stem + INDEX))
        except FileNotFoundError:
            return self._made_again()

    def _made_again(self) -> OffsetIndex:
        """Built from the log, through its own file handle."""
        path = self.stem + LOG
        file = self.disk.open(path)
        try:
            return index_of(file.pread, path, self.base_offset, file.size())
        finally:
            file.close()

    def lend(self, offsets: OffsetIndex) -> None:
        """Use what `loader` has returned. One that was wrong is corrected in its file, too."""
        self._offsets = offsets
        self._saved = UNKNOWN if self._distrusted else len(offsets)
        if self._distrusted:
            self._distrusted = self.paired = False
            self._try_to_save()

    def restore(self) -> None:
        """Rebuild the offset index from the log at once. Blocking."""
        self.lend(self._made_again())

    # -- a segment that grows

    def full(self, limits: RollLimits) -> bool:
        """Whether one of the indexes has reached its limit."""
        offsets, times = self._offsets, self._times
        if offsets is None or times is None:
            offsets, times = self.offsets, self.times
        return (
            len(offsets.offsets) >= limits.offset_entries_max or len(times.times) >= limits.time_entries_max
        )

    def append(self, relative: int, position: int, time: int, time_relative: int) -> None:
        """Add an entry to each; write the entries that have gathered, if there are enough."""
        offsets, times = self._offsets, self._times
        if offsets is None or times is None:
            offsets, times = self.offsets, self.times
        offsets.append(relative, position)
        times.append(time, time_relative)
        if len(offsets) - self._saved >= GROUP_ENTRIES or position - self._saved_up_to >= GROUP_BYTES:
            self._saved_up_to = position  # even if saving fails: retry a group later, not at every entry
            self._try_to_save()

    def _try_to_save(self) -> None:
        try:
            self.save()
        except OSError as error:
            logger.warning("index_not_written", path=self.stem, reason=str(error))

    def relocate(self, directory: str, afresh: bool) -> None:
        """The files are in that directory now; unless `afresh`, they are what they were here."""
        assert not afresh or (self.offsets is not None and self.times is not None), "both are loaded"
        behind = (self._offsets is not None and self._saved != len(self._offsets)) or (
            self._times is not None and self._saved_times != len(self._times)
        )
        self.stem = f"{directory}/{self.base_offset:020d}"
        if afresh or behind:
            self._saved = self._saved_times = UNKNOWN
            self._try_to_save()

    def save(self) -> None:
        """Bring the files up to what is in memory."""
        if self._offsets is not None:
            self._saved = self._put(INDEX, self._saved, OFFSET_ENTRY.size, self._offsets)
        if self._times is not None:
            self._saved_times = self._put(TIME_INDEX, self._saved_times, TIME_ENTRY.size, self._times)

    def _put(self, suffix: str, saved: int, entry_bytes: int, entries: OffsetIndex | TimeIndex) -> int:
        """Write the entries from `saved` on at their place in the file; returns how many there are now."""
        count = len(entries)
        if saved == UNKNOWN:
            self.disk.replace(self.stem + suffix, entries.dump(), sync=False)
        elif count > saved:
            file = self.disk.open(self.stem + suffix, create=True)
            try:
                file.pwrite(saved * entry_bytes, entries.dump(saved))
            finally:
                file.close()
        return count

    def open_files(self) -> dict[str, File]:
        """For `cut`: load both indexes and open the index files that exist."""
        files: dict[str, File] = {}
        assert self.offsets is not None and self.times is not None, "the index is in memory"
        try:
            for suffix in (INDEX, TIME_INDEX):
                with suppress(FileNotFoundError):
                    files[suffix] = self.disk.open(self.stem + suffix)
        except OSError:
            for file in files.values():
                file.close()
            raise
        return files

    def cut(self, position: int, relative: int, files: Mapping[str, File]) -> None:
        """Forget batches at or after `position`, offsets from `relative` on. Call it before the log itself is
        truncated: index files must never have more than the log. `files`: from `open_files`.
        """
        offsets, times = self.offsets, self.times
        self.version += 1
        offsets.truncate(position)
        times.truncate(relative)
        self._saved = _shorten(files.get(INDEX), self._saved, OFFSET_ENTRY.size, len(offsets))
        self._saved_times = _shorten(files.get(TIME_INDEX), self._saved_times, TIME_ENTRY.size, len(times))
        self._saved_up_to = offsets.positions[-1] if len(offsets) else 0

    def release(self) -> None:
        """Drop both from memory; the files have everything."""
        self._offsets = self._times = None


def _shorten(file: File | None, saved: int, entry_bytes: int, count: int) -> int:
    """Truncate a file to at most `count` entries; returns how many it has now."""
    if file is None:
        return UNKNOWN
    kept = 0 if saved == UNKNOWN else min(saved, count)
    file.truncate(kept * entry_bytes)
    return UNKNOWN if saved == UNKNOWN else kept
