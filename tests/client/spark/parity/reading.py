"""One option set read from one source: rows by task, by batch, or the words of a refusal."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import spark_partition_id

STREAM_S_MAX = 120
TASK = "task"

Rows = list[tuple[Any, ...]]


class Source:
    """`format(name)` on those brokers."""

    def __init__(self, spark: SparkSession, name: str, bootstrap: str) -> None:
        self.spark, self.name, self.bootstrap = spark, name, bootstrap

    def batch(self, options: Mapping[str, Any], schema: str | None = None) -> list[Row]:
        """All rows of a batch, in order, each with its task."""
        reader = self.spark.read.format(self.name).option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader if schema is None else reader.schema(schema)
        return _taken(reader.options(**options).load())

    def stream(self, options: Mapping[str, Any], checkpoint: Path) -> list[list[Row]]:
        """The rows of a stream, batch by batch, until it has read what is there; without empty batches."""
        reader = self.spark.readStream.format(self.name).option("kafka.bootstrap.servers", self.bootstrap)
        frame = reader.options(**options).load()
        batches: list[list[Row]] = []
        writer = frame.writeStream.foreachBatch(lambda batch, number: batches.append(_taken(batch)))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            assert query.awaitTermination(STREAM_S_MAX), f"{self.name} has not ended: {query.lastProgress}"
        finally:
            query.stop()
        return [rows for rows in batches if rows]


def refusal(read: Any, *arguments: Any) -> str:
    """What the source says when it refuses."""
    try:
        rows = read(*arguments)
    except (PySparkException, Py4JJavaError) as trouble:
        return str(trouble)
    raise AssertionError(f"it was read: {rows}")


def plain(rows: list[Row]) -> Rows:
    """Rows without their tasks."""
    return [tuple(value for name, value in row.asDict(True).items() if name != TASK) for row in rows]


def whole(batches: list[list[Row]]) -> Rows:
    """The rows of all batches together, in order."""
    return plain(sorted((row for batch in batches for row in batch), key=_place))


def by_task(rows: list[Row]) -> list[list[tuple[str, int, int]]]:
    """Which records one task has read, for each task; in which order Spark runs them does not matter."""
    tasks: dict[int, list[tuple[str, int, int]]] = {}
    for row in rows:
        tasks.setdefault(row[TASK], []).append(_place(row))
    return sorted(tasks.values())


def _taken(frame: DataFrame) -> list[Row]:
    rows = frame.withColumn(TASK, spark_partition_id()).collect()
    return sorted(rows, key=_place)


def _place(row: Row) -> tuple[str, int, int]:
    return row.topic, row.partition, row.offset
