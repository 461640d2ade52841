"""Brokers of Apache Kafka 3.9 and of ours in one cluster, under load and faults: nothing is lost.

K and S stand for the kinds of brokers 1 to 3; the first one to start is the controller, until it is killed.
Records are produced and consumed, groups and transactions go on, topics are made, changed and deleted,
partitions are moved; meanwhile a leader, a follower and the controller die, one is restarted, two stand
still, and one comes back with an empty disk. The ISRs are full again in time, and in the end the replicas are
alike byte for byte, and to Kafka's dump tool.
"""

import sys
from itertools import product
from pathlib import Path

import pytest

from strandline.testing.verify import Scenario, State, load, run
from strandline.testing.verify.places.kafka import KafkaPlace
from strandline.testing.verify.scenario import changed

sys.path.append(str(Path(__file__).resolve().parents[1] / "conformance"))

from kafka_peer import jars

KINDS = ["".join(kinds) for kinds in product("KS", repeat=3)]


def firsts(kinds: str) -> list[int]:
    """The first broker of each kind that there is."""
    return [kinds.index(kind) + 1 for kind in "KS" if kind in kinds]


def place(folder: Path, kinds: str, first: int | None = None) -> KafkaPlace:
    """The cluster, not started."""
    cluster = load("mixed").cluster
    ours = frozenset(id for id, kind in enumerate(kinds, 1) if kind == "S")
    return KafkaPlace(folder, len(kinds), cluster.properties(), jars(), ours, first)


def judge(folder: Path, kinds: str, first: int, scenario: Scenario) -> None:
    outcome = run(scenario, place(folder, kinds, first), folder / "run")
    print(f"{kinds}, controller {first}: {outcome}")
    assert outcome.state is State.HELD, outcome
    assert outcome.verdict.faults.total() == len(scenario.faults.at) and outcome.verdict.acknowledged > 300


def test_nothing_is_lost_while_the_controller_moves_from_kafka_to_us(tmp_path: Path) -> None:
    """Kafka's broker 1 is the controller, and is killed."""
    death = {"s": 3.0, "fault": "kill-controller", "hold_s": 5.0}
    judge(tmp_path, "KSS", 1, changed(load("mixed"), load_s=12.0, faults={"at": [death]}))


@pytest.mark.long
@pytest.mark.parametrize(("kinds", "first"), [(kinds, first) for kinds in KINDS for first in firsts(kinds)])
def test_nothing_is_lost_in_any_mixture(kinds: str, first: int, tmp_path: Path) -> None:
    judge(tmp_path, kinds, first, load("mixed"))
