"""Fetched records as Arrow batches: Spark's Kafka columns, and what only the batch or the fetch knows.

The facts of a batch (leader epoch, producer, sequence) are one number for all its records, so they are looked
up by offset; a fact that a batch does not have is null. Record number i of a batch has the sequence
`baseSequence + offset - batchBaseOffset`.
Left to others: decoding (protocol/columns.py), Kafka's own columns (protocol/column_arrow.py).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...base.types import TopicPartition
from ...protocol.batches import BatchHeader, headers
from ...protocol.column_arrow import to_arrow
from ...protocol.columns import Columns, runs
from .fetch import FetchedRun
from .option_table import FILE, METADATA_COLUMNS

ROWS_MAX = 1 << 16
BYTES_MAX = 32 << 20

Ints = npt.NDArray[np.int64]

TYPES: dict[str, pa.DataType] = {
    "leaderEpoch": pa.int32(),
    "producerId": pa.int64(),
    "producerEpoch": pa.int32(),
    "baseSequence": pa.int32(),
    "batchBaseOffset": pa.int64(),
    "servedBy": pa.int32(),
    "highWatermark": pa.int64(),
    FILE: pa.string(),
}
OF_BATCH: dict[str, Callable[[BatchHeader], int]] = {
    "leaderEpoch": lambda header: header.leader_epoch,
    "producerId": lambda header: header.producer_id,
    "producerEpoch": lambda header: header.producer_epoch if header.producer_id >= 0 else -1,
    "baseSequence": lambda header: header.base_sequence,
    "batchBaseOffset": lambda header: header.base_offset,
}
OF_FETCH: dict[str, Callable[[FetchedRun], int]] = {
    "servedBy": lambda run: run.served_by,
    "highWatermark": lambda run: run.high_watermark,
}
assert list(TYPES) == [*OF_BATCH, *OF_FETCH, FILE] == [*METADATA_COLUMNS, FILE]


def arrow(
    run: FetchedRun, end: int, partition: TopicPartition, names: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The records of the run before `end`, with the columns in `names`."""
    facts = _Facts(run) if any(name in TYPES for name in names) else None
    kafka = [name for name in names if name not in TYPES] or ["offset"]
    for columns in runs(run.records, run.start, end, rows_max=ROWS_MAX, bytes_max=BYTES_MAX):
        if not len(columns):
            continue
        for piece in _pieces(columns):
            batch = to_arrow(piece, *partition, names=kafka)
            yield batch if facts is None else facts.added_to(batch, piece, names)


def _pieces(columns: Columns) -> Iterator[Columns]:
    """The same records, `ROWS_MAX` at a time if they are many more: one batch may have millions."""
    rows = len(columns)
    if rows <= 2 * ROWS_MAX:
        yield columns
        return
    arrays = [getattr(columns, field.name) for field in fields(columns)[3:]]
    for at in range(0, rows, ROWS_MAX):
        part = (each[at : at + ROWS_MAX] for each in arrays)
        yield Columns(columns.data, columns.array, columns.next_offset, *part)


class _Facts:
    """The numbers of all batches of a run, to be looked up by offset."""

    def __init__(self, run: FetchedRun) -> None:
        self._run = run
        self._heads = [header for _, header in headers(run.records) if not header.is_control]
        self._first = np.array([header.base_offset for header in self._heads], np.int64)

    def added_to(self, batch: pa.RecordBatch, columns: Columns, names: Sequence[str]) -> pa.RecordBatch:
        """The batch with all columns in `names`, in that order."""
        at = np.searchsorted(self._first, columns.offset, side="right") - 1
        column = partial(self._column, at=at)
        schema = pa.schema(
            [pa.field(name, TYPES[name]) if name in TYPES else batch.schema.field(name) for name in names]
        )
        arrays = [column(name) if name in TYPES else batch.column(name) for name in names]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, name: str, at: Ints) -> pa.Array:
        if name == FILE:
            return pa.repeat(pa.scalar(self._run.file or None, TYPES[name]), len(at))
        if name in OF_FETCH:
            values = np.full(len(at), OF_FETCH[name](self._run), np.int64)
        else:
            values = np.array([OF_BATCH[name](header) for header in self._heads], np.int64)[at]
        return pa.array(values, TYPES[name], mask=values < 0)
