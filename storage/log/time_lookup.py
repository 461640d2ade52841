"""Offsets by timestamp, through the time indexes.

Timestamps come from producers, so they need not rise with offsets. The answers are Kafka's: the first record
stamped at or after the given time, or the record with the largest timestamp. A lookup may read from disk and
decompress a batch, so it runs in a thread, with its own files.
A batch whose checksum, place or epoch is wrong is never used. An index entry counts only if its batch agrees
with it.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing

from ...protocol.batches import BatchHeader, crc_ok
from ...protocol.primitives import Malformed
from ...protocol.records import iterate
from ..segment.batch_walk import CorruptBatch, in_order
from ..segment.file_names import LOG
from ..segment.segment import Segment
from .leader_epochs import EpochHistory
from .segments import Segments

Found = tuple[int, int, int]  # timestamp, offset, leader epoch


class TimeLookup:
    """One lookup in one log. `run` in a thread, then `found` on the loop; if it is `stale`, start again."""

    __slots__ = (
        "_chain", "_end", "_epochs", "_error", "_found", "_gaps", "_generation", "_ms", "_segments", "_start",
    )  # fmt: skip

    def __init__(
        self, chain: Segments, epochs: EpochHistory, gaps: bool, start: int, end: int, ms: int | None
    ) -> None:
        self._chain = chain
        self._epochs = epochs
        self._gaps = gaps  # offsets may be missing between batches
        self._generation = chain.generation
        self._segments = list(chain.segments)
        self._start = start
        self._end = end
        self._ms = ms  # None: the largest timestamp
        self._found: Found | None = None
        self._error: OSError | CorruptBatch | None = None

    def run(self) -> None:
        """Do the lookup. Blocking; touches nothing of the log."""
        try:
            if self._ms is None:
                self._found = newest(self._segments, self._start, self._end)
            else:
                self._found = first_at(self._segments, self._ms, self._start, self._end, self._gaps)
        except (OSError, CorruptBatch) as error:
            self._error = error

    @property
    def stale(self) -> bool:
        """Whether segments have been truncated, replaced or deleted meanwhile."""
        segments = self._chain.segments[: len(self._segments)]
        return self._generation != self._chain.generation or segments != self._segments

    def found(self) -> Found | None:
        """The answer; raises DiskError."""
        with self._chain.guarded():
            if self._error is not None:
                raise self._error
            if self._found is not None:
                _, offset, epoch = self._found
                if -1 < self._epochs.epoch_at(offset) != epoch:
                    raise CorruptBatch(
                        f"{self._chain.directory}: the batch of offset {offset} has the unexpected "
                        f"epoch {epoch}"
                    )
        return self._found

    def now(self) -> Found | None:
        """Look and answer at once. Blocking."""
        self.run()
        return self.found()


def first_at(segments: Sequence[Segment], ms: int, start: int, end: int, gaps: bool) -> Found | None:
    """The first record in [start, end) whose timestamp is at least `ms`."""
    for segment, following in zip(segments, [*segments[1:], None], strict=True):
        if segment.base_offset >= end:
            return None
        before_start = following is not None and following.base_offset <= start
        if not before_start and segment.newest[0] >= ms:
            with closing(segment.apart()) as own:
                found = _first_from(own, ms, start, end, gaps)
            if found is not None:
                return found
    return None


def _first_from(own: Segment, ms: int, start: int, end: int, gaps: bool) -> Found | None:
    for at, header in _batches(own, _begin(own, ms, gaps), gaps):
        if header.base_offset >= end:
            return None
        if header.max_timestamp >= ms and header.next_offset > start:
            found = _first_in(own, at, header, ms, start, end)
            if found is not None:
                return found
    return None


def _begin(own: Segment, ms: int, gaps: bool) -> int:
    """The position to search for `ms` from: no record before it is stamped `ms` or later."""
    time, relative = own.times.floor_entry(ms)
    found = own.locate(own.base_offset + relative, gaps) if relative else None
    return found[0] if found is not None and found[1].max_timestamp == time else 0


def _batches(own: Segment, position: int, gaps: bool) -> Iterator[tuple[int, BatchHeader]]:
    """The batches from `position` on, as long as each continues the one before."""
    return in_order(own.headers(position), own.path(LOG), -1 if position else own.base_offset, gaps)


def newest(segments: Sequence[Segment], start: int, end: int) -> Found | None:
    """The first of the records with the largest timestamp, if it lies in [start, end)."""
    holding = [segment for segment in segments if segment.size]
    if not holding:
        return None
    segment = max(holding, key=lambda s: s.newest[0])
    ms, offset = segment.newest
    with closing(segment.apart()) as own:
        found = own.locate(offset)
        if found is None or found[1].base_offset >= end:
            return None
        return _first_in(own, *found, ms, start, end)


def _first_in(
    segment: Segment, position: int, header: BatchHeader, ms: int, start: int, end: int
) -> Found | None:
    """The first such record of one batch. If the batch cannot be decoded, its header is believed: one
    producer's bad batch must not break the lookups of others.
    """
    data = segment.file.pread(position, header.size)
    if not crc_ok(data, 0, header):
        raise CorruptBatch(f"{segment.path(LOG)}: the checksum of the batch at {position} does not match")
    try:
        for record in iterate(data, verify=False):
            if record.timestamp >= ms and start <= record.offset < end:
                return record.timestamp, record.offset, header.leader_epoch
    except Malformed:
        return header.max_timestamp, max(start, header.base_offset), header.leader_epoch
    return None
