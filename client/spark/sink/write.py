"""The writers that Spark asks for: made and committed on the driver, their `write` run by the tasks.

Rows are written at least once. What a task has written stays, even if the task or the query fails later, and
a task that Spark repeats writes its rows again.
Left to others: a task's work (task.py).
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from ....base.logger import get_logger
from ....base.types import TopicPartition
from ..options import OptionError
from ..telling import tell, told_plainly
from .columns import Columns, columns_of
from .options import SinkOptions
from .produce import Written
from .trouble import NotWritten, made_again

if TYPE_CHECKING:
    import pyarrow as pa

log = get_logger(__name__)

W = TypeVar("W", "StrandlineWriter", "StrandlineStreamWriter")

NO_OVERWRITE = (
    "mode overwrite is not supported: what a topic has stays, records are only added; use mode append"
)
NO_COMPLETE = (
    "output mode complete is not supported: what a topic has stays, so each batch would only add the whole "
    "result again; use append, or write each result in foreachBatch"
)

_TOLD: set[str] = set()


class TaskWritten(WriterCommitMessage):
    """What a task has written to partitions, as plain values."""

    def __init__(self, written: dict[TopicPartition, Written]) -> None:
        self.plain = [
            (tp.topic, tp.partition, each.rows, each.nbytes, each.first_offset, each.last_offset)
            for tp, each in sorted(written.items())
        ]
        self.topics = {tp.topic: str(each.topic_id) for tp, each in written.items() if each.topic_id.int}


class Sink:
    """What a writer for a batch and one for a stream have in common."""

    def __init__(self, options: SinkOptions, columns: Columns) -> None:
        self.options = options
        self.columns = columns

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskWritten:
        """Write the rows of one task."""
        from .task import write_rows  # a driver does not wait for Arrow's functions to load

        with told_plainly():
            return TaskWritten(write_rows(self.options, self.columns, iterator))

    def tell(self) -> None:
        """Tell what has no effect: on the driver, and once, for a stream asks for many writers."""
        if TaskContext.get() is None:
            _TOLD.update(tell({*self.options.notes, *self.columns.notes} - _TOLD))


class StrandlineWriter(Sink, DataSourceArrowWriter):
    """Writes a batch."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks have written their rows. Raises NotWritten."""
        check_topics(messages)
        log.info("rows_written", **summary(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task has failed. What was written stays."""
        log.warning("write_aborted", **summary(messages))


class StrandlineStreamWriter(Sink, DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of the batch have written their rows. Raises NotWritten: the batch will be run again."""
        check_topics(messages)
        log.info("rows_written", batch=batchId, **summary(messages))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """A task has failed: its batch will be run again, and what it wrote stays."""
        log.warning("write_aborted", batch=batchId, **summary(messages))


def sink(kind: type[W], options: SinkOptions, schema: StructType, overwrite: bool) -> W:
    """A writer for rows of that schema; raises OptionError."""
    if overwrite:
        raise OptionError(NO_OVERWRITE if kind is StrandlineWriter else NO_COMPLETE)
    made = kind(options, columns_of(schema, options))
    made.tell()
    return made


def check_topics(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Raise NotWritten if tasks have written to two topics of one name: what the first had is gone."""
    ids: dict[str, str] = {}
    for message in messages:
        for topic, now in getattr(message, "topics", {}).items():
            was = ids.setdefault(topic, now)
            if was != now:
                with told_plainly():
                    raise NotWritten(made_again(topic, was, now))


def summary(messages: Sequence[WriterCommitMessage | None]) -> dict[str, Any]:
    """All tasks together: rows, bytes, and of each partition the rows with the first and last offset.

    Other writers' records may be between these offsets.
    """
    total: dict[TopicPartition, Written] = {}
    for message in messages:
        for topic, partition, *facts in getattr(message, "plain", ()):  # None of a task that failed
            total.setdefault(TopicPartition(topic, partition), Written()).merge(Written(*facts))
    return {
        "rows": sum(each.rows for each in total.values()),
        "bytes": sum(each.nbytes for each in total.values()),
        "partitions": {
            str(tp): [each.rows, each.first_offset, each.last_offset] for tp, each in sorted(total.items())
        },
    }
