"""What `poll_batch` hands out: the records of one fetch of one partition as columns.

Left to others: decoding (protocol/columns.py), Arrow (protocol/column_arrow.py).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...base.extras import require
from ...base.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from ...protocol.columns import Columns


class Batch(NamedTuple):
    """Records of one partition as columns, keys and values undecoded."""

    partition: TopicPartition
    columns: "Columns"

    @property
    def record_count(self) -> int:
        """How many records they are: `len()` of this pair is 2."""
        return len(self.columns)

    def keys(self) -> list[bytes | None]:
        """All keys, None where a record has none."""
        return self.columns.keys()

    def values(self) -> list[bytes | None]:
        """All values, None for tombstones."""
        return self.columns.values()

    def to_arrow(
        self, columns: Sequence[str] | None = None, *, include_headers: bool = False, views: bool = False
    ) -> "pa.RecordBatch":
        """An Arrow RecordBatch with the columns of Spark's Kafka source: key, value, topic, partition,
        offset, timestamp (µs, UTC), timestampType; `headers` if they are asked for, or those in `columns`.
        `pyarrow.Table.from_batches` joins several.

        With `views` keys and values are `binary_view`: they stay where they were received, not copied, and
        all that came with them stays in memory as long. Polars and DuckDB read such columns; pyarrow itself
        has few functions for them (`cast(pyarrow.binary())` copies)."""
        require("pyarrow", "arrow", "to_arrow")
        from ...protocol.column_arrow import SCHEMA_WITH_HEADERS, to_arrow

        for name in columns or ():
            if name not in SCHEMA_WITH_HEADERS.names:
                known = ", ".join(SCHEMA_WITH_HEADERS.names)
                raise ValueError(f"{name!r} is no column: expected some of {known}")
        topic, partition = self.partition
        return to_arrow(self.columns, topic, partition, include_headers, columns, views)
