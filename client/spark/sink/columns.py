"""The columns of a DataFrame that is written: which there may be, of which types, and what else there is.

They are those of Spark's own sink, and `timestamp`. Other columns are left out, as Spark's own sink does.
Left to others: what the rows contain (write.py).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from ..options import OptionError
from .options import SinkOptions

HEADERS = "array<struct<key:string,value:binary>>"
ACCEPTED: Mapping[str, str] = {
    "key": "string or binary",
    "value": "string or binary",
    "topic": "string",
    "partition": "int",
    "headers": HEADERS,
    "timestamp": "timestamp",
}


@dataclass(frozen=True, slots=True)
class Columns:
    """Where the columns stand that are written, and notes on the others."""

    place: Mapping[str, int]
    notes: tuple[str, ...] = field(default=(), compare=False)

    def of(self, batch: pa.RecordBatch, name: str) -> pa.Array | None:
        """A column by name; None if there is none."""
        return batch.column(self.place[name]) if name in self.place else None


def columns_of(schema: StructType, options: SinkOptions) -> Columns:
    """Check the columns; raises OptionError with all complaints."""
    complaints = [
        f"column {column.name} has type {column.dataType.simpleString()}; expected {ACCEPTED[column.name]}"
        for column in schema
        if column.name in ACCEPTED and not _is_accepted(column.name, column.dataType)
        if column.name != "topic" or options.topic is None  # else it is not looked at
    ]
    names = schema.fieldNames()
    complaints += _missing(names, options)
    complaints += [f"column {name} is there twice" for name in ACCEPTED if names.count(name) > 1]
    if complaints:
        raise OptionError("; ".join(complaints))
    place = {name: names.index(name) for name in ACCEPTED if name in names}
    if options.topic is not None:
        place.pop("topic", None)
    return Columns(place, tuple(f"column {name} is not written" for name in names if name not in ACCEPTED))


def _missing(names: Iterable[str], options: SinkOptions) -> list[str]:
    there = list(names)
    complaints: list[str] = []
    if "value" not in there:
        near = get_close_matches("value", there, n=1) or there
        complaints.append(f"there is no column value, of type string or binary; there are {', '.join(near)}")
    if "topic" not in there and options.topic is None:
        complaints.append("no topic is named: set the option topic, or add a column topic")
    return complaints


def _is_accepted(name: str, kind: DataType) -> bool:
    match name:
        case "key" | "value":
            return isinstance(kind, StringType | BinaryType)
        case "topic":
            return isinstance(kind, StringType)
        case "partition":
            return isinstance(kind, IntegerType)
        case "timestamp":
            return isinstance(kind, TimestampType)
    return _are_headers(kind)


def _are_headers(kind: DataType) -> bool:
    if not (isinstance(kind, ArrayType) and isinstance(kind.elementType, StructType)):
        return False
    pairs = [(part.name.lower(), part.dataType) for part in kind.elementType]
    if [name for name, _ in pairs] != ["key", "value"]:
        return False
    return isinstance(pairs[0][1], StringType) and isinstance(pairs[1][1], BinaryType)
