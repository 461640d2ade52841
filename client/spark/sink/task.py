"""A task of a write: its rows, block by block, become batches on their way.

A block is some Arrow batches of Spark's together, so that batches of many partitions fill too. Nothing is
asked of a broker before there is a row: most tasks of a small stream have none. (With exactlyOnce one without
rows asks whether some of an earlier attempt count.)
Left to others: records (encode.py), partitions (route.py), the send loop (produce.py).
"""

import time
from array import array
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from ....base.logger import get_logger
from ....base.types import TopicPartition
from ....protocol.errors import ApiError
from ....protocol.records import NO_TIMESTAMP, BatchBuilder
from ..client import cluster_for
from . import encode
from .columns import Columns
from .encode import Block, Ints
from .option_table import is_topic
from .options import SinkOptions
from .produce import TaskProducer, Written, forget, producer_for
from .route import Router, batches
from .transactions import Amount, OpenTransaction, TaskTransaction, Work
from .trouble import BadRow, NotWritten

log = get_logger(__name__)

BLOCK_BYTES_MIN = 1 << 20
BLOCK_SHARE = 4  # one part in four of kafka.buffer.memory is enough for a block; it has at most two
ROW_BYTES = 128  # what a row takes beside its content while it is encoded
OTHER_ROWS = (
    "If the options that read and split have changed since (above all minPartitions, maxRecordsPerPartition "
    "and splitBytes), set them as they were until the batch is done. If the query draws at random (rand, "
    "uuid, sample: each run has another seed, whatever seed is named), asks a clock of its own, or takes "
    "rows by chance, no run of it will have the same rows: let that follow from the row, as "
    "xxhash64(topic, partition, offset) does. This batch is then to be run once with exactlyOnce=false, "
    "which writes again what counts already"
)


class TaskDone(NamedTuple):
    """What was acknowledged, and the transaction that the driver is to end, if there is one."""

    written: dict[TopicPartition, Written]
    opened: OpenTransaction | None = None


def write_rows(
    options: SinkOptions, columns: Columns, rows: Iterator[pa.RecordBatch], write_id: str | None = None
) -> TaskDone:
    """Write all rows. `write_id` names a write that is no stream. Raises NotWritten."""
    try:
        return _Task(options, columns, write_id).run(rows)
    except (BadRow, NotWritten, ApiError) as trouble:
        forget(options)
        context = TaskContext.get()
        number = 0 if context is None else context.partitionId()
        raise NotWritten(f"task {number}, {trouble}") from trouble
    except BaseException:
        forget(options)
        raise


