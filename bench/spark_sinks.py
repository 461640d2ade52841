"""Our Spark sink beside Spark's own, to the same Strandline broker, in one Spark and in turns.

    python -m bench.spark_sinks [--runs 5] [--rows 1000000] [--json FILE]

A write is a query on `local[2]` that makes rows of 100-byte values and writes them to two partitions of a new
topic; the first of each sink warms it up and does not count. Rows per second: medians, with the least and the
largest.
"""

import argparse
import json
import statistics
import sys
import time
from itertools import product
from pathlib import Path

from confluent_kafka.admin import AdminClient

from .drivers import create_topic
from .spark import session
from .systems import Strandline
from .workloads import running

SINKS = ("strandline", "kafka")
VALUE = "repeat('0123456789', 10) AS value"
KEY = "lpad(cast(id AS string), 16, '0') AS key"
LARGE = {"kafka.batch.size": str(256 << 10)}
SHAPES: dict[str, tuple[list[str], dict[str, str]]] = {
    "values, each sink's defaults": ([VALUE], {}),
    "values, batches of 256 KiB": ([VALUE], LARGE),
    "keys of 16 bytes and values, 256 KiB": ([KEY, VALUE], LARGE),
    "values, 256 KiB, lz4": ([VALUE], {**LARGE, "kafka.compression.type": "lz4"}),
}

Found = dict[str, dict[str, list[float]]]  # what, by sink: one number a run


def measure(runs: int, rows: int) -> Found:
    """Rows per second of each shape and sink."""
    found: Found = {}
    with running(Strandline, 1) as system:
        spark = session(SINKS)
        admin = AdminClient({"bootstrap.servers": system.bootstrap})
        for shape, (columns, options) in SHAPES.items():
            what = found[shape] = {sink: [] for sink in SINKS}
            for turn, sink in product(range(runs + 1), SINKS):
                topic = f"{sink}-{len(found)}-{turn}"
                create_topic(system.bootstrap, topic, 2, 1)
                writer = spark.range(0, rows, 1, 2).selectExpr(*columns).write.format(sink)
                writer = writer.option("kafka.bootstrap.servers", system.bootstrap).options(**options)
                began = time.perf_counter()
                writer.option("topic", topic).mode("append").save()
                if turn:
                    what[sink].append(rows / (time.perf_counter() - began))
                for done in admin.delete_topics([topic]).values():
                    done.result(60)
        spark.stop()
    return found


def table(found: Found) -> str:
    """As Markdown."""
    lines = ["| rows/s | Strandline's sink | Spark's own | ratio |", "|---|---|---|---|"]
    for what, by_sink in found.items():
        ours, theirs = (statistics.median(by_sink[sink]) for sink in SINKS)
        cells = [
            f"{statistics.median(rates):,.0f} ({min(rates):,.0f}-{max(rates):,.0f})"
            for rates in (by_sink[sink] for sink in SINKS)
        ]
        lines.append(f"| {what} | {cells[0]} | {cells[1]} | {ours / theirs:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found = measure(options.runs, options.rows)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
