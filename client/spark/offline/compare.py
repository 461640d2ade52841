"""Where the replicas of a topic differ, as a DataFrame: what to look at first after an incident.

Every replica is read up to its log end, damaged ranges left out. An offset is reported if its records differ,
or if a replica has none there although its log begins before. After a compaction that alone means little:
each replica is compacted by itself.
"""

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from ....storage.offline.directories import ClosedDirectories, Unusable
from ..option_table import LOG_DIRS
from ..plan import PlanError
from . import members

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORD = ("leaderEpoch", "timestamp", "timestampType", "key", "value", "headers")


def compare(spark: "SparkSession", log_dirs: Sequence[str], topic: str) -> DataFrame:
    """A row for each replica's record at the offsets where replicas differ; `absentFrom` are the brokers
    whose replicas have none there.
    """
    held, brokers = _held(log_dirs, topic)
    options = {
        LOG_DIRS: ",".join(log_dirs),
        "subscribe": topic,
        "upto": "leo",
        "failOnDataLoss": "false",
        "includeHeaders": "true",
        "metadataColumns": "leaderEpoch,servedBy,highWatermark,file",
    }
    reader = spark.read.format("strandline").options(**options)
    records = reduce(DataFrame.unionByName, [reader.option("replica", each).load() for each in brokers])
    known = spark.createDataFrame(held, "partition int, held array<struct<broker: int, start: bigint>>")
    offset = Window.partitionBy("partition", "offset")
    return (
        records.withColumn("variants", f.size(f.collect_set(f.struct(*RECORD)).over(offset)))
        .withColumn("present", f.collect_set("servedBy").over(offset))
        .join(f.broadcast(known), "partition")
        .withColumn(
            "absentFrom",
            f.expr(
                "transform(filter(held, each -> each.start <= offset and "
                "not array_contains(present, each.broker)), each -> each.broker)"
            ),
        )
        .where("variants > 1 or size(absentFrom) > 0")
        .drop("variants", "present", "held")
    )


def _held(log_dirs: Sequence[str], topic: str) -> tuple[list[tuple[int, list[tuple[int, int]]]], list[int]]:
    """For each partition the brokers and where their logs begin; and all those brokers."""
    try:
        directories = ClosedDirectories(log_dirs)
        replicas = {tp: directories.replicas(tp) for tp in directories.partitions if tp.topic == topic}
    except Unusable as trouble:
        raise PlanError(str(trouble)) from trouble
    members.topic_ids(replicas, None)  # replicas of two topics have nothing in common
    found = {
        tp.partition: [(each.broker, each.facts.start) for each in listed] for tp, listed in replicas.items()
    }
    brokers = sorted({broker for listed in found.values() for broker, _ in listed})
    if not brokers:
        raise PlanError(f"no log of topic {topic} is in these directories")
    return sorted(found.items()), brokers
