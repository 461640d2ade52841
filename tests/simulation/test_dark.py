"""Power fails everywhere, and of the last of an ISR: the longest log leads, only unflushed tails are lost.

Each rule that this rests on is taken away once, and then something must be found.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from strandline.controller import recovery
from strandline.controller.state import ClusterState, PartitionState
from strandline.protocol.kinds import TopicPartition
from strandline.simulation.world import run_seed

EVERY_RUN = range(12)

Break = Callable[[pytest.MonkeyPatch], None]
longest = recovery.longest


@pytest.mark.parametrize("seed", EVERY_RUN)
def test_a_cluster_comes_back_from_the_dark(seed: int) -> None:
    outcome = run_seed(seed, "dark")
    assert outcome.violation is None, f"strandline simulate --family dark --seed {seed}: {outcome.violation}"
    assert outcome.acknowledged > 20, "a world in which nobody gets through shows nothing"


def test_the_loss_is_reported() -> None:
    told = [line for line in run_seed(1, "dark").trace if "potential_data_loss" in line]
    assert told


def elect_the_first(patch: pytest.MonkeyPatch) -> None:
    """The first replica that is there leads, as in Kafka with ZooKeeper."""

    def first(state: ClusterState, partition: TopicPartition, known: PartitionState) -> int | None:
        if longest(state, partition, known) is None:
            return None
        return state.replicas(partition)[0]

    patch.setattr(recovery, "longest", first)


def ask_the_isr_alone(patch: pytest.MonkeyPatch) -> None:
    """The longest log of the last ISR leads (`balanced_isr_only`)."""

    def of_isr(state: ClusterState, partition: TopicPartition, known: PartitionState) -> int | None:
        topic = state.topics[partition.topic]
        members = tuple(r for r in topic.replicas[partition.partition] if r in known.isr)
        narrow = replace(topic, replicas={**topic.replicas, partition.partition: members})
        return longest(replace(state, topics={**state.topics, topic.name: narrow}), partition, known)

    patch.setattr(recovery, "longest", of_isr)


@pytest.mark.parametrize("mutant", [elect_the_first, ask_the_isr_alone])
def test_a_broken_rule_is_found(mutant: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    violations = (run_seed(seed, "dark").violation or "" for seed in EVERY_RUN)
    assert any(violation.startswith("Violation: I") for violation in violations), mutant.__doc__
