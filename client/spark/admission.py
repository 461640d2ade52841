"""Admission control: how Spark says how much a trigger may read, and what a source must be to hear it.

PySpark has it from 4.2 on. Before that a stream is asked for its latest offset without a limit and without a
start, so the first batch after a restart is not capped, and trigger(availableNow=True) reads all there is in
one batch.
"""

from dataclasses import dataclass

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable as ReadAllAvailable
    from pyspark.sql.streaming.datasource import ReadLimit as ReadLimit
    from pyspark.sql.streaming.datasource import ReadMaxRows as ReadMaxRows
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow as SupportsTriggerAvailableNow

    HAS_ADMISSION_CONTROL = True
except ImportError:
    HAS_ADMISSION_CONTROL = False

    class ReadLimit:  # type: ignore[no-redef]
        """How much may be read."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """All there is."""

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """At most so many rows."""

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """Several batches up to what was there at the start."""
