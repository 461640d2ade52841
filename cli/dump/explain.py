"""Explains how an offset or a time is found: segment, index entry, scan, batch, record.

The steps are those of a broker's lookup: a binary search over the segments' names, the floor entry in the
sparse index, and a scan of batch headers from there. It reads only files. A running broker may have more in
memory: the indexes of its active segment are often newer than their files.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ...protocol.primitives import Malformed
from ...protocol.records import Record, iterate
from ...storage.log.checkpoints import Unreadable
from ...storage.reader import Checkpointed, checkpointed
from ...storage.segment.file_names import TIME_INDEX
from ...storage.segment_files import (
    BatchInFile,
    Damaged,
    Floor,
    SegmentFile,
    floor_of,
    segment_paths,
    time_entries,
)
from ..console import Failure, WrongUsage
from .rows import Row, Wanted
from .segment import batch_row, record_row

WINDOW_BYTES = 64 << 10
METADATA_ONLY = Wanted(False, True, True, False, False, 0, False, 0, lambda record: (None, None))


def explain(names: Sequence[str], offset: int | None, time: str | None) -> Iterator[Row]:
    """An explanation for each directory named; a file stands for its directory."""
    ms = None if time is None else _milliseconds(time)
    if offset is not None and ms is not None:
        raise WrongUsage("--explain and --explain-time exclude each other: give one")
    for name in names:
        if not Path(name).exists():
            raise Failure(f"{name} is neither a file nor a directory")
        directory = Path(name) if Path(name).is_dir() else Path(name).parent
        try:
            lookup = ExplainedLookup(directory)
            yield lookup.of_offset(offset) if offset is not None else lookup.of_time(ms or 0)
        except Damaged as error:
            yield {"kind": "damage", "file": error.path, "position": error.position, "problem": error.problem}


def _milliseconds(text: str) -> int:
    if text.lstrip("-").isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise WrongUsage(
            f"--explain-time {text}: expected ms since 1970 or ISO 8601, e.g. 2024-05-01T12:00:00Z"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


@dataclass(slots=True)
class Hit:
    """The result of a lookup: the batch and the record; neither if the log end was reached."""

    batch: BatchInFile | None = None
    record: Record | None = None
    log_end: int = 0


@dataclass(slots=True)
class ExplainedLookup:
    """A lookup in one directory that records its steps."""

    directory: Path
    paths: dict[int, Path] = field(init=False)
    bases: list[int] = field(init=False)
    known: Checkpointed = field(init=False)
    steps: list[Row] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.paths = segment_paths(self.directory)
        self.bases = list(self.paths)
        if not self.bases:
            raise WrongUsage(f"{self.directory} has no segments: expected a partition's directory")
        try:
            self.known = checkpointed(self.directory)
        except Unreadable as error:
            raise Damaged(self.directory, 0, str(error)) from error

    @property
    def log_start(self) -> int:
        return max(self.known.log_start or 0, self.bases[0])

    def of_offset(self, offset: int) -> Row:
        """What a fetch from `offset` would find."""
        place, compared = searched(self.bases, offset)
        hit = Hit()
        if offset >= self.log_start:
            hit = self._scan_for(offset, place)
        return self._row(f"offset {offset}", {"compared": compared}, hit, self._said_of(offset, hit))

    def of_time(self, ms: int) -> Row:
        """What ListOffsets would answer for a time."""
        skipped: list[Row] = []
        hit = Hit()
        for base, following in zip(self.bases, [*self.bases[1:], None], strict=True):
            with SegmentFile(self.paths[base]) as segment:
                times = self._times(segment)
                if following is not None and times and times[-1][0] < ms:
                    skipped.append({"segment": segment.path.name, "latest": times[-1][0]})
                    continue
                hit = self._first_at(segment, base, times, ms)
            if hit.record is not None:
                break
        if hit.record is None:
            answer = "no record has this time or a later one: offset -1"
        else:
            late = self._uncommitted(hit.record.offset)
            answer = f"offset {hit.record.offset}, time {hit.record.timestamp}{late}"
        return self._row(f"time {ms}", {"compared": [], "skipped": skipped}, hit, answer)

    def _scan_for(self, offset: int, place: int) -> Hit:
        """The first batch that reaches `offset`, and the first record at or after it that still exists."""
        hit = Hit()
        for base in self.bases[place:]:
            hit.log_end = max(hit.log_end, base)
            with SegmentFile(self.paths[base]) as segment:
                floor = floor_of(segment, base, offset)
                step = self._step(segment, floor)
                for batch in _walked(segment, floor.position, step):
                    hit.log_end = batch.header.next_offset
                    if batch.header.last_offset < offset:
                        continue
                    hit.batch = batch
                    hit.record = next((r for r in _records(segment, batch) if r.offset >= offset), None)
                    if hit.record is not None:
                        return hit
        return hit

    def _first_at(self, segment: SegmentFile, base: int, times: list[tuple[int, int]], ms: int) -> Hit:
        """The first record of a segment with a timestamp of at least `ms`."""
        place = bisect_left(times, (ms, 0)) - 1
        entry = times[place] if place >= 0 else None
        floor = floor_of(segment, base, base + entry[1] if entry else base)
        found = None if entry is None else {"offset": base + entry[1], "time": entry[0]}
        step = self._step(segment, floor)
        step["timeIndex"] = {"entries": len(times), "floor": found, "note": "" if times else "no entries"}
        for batch in _walked(segment, floor.position, step):
            if batch.header.max_timestamp >= ms and batch.header.next_offset > self.log_start:
                for record in _records(segment, batch):
                    if record.timestamp >= ms and record.offset >= self.log_start:
                        return Hit(batch, record)
        return Hit()

    def _times(self, segment: SegmentFile) -> list[tuple[int, int]]:
        try:
            return time_entries(segment.path.with_suffix(TIME_INDEX).read_bytes())
        except FileNotFoundError:
            return []

    def _step(self, segment: SegmentFile, floor: Floor) -> Row:
        entry = None if floor.entry is None else {"offset": floor.entry[0], "position": floor.entry[1]}
        step: Row = {
            "segment": segment.path.name,
            "bytes": segment.size,
            "index": {"entries": floor.entries, "floor": entry, "note": floor.note},
            "scan": {"from": floor.position, "batches": 0, "bytes": 0},
        }
        self.steps.append(step)
        return step

    def _said_of(self, offset: int, hit: Hit) -> str:
        if offset < self.log_start:
            return f"OFFSET_OUT_OF_RANGE: the log starts at {self.log_start}"
        if hit.batch is None and offset == hit.log_end:
            return "nothing yet: this is the log end offset, so a fetch waits"
        if hit.batch is None and offset > hit.log_end:
            return f"OFFSET_OUT_OF_RANGE: the log ends at {hit.log_end}"
        late = self._uncommitted(offset)
        if hit.batch is not None and hit.batch.header.is_control:
            return f"a control batch, which consumers skip{late}"
        if hit.record is None:
            return f"compacted away, with all later records up to the log end offset {hit.log_end}{late}"
        if hit.record.offset == offset:
            return f"this record{late}"
        return f"compacted away: the next record is at offset {hit.record.offset}{late}"

    def _uncommitted(self, offset: int) -> str:
        watermark = self.known.high_watermark
        above = watermark is not None and offset >= watermark
        return (
            f"; at or above the high watermark {watermark}, so consumers do not see it yet" if above else ""
        )

    def _row(self, asked: str, search: Row, hit: Hit, answer: str) -> Row:
        batch, record = hit.batch, hit.record
        return {
            "kind": "explanation",
            "asked": asked,
            "directory": str(self.directory),
            "logStart": self.log_start,
            "highWatermark": self.known.high_watermark,
            "search": {"segments": len(self.bases), **search},
            "steps": self.steps,
            "batch": _inner(batch_row(batch)) if batch else None,
            "record": _inner(record_row(record, batch, METADATA_ONLY)) if batch and record else None,
            "answer": answer,
        }


def _inner(row: Row) -> Row:
    """A row nested in another one."""
    return {name: value for name, value in row.items() if name != "kind"}


def searched(bases: Sequence[int], offset: int) -> tuple[int, list[int]]:
    """The last segment that starts at or before `offset`, and the base offsets it was compared with."""
    low, high, compared = 0, len(bases), list[int]()
    while low < high:
        middle = (low + high) // 2
        compared.append(bases[middle])
        low, high = (middle + 1, high) if bases[middle] <= offset else (low, middle)
    return max(low - 1, 0), compared


def _walked(segment: SegmentFile, position: int, step: Row) -> Iterator[BatchInFile]:
    """The batches from `position` on, counted in the step."""
    for batch in segment.batches(position, WINDOW_BYTES):
        step["scan"]["batches"] += 1
        step["scan"]["bytes"] += batch.header.size
        yield batch


def _records(segment: SegmentFile, batch: BatchInFile) -> list[Record]:
    try:
        return list(iterate(batch.data, verify=False))
    except Malformed as error:
        raise Damaged(segment.path, batch.position, f"cannot decode records: {error}") from error