class _Task:
    def __init__(self, options: SinkOptions, columns: Columns, write_id: str | None) -> None:
        self._options = options
        self._write_id = write_id
        self._columns = columns
        self._router = Router(options.spread, options.batch_bytes, Random())
        self._row = 0  # the first of the block
        self._content = 0  # bytes of keys and values before it, if exactly once
        self._lanes = 1

    def run(self, rows: Iterator[pa.RecordBatch]) -> TaskDone:
        blocks = self._blocks(rows)
        first = next(blocks, None)
        if not self._options.exactly_once:
            return TaskDone({} if first is None else self._write(chain([first], blocks), None))
        work = Work.of_task(self._write_id)
        if first is None and work.batch is None:
            return TaskDone({})
        transaction = TaskTransaction(cluster_for(self._options.cluster), self._options, work)
        if first is None:
            if transaction.is_counted():
                self._check_same(transaction, ())
            return TaskDone({})
        if not transaction.begin():
            self._check_same(transaction, chain([first], blocks))
            log.info("rows_written_before", transaction=work.name, batch=work.batch)
            return TaskDone({})
        try:
            written = self._write(chain([first], blocks), transaction)
            return TaskDone(written, transaction.leave_open(Amount(self._row, self._content)))
        except BaseException:
            transaction.give_up()
            raise

    def _check_same(self, transaction: TaskTransaction, blocks: Iterable[pa.RecordBatch]) -> None:
        """Its rows count already: see that they are those that it has got now. Raises NotWritten."""
        if (counted := transaction.counted) is None:
            return
        for block in blocks:
            self._row += block.num_rows
            self._content += self._content_of(block)
        if (now := Amount(self._row, self._content)) != counted:
            raise NotWritten(
                f"transaction {transaction.name}: this batch was run before, and then this task had "
                f"{counted.rows} rows of {counted.nbytes} bytes, which count; now it has got {now.rows} of "
                f"{now.nbytes}, so rows would be missing or be there twice. {OTHER_ROWS}"
            )

    def _content_of(self, block: pa.RecordBatch) -> int:
        columns = (self._columns.of(block, name) for name in ("key", "value"))
        return sum(
            pc.sum(pc.binary_length(encode.binary(column))).as_py() or 0
            for column in columns
            if column is not None
        )

    def _write(
        self, blocks: Iterable[pa.RecordBatch], transaction: TaskTransaction | None
    ) -> dict[TopicPartition, Written]:
        producer = producer_for(self._options)
        producer.begin(transaction)
        for block in blocks:
            try:
                self._put(producer, block)
            except BadRow as trouble:
                raise BadRow(self._row + trouble.row, trouble.reason) from trouble
            self._row += block.num_rows
            if transaction is not None:
                self._content += self._content_of(block)
            producer.settle(self._options.buffer_bytes)
        producer.settle(0)
        producer.end()
        return producer.written

    def _blocks(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches joined until each partition may fill one of its own, or cut if they are huge."""
        waiting: list[pa.RecordBatch] = []
        weight = 0
        most = self._options.buffer_bytes // BLOCK_SHARE
        for batch in rows:
            for piece in _cut(batch, most):
                waiting.append(piece)
                weight += _weight(piece)
                wanted = max(self._lanes * self._options.batch_bytes, BLOCK_BYTES_MIN)
                if weight >= min(wanted, most):
                    yield _joined(waiting)
                    weight = 0
        if waiting:
            yield _joined(waiting)

    def _put(self, producer: TaskProducer, batch: pa.RecordBatch) -> None:
        block = self._encodable(batch)
        sizes = block.sizes
        self._check_sizes(sizes)
        topics, topic_of_row = self._topics(batch)
        place, partitions = self._places(producer, batch, block, topics, topic_of_row)
        self._lanes = max(self._lanes, len(np.unique(place)))
        order, first = batches(place, sizes, self._options.batch_bytes)
        encoded = encode.encode(block, order, first)
        for records, (begin, end) in zip(encoded, pairwise(first.tolist()), strict=True):
            builder = BatchBuilder(self._options.codec, level=self._options.level)
            builder.extend(*records)
            rows = array("q", (order[begin:end] + self._row).tobytes())
            producer.put(partitions[int(place[order[begin]])], builder, rows)

    def _encodable(self, batch: pa.RecordBatch) -> Block:
        value = self._columns.of(batch, "value")
        assert value is not None, "checked on the driver"
        return encode.block(
            self._columns.of(batch, "key"),
            value,
            _milliseconds(self._columns.of(batch, "timestamp"), batch.num_rows),
            self._columns.of(batch, "headers"),
        )

    def _check_sizes(self, sizes: Ints) -> None:
        most = self._options.request_bytes
        if int(sizes.max()) > most:
            row = int(np.argmax(sizes > most))
            raise BadRow(row, f"its record takes {sizes[row]} bytes, above kafka.max.request.size={most}")

    def _topics(self, batch: pa.RecordBatch) -> tuple[list[str], Ints]:
        """The topics in a block, and for each row which."""
        if self._options.topic is not None:
            return [self._options.topic], np.zeros(batch.num_rows, np.int64)
        column = self._columns.of(batch, "topic")
        assert column is not None, "checked on the driver"
        if column.null_count:
            row = int(np.argmax(np.asarray(column.is_null())))
            raise BadRow(row, "its topic is null; name one in column topic, or for all rows in option topic")
        coded = column.dictionary_encode()
        return coded.dictionary.to_pylist(), np.asarray(coded.indices, np.int64)

    def _places(
        self,
        producer: TaskProducer,
        batch: pa.RecordBatch,
        block: Block,
        topics: list[str],
        topic_of_row: Ints,
    ) -> tuple[Ints, list[TopicPartition]]:
        """For each row which of these partitions it goes to."""
        named = self._columns.of(batch, "partition")
        sizes = block.sizes
        place = np.empty(batch.num_rows, np.int64)
        partitions: list[TopicPartition] = []
        for number, topic in enumerate(topics):
            rows = np.flatnonzero(topic_of_row == number) if len(topics) > 1 else None
            if not is_topic(topic):
                raise BadRow(0 if rows is None else int(rows[0]), f"no topic can have the name {topic!r}")
            there = slice(None) if rows is None else rows
            chosen = self._choose(
                producer, topic, _some(block.key, rows), _some(named, rows), sizes[there], rows
            )
            place[there] = chosen + len(partitions)
            partitions += (TopicPartition(topic, at) for at in range(int(chosen.max()) + 1))
        return place, partitions

    def _choose(
        self,
        producer: TaskProducer,
        topic: str,
        keys: pa.Array | None,
        named: pa.Array | None,
        sizes: Ints,
        rows: Ints | None,
    ) -> Ints:
        """The partitions of rows of one topic: those that they name, else as the options say."""
        known = producer.topic(topic)
        if named is None or named.null_count == len(named):
            return self._router.choose(topic, known.places, producer.led(topic), keys, sizes)
        given = np.asarray(named.fill_null(0), np.int64)
        count = producer.topic(topic, at_least=int(given.max()) + 1).partitions
        odd = np.flatnonzero((given < 0) | (given >= count))
        if len(odd):
            row = int(odd[0]) if rows is None else int(rows[odd[0]])
            raise BadRow(
                row,
                f"its partition is {given[odd[0]]}, and topic {topic} has partitions 0 to {count - 1}",
            )
        if named.null_count:
            free = np.asarray(named.is_null())
            index = np.flatnonzero(free)
            given[free] = self._router.choose(
                topic, known.places, producer.led(topic), _some(keys, index), sizes[free]
            )
        return given


def _weight(batch: pa.RecordBatch) -> int:
    """Bytes of memory to reckon with: rows without content take some, too."""
    return int(batch.nbytes) + ROW_BYTES * int(batch.num_rows)


def _cut(batch: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """The batch, or halves of halves of it, none too large unless it is one row."""
    if batch.num_rows == 0:
        return
    if _weight(batch) <= most or batch.num_rows == 1:
        yield batch
        return
    middle = batch.num_rows // 2
    yield from _cut(batch.slice(0, middle), most)
    yield from _cut(batch.slice(middle), most)


def _joined(waiting: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All of them in one, which alone stays."""
    if len(waiting) == 1:
        return waiting.pop()
    table = pa.Table.from_batches(waiting)
    waiting.clear()
    (joined,) = table.combine_chunks().to_batches()
    return joined


def _milliseconds(column: pa.Array | None, rows: int) -> Ints:
    """Timestamps of rows; now where there is none. -1 is that of a record without one, and stays so."""
    now = int(time.time() * 1000)
    if column is None:
        return np.full(rows, now, np.int64)
    micros = column.cast(pa.int64())
    found = np.asarray(pc.fill_null(micros, now * 1000), np.int64) // 1000
    if int(found.min()) < NO_TIMESTAMP:
        row = int(np.argmax(found < NO_TIMESTAMP))
        raise BadRow(row, "its timestamp is before 1970; expected a later one, or null for now")
    return found


def _some(column: pa.Array | None, rows: Ints | None) -> pa.Array | None:
    """The values at those rows; None means all."""
    return column if column is None or rows is None else column.take(pa.array(rows))
