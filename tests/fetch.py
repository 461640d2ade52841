"""Fetches and builds what tests would fetch when they want it: `python -m tests.fetch`, while CI checks.

All of it lies in the user's cache afterwards. What cannot be had is told here, and left to the test that
wants it: it says how to get it.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pyspark
import pytest

from bench.jars import fetched
from bench.kafka import Kafka39, Kafka43
from bench.spark import source_jars

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "conformance"))


def franz() -> object:
    """The probe of franz-go, compiled with Go's library."""
    from probing import franz

    return franz()


def grafana_schema() -> object:
    """Grafana's schema of dashboards, compiled."""
    from probing import go_program

    return go_program(ROOT / "tests" / "observability" / "grafana", "grafana-schema")


def oldest_pyspark() -> object:
    """The oldest PySpark that is supported."""
    from tests.client.spark.test_oldest_pyspark import fetched as oldest

    return oldest()


WANTED: dict[str, Callable[[], object]] = {
    "Kafka 3.9": Kafka39.jars,
    "Kafka 4.1": lambda: fetched(ROOT / "bench" / "kafka41_pom.xml", "kafka-4.1"),
    "Kafka 4.3": Kafka43.jars,
    "Kafka Streams and Connect 3.9": lambda: fetched(
        ROOT / "tests" / "conformance" / "streams" / "pom.xml", "streams-3.9"
    ),
    "Spark's Kafka source": lambda: source_jars(pyspark.__version__),
    "franz-go": franz,
    "Grafana's schema": grafana_schema,
    "the oldest PySpark": oldest_pyspark,
}


def main() -> None:
    """Each in turn: the machine has other work."""
    for name, fetch in WANTED.items():
        try:
            fetch()
        except (Exception, pytest.skip.Exception) as trouble:
            print(f"{name}: {trouble}", flush=True)


if __name__ == "__main__":
    main()
