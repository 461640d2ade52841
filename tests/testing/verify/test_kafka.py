"""The same scenario on Apache Kafka 3.9 and here: the last member of the ISR comes back empty, before the
others.

Kafka in ZooKeeper mode lets it lead and loses all that was acknowledged; Strandline loses nothing.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from strandline.testing.verify import Outcome, State, load, verify
from strandline.testing.verify.places import PlaceProblem
from strandline.testing.verify.places.kafka import KafkaPlace, jars

ROOT = Path(__file__).resolve().parents[3]
sys.path.append(str(ROOT / "tests" / "conformance"))

from kafka_peer import jars as kafkas_jars  # noqa: E402

LOSSES = {"lost-write", "unseen", "hw-leak"}


@pytest.mark.long
def test_kafka_with_zookeeper_loses_what_was_acknowledged(tmp_path: Path) -> None:
    scenario = load("kafka-last-isr")
    place = KafkaPlace(tmp_path, scenario.cluster.brokers, scenario.cluster.properties(), kafkas_jars())
    outcome = verify(scenario, tmp_path / "run", place=place)
    assert outcome.state is State.BROKEN, outcome
    assert LOSSES & outcome.verdict.found.keys(), outcome
    first = outcome.explanation()
    assert any("shortest of" in line for line in first[:1]), first[:5]


@pytest.mark.long
@pytest.mark.parametrize("fault", ["last-isr-empty-disk", "last-isr-power-loss"])
def test_here_it_does_not_lead_before_the_others_are_back(
    fault: str, strandline_verify: Callable[..., Outcome]
) -> None:
    scenario = load("kafka-last-isr").model_copy(
        update={"faults": load("kafka-last-isr").faults.model_copy(update={"at": (at(fault),)})}
    )
    outcome = strandline_verify(scenario)
    assert outcome.verdict.faults.total() == 1 and outcome.verdict.acknowledged > 100


def at(fault: str) -> object:
    """The scenario's own fault, of another name."""
    return load("kafka-last-isr").faults.at[0].model_copy(update={"fault": fault})


def test_a_folder_without_kafka_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(PlaceProblem, match=r"holds no Apache Kafka with ZooKeeper: expected kafka_2.13-3.9"):
        jars(tmp_path)
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs" / "kafka_2.13-3.9.1.jar").touch()
    assert jars(tmp_path) == jars(tmp_path / "libs") == tmp_path / "libs"
    (tmp_path / "libs" / "kafka_2.13-3.9.1.jar").rename(tmp_path / "libs" / "kafka_2.13-4.1.0.jar")
    with pytest.raises(PlaceProblem, match="with ZooKeeper"):
        jars(tmp_path)
