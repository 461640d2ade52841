"""Our Spark source beside Spark's own, on the same Strandline broker, in one Spark and in turns.

    python -m bench.spark_sources reads   [--runs 5] [--rows 4000000] [--json FILE]   # rows/s of batch reads
    python -m bench.spark_sources latency [--runs 50] [--json FILE]                   # ms of micro-batches
    python -m bench.spark_sources shares  [--runs 5] [--rows 4000000] [--json FILE]   # whose processor time

A read is a query on `local[2]` over two partitions; the first of each source warms it up and does not count.
A latency is the time from a record's `produce` to the function that `foreachBatch` calls having its row; the
next record is sent when that has happened. Medians, with the least and the largest.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from .drivers import create_topic
from .spark import QUERIES, aggregates, session
from .system import cpu_s, descendants
from .systems import Strandline
from .workloads import running

SOURCES = ("strandline", "kafka")
WARM_UPS = 10
ARRIVES_S_MAX = 60
POOL = 1024


@dataclass(frozen=True)
class Shape:
    """The records of a topic, and how they are batched."""

    value_bytes: int
    batch_bytes: int
    codec: str

    @property
    def topic(self) -> str:
        return f"v{self.value_bytes}-b{self.batch_bytes}-{self.codec}"

    @property
    def title(self) -> str:
        return f"{self.value_bytes} B values, {self.batch_bytes >> 10} KiB batches, {self.codec}"


PARTS = ("seconds", "CPU-s of the broker", "CPU-s of the JVM", "CPU-s of Python workers")
SHAPES = [Shape(*each) for each in product((100, 1024), (16 << 10, 1000 << 10), ("none", "lz4"))]

Found = dict[str, dict[str, list[float]]]  # what, by source: one number a run


def fill(bootstrap: str, shape: Shape, rows: int) -> None:
    """Two partitions of records with keys; values are text, which compresses to about three quarters."""
    create_topic(bootstrap, shape.topic, 2, 1)
    draw = random.Random(shape.topic)
    values = [draw.randbytes(shape.value_bytes // 2).hex().encode() for _ in range(POOL)]
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": shape.codec,
            "batch.size": shape.batch_bytes,
            "batch.num.messages": 1_000_000,
            "linger.ms": 500,
            "queue.buffering.max.messages": 2_000_000,
        }
    )
    for number in range(rows):
        while True:
            try:
                producer.produce(shape.topic, values[number % POOL], b"%08d" % number, number % 2)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def reads(runs: int, rows: int) -> Found:
    """Rows per second of each shape and query."""
    found: Found = {}
    with running(Strandline, 1) as system, _spark() as spark:
        for shape in SHAPES:
            count = rows * 100 // shape.value_bytes
            fill(system.bootstrap, shape, count)
            for name, columns in QUERIES.items():
                what = found.setdefault(f"{shape.title}: {name}", {source: [] for source in SOURCES})
                for turn, source in product(range(runs + 1), SOURCES):
                    reader = spark.read.format(source).option("kafka.bootstrap.servers", system.bootstrap)
                    frame = reader.option("subscribe", shape.topic).load()
                    began = time.perf_counter()
                    assert frame.selectExpr(*aggregates(columns)).collect()[0][0] == count
                    if turn:
                        what[source].append(count / (time.perf_counter() - began))
    return found


def shares(runs: int, rows: int) -> Found:
    """Seconds of a read of 100-byte values in large batches, and whose processor time; and of ten rows."""
    found: Found = {}
    shape = Shape(100, 1000 << 10, "none")
    ten = json.dumps({shape.topic: {"0": 5, "1": 5}})
    with running(Strandline, 1) as system, _spark() as spark:
        fill(system.bootstrap, shape, rows)
        jvm = spark._jvm.java.lang.ProcessHandle.current().pid()

        def spent() -> tuple[float, ...]:
            workers = sum(cpu_s(pid) for pid in descendants(jvm))
            return time.perf_counter(), system.cpu_s(), cpu_s(jvm), workers

        for (name, columns), (end, size) in product(
            QUERIES.items(), {"latest": f"{rows:,} rows", ten: "10 rows"}.items()
        ):
            for turn, source in product(range(runs + 2), SOURCES):
                reader = spark.read.format(source).option("kafka.bootstrap.servers", system.bootstrap)
                reader = reader.option("endingOffsets", end)
                before = spent()
                reader.option("subscribe", shape.topic).load().selectExpr(*aggregates(columns)).collect()
                for part, now, then in zip(PARTS, spent(), before, strict=True):
                    what = f"{name.removesuffix(' rows/s')}, {size}: {part}"
                    seconds = found.setdefault(what, {each: [] for each in SOURCES})[source]
                    if turn > 1:
                        seconds.append(now - then)
    return found


def latency(runs: int) -> Found:
    """Milliseconds from a record that is produced to its row."""
    figures: dict[str, list[float]] = {}
    with running(Strandline, 1) as system, _spark() as spark:
        for source in SOURCES:
            create_topic(system.bootstrap, source, 2, 1)
            with tempfile.TemporaryDirectory() as checkpoint:
                reader = spark.readStream.format(source).option("kafka.bootstrap.servers", system.bootstrap)
                arrived = _Arrived()
                writer = reader.option("subscribe", source).option("startingOffsets", "earliest").load()
                query = (
                    writer.writeStream.foreachBatch(arrived)
                    .option("checkpointLocation", checkpoint)
                    .trigger(processingTime="0 seconds")
                    .start()
                )
                try:
                    producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 0})
                    times = [_once(producer, source, arrived, number) for number in range(WARM_UPS + runs)]
                finally:
                    query.stop()
                figures[source] = times[WARM_UPS:]
    return {"from produce to foreachBatch, ms": figures}


class _Arrived:
    """The newest row that a micro-batch has brought."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.newest = b""

    def __call__(self, frame: Any, batch: int) -> None:
        rows = frame.select("value").collect()
        with self.changed:
            self.newest = max([self.newest, *(bytes(row.value) for row in rows)])
            self.changed.notify_all()


