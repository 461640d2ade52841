"""W20: rows per second that Spark reads on `local[2]`, value only and all seven columns.

Ours reads from a Strandline broker; Spark's own Kafka source (a jar) reads from Apache Kafka. Each run is a
Spark process of its own: the first query warms it up, the median of the next three counts.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.local.owned import mark

from .drivers import create_topic, produce_at_least
from .jars import fetched
from .system import System
from .workloads import BIG, VALUE, Figures, running

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 4_000_000
SPARK_MAX_S = 300
POM = Path(__file__).parent / "spark_kafka_pom.xml"
PUBLISHED = ("4.1.1", "4.2.0")  # of Spark's source, on Maven Central: 4.3.0 is not there yet, and runs 4.2.0
QUERIES = {
    "value rows/s": "count(1), sum(length(value))",
    "7 columns rows/s": "count(1), sum(length(value)), sum(length(key)), max(topic), sum(partition), "
    "sum(offset), max(timestamp), sum(timestampType)",
}


def w20(kind: type[System]) -> Figures:
    """4 M records of 100 bytes in two partitions, read by one Spark."""
    with running(kind, 1) as system:
        create_topic(system.bootstrap, "w20", 2, 1)
        produce_at_least(system.bootstrap, "w20", value=VALUE, records=ROWS, **BIG)
        line = [sys.executable, "-m", "bench.spark", system.bootstrap, kind.spark_source]
        environment = {**os.environ, **mark()}
        done = subprocess.run(line, stdout=subprocess.PIPE, check=True, timeout=SPARK_MAX_S, env=environment)
        figures: Figures = json.loads(done.stdout.splitlines()[-1])
        return figures


def source_jars(version: str) -> list[Path]:
    """Spark's own Kafka source, of the version next to that Spark's, with its Kafka client."""
    nearest = max((each for each in PUBLISHED if _numbers(each) <= _numbers(version)), key=_numbers)
    return sorted(fetched(POM, "spark-kafka", {"spark.version": nearest}).glob("*.jar"))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")[:3]))


def session(sources: Collection[str]) -> "SparkSession":
    """A Spark on two cores that knows those sources."""
    import pyspark
    from pyspark.sql import SparkSession

    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.log.level", "ERROR")
    )
    if "kafka" in sources:
        builder = builder.config("spark.jars", ",".join(map(str, source_jars(pyspark.__version__))))
    spark = builder.getOrCreate()
    if "strandline" in sources:
        from strandline.client.spark import register

        register(spark)
    return spark


def main(bootstrap: str, source: str) -> None:
    """Run the queries in this process and print their rates as JSON."""
    spark = session([source])
    figures = {}
    for name, columns in QUERIES.items():
        rates = []
        for _ in range(4):
            frame = (
                spark.read.format(source)
                .option("kafka.bootstrap.servers", bootstrap)
                .option("subscribe", "w20")
                .option("startingOffsets", "earliest")
                .load()
            )
            began = time.perf_counter()
            rows = frame.selectExpr(*aggregates(columns)).collect()[0][0]
            rates.append(rows / (time.perf_counter() - began))
        figures[name] = statistics.median(rates[1:])
    spark.stop()
    sys.stdout.write(json.dumps(figures) + "\n")


def aggregates(columns: str) -> list[str]:
    """The aggregates of a query, one by one."""
    return [column.strip() for column in columns.split(", ")]


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
