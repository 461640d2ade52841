"""`spark.read.format("strandline")`: name, schema, and the reader that Spark asks for.

The schema is that of Spark's own `kafka` source. A user's schema may leave out columns, which is the only way
to read fewer: Spark prunes no columns of a Python source.
Left to others: options (options.py), reading (reader.py).
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .options import OptionError, SourceOptions, parse
from .reader import StrandlineReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
COLUMNS: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(HEADER),
}


def schema_of(options: SourceOptions) -> StructType:
    """All columns; headers only when asked for, as in Spark."""
    return StructType(
        [
            StructField(name, kind)
            for name, kind in COLUMNS.items()
            if name != "headers" or options.include_headers
        ]
    )


class StrandlineDataSource(DataSource):
    """Committed records of topics, up to the high watermark at planning."""

    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "strandline"

    def schema(self) -> StructType:
        """Called first, so bad options raise at `load()`."""
        return schema_of(parse(self.options))

    def reader(self, schema: StructType) -> StrandlineReader:
        """The reader for a batch read of the columns in `schema`."""
        options = parse(self.options)
        offered = {field.name: field.dataType for field in schema_of(options)}
        for field in schema:
            if offered.get(field.name) != field.dataType:
                raise OptionError(
                    (f"column {field.name} {field.dataType.simpleString()} does not exist; expected one of ")
                    + ", ".join(f"{name} {kind.simpleString()}" for name, kind in offered.items())
                )
        return StrandlineReader(options, schema.fieldNames())


def register(spark: "SparkSession") -> None:
    """Register the format with a session."""
    spark.dataSource.register(StrandlineDataSource)
