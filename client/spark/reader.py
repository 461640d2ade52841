"""The batch reader: spans are planned on the driver, Arrow record batches made in the tasks.

`partitions` fixes the snapshot. Spark keeps it with the DataFrame, so a repeated action reads the same.
Left to others: the snapshot (snapshot.py), the fetch loop (fetch.py), decoding (protocol/columns.py).
"""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...protocol.column_arrow import to_arrow
from ...protocol.columns import runs
from . import snapshot
from .client import cluster_for
from .fetch import SpanReader
from .options import SourceOptions
from .plan import Span

ROWS_MAX = 1 << 16
BYTES_MAX = 32 << 20


class StrandlineReader(DataSourceReader):
    """Reads `columns`, by name, of the records that the options describe."""

    def __init__(self, options: SourceOptions, columns: list[str]) -> None:
        self.options = options
        self.columns = columns

    def partitions(self) -> list[InputPartition]:
        """One partition for each span. Called on the driver, once for a DataFrame. Spark wants a list."""
        spans = snapshot.take(cluster_for(self.options.cluster), self.options)
        return [InputPartition(span) for span in spans]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one span. If there are no spans, Spark passes one partition without a span."""
        if partition.value is not None:
            yield from self._rows(partition.value)

    def _rows(self, span: Span) -> Iterator[pa.RecordBatch]:
        options = self.options
        reader = SpanReader(
            cluster_for(options.cluster), span, options.stall_seconds, options.fail_on_data_loss
        )
        for run in reader:
            for columns in runs(run.records, run.start, span.end, rows_max=ROWS_MAX, bytes_max=BYTES_MAX):
                if len(columns):
                    yield to_arrow(columns, *span.partition, names=self.columns)
