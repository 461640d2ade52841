"""Reader: records from log directories without a broker, one at a time or in bulk as Arrow.

    for record in Reader("/var/lib/strandline/logs").records(TopicPartition("orders", 0)):
        ...

The directory may be Strandline's or Kafka's, of a stopped broker or a running one. It reads the committed
records, from the log start offset up to the high watermark, both taken from the checkpoints beside the
partitions. A running broker writes its high watermarks every few seconds, so the newest records appear a
little later; `committed_only=False` reads to the log end, where records may still be truncated. Control
batches are left out; records of transactions are returned whether or not those were committed.
Memory is bounded: one window of a segment, decompressed batch by batch.
Left to others: files and positions (segment_files.py), decoding (protocol/columns.py).
"""

from collections.abc import Callable, Iterator, Sequence
from errno import ENOENT
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from ..base.extras import require
from ..base.types import TopicPartition
from ..protocol.batches import BatchHeader, crc_ok
from ..protocol.primitives import Malformed
from ..protocol.records import Record
from .directories.log_manager import parse_directory
from .disk import RealDisk
from .log.checkpoints import HIGH_WATERMARKS, START_OFFSETS, read_offsets
from .segment_files import Damaged, SegmentFile, floor_of, place_of, segment_paths

if TYPE_CHECKING:
    import pyarrow as pa

    from ..protocol.columns import Columns

T = TypeVar("T")

__all__ = ["Damaged", "Reader", "read_partition"]

ROWS_MAX = 1 << 16  # per Arrow batch
BYTES_MAX = 32 << 20  # of records decompressed at a time
FAR = (1 << 63) - 1
VANISHED_MAX = 5  # times in a row that a segment may be gone before it can be opened


class Reader:
    """A log directory: its partitions and their records."""

    def __init__(self, log_dir: str | Path) -> None:
        self.log_dir = Path(log_dir)

    def partitions(self) -> list[TopicPartition]:
        """The partitions whose logs are here."""
        found = (parse_directory(path.name) for path in self.log_dir.iterdir() if path.is_dir())
        return sorted(partition for partition in found if partition is not None)

    def records(
        self,
        partition: TopicPartition,
        *,
        start: int | None = None,
        end: int | None = None,
        committed_only: bool = True,
    ) -> Iterator[Record]:
        """The records of one partition in [start, end), in order."""
        directory = self.log_dir / str(partition)
        return read_partition(directory, start=start, end=end, committed_only=committed_only)

    def arrow_batches(
        self,
        partition: TopicPartition,
        *,
        start: int | None = None,
        end: int | None = None,
        committed_only: bool = True,
        include_headers: bool = False,
        names: Sequence[str] | None = None,
    ) -> "Iterator[pa.RecordBatch]":
        """The same as Arrow, some rows at a time, with the schema of Spark's `kafka` source."""
        require("pyarrow", "arrow", "arrow_batches")
        from ..protocol.column_arrow import to_arrow

        def convert(columns: "Columns") -> "pa.RecordBatch":
            return to_arrow(columns, partition.topic, partition.partition, include_headers, names)

        directory = self.log_dir / str(partition)
        bounds = _bounds(directory, start, end, None, committed_only)
        return (batch for batch in _converted(directory, *bounds, convert) if batch.num_rows)

    def to_arrow(
        self,
        partition: TopicPartition,
        *,
        start: int | None = None,
        end: int | None = None,
        committed_only: bool = True,
        include_headers: bool = False,
        names: Sequence[str] | None = None,
    ) -> "pa.Table":
        """The same as one table, which must fit in memory."""
        require("pyarrow", "arrow", "to_arrow")
        import pyarrow as pa

        from ..protocol.column_arrow import to_arrow
        from ..protocol.columns import decode

        found = self.arrow_batches(
            partition,
            start=start,
            end=end,
            committed_only=committed_only,
            include_headers=include_headers,
            names=names,
        )
        nothing = to_arrow(decode(b""), partition.topic, partition.partition, include_headers, names)
        return pa.Table.from_batches(found, schema=nothing.schema)


def read_partition(
    directory: str | Path,
    *,
    start: int | None = None,
    end: int | None = None,
    high_watermark: int | None = None,
    committed_only: bool = True,
) -> Iterator[Record]:
    """The records in [start, end) of a partition's directory, in order.

    `high_watermark` replaces the one in the checkpoint beside the directory. If no checkpoint knows the
    directory, for example a copy of a single partition, everything is read.
    Raises `Damaged` (a ValueError) at the first bytes that are not what was written, and `Unreadable`
    (also a ValueError) for a damaged checkpoint.
    """
    bounds = _bounds(Path(directory), start, end, high_watermark, committed_only)
    return chain.from_iterable(_converted(Path(directory), *bounds, lambda columns: list(columns.rows())))


