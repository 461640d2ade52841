"""Reads one span of closed logs: from any replica that may serve it, as Arrow batches.

Runs in Spark's workers, which open the files by their paths. What a replica cannot give is told once in each
process; what none can give is DataLoss, with file, position and range.
Left to others: good batches (storage/offline), Arrow (client/spark/rows.py), which replicas may serve
(planning.py).
"""

import socket
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from ....base.logger import get_logger
from ....base.types import TopicPartition
from ....protocol.batches import headers
from ....protocol.messages.fetch import AbortedTransaction
from ....protocol.primitives import Buffer, Malformed
from ....storage.offline.reading import NoReplica, Piece, RangeReader, Source
from .. import rows
from ..fetch import FetchedRun
from ..plan import DataLoss, Span
from ..transactions import without_aborted

log = get_logger(__name__)

Aborts = tuple[tuple[int, int, int], ...]  # producer id, first and last offset


class Unseen(OSError):
    """A worker does not see the files."""


class Part(NamedTuple):
    """The work of one task."""

    span: Span
    sources: tuple[Source, ...]
    aborted: Aborts

    def plain(self) -> tuple[Any, ...]:
        """Built-in values only, as of a span."""
        return self.span.plain(), tuple(tuple(each) for each in self.sources), self.aborted

    @classmethod
    def of_plain(cls, found: Sequence[Any]) -> "Part":
        """What `plain` made."""
        span, sources, aborted = found
        return cls(Span.of_plain(span), tuple(Source(*each) for each in sources), aborted)


def read(part: Part, columns: Sequence[str], strict: bool) -> Iterator[pa.RecordBatch]:
    """The rows of a part. Raises DataLoss if `strict` and some cannot be read."""
    span = part.span
    reader = RangeReader(part.sources, span.start, span.end, pass_over)
    for piece in pieces(span.partition, reader, strict):
        run = FetchedRun(
            records=_kept(piece, part.aborted),
            start=piece.start,
            served_by=piece.source.broker,
            high_watermark=piece.source.high_watermark,
            file=piece.run.path,
        )
        try:
            yield from rows.arrow(run, piece.end, span.partition, columns)
        except Malformed as trouble:
            raise DataLoss(f"{piece.run.path}, position {piece.run.position}: {trouble}") from trouble


def pieces(partition: TopicPartition, reader: RangeReader, strict: bool) -> Iterator[Piece]:
    """All that a reader has; what is lost is skipped, or raised as DataLoss if `strict`."""
    while reader.position < reader.end:
        try:
            yield from reader
        except NoReplica as gone:
            resume = reader.next_good()
            lose(partition, gone, resume, strict)
            reader.skip_to(resume)


def lose(partition: TopicPartition, gone: NoReplica, resume: int, strict: bool) -> None:
    """Say that [gone.position, resume) is lost; raise it if `strict`, or if the files are only not seen."""
    if gone.troubles and all(isinstance(each, OSError) for each in gone.troubles):
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


def _kept(piece: Piece, aborted: Aborts) -> Buffer:
    """The batches of a piece, without those of aborted transactions."""
    records = piece.run.records
    if not aborted:
        return records
    first = next(header.base_offset for _, header in headers(records))
    here = [
        AbortedTransaction(producer_id=producer, first_offset=begin)
        for producer, begin, last in aborted
        if last >= first and begin < piece.run.next_offset
    ]
    return without_aborted(records, here)