def _once(producer: Producer, topic: str, arrived: _Arrived, number: int) -> float:
    """Send one record, and wait for its row; at another moment of the query's turn each time."""
    time.sleep(number % 10 / 100)
    value = b"%08d" % number
    began = time.perf_counter()
    producer.produce(topic, value, partition=number % 2)
    producer.poll(0)
    with arrived.changed:
        assert arrived.changed.wait_for(lambda: arrived.newest >= value, ARRIVES_S_MAX), "no row has come"
    return 1000 * (time.perf_counter() - began)


@contextmanager
def _spark() -> Iterator[Any]:
    spark = session(SOURCES)
    yield spark
    spark.stop()


def table(found: Found) -> str:
    """As Markdown."""
    lines = ["| | Strandline's source | Spark's own | ratio |", "|---|---|---|---|"]
    for what, by_source in found.items():
        ours, theirs = (statistics.median(by_source[source]) for source in SOURCES)
        cells = [_cell(by_source[source]) for source in SOURCES]
        ratio = f"{ours / theirs:.2f}" if theirs else ""
        lines.append(f"| {what} | {cells[0]} | {cells[1]} | {ratio} |")
    return "\n".join(lines) + "\n"


def _cell(values: list[float]) -> str:
    numbers = (statistics.median(values), min(values), max(values))
    median, least, most = (f"{number:,.0f}" if numbers[0] > 20 else f"{number:.2f}" for number in numbers)
    return f"{median} ({least}–{most})"


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("reads", "latency", "shares"))
    parser.add_argument("--runs", type=int)
    parser.add_argument("--rows", type=int, default=4_000_000, help="of 100 bytes; fewer of larger ones")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.what == "reads":
        found = reads(options.runs or 5, options.rows)
    elif options.what == "shares":
        found = shares(options.runs or 5, options.rows)
    else:
        found = latency(options.runs or 50)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(table(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
