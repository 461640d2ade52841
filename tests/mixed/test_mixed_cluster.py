"""Brokers of Apache Kafka 3.9 and of ours in one cluster, under load and faults: nothing is lost.

K and S stand for the kinds of brokers 1 to 3; the first one to start is the controller, until it is killed.
"""

import sys
from pathlib import Path

import pytest

from strandline.testing.verify import State, load, run
from strandline.testing.verify.places.kafka import KafkaPlace

sys.path.append(str(Path(__file__).resolve().parents[1] / "conformance"))

from kafka_peer import jars

MIXTURES = ("KKS", "KSK", "SKK", "KSS", "SKS", "SSK")


def firsts(kinds: str) -> list[int]:
    """The first broker of each kind."""
    return [kinds.index("K") + 1, kinds.index("S") + 1]


def place(folder: Path, kinds: str, first: int | None = None) -> KafkaPlace:
    """The cluster, not started."""
    cluster = load("mixed").cluster
    ours = frozenset(id for id, kind in enumerate(kinds, 1) if kind == "S")
    return KafkaPlace(folder, len(kinds), cluster.properties(), jars(), ours, first)


def judge(folder: Path, kinds: str, first: int) -> None:
    outcome = run(load("mixed"), place(folder, kinds, first), folder / "run")
    assert outcome.state is State.HELD, outcome
    assert outcome.verdict.faults.total() == 4 and outcome.verdict.acknowledged > 300


def test_nothing_is_lost_while_the_controller_moves_from_kafka_to_us(tmp_path: Path) -> None:
    """Kafka's broker 1 is the controller; it is killed, as a leader is; one stops, another stands still."""
    judge(tmp_path, "KSS", 1)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kinds", "first"), [(kinds, first) for kinds in MIXTURES for first in firsts(kinds)]
)
def test_nothing_is_lost_in_any_mixture(kinds: str, first: int, tmp_path: Path) -> None:
    judge(tmp_path, kinds, first)
