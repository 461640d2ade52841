"""One replica's log of one partition, read from its files: good batches, and where they end.

Indexes are hints: the batch that an entry points to must be there and be good. Every batch that is handed out
has a good checksum, continues the one before, and is of the epoch that the replica's history has at its
offset. Anything else is `Damaged`, with file and position. Nothing is locked, created or changed.
Left to others: which replicas may serve a range (proof.py), reading on in another one (reading.py).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from errno import ENOENT
from pathlib import Path
from typing import NamedTuple

from ...protocol.batches import BatchHeader, crc_ok, headers
from ...protocol.errors import ApiError
from ...protocol.primitives import Malformed
from ...protocol.records import iterate
from ..log.leader_epochs import NONE, Entry, EpochHistory
from ..segment.batch_walk import Placed
from ..segment.file_names import INDEX, TIME_INDEX
from ..segment_files import (
    Damaged,
    SegmentFile,
    offset_entries,
    place_of,
    segment_paths,
    time_entries,
)
from .proof import FAR


class Run(NamedTuple):
    """Good batches as they stand in a file, none if only the offset moves on; and the next offset."""

    path: str
    position: int
    records: memoryview
    next_offset: int


class Range(NamedTuple):
    """What of a segment is wanted, and where the next segment begins."""

    offset: int
    end: int
    ceiling: int


class Looked(NamedTuple):
    """What a search for a time has found, up to where it looked, and what ended it, if anything did."""

    found: int | None
    reached: int
    trouble: Damaged | OSError | None = None


class Tail(NamedTuple):
    """Where a log ends."""

    end: int  # its log end offset
    last_offset: int  # of the last batch
    epoch: int  # of the last batch; -1: there is none


NOTHING = memoryview(b"")


class ReplicaLog:
    """The files of one log as they are listed when this is made."""

    def __init__(self, directory: str | Path, epochs: Sequence[Entry] = (), gaps: bool = True) -> None:
        """`epochs`: the history that batches are held against, if any. `gaps`: it may have been compacted."""
        self.directory = Path(directory)
        self.paths = segment_paths(directory)
        if not self.paths:
            raise FileNotFoundError(ENOENT, "the directory has no segments", str(directory))
        self.bases = list(self.paths)
        self._epochs = EpochHistory(epochs)
        self._gaps = gaps

    def runs(self, offset: int, end: int) -> Iterator[Run]:
        """Good batches from the one that holds `offset` up to `end`, or to where the log ends.

        Raises Damaged at the first other one, when all before it have been yielded.
        """
        expected = offset
        place = place_of(self.bases, offset)
        for base, ceiling in zip(self.bases[place:], (*self.bases[place + 1 :], FAR), strict=True):
            if expected >= end:
                break
            self._check_follows(base, expected, offset)
            if base >= end:
                expected = end
                break
            with SegmentFile(self.paths[base]) as segment:
                begin = self._begin(segment, base, offset)
                expected, read_to = base, begin
                wanted = Range(offset, end, ceiling)
                for run in self._runs_of(segment, begin, expected if not begin else -1, wanted):
                    expected, read_to = run.next_offset, run.position + len(run.records)
                    yield run
            if expected < end and read_to < segment.size and base != self.bases[-1]:
                raise Damaged(segment.path, read_to, "it ends inside a batch, yet another segment follows")
        yield Run(str(self.paths[self.bases[-1]]), 0, NOTHING, min(expected, end))

    def _check_follows(self, base: int, expected: int, offset: int) -> None:
        """A segment begins where the one before ends; after a compaction later, too."""
        if base > offset and base == self.bases[0]:
            raise Damaged(self.directory, 0, f"the log begins at offset {base}")
        if base > max(expected, offset) and not self._gaps:
            raise Damaged(self.directory, 0, _missing(max(expected, offset), base))

    def _runs_of(self, segment: SegmentFile, begin: int, expected: int, wanted: Range) -> Iterator[Run]:
        for start, data, placed in segment.runs(begin):
            first = stop = 0
            problem = ""
            for at, header in placed:
                problem = self._misplaced(header, expected, wanted)
                if not problem and header.base_offset >= wanted.end:
                    expected = wanted.end
                    break
                problem = problem or self._problem(data, (at, header), wanted.offset)
                if problem:
                    break
                expected, stop = header.next_offset, at + header.size
                if header.last_offset < wanted.offset:
                    first = stop
            yield Run(str(segment.path), start + first, data[first:stop], expected)
            if problem:
                raise Damaged(segment.path, start + stop, problem)
            if expected >= wanted.end:
                return

    def _misplaced(self, header: BatchHeader, expected: int, wanted: Range) -> str:
        """Whether a batch cannot be where it is. Its checksum does not cover its base offset."""
        if header.base_offset < expected:
            return f"a batch has base offset {header.base_offset}: expected {expected} or more"
        if header.next_offset > wanted.ceiling:
            return (
                f"a batch has base offset {header.base_offset}: the next segment begins at {wanted.ceiling}"
            )
        if expected >= 0 and not self._gaps and header.base_offset > max(expected, wanted.offset):
            return _missing(max(expected, wanted.offset), header.base_offset)
        return ""

    def _problem(self, data: memoryview, placed: Placed, offset: int) -> str:
        """What is wrong with a batch; empty if it is good. Those before `offset` need only lead to it."""
        at, header = placed
        if header.last_offset < offset:
            return ""
        if not crc_ok(data, at, header):
            return f"the checksum of the batch at offset {header.base_offset} does not match"
        return self._foreign(header)

    def _foreign(self, header: BatchHeader) -> str:
        """Whether a batch is of another epoch than the history says; the checksum does not cover it."""
        if not self._epochs.entries:
            return ""
        wanted = self._epochs.epoch_at(header.last_offset)
        if header.leader_epoch == wanted:
            return ""
        return (
            f"the batch at offset {header.base_offset} has leader epoch {header.leader_epoch}: "
            f"expected {wanted}, by leader-epoch-checkpoint"
        )

    def _begin(self, segment: SegmentFile, base: int, offset: int) -> int:
        """The position of a good batch at or before the one with `offset`, by the index, else the start."""
        entries = _entries(segment.path, INDEX)
        place = bisect_right(entries, offset - base, key=_first)
        for relative, position in (*entries[place : place + 1], *entries[max(place - 1, 0) : place]):
            found = self._indexed(segment, base + relative, position)
            if found is not None and found.base_offset <= offset:
                return position
        return 0

    def _indexed(self, segment: SegmentFile, last_offset: int, position: int) -> BatchHeader | None:
        """The good batch that an index entry means; None if the entry is wrong."""
        found = segment.batch_at(position)
        if found is None or not found.valid or found.header.last_offset != last_offset:
            return None
        return found.header

    def good_runs(self, offset: int, end: int) -> Iterator[Run]:
        """As `runs`, and on behind whatever is damaged."""
        while offset < end:
            try:
                for run in self.runs(offset, end):
                    offset = max(offset, run.next_offset)
                    yield run
                return
            except Damaged:
                offset = self.next_good(offset, end)

    # ------------------------------------------------------------ where something is

    def tail(self) -> Tail:
        """The log's end: after the last good batch of the last segment, even if others before are bad."""
        end, last = self.bases[-1], None
        for base in reversed(self.bases):
            begin = base
            with SegmentFile(self.paths[base]) as segment:
                for relative, position in reversed(_entries(segment.path, INDEX)):
                    if self._indexed(segment, base + relative, position) is not None:
                        begin = base + relative
                        break
            for run in self.good_runs(begin, FAR if base == self.bases[-1] else end):
                end = max(end, run.next_offset)
                *_, last = (last, *(header for _, header in headers(run.records)))
            if last is not None:
                return Tail(end, last.last_offset, last.leader_epoch)
        return Tail(end, end - 1, NONE)

    def size(self) -> int:
        """The bytes of all segments."""
        return sum(path.stat().st_size for path in self.paths.values())

    def epochs(self) -> tuple[Entry, ...]:
        """The history that the good batches tell.

        What comes behind damage counts from where that begins: an epoch that began inside of it may be as
        old, and a history that begins an epoch too early agrees with others too little, never too much.
        """
        history, reached = EpochHistory(), self.bases[0]
        for run in self.good_runs(self.bases[0], FAR):
            for _, header in headers(run.records):
                if header.leader_epoch > history.latest:
                    history.assign(header.leader_epoch, reached)
                reached = header.next_offset
        return tuple(history.entries)

    def first_at(self, ms: int, start: int, end: int) -> Looked:
        """The first record of [start, end) with this time or a later one."""
        reached = start
        place = place_of(self.bases, start)
        try:
            for base, following in zip(self.bases[place:], (*self.bases[place + 1 :], FAR), strict=True):
                if base >= end:
                    break
                for run in self.runs(max(start, self._before(base, ms)), min(end, following)):
                    for at, header in headers(run.records):
                        for offset, timestamp in (
                            _times(run, at, header) if header.max_timestamp >= ms else ()
                        ):
                            if timestamp >= ms and start <= offset < end:
                                return Looked(offset, offset)
                        reached = max(reached, header.next_offset)
                    reached = max(reached, run.next_offset)
        except (Damaged, OSError) as trouble:
            return Looked(None, reached, trouble)
        return Looked(None, reached)

    def _before(self, base: int, ms: int) -> int:
        """An offset of the segment before which no record is as late, by the time index, else its first.

        The entry's batch must have that time. What comes after the last entry is looked through.
        """
        entries = _entries(self.paths[base], TIME_INDEX)
        place = bisect_left(entries, (ms, 0)) - 1
        if place < 0:
            return base
        time, relative = entries[place]
        with suppress(Damaged):
            for run in self.runs(base + relative, base + relative + 1):
                for _, header in headers(run.records):
                    return base + relative if header.max_timestamp == time else base
        return base

    def next_good(self, offset: int, end: int) -> int:
        """The next offset after `offset` from which good batches can be read; `end` if there is none."""
        for candidate in self._candidates(offset, end):
            with suppress(Damaged, OSError):
                if any(run.records for run in self.runs(candidate, candidate + 1)):
                    return candidate
        return end

    def _candidates(self, offset: int, end: int) -> Iterator[int]:
        """Offsets after `offset` at which batches begin: by their lengths, then by the index."""
        for base in self.bases[place_of(self.bases, offset) :]:
            if base >= end:
                return
            with suppress(OSError), SegmentFile(self.paths[base]) as segment:
                for candidate in self._beginnings(segment, base, offset):
                    if offset < candidate < end:
                        yield candidate

    def _beginnings(self, segment: SegmentFile, base: int, offset: int) -> Iterator[int]:
        position = begin = self._begin(segment, base, offset)
        while (batch := segment.batch_at(position)) is not None:
            yield batch.header.base_offset
            position += batch.header.size
        for _, indexed in _entries(segment.path, INDEX):
            batch = segment.batch_at(indexed) if indexed > begin else None
            if batch is not None:
                yield batch.header.base_offset


def _entries(segment: Path, suffix: str) -> list[tuple[int, int]]:
    """The entries of an index of a segment; none if there is no such file."""
    try:
        data = segment.with_suffix(suffix).read_bytes()
    except OSError:
        return []
    return offset_entries(data) if suffix == INDEX else time_entries(data)


def _times(run: Run, at: int, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Offset and timestamp of a batch's records. Raises Damaged if it has a good checksum, yet no records."""
    if header.is_control:
        return
    try:
        for record in iterate(run.records[at : at + header.size], verify=False):
            yield record.offset, record.timestamp
    except (Malformed, ApiError) as trouble:
        problem = f"cannot read the batch at offset {header.base_offset}: {trouble}"
        raise Damaged(run.path, run.position + at, problem) from trouble


def _missing(start: int, end: int) -> str:
    return f"records [{start}, {end}) are missing, and this log was never compacted"


def _first(entry: tuple[int, int]) -> int:
    return entry[0]
