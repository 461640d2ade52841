"""Delays by carrier and day, from flights as they come: a topic in, a topic and Parquet files out.

    spark-submit --master spark://HOST:7077 delays.py --servers localhost:9092 --directory /data/delays

Two queries with the same windows, each with its own checkpoint: offsets that were read, windows that are
open, and what was written. Killed at any moment and started again, each goes on where its checkpoint ends.
Both outputs have every window once: Parquet by Spark's list of files, the topic by transactions.
"""

import argparse
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery

from strandline.client.spark.helpers import Lag, LagListener

FLIGHT = "carrier STRING, scheduled TIMESTAMP, dep_delay INT"
TRIGGER = "500 milliseconds"


def flights(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """The records of the topic, from its beginning on."""
    return (
        spark.readStream.format("strandline")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("columns", "value")
        .load()
    )


def cleaned(records: DataFrame) -> DataFrame:
    """Flights that left; what is no flight, or never left, is dropped."""
    flight = f.from_json(f.col("value").cast("string"), FLIGHT).alias("flight")
    return records.select(flight).select("flight.*").dropna()


def windowed(left: DataFrame, watermark: str) -> DataFrame:
    """Delays by carrier and day. A day's row comes when no flight of that day is waited for any more."""
    return (
        left.withWatermark("scheduled", watermark)
        .groupBy(f.window("scheduled", "1 day"), "carrier")
        .agg(
            f.count("*").alias("flights"),
            f.sum("dep_delay").alias("delay_sum"),
            f.max("dep_delay").alias("delay_max"),
        )
        .select("carrier", f.to_date("window.start").alias("day"), "flights", "delay_sum", "delay_max")
    )


def to_parquet(windows: DataFrame, directory: str) -> StreamingQuery:
    """Every window once: Spark's file sink records which files belong to a batch."""
    return (
        windows.writeStream.queryName("parquet")
        .format("parquet")
        .option("path", f"{directory}/delays")
        .option("checkpointLocation", f"{directory}/checkpoints/parquet")
        .trigger(processingTime=TRIGGER)
        .start()
    )


def to_topic(windows: DataFrame, directory: str, servers: str, topic: str) -> StreamingQuery:
    """Every window once, for readers of committed records, keyed by carrier."""
    return (
        windows.select(f.col("carrier").alias("key"), f.to_json(f.struct("*")).alias("value"))
        .writeStream.queryName("topic")
        .format("strandline")
        .option("kafka.bootstrap.servers", servers)
        .option("topic", topic)
        .option("exactlyOnce", "true")
        .option("checkpointLocation", f"{directory}/checkpoints/topic")
        .trigger(processingTime=TRIGGER)
        .start()
    )


def tell(lag: Lag) -> None:
    """A line for each batch."""
    print(f"{lag.query}: batch {lag.batch}, {lag.total:,} records behind", file=sys.stderr)


def main() -> None:
    """Run until a query fails, or somebody ends this."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--servers", default="localhost:9092")
    parser.add_argument("--flights", default="flights", help="the topic that is read")
    parser.add_argument("--delays", default="delays", help="the topic that is written")
    parser.add_argument(
        "--directory", required=True, help="of files and checkpoints, the same for all workers"
    )
    parser.add_argument("--outputs", default="parquet,topic", help="where the windows go")
    parser.add_argument("--watermark", default="2 days", help="how late a flight may come")
    given = parser.parse_args()
    spark = SparkSession.builder.appName("delays").config("spark.sql.session.timeZone", "UTC").getOrCreate()
    spark.streams.addListener(LagListener(tell))
    windows = windowed(cleaned(flights(spark, given.servers, given.flights)), given.watermark)
    if "parquet" in given.outputs:
        to_parquet(windows, given.directory)
    if "topic" in given.outputs:
        to_topic(windows, given.directory, given.servers, given.delays)
    spark.streams.awaitAnyTermination()


if __name__ == "__main__":
    main()