class Checkpointed(NamedTuple):
    """What the checkpoints beside a partition's directory say of it; None where they say nothing."""

    log_start: int | None
    high_watermark: int | None


def checkpointed(directory: Path) -> Checkpointed:
    """What the checkpoints say of a partition's directory. Raises `Unreadable` for a damaged one."""
    directory = directory.absolute()
    partition = parse_directory(directory.name)
    if partition is None:
        return Checkpointed(None, None)
    starts, watermarks = (
        read_offsets(RealDisk(), str(directory.parent / name)) for name in (START_OFFSETS, HIGH_WATERMARKS)
    )
    return Checkpointed(starts.get(partition), watermarks.get(partition))


def _bounds(
    directory: Path, start: int | None, end: int | None, high_watermark: int | None, committed_only: bool
) -> tuple[int, int, int]:
    """First offset, end offset (exclusive), and the offset that the log must at least reach."""
    known = checkpointed(directory)
    first = max(known.log_start or 0, start or 0)
    committed = known.high_watermark if high_watermark is None else high_watermark
    last = FAR if end is None else end
    if committed is None or not committed_only:
        return first, last, 0
    return first, min(committed, last), min(committed, last)


def _converted(
    directory: Path, start: int, end: int, must_reach: int, convert: Callable[["Columns"], T]
) -> Iterator[T]:
    """The records of [start, end), decoded and converted."""
    from ..protocol.columns import runs

    for path, position, data, offset in _pieces(directory, start, end, must_reach):
        try:
            for columns in runs(data, offset, end, verify=False, rows_max=ROWS_MAX, bytes_max=BYTES_MAX):
                if len(columns):
                    yield convert(columns)
        except Malformed as error:
            raise Damaged(path, position, f"cannot decode batches: {error}") from error


def _pieces(
    directory: Path, start: int, end: int, must_reach: int
) -> Iterator[tuple[Path, int, memoryview, int]]:
    """Runs of checked batches: file, position, bytes, and the first offset not seen yet.

    A running broker may remove a segment, or replace it by a compacted one, between listing and opening. Then
    the directory is listed again, and reading goes on from the next offset.
    """
    paths, offset, vanished = segment_paths(directory), start, 0
    bases = list(paths)
    if not bases:
        raise FileNotFoundError(ENOENT, "the directory has no segments", str(directory))
    place = place_of(bases, offset)
    while place < len(bases) and offset < end:
        try:
            segment = SegmentFile(paths[bases[place]])
        except FileNotFoundError:
            vanished += 1
            if vanished > VANISHED_MAX:
                raise
            paths = segment_paths(directory)
            bases = list(paths)
            place = place_of(bases, offset)
            continue
        with segment:
            vanished = read_to = 0
            for position, data, after in _checked(segment, bases[place], offset, end):
                yield segment.path, position, data, offset
                offset, read_to = max(offset, after), position + len(data)
        place += 1
        if offset < end and place < len(bases) and read_to < segment.size:
            raise Damaged(
                segment.path, read_to, "the segment ends inside a batch, yet another segment follows"
            )
        if offset < end and place == len(bases):
            paths = segment_paths(directory)
            if list(paths)[-1:] != bases[-1:]:  # rolled meanwhile; what we read may have grown, too
                bases = list(paths)
                place = place_of(bases, offset)
    log_end = max([offset, *bases[-1:]])  # compaction may have removed all before the last segment
    if log_end < must_reach:
        raise Damaged(
            directory, 0, f"the log ends at offset {log_end}, below its high watermark {must_reach}"
        )


def _checked(
    segment: SegmentFile, base_offset: int, offset: int, end: int
) -> Iterator[tuple[int, memoryview, int]]:
    """Good batches from the one that holds `offset` up to `end`: position, bytes, the next offset.

    Good batches before a bad one are yielded before `Damaged` is raised.
    """
    expected, problem = base_offset, ""
    for start, data, found in segment.runs(floor_of(segment, base_offset, offset).position):
        stop = 0
        for at, header in found:
            if header.base_offset >= end:
                expected = end
                break
            problem = _problem(data, at, header, expected)
            if problem:
                break
            expected, stop = header.next_offset, at + header.size
        yield start, data[:stop], expected
        if problem:
            raise Damaged(segment.path, start + stop, problem)
        if stop < len(data):
            return


def _problem(data: memoryview, at: int, header: BatchHeader, expected: int) -> str:
    """What is wrong with a batch; empty if it is good."""
    if header.base_offset < expected:
        return f"a batch has base offset {header.base_offset}: expected {expected} or more"
    if not crc_ok(data, at, header):
        return f"the checksum of the batch at offset {header.base_offset} does not match"
    return ""
