"""`format("strandline")`: name, schema, and the readers and writers that Spark asks for.

The schema is that of Spark's own `kafka` source, unless `columns` and `metadataColumns` say otherwise. Spark
prunes no columns of a Python source. It asks for the schema at load(), without saying whether a batch or a
stream is wanted, and pickles the source afterwards: what `schema` has found out reaches every reader.
Left to others: options (options.py, sink/options.py), reading (reader.py, stream.py), writing
(sink/write.py).
"""

from collections.abc import MutableMapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

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

from . import snapshot
from .client import cluster_for
from .option_table import COLUMNS, FILE, METADATA_COLUMNS, Side
from .options import OptionError, SourceOptions, notes_on_either, parse, parse_either
from .reader import StrandlineReader
from .sink.options import parse as parse_sink
from .sink.write import StrandlineStreamWriter, StrandlineWriter, sink
from .stream import RefusedStreamReader, StrandlineStreamReader
from .telling import tell, told_plainly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(HEADER),
    "leaderEpoch": IntegerType(),
    "producerId": LongType(),
    "producerEpoch": IntegerType(),
    "baseSequence": IntegerType(),
    "batchBaseOffset": LongType(),
    "servedBy": IntegerType(),
    "highWatermark": LongType(),
    FILE: StringType(),
}
assert list(TYPES) == [*COLUMNS, *METADATA_COLUMNS, FILE]


def schema_of(options: SourceOptions) -> StructType:
    """The columns in their order."""
    return StructType([StructField(name, TYPES[name]) for name in options.columns])


class StrandlineDataSource(DataSource):
    """Committed records of topics, up to the high watermark at planning."""

    options: MutableMapping[str, str]

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self.found: dict[
            str, Any
        ] = {}  # by `schema`: the snapshot, if it is of load(), what was told; a name of the write

    @classmethod
    def name(cls) -> str:
        """The name for `format`."""
        return "strandline"

    def schema(self) -> StructType:
        """Called at `load()`, so what can be known to be wrong is told there."""
        with told_plainly():
            options, side = parse_either(self.options)
            self.found["told"] = sorted(tell(notes_on_either(self.options)))
            if options.closed is not None:
                self._look_into_closed_logs(options)
                return schema_of(options)
            cluster = cluster_for(options.cluster)
            if side is Side.BATCH and options.snapshot.lower() == "load":
                self.found["snapshot"] = snapshot.to_json(snapshot.bounds(cluster, options))
            else:
                snapshot.check(cluster, options)
            return schema_of(options)

    def _look_into_closed_logs(self, options: SourceOptions) -> None:
        from .offline import planning  # few reads need it, and what it stands on

        if options.snapshot.lower() == "load":
            self.found["snapshot"] = snapshot.to_json(planning.bounds(options))
        else:
            planning.check(options)

    def reader(self, schema: StructType) -> StrandlineReader:
        """The reader for a batch read of the columns in `schema`."""
        with told_plainly():
            options = parse(self.options)
            if options.snapshot.lower() == "load":
                options = replace(options, snapshot=self.found.get("snapshot", ""))
            if not options.snapshot:
                raise OptionError(
                    "snapshot=load is not supported with schema(): Spark then asks nothing at load(); "
                    "choose columns by the option columns"
                )
            return StrandlineReader(options, checked(schema, options), self.found.get("told", ()))

    def streamReader(self, schema: StructType) -> StrandlineStreamReader | RefusedStreamReader:
        """The reader for micro-batches. Asked for twice: for the query's questions, and for its tasks."""
        try:
            options = parse(self.options, Side.STREAM)
            return StrandlineStreamReader(options, checked(schema, options), told=self.found.get("told", ()))
        except OptionError as trouble:
            return RefusedStreamReader(trouble)

    def writer(self, schema: StructType, overwrite: bool) -> StrandlineWriter:
        """The writer for a batch of rows of that schema."""
        with told_plainly():
            write_id = self.found.setdefault("write", f"{Random().getrandbits(128):032x}")
            return sink(StrandlineWriter, parse_sink(self.options), schema, overwrite, write_id)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StrandlineStreamWriter:
        """The writer for micro-batches. Asked for with each of them, and again to commit it."""
        with told_plainly():
            return sink(StrandlineStreamWriter, parse_sink(self.options), schema, overwrite)


def checked(schema: StructType, options: SourceOptions) -> list[str]:
    """The names of the columns, if they are offered with these types: a user's schema may leave some out."""
    offered = {name: TYPES[name] for name in (*options.columns, *COLUMNS[:-1])}
    for field in schema:
        if offered.get(field.name) != field.dataType:
            raise OptionError(
                f"column {field.name} {field.dataType.simpleString()} does not exist; expected one of "
                + ", ".join(f"{name} {kind.simpleString()}" for name, kind in offered.items())
            )
    return list(schema.fieldNames())


def register(spark: "SparkSession") -> None:
    """Register the format with a session."""
    spark.dataSource.register(StrandlineDataSource)
