"""Entries of offset and time indexes, compared with their segment, as rows.

The checks are those of Kafka's tool, and so are the sentences of the sanity check.
"""

from bisect import bisect_right
from collections.abc import Iterator
from pathlib import Path

from ...protocol.primitives import Malformed
from ...protocol.records import iterate
from ...storage.segment.file_names import INDEX, LOG
from ...storage.segment.index import OFFSET_ENTRY, TIME_ENTRY
from ...storage.segment_files import (
    BatchInFile,
    Damaged,
    SegmentFile,
    offset_entries,
    time_entries,
)
from .rows import Findings, Row, Wanted, base_of

NO_TIME = -1
WINDOW_BYTES = 64 << 10


def index_rows(path: Path, wanted: Wanted, findings: Findings) -> Iterator[Row]:
    """The entries of an .index file; each points to the batch with this last offset."""
    data, base = path.read_bytes(), base_of(path)
    if wanted.sanity_only and len(data) >= OFFSET_ENTRY.size:
        yield _judged(path, _offset_sanity(path, data, base))
        return
    entries = offset_entries(data)  # Kafka's own tool fails on space that is only preallocated
    if not entries:
        yield {"kind": "empty", "file": str(path)}
        return
    with _segment(path) as segment:
        for place, (relative, position) in enumerate(entries):
            offset = base + relative
            found = segment.batch_at(position)
            if found is None or found.header.size > wanted.message_bytes_max:
                at = OFFSET_ENTRY.size * place
                raise Damaged(
                    path,
                    at,
                    f"the entry for offset {offset} points to position {position}, where no batch starts",
                )
            if found.header.last_offset != offset:
                findings.note("index_mismatches", path, offset, found.header.last_offset)
            if not wanted.verify_only:
                yield {"kind": "index", "offset": offset, "position": position}


def time_index_rows(path: Path, wanted: Wanted, findings: Findings) -> Iterator[Row]:
    """The entries of a .timeindex file: the largest timestamp so far, the last offset of its batch."""
    data, base = path.read_bytes(), base_of(path)
    if wanted.sanity_only:
        yield _judged(path, _time_sanity(path, data, base))
        return
    previous = NO_TIME
    with _segment(path) as segment:
        positions = _positions(path)
        for timestamp, relative in time_entries(data):
            offset = base + relative
            floor = bisect_right(positions, relative, key=lambda entry: entry[0])
            found = _reaching(segment, positions[floor - 1][1] if floor else 0, offset)
            last = NO_TIME if found is None else found.header.last_offset
            if found is None or last != offset:
                findings.note("not_found", path, offset, last)
            else:
                newest = _newest(path, found)
                if newest != timestamp:
                    findings.note("time_mismatches", path, timestamp, newest)
                if previous >= timestamp:
                    findings.note("time_disorder", path, timestamp, previous)
            if not wanted.verify_only:
                yield {"kind": "timeindex", "timestamp": timestamp, "offset": offset}
            previous = timestamp


def _positions(path: Path) -> list[tuple[int, int]]:
    """The entries of the offset index that belongs to a time index."""
    try:
        return offset_entries(path.with_suffix(INDEX).read_bytes())
    except FileNotFoundError:
        return []


def _segment(path: Path) -> SegmentFile:
    log = path.with_name(f"{path.name.split('.')[0]}{LOG}")
    try:
        return SegmentFile(log)
    except FileNotFoundError as error:
        raise Damaged(path, 0, f"cannot check the entries: their segment {log.name} is missing") from error


def _reaching(segment: SegmentFile, position: int, offset: int) -> BatchInFile | None:
    if segment.batch_at(position) is None:
        return None
    return next(
        (batch for batch in segment.batches(position, WINDOW_BYTES) if batch.header.last_offset >= offset),
        None,
    )


def _newest(path: Path, batch: BatchInFile) -> int:
    try:
        return max((record.timestamp for record in iterate(batch.data, verify=False)), default=NO_TIME)
    except Malformed as error:
        raise Damaged(path.with_suffix(LOG), batch.position, f"cannot decode records: {error}") from error


def _judged(path: Path, problem: str) -> Row:
    if problem:
        return {"kind": "damage", "file": str(path), "position": 0, "problem": problem}
    return {"kind": "passed", "file": str(path)}


def _offset_sanity(path: Path, data: bytes, base: int) -> str:
    """Kafka's message for an index that it would rebuild."""
    count = len(data) // OFFSET_ENTRY.size
    relative, _ = OFFSET_ENTRY.unpack_from(data, (count - 1) * OFFSET_ENTRY.size)
    if relative < 0:
        return (
            f"Corrupt index found, index file ({path.absolute()}) has non-zero size but the last offset is "
            f"{base + relative} which is less than the base offset {base}."
        )
    return _torn(path, data, OFFSET_ENTRY.size, "Index")


def _time_sanity(path: Path, data: bytes, base: int) -> str:
    count = len(data) // TIME_ENTRY.size
    if count:
        first, _ = TIME_ENTRY.unpack_from(data)
        last, relative = TIME_ENTRY.unpack_from(data, (count - 1) * TIME_ENTRY.size)
        start = (
            f"Corrupt time index found, time index file ({path.absolute()}) has non-zero size but the last"
        )
        if last < first:
            return f"{start} timestamp is {last} which is less than the first timestamp {first}"
        if relative < 0:
            return f"{start} offset is {base + relative} which is less than the first offset {base}"
    return _torn(path, data, TIME_ENTRY.size, "Time index")


def _torn(path: Path, data: bytes, size: int, what: str) -> str:
    if len(data) % size == 0:
        return ""
    return (
        f"{what} file {path.absolute()} is corrupt, found {len(data)} bytes which is neither positive nor "
        f"a multiple of {size}."
    )
