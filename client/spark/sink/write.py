"""The writers that Spark asks for: made and committed on the driver, their `write` run by the tasks.

Rows are written at least once: what a task has written stays, even if the task or the query fails later, and
a task that Spark repeats writes its rows again. With exactlyOnce they count when the driver commits.
Left to others: a task's work (task.py), transactions (transactions.py).
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
from ..client import cluster_for
from ..options import OptionError
from ..telling import tell, told_plainly
from .columns import Columns, columns_of
from .options import SinkOptions
from .produce import Written
from .transactions import OpenTransaction, abort_all, commit_all
from .trouble import NotWritten, made_again

if TYPE_CHECKING:
    import pyarrow as pa

    from .task import TaskDone

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

    def __init__(self, done: "TaskDone") -> None:
        written = sorted(done.written.items())
        self.plain: dict[str, Any] = {
            "partitions": [
                (tp.topic, tp.partition, each.rows, each.nbytes, each.first_offset, each.last_offset)
                for tp, each in written
            ],
            "topics": {tp.topic: str(each.topic_id) for tp, each in written if each.topic_id.int},
            "opened": None if done.opened is None else tuple(done.opened),
        }


class Sink:
    """What a writer for a batch and one for a stream have in common."""

    def __init__(self, options: SinkOptions, columns: Columns, write_id: str | None = None) -> None:
        """`write_id`: of a write that is no stream, the same in all its tasks."""
        self.options = options
        self.columns = columns
        self.write_id = write_id

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> TaskWritten:
        """Write the rows of one task."""
        from .task import write_rows  # a driver does not wait for Arrow's functions to load

        with told_plainly():
            return TaskWritten(write_rows(self.options, self.columns, iterator, self.write_id))

    def commit_rows(self, messages: Sequence[WriterCommitMessage | None], **facts: Any) -> None:
        """All tasks have written their rows: with transactions, they count from now on. Raises NotWritten."""
        check_topics(messages)
        opened = _opened(messages)
        if opened:
            with told_plainly():
                commit_all(cluster_for(self.options.cluster), self.options, opened)
        log.info("rows_written", **facts, **summary(messages))

    def abort_rows(self, messages: Sequence[WriterCommitMessage | None], **facts: Any) -> None:
        """A task has failed. What was written stays, but in a transaction it never counts."""
        abort_all(cluster_for(self.options.cluster), _opened(messages))
        log.warning("write_aborted", **facts, **summary(messages))

    def tell(self) -> None:
        """Tell what has no effect: on the driver, and once, for a stream asks for many writers."""
        if TaskContext.get() is None:
            _TOLD.update(tell({*self.options.notes, *self.columns.notes} - _TOLD))


class StrandlineWriter(Sink, DataSourceArrowWriter):
    """Writes a batch."""

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks have written their rows. Raises NotWritten."""
        self.commit_rows(messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """A task has failed."""
        self.abort_rows(messages)


class StrandlineStreamWriter(Sink, DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of the batch have written their rows. Raises NotWritten: the batch will be run again."""
        self.commit_rows(messages, batch=batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """A task has failed: its batch will be run again."""
        self.abort_rows(messages, batch=batchId)


def sink(
    kind: type[W], options: SinkOptions, schema: StructType, overwrite: bool, write_id: str | None = None
) -> W:
    """A writer for rows of that schema; raises OptionError."""
    if overwrite:
        raise OptionError(NO_OVERWRITE if kind is StrandlineWriter else NO_COMPLETE)
    made = kind(options, columns_of(schema, options), write_id)
    made.tell()
    return made


def check_topics(messages: Sequence[WriterCommitMessage | None]) -> None:
    """Raise NotWritten if tasks have written to two topics of one name: what the first had is gone."""
    ids: dict[str, str] = {}
    for message in messages:
        for topic, now in _facts(message).get("topics", {}).items():
            was = ids.setdefault(topic, now)
            if was != now:
                with told_plainly():
                    raise NotWritten(made_again(topic, was, now))


def _opened(messages: Sequence[WriterCommitMessage | None]) -> list[OpenTransaction]:
    """The transactions that tasks have left open."""
    left = [_facts(message).get("opened") for message in messages]
    return [OpenTransaction(*one) for one in left if one is not None]


def _facts(message: WriterCommitMessage | None) -> dict[str, Any]:
    """What a task has told; nothing, of one that has failed."""
    told: dict[str, Any] = getattr(message, "plain", {})
    return told


def summary(messages: Sequence[WriterCommitMessage | None]) -> dict[str, Any]:
    """All tasks together: rows, bytes, and of each partition the rows with the first and last offset.

    Other writers' records may be between these offsets.
    """
    total: dict[TopicPartition, Written] = {}
    for message in messages:
        for topic, partition, *facts in _facts(message).get("partitions", ()):
            total.setdefault(TopicPartition(topic, partition), Written()).merge(Written(*facts))
    return {
        "rows": sum(each.rows for each in total.values()),
        "bytes": sum(each.nbytes for each in total.values()),
        "partitions": {
            str(tp): [each.rows, each.first_offset, each.last_offset] for tp, each in sorted(total.items())
        },
    }
