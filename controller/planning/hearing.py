"""Which leaders have yet to confirm a LeaderAndIsr, which roles are refused, and which replicas may be in
failed directories. Pure.

A leader leads once it has been told. Replicas of a broker with failed log directories count again once it has
said which of them it can use. Both follow from answers to LeaderAndIsr. What an earlier controller has sent
is not known here, and counts as heard. What a broker of Kafka has refused in one leader epoch, it takes in
the next one (controller/refusals.py).
Left to others: what follows for leaders (elections.py), sending and hearing (controller/broker_channels.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...base.types import NO_LEADER, TopicPartition
from .state import ClusterState, PartitionState


def begun(
    state: ClusterState, written: Mapping[TopicPartition, PartitionState]
) -> Mapping[TopicPartition, int]:
    """`untold` after these writes: each new leader has yet to hear of its epoch."""
    begun = {q: s.leader_epoch for q, s in written.items() if s.leader != NO_LEADER}
    return {**state.untold, **begun} if begun else state.untold


def told(state: ClusterState, led: Mapping[TopicPartition, int]) -> ClusterState:
    """A leader has confirmed that it leads these, in these epochs."""
    if not (state.untold and led):
        return state
    return replace(state, untold={q: e for q, e in state.untold.items() if led.get(q, -1) < e})


def refused(state: ClusterState, roles: Mapping[TopicPartition, int]) -> ClusterState:
    """A broker does not take its roles in these epochs. Those that are over do not matter."""
    due = {
        q: epoch
        for q, epoch in roles.items()
        if q in state.partitions and epoch >= state.partitions[q].leader_epoch
    }
    return replace(state, refused={**state.refused, **due}) if due else state


def is_refused(state: ClusterState, partition: TopicPartition, known: PartitionState) -> bool:
    """Whether a broker does not take its role in the present epoch. What it refused before that is over."""
    return bool(state.refused) and state.refused.get(partition, -1) >= known.leader_epoch


def waits_in_vain(state: ClusterState, partition: TopicPartition) -> bool:
    """Whether the partition's new leader has not heard of its election, and cannot be told."""
    known = state.partitions.get(partition)
    return known is not None and state.is_untold(partition, known) and not state.is_reached(known.leader)


def unheard(state: ClusterState, brokers: Iterable[int]) -> ClusterState:
    """Mark all replicas of brokers with failed log directories as unheard, until the broker has answered."""
    failed = [broker for broker in sorted(brokers) if state.brokers[broker].has_failed_dirs]
    if not failed:
        return state
    more = {state.start_of(broker): frozenset(state.hosted_by(broker)) for broker in failed}
    return replace(state, unheard={**state.unheard, **more})


def with_start(
    those: Mapping[tuple[int, int], frozenset[TopicPartition]],
    start: tuple[int, int],
    mine: frozenset[TopicPartition],
) -> dict[tuple[int, int], frozenset[TopicPartition]]:
    """The same, changed for one incarnation of a broker."""
    changed = {**those, start: mine}
    if not mine:
        del changed[start]
    return changed
