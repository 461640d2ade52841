"""Spark's own Kafka source beside ours: in one Spark, on the same brokers, with the same topics.

The jars come from Maven Central, once, into the user's cache (bench/jars.py), in the version of the PySpark
that is installed.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.local.cluster import LocalCluster
from strandline.testing.nursery import forked
from tests.client.spark.parity.topics import fill

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.segment.delete.delay.ms": "0",
    "log.retention.ms": "-1",  # records are of a fixed time, so they become old
    "strandline.log.tail.cache.bytes": "0",  # what is cleaned away would still be read from memory
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The whole matrix is for `make spark-matrix`; `make test` runs the share that is not marked."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)


@pytest.fixture(scope="session")
def both(spark: SparkSession, kafka_source: tuple[list[Path], str]) -> SparkSession:
    """A session that knows `kafka` beside `strandline`. Without jars its tests are skipped, never in CI."""
    jars, reason = kafka_source
    if not jars:
        assert not os.environ.get("CI"), f"the jars of Spark's Kafka source could not be fetched: {reason}"
        pytest.skip(f"Spark's Kafka source could not be fetched: {reason}")
    return spark


@pytest.fixture(scope="session")
def brokers(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three brokers with the topics of the matrix, which nobody changes."""
    cluster = forked(
        LocalCluster(tmp_path_factory.mktemp("parity"), 3, settings=SETTINGS, zookeeper=f"{zookeeper}/parity")
    )
    cluster.start()
    try:
        fill(cluster.bootstrap)
        yield cluster
    finally:
        cluster.kill()
