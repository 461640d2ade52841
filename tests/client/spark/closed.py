"""Closed log directories read as Spark's tasks read them, without Spark."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition

from strandline.client.spark.options import OptionError, parse
from strandline.client.spark.plan import PlanError
from strandline.client.spark.reader import StrandlineReader
from tests.storage.closed_dirs import ClosedBroker

Row = dict[str, Any]


def options_of(*brokers: ClosedBroker | Path, **options: Any) -> dict[str, str]:
    paths = ",".join(str(each if isinstance(each, Path) else each.path) for each in brokers)
    chosen = {} if {"assign", "subscribePattern", "snapshot"} & options.keys() else {"subscribe": "t"}
    return {"logDirs": paths, **chosen, **{name: str(value) for name, value in options.items()}}


def rows(*brokers: ClosedBroker | Path, **options: Any) -> list[Row]:
    """What the tasks yield, without Spark."""
    parsed = parse(options_of(*brokers, **options))
    reader = StrandlineReader(parsed, list(parsed.columns))
    found: list[Row] = []
    for part in reader.partitions():
        for records in reader.read(InputPartition(part.value)):
            found += records.to_pylist()
    return found


def offsets(*brokers: ClosedBroker | Path, **options: Any) -> list[int]:
    return [row["offset"] for row in rows(*brokers, **options)]


def values(*brokers: ClosedBroker | Path, **options: Any) -> list[str]:
    return [row["value"].decode() for row in rows(*brokers, **options)]


def refusal(*brokers: ClosedBroker | Path, **options: Any) -> str:
    with pytest.raises((PlanError, OptionError)) as error:
        rows(*brokers, **options)
    return str(error.value)
