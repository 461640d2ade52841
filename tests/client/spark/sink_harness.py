"""Tasks that write to the double, as Spark would run them."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from strandline.base.types import TopicPartition
from strandline.client.spark.sink.columns import columns_of
from strandline.client.spark.sink.options import parse
from strandline.client.spark.sink.produce import Written
from strandline.client.spark.sink.task import write_rows
from strandline.protocol.column_arrow import HEADERS

T0 = TopicPartition("t", 0)
NUMBERS = "value binary, partition int"
KINDS = {
    "binary": (pa.binary(), BinaryType()),
    "int": (pa.int32(), IntegerType()),
    "string": (pa.string(), StringType()),
    "timestamp": (pa.timestamp("us", "UTC"), TimestampType()),
    "headers": (
        HEADERS.type,
        ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
    ),
}


def write(
    double: Any,
    rows: int | list[tuple[Any, ...]] = 1000,
    schema: str = NUMBERS,
    before: Callable[[int], Any] = lambda batch: None,
    **options: Any,
) -> dict[TopicPartition, Written]:
    """Write those rows, or so many numbers to partition 0, in Arrow batches of a hundred.

    `before` is called before each of them, as if Spark were computing it.
    """
    if isinstance(rows, int):
        rows = [(value, 0) for value in wanted(rows)]

    def batches() -> Iterator[pa.RecordBatch]:
        for number, at in enumerate(range(0, len(rows), 100)):
            before(number)
            yield arrow(schema, rows[at : at + 100])

    return write_batches(double.servers, schema, batches(), **options)


def write_batches(
    servers: str, schema: str, batches: Iterator[pa.RecordBatch], **options: Any
) -> dict[TopicPartition, Written]:
    """Run a task with those batches; an option `kafka_acks` is kafka.acks."""
    given = {"kafka.bootstrap.servers": servers, "kafka.batch.size": "1000"}
    if "topic" not in schema:
        given["topic"] = "t"
    parsed = parse({**given, **{name.replace("_", "."): str(value) for name, value in options.items()}})
    fields = [StructField(name, KINDS[kind][1]) for name, kind in _columns(schema)]
    return write_rows(parsed, columns_of(StructType(fields), parsed), batches).written


def arrow(schema: str, rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    """Rows as Spark hands them over."""
    columns = _columns(schema)
    values = [
        pa.array(column, KINDS[kind][0])
        for column, (_, kind) in zip(zip(*rows, strict=True), columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(values, names=[name for name, _ in columns])


def _columns(schema: str) -> list[tuple[str, str]]:
    return [(name, kind) for name, kind in (each.split() for each in schema.split(", "))]


def wanted(count: int = 1000) -> list[bytes]:
    return [b"%d" % at for at in range(count)]
