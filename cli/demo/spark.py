"""The demo's Spark job: flights as a DataFrame, mean delays by carrier.

Spark runs in its own process: its log output goes to a file, and its JVM ends with the process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from ...local.embedded_zookeeper import EnvironmentProblem

Delays = list[tuple[str, int, float]]


def in_a_process(bootstrap: str, topic: str, log: Path) -> tuple[int, Delays]:
    """`delays_by_carrier` in another interpreter. Raises EnvironmentProblem if that fails."""
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", **os.environ}
    with log.open("wb") as noise:
        done = subprocess.run(
            [sys.executable, "-m", __name__, bootstrap, topic],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=noise,
            stdin=subprocess.DEVNULL,
        )
    if done.returncode != 0:
        raise EnvironmentProblem(f"Spark failed:\n{log.read_text(errors='replace')[-2000:]}")
    rows, delays = json.loads(done.stdout.splitlines()[-1])
    return rows, [(carrier, count, delay) for carrier, count, delay in delays]


def delays_by_carrier(bootstrap: str, topic: str) -> tuple[int, Delays]:
    """(rows read, [(carrier, flights, mean departure delay in minutes)]), most delayed first."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    from ...client.spark import StrandlineDataSource

    spark = (
        SparkSession.builder.master("local[2]")
        .appName("strandline-demo")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )
    try:
        spark.dataSource.register(StrandlineDataSource)
        frame = (
            spark.read.format("strandline")
            .option("bootstrap.servers", bootstrap)
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .load()
        )
        schema = "n INT, carrier STRING, dep_delay INT"
        flights = frame.select(f.from_json(f.col("value").cast("string"), schema).alias("flight")).select(
            "flight.*"
        )
        delays = flights.groupBy("carrier").agg(
            f.count("*").alias("flights"), f.avg("dep_delay").alias("delay")
        )
        rows = [(row.carrier, row.flights, row.delay or 0.0) for row in delays.collect()]
    finally:
        spark.stop()
    return sum(count for _, count, _ in rows), sorted(rows, key=lambda row: -row[2])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(delays_by_carrier(sys.argv[1], sys.argv[2])) + "\n")
