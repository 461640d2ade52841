"""Power fails everywhere, and of the last of an ISR: the longest log leads, only unflushed tails are lost.

Each rule that this rests on is taken away once, in a world in which it decides what is lost.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from strandline.base.types import TopicPartition
from strandline.controller.planning import unclean_recovery
from strandline.controller.planning.state import ClusterState, PartitionState
from strandline.simulation.cluster import BROKERS
from strandline.simulation.families import DARK, FAMILIES, UNFLUSHED
from strandline.simulation.faults.disks import LANDED_S
from strandline.simulation.settings import SETTINGS
from strandline.simulation.world import Outcome, World

T0 = TopicPartition("numbers", 0)

Break = Callable[[pytest.MonkeyPatch], None]
longest = unclean_recovery.longest


class LastToGo(World):
    """The leader, first of the replicas and last of the ISR, loses power; the others hold what it lost."""

    def __init__(self) -> None:
        super().__init__(5, replace(FAMILIES["dark"], groups=0.0))
        self.cluster.settings = (*SETTINGS, *DARK, *UNFLUSHED)  # and no segment ends
        self.lost = 0

    async def story(self) -> None:
        for id in BROKERS:
            self.cluster.start(id)
        await self.workload.begin()
        self.checks.begin()
        while len(self.ledger.promised(T0)) < 10:
            await asyncio.sleep(0.01)
        await self.darken(self.checks.leader(T0))
        for id in BROKERS:
            self.cluster.start(id)
        await self.judging.wait_healed(60)
        await self.workload.finish()
        await self.judging.judge()

    async def darken(self, first: int) -> None:
        """All go; `first` alone remains in the ISR, and what it has not flushed is gone."""
        for id in BROKERS:
            if id != first:
                self.cluster.crash(id)
        while self.checks.states.latest[T0]["isr"] != [first]:
            await asyncio.sleep(0.01)
        log = self.cluster.nodes[first].broker.replicas.partitions[T0].log
        self.lost = log.end_offset - log.flushed_offset
        self.cluster.crash(first)
        await asyncio.sleep(LANDED_S)
        self.cluster.lose_power(first, cruel=False, keep=0.0)


def darkened() -> Outcome:
    """What comes of it."""
    world = LastToGo()
    outcome = world.run()
    assert world.lost >= 10, "all that was acknowledged"
    return outcome


def test_the_longest_log_leads_and_nothing_is_lost() -> None:
    outcome = darkened()
    assert outcome.violation is None, outcome.violation
    assert [line for line in outcome.trace if "potential_data_loss" in line], "whoever leads has no proof"


def elect_the_first(patch: pytest.MonkeyPatch) -> None:
    """The first replica that is there leads, as in Kafka with ZooKeeper."""

    def first(state: ClusterState, partition: TopicPartition, known: PartitionState) -> int | None:
        if longest(state, partition, known) is None:
            return None
        return state.replicas(partition)[0]

    patch.setattr(unclean_recovery, "longest", first)


def ask_the_isr_alone(patch: pytest.MonkeyPatch) -> None:
    """The longest log of the last ISR leads (`balanced_isr_only`)."""

    def of_isr(state: ClusterState, partition: TopicPartition, known: PartitionState) -> int | None:
        topic = state.topics[partition.topic]
        members = tuple(r for r in topic.replicas[partition.partition] if r in known.isr)
        narrow = replace(topic, replicas={**topic.replicas, partition.partition: members})
        return longest(replace(state, topics={**state.topics, topic.name: narrow}), partition, known)

    patch.setattr(unclean_recovery, "longest", of_isr)


@pytest.mark.parametrize("mutant", [elect_the_first, ask_the_isr_alone])
def test_a_broken_rule_is_found(mutant: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    violation = darkened().violation or ""
    assert violation.startswith("Violation: I"), mutant.__doc__
