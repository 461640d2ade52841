"""A consumer's position in each partition, and the records it holds of it. Pure.

Three offsets per partition: `fetch_at` is what the next fetch asks for, `cursor` what is decoded next,
`position` what the caller gets next (and what a commit writes). A seek moves all three and increases `age`:
the answer to a fetch of an earlier age is dropped.
Left to others: where to begin, by the group's commit or auto.offset.reset (fetcher.py), groups (group.py),
what callers see (consumer.py).
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...base.types import TopicPartition
from ...protocol.batches import BatchHeader, headers
from ...protocol.markers import read_marker
from ...protocol.primitives import Buffer
from ...protocol.records import Record, iterate

if TYPE_CHECKING:
    from ...protocol.columns import Columns

Row = tuple[Record, BatchHeader]

CHUNKS_MAX = 2  # of a partition, held at once: one being read, one waiting


@dataclass(slots=True, eq=False)
class FetchedBatches:
    """One fetch's batches of one partition: complete ones, the first of which may begin before `start`."""

    records: Buffer
    start: int
    next_offset: int
    rows: Iterator[Row] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return len(self.records)


@dataclass(slots=True, eq=False)
class PartitionPosition:
    """A consumer's position in one partition."""

    partition: TopicPartition
    position: int | None = None
    cursor: int = 0
    fetch_at: int = 0
    last_epoch: int = -1  # leader epoch of the last batch fetched: by it the leader notices a divergence
    processed: int | None = None  # how far the caller was when it came back for more
    lost_at: int | None = None  # the position that the log did not have, while another is being looked up
    reset_to: int | None = None  # a time to look up; None: the committed offset, then the policy
    age: int = 0
    is_paused: bool = False
    is_settling: bool = False
    not_before: float = 0.0
    failures: int = 0
    high_watermark: int = -1
    readable_end: int = -1  # as of the last fetch: the high watermark, or the last stable offset
    chunks: deque[FetchedBatches] = field(default_factory=deque)

    @property
    def nbytes(self) -> int:
        """Bytes held and not yet read."""
        return sum(chunk.nbytes for chunk in self.chunks)

    @property
    def is_full(self) -> bool:
        """Whether enough is held already."""
        return len(self.chunks) >= CHUNKS_MAX

    def seek(self, offset: int) -> None:
        """Go on at `offset`: drop what is held or on its way. Everything before counts as done."""
        self.age += 1
        self.position = self.processed = self.cursor = self.fetch_at = offset
        self.reset_to = self.lost_at = None
        self.last_epoch = -1
        self.chunks.clear()
        self.not_before, self.failures = 0.0, 0

    def go_on(self, offset: int | None = None) -> None:
        """Fetch again, from the position or from `offset`. The caller may still be working on what it was
        handed last: this does not make it count as done."""
        before, processed = self._handed_up_to, self.processed
        self.seek(offset if offset is not None else self.cursor if before is None else before)
        if processed is not None and processed != before:
            self.processed = min(processed, self.fetch_at)

    def came_back(self) -> None:
        """The caller is done with what it was handed."""
        self.processed = self._handed_up_to

    @property
    def _handed_up_to(self) -> int | None:
        return self.lost_at if self.position is None else self.position

    def look_up(self, time: int | None) -> None:
        """Go on at the offset found by `time` (None: by commit and policy)."""
        self.lose(time)
        self.lost_at = self.processed = None

    def lose(self, time: int | None) -> None:
        """The log does not have the position; another will be found by `time`."""
        self.age += 1
        self.lost_at, self.position = self.position, None
        self.reset_to, self.last_epoch = time, -1
        self.chunks.clear()
        self.not_before, self.failures = 0.0, 0

    def fetched(self, chunk: FetchedBatches) -> None:
        """Keep what was fetched; the next fetch goes on after it."""
        assert chunk.start == self.fetch_at, "an answer starts at the offset that was asked for"
        self.fetch_at = max(self.fetch_at, chunk.next_offset)
        self.chunks.append(chunk)

    def next_record(self, verify: bool) -> Row | None:
        """The next record and its batch's header, or None when nothing is held."""
        while self.chunks:
            chunk = self.chunks[0]
            if chunk.rows is None:
                chunk.rows = _rows(chunk.records, verify)
            try:
                for row in chunk.rows:
                    if row[0].offset >= self.cursor:
                        self.cursor = row[0].offset + 1
                        return row
            except BaseException:
                chunk.rows = None  # the iterator that raised is at its end, as if all were read
                raise
            self._finish()
        return None

    def unread(self, record: Record) -> None:
        """The record could not be handed out: return it again next time."""
        self.cursor = record.offset
        for chunk in self.chunks:
            chunk.rows = None

    def next_columns(self, verify: bool) -> "Columns | None":
        """All records of one fetch, as columns."""
        from ...protocol.columns import decode

        while self.chunks:
            columns = decode(self.chunks[0].records, lo=self.cursor, verify=verify)
            self._finish()
            if len(columns):
                return columns
        return None

    def _finish(self) -> None:
        chunk = self.chunks.popleft()
        self.cursor = max(self.cursor, chunk.next_offset)


def _rows(records: Buffer, verify: bool) -> Iterator[Row]:
    view = memoryview(records)
    for at, header in headers(records):
        for record in iterate(view[at : at + header.size], verify=verify):
            yield record, header


def last_epoch(records: Buffer) -> int:
    """The leader epoch of the last complete batch, -1 if there is none."""
    epoch = -1
    for _, header in headers(records):
        epoch = header.leader_epoch
    return epoch


def end_of(records: Buffer, start: int) -> int:
    """The offset after the last complete batch, `start` if there is none."""
    end = start
    for _, header in headers(records):
        end = header.next_offset
    return max(end, start)


def visible(records: Buffer, aborted: list[tuple[int, int]]) -> Buffer:
    """The batches that a reader may see: without control batches and those of aborted transactions.

    `aborted` has (producer id, first offset) of each; an abort marker ends it. Raises Malformed if a marker
    cannot be read.
    """
    waiting = deque(sorted(aborted, key=lambda one: one[1]))
    open_aborts: set[int] = set()
    view = memoryview(records)
    kept: list[memoryview] = []
    left_out = False
    for at, header in headers(records):
        while waiting and waiting[0][1] <= header.last_offset:
            open_aborts.add(waiting.popleft()[0])
        batch = view[at : at + header.size]
        if header.is_control:
            marker = read_marker(view, at, header)
            if marker is not None and not marker.committed:
                open_aborts.discard(header.producer_id)
            left_out = True
        elif header.is_transactional and header.producer_id in open_aborts:
            left_out = True
        else:
            kept.append(batch)
    return b"".join(kept) if left_out else records
