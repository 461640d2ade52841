"""The demo's Spark job: flights as a DataFrame, mean delays by carrier."""

import os
import sys


def delays_by_carrier(bootstrap: str, topic: str) -> tuple[int, list[tuple[str, int, float]]]:
    """(rows read, [(carrier, flights, mean departure delay in minutes)]), most delayed first."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    from ..client.spark import StrandlineDataSource

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
