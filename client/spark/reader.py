"""The batch reader: spans are planned on the driver, Arrow record batches made in the tasks.

`partitions` fixes the snapshot, unless `schema` has fixed it at load(). Spark keeps the partitions with the
DataFrame, so a repeated action reads the same.
Left to others: the snapshot (snapshot.py), the fetch loop (fetch.py), Arrow (rows.py), closed logs
(offline/).
"""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...base.logger import get_logger
from ...base.types import TopicPartition
from ...protocol.errors import CorruptMessage
from ...protocol.primitives import Malformed
from . import groups, rows, snapshot
from .client import cluster_for
from .fetch import SpanReader
from .options import SourceOptions
from .plan import Span
from .telling import tell, told_plainly

log = get_logger(__name__)


class StrandlineReader(DataSourceReader):
    """Reads `columns`, by name, of the records that the options describe."""

    def __init__(self, options: SourceOptions, columns: Sequence[str], told: Collection[str] = ()) -> None:
        """`told` are notes that the user has heard."""
        self.options = options
        self.columns = columns
        self._notes = set(options.notes).difference(told)

    def partitions(self) -> list[InputPartition]:
        """One partition for each span. Called on the driver, once for a DataFrame. Spark wants a list."""
        with told_plainly():
            self._notes -= tell(self._notes)
            if self.options.closed is not None:
                return _parts_of_closed_logs(self.options)
            cluster = cluster_for(self.options.cluster)
            spans = cluster.patiently(lambda: snapshot.take(cluster, self.options))
            log.info("read_planned", snapshot=snapshot.to_json(spans))
            if self.options.group is not None:
                _tell_not_committed(self.options.group, _split(spans))
            return parts_of(spans)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one span."""
        if (part := part_of(partition)) is not None:
            with told_plainly():
                if self.options.closed is not None:
                    yield from _read_closed_logs(self.options, self.columns, part)
                    return
                yield from read_part(self.options, self.columns, part, group=self.options.group)


def _parts_of_closed_logs(options: SourceOptions) -> list[InputPartition]:
    """The tasks of a read without brokers."""
    from .offline import planning  # few reads need it, and what it stands on

    parts = planning.parts(options)
    log.info("read_planned", snapshot=snapshot.to_json([part.span for part in parts]))
    return [InputPartition(part.plain()) for part in parts]


def _read_closed_logs(
    options: SourceOptions, columns: Sequence[str], part: Sequence[Any]
) -> Iterator[pa.RecordBatch]:
    """The rows of such a task."""
    from .offline import reading

    return reading.read(reading.Part.of_plain(part), columns, options.fail_on_data_loss)


def parts_of(spans: Sequence[Span]) -> list[InputPartition]:
    """The tasks, and for each whether it alone reads what is read of its partition."""
    split = _split(spans)
    return [InputPartition((span.plain(), span.partition not in split)) for span in spans]


def _split(spans: Sequence[Span]) -> set[TopicPartition]:
    """The partitions that several tasks read."""
    return {partition for partition, tasks in Counter(span.partition for span in spans).items() if tasks > 1}


def _tell_not_committed(group: str, split: set[TopicPartition]) -> None:
    """A task that ends knows nothing of the others, and there is no one to ask when all have ended."""
    if split:
        log.warning(
            "offsets_not_committed",
            group=group,
            partitions=", ".join(map(str, sorted(split))),
            reason="several tasks read them, and none knows whether the others have read theirs: leave out "
            "minPartitions, maxRecordsPerPartition and splitBytes",
        )


def part_of(partition: InputPartition | None) -> tuple[Sequence[Any], bool] | None:
    """What `parts_of` made. If there are no tasks Spark makes one without a value; 4.1 passes None."""
    return None if partition is None else partition.value


def read_part(
    options: SourceOptions,
    columns: Sequence[str],
    part: tuple[Sequence[Any], bool],
    skip_replaced: bool = False,
    group: str | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a task; then the group hears that its partition's range was read, if it was all of it."""
    plain, is_whole = part
    span = Span.of_plain(plain)
    cluster = cluster_for(options.cluster)
    try:
        for run in SpanReader(cluster, span, options.stall_seconds, options.fail_on_data_loss, skip_replaced):
            yield from rows.arrow(run, span.end, span.partition, columns)
    except Malformed as trouble:
        raise Malformed(
            f"{span.partition}: between offsets {span.start} and {span.end}: {trouble}"
        ) from trouble
    except CorruptMessage as trouble:
        raise CorruptMessage(f"{span.partition}: {trouble.message}") from trouble
    if group is not None and is_whole:
        groups.commit(cluster, group, {span.partition: span.end})
