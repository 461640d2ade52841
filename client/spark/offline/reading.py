"""Reads one span of closed logs: from any replica that may serve it, as Arrow batches.

Runs in Spark's workers, which open the files by their paths. What a replica cannot give is told once in each
process; what none can give is DataLoss, with file, position and range.
Left to others: good batches (storage/offline), Arrow (client/spark/rows.py), which replicas may serve
(planning.py).
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ....base.logger import get_logger
from ....base.types import TopicPartition
from ....protocol.batches import BatchHeader, headers
from ....protocol.primitives import Buffer, Malformed
from ....storage.offline.identity import Changed, NotSeen
from ....storage.offline.reading import NoReplica, Piece, RangeReader, Source
from ....storage.offline.transactions import ANYONE, LeftOut
from .. import rows
from ..fetch import FetchedRun
from ..plan import DataLoss, PlanError, Span

log = get_logger(__name__)

Uncommitted = tuple[LeftOut, ...]


class Unseen(OSError):
    """A worker does not see the files."""


class Part(NamedTuple):
    """The work of one task."""

    span: Span
    sources: tuple[Source, ...]
    left_out: Uncommitted

    def plain(self) -> tuple[Any, ...]:
        """Built-in values only, as of a span."""
        sources = tuple(each.plain() for each in self.sources)
        return self.span.plain(), sources, tuple(map(tuple, self.left_out))

    @classmethod
    def of_plain(cls, found: Sequence[Any]) -> "Part":
        """What `plain` made."""
        span, sources, left_out = found
        return cls(
            Span.of_plain(span),
            tuple(map(Source.of_plain, sources)),
            tuple(LeftOut(*each) for each in left_out),
        )


def read(part: Part, columns: Sequence[str], strict: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a part. Raises DataLoss if `strict` and some cannot be read."""
    span = part.span
    reader = RangeReader(part.sources, span.start, span.end, pass_over)
    for piece in pieces(span.partition, reader, strict):
        run = FetchedRun(
            records=_kept(piece, part.left_out),
            start=piece.start,
            served_by=piece.source.broker,
            high_watermark=piece.source.high_watermark,
            file=piece.run.path,
        )
        try:
            yield from rows.arrow(run, piece.end, span.partition, columns)
        except Malformed as trouble:
            raise DataLoss(f"{piece.run.path}, position {piece.run.position}: {trouble}") from trouble


def pieces(
    partition: TopicPartition,
    reader: RangeReader,
    strict: bool,
    lost: Callable[[int, int], None] = lambda start, end: None,
) -> Iterator[Piece]:
    """All that a reader has. What is lost is skipped, and `lost` hears of it; if `strict` it is DataLoss.

    PlanError if the directories are not as they were planned on.
    """
    while reader.position < reader.end:
        try:
            yield from reader
        except NoReplica as gone:
            resume = reader.next_good()
            lose(partition, gone, resume, strict)
            lost(gone.position, resume)
            reader.skip_to(resume)
        except Changed as trouble:
            raise PlanError(f"{partition}, as seen on {socket.gethostname()}: {trouble}") from trouble


def lose(partition: TopicPartition, gone: NoReplica, resume: int, strict: bool) -> None:
    """Say that [gone.position, resume) is lost; raise it if `strict`.

    Unseen if files are only not seen here: a replica that this process does not see may have the records.
    """
    if any(isinstance(each, NotSeen) for each in gone.troubles) or (
        gone.troubles and all(isinstance(each, OSError) for each in gone.troubles)
    ):
        raise Unseen(
            f"{partition}: a process on {socket.gethostname()} cannot read the files: {_listed(gone)}. "
            "logDirs are read by path, by every worker: mount them there under the same paths, or use "
            "master local[*]"
        )
    reason = _listed(gone) or "no replica's log in these directories reaches so far"
    lost = f"{partition}: records [{gone.position}, {resume}) cannot be read: {reason}"
    if strict:
        raise DataLoss(f"{lost}. To read what is left, set failOnDataLoss=false")
    log.warning("records_lost", partition=str(partition), start=gone.position, end=resume, reason=reason)


def _listed(gone: NoReplica) -> str:
    return "; ".join(dict.fromkeys(str(each) for each in gone.troubles))


_TOLD: set[str] = set()


def tell_once(event: str, **fields: object) -> None:
    """Log a warning, but never twice in a process."""
    said = f"{event} {fields}"
    if said not in _TOLD:
        _TOLD.add(said)
        log.warning(event, **fields)


def pass_over(source: Source, trouble: Exception) -> None:
    """Tell that a replica cannot serve, and why. Another one is asked."""
    tell_once("replica_passed_over", broker=source.broker, reason=str(trouble))


def _kept(piece: Piece, left_out: Uncommitted) -> Buffer:
    """The batches of a piece, without those of transactions that were aborted, or were never decided."""
    records = piece.run.records
    first = next(header.base_offset for _, header in headers(records))
    here: dict[int, list[LeftOut]] = {}
    for each in left_out:
        if each.last_offset >= first and each.first_offset < piece.run.next_offset:
            here.setdefault(each.producer_id, []).append(each)
    if not here:
        return records

    def is_kept(header: BatchHeader) -> bool:
        concerned = (*here.get(header.producer_id, ()), *here.get(ANYONE, ()))
        return not header.is_transactional or not any(
            each.first_offset <= header.last_offset and header.base_offset <= each.last_offset
            for each in concerned
        )

    return b"".join(records[at : at + header.size] for at, header in headers(records) if is_kept(header))
