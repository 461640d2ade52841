"""Brokers of Kafka 2.8 to 3.8 beside ours, as their own way up to 3.9 allows: nothing is lost."""

import os
from pathlib import Path

import pytest

from bench.jars import JarsMissing, fetched
from strandline.testing.verify import State, load, run
from strandline.testing.verify.places.kafka import KafkaPlace
from tests.mixed.test_mixed_cluster import jars as latest

POM = Path(__file__).with_name("earlier_pom.xml")


def jars(version: str) -> Path:
    """Kafka's jars of this version. Without them the test is skipped, but never in CI."""
    try:
        return fetched(POM, f"kafka-{version}", {"kafka.version": version})
    except JarsMissing as error:
        assert not os.environ.get("CI"), f"Kafka's jars could not be fetched: {error}"
        pytest.skip(f"Kafka {version} could not be fetched: {error}")


@pytest.mark.long
@pytest.mark.parametrize("version", ["2.8.2", "3.2.3", "3.5.2", "3.8.1"])
@pytest.mark.parametrize(("ours", "first"), [({1}, 1), ({2, 3}, 1)], ids=["SKK", "KSS"])
def test_nothing_is_lost_beside_an_earlier_kafka(
    version: str, ours: set[int], first: int, tmp_path: Path
) -> None:
    scenario = load("mixed")
    properties = scenario.cluster.properties()
    place = KafkaPlace(tmp_path, 3, properties, jars(version), frozenset(ours), first, latest())
    outcome = run(scenario, place, tmp_path / "run")
    print(f"Kafka {version}, ours {sorted(ours)}: {outcome}")
    assert outcome.state is State.HELD, outcome
    assert outcome.verdict.faults.total() == len(scenario.faults.at) and outcome.verdict.acknowledged > 300
