"""Balanced recovery: finds a leader if no member of an ISR can prove that it still has its data. Pure.

Every assigned replica is asked where its log ends, and the longest log leads: the last epoch counts first,
then the offset. Replicas outside the last ISR are asked too: one that left the ISR before its last member
lost power may be the only one that holds what was acknowledged. Members of the ISR are waited for without
limit, since one may come back with complete data; the others have a limited time. An operator may cut all
waiting short.
While a partition has no leader its logs do not change, so an answer stays true while the broker runs and the
leader epoch stays the same.
Left to others: who may lead with proof (`elections.py`), asking (`controller/broker_channels.py`), the
waiting (`controller/active_controller.py`).
Why: docs/decisions/0030-the-longest-log-of-all-replicas-leads.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ...base.types import NO_LEADER, TopicPartition
from . import plans
from .state import ClusterState, LogEnd, PartitionState, Strategy, UncleanRecovery

Plan = tuple[ClusterState, list[plans.Command]]


def is_present(state: ClusterState, broker: int, partition: TopicPartition) -> bool:
    """Whether it is live, does not shut down, and can read its log."""
    return state.is_live(broker) and not state.is_leaving(broker) and not state.is_offline(broker, partition)


def is_forced(state: ClusterState, partition: TopicPartition) -> bool:
    """Whether an operator wants a leader, whatever it lacks."""
    found = state.recoveries.get(partition)
    return found is not None and found.is_forced


def longest(state: ClusterState, partition: TopicPartition, known: PartitionState) -> int | None:
    """The replica with the longest log; None while another one must be waited for.

    A partition with one replica needs no question: no other can have more.
    """
    replicas = state.replicas(partition)
    if not _is_due(state, partition, known):
        return None
    if len(replicas) == 1:
        return replicas[0] if is_present(state, replicas[0], partition) else None
    search = state.recoveries.get(partition)
    if known.leader != NO_LEADER or search is None or search.epoch != known.leader_epoch:
        return None
    ends: dict[int, LogEnd] = {}
    for replica in replicas:
        end = search.ends.get(state.start_of(replica))
        if end is not None and is_present(state, replica, partition):
            ends[replica] = end
        elif not search.is_over or (replica in known.isr and not search.is_forced):
            return None
    return max(ends, key=lambda replica: ends[replica], default=None)


def _is_due(state: ClusterState, partition: TopicPartition, known: PartitionState) -> bool:
    """Whether to look for a leader without proof of its data: all ISR members that might have proof are live.

    A member of the ISR that is live and may not lead has lost data. One that has no replica is never asked.
    """
    if is_forced(state, partition):
        return True
    if state.strategy_of(partition.topic) is not Strategy.BALANCED:
        return False
    replicas = state.replicas(partition)
    return all(member in replicas and is_present(state, member, partition) for member in known.isr)


def search(state: ClusterState, judged: Iterable[TopicPartition]) -> Plan:
    """Ask the live replicas of these partitions, and start the time limit of the others."""
    asks: dict[int, list[TopicPartition]] = {}
    timed: dict[TopicPartition, int] = {}
    forced: dict[TopicPartition, int] = {}
    recoveries = {q: r for q, r in state.recoveries.items() if q in state.partitions}
    for partition in judged:
        known = state.partitions.get(partition)
        if known is None or partition in state.in_flight:
            continue
        found = recoveries.get(partition)
        if known.leader != NO_LEADER or not _is_due(state, partition, known):
            if found is not None and (known.leader != NO_LEADER or not found.is_forced):
                del recoveries[partition]
            continue
        if found is None or found.epoch != known.leader_epoch:
            found = UncleanRecovery(known.leader_epoch, is_forced=found is not None and found.is_forced)
        if not found.is_timed and (found.is_forced or not set(state.replicas(partition)) <= set(known.isr)):
            (forced if found.is_forced else timed)[partition] = known.leader_epoch
            found = replace(found, is_timed=True)
        for replica in state.replicas(partition):
            start = state.start_of(replica)
            if start not in found.asked and is_present(state, replica, partition):
                asks.setdefault(replica, []).append(partition)
                found = replace(found, asked=found.asked | {start})
        recoveries[partition] = found
    commands: list[plans.Command] = [plans.AskEnds(broker, tuple(asks[broker])) for broker in sorted(asks)]
    if timed:
        commands.append(plans.AwaitReplicas(timed))
    if forced:
        commands.append(plans.AwaitReplicas(forced, is_forced=True))
    return (replace(state, recoveries=recoveries) if recoveries or state.recoveries else state), commands


# --- what is heard ---------------------------------------------------------------------------------


def answered(state: ClusterState, event: plans.EndsAnswered) -> Plan:
    """Note where logs end. A broker that has not been told the leader epoch yet is asked again later."""
    start = (event.broker, event.incarnation)
    again: set[TopicPartition] = set()
    recoveries = dict(state.recoveries)
    for partition in sorted(event.asked):
        found = recoveries.get(partition)
        if found is None or start != state.start_of(event.broker):
            continue
        epoch, end = event.ends.get(partition, (-1, LogEnd(-1, -1)))
        if epoch != found.epoch:
            again.add(partition)
        else:
            recoveries[partition] = replace(found, ends={**found.ends, start: end})
    commands: list[plans.Command] = []
    if again:
        commands.append(plans.AskAgainLater(*start, frozenset(again)))
    return replace(state, recoveries=recoveries), commands


def ask_again(state: ClusterState, event: plans.AskAgainDue) -> ClusterState:
    """Forget that this incarnation of a broker was asked."""
    start = (event.broker, event.incarnation)
    changed = {
        q: replace(found, asked=found.asked - {start})
        for q in event.partitions
        if (found := state.recoveries.get(q)) is not None and start not in found.ends
    }
    return replace(state, recoveries={**state.recoveries, **changed})


def time_over(state: ClusterState, event: plans.RecoveryTimeOver) -> ClusterState:
    """Stop waiting for replicas outside the ISR."""
    changed = {
        q: replace(found, is_over=True)
        for q, epoch in event.partitions.items()
        if (found := state.recoveries.get(q)) is not None and found.epoch == epoch
    }
    return replace(state, recoveries={**state.recoveries, **changed})


def force(state: ClusterState, partitions: Iterable[TopicPartition]) -> ClusterState:
    """An operator wants leaders for these: the wait begins again, and is short."""
    forced = {}
    for partition in partitions:
        known = state.partitions.get(partition)
        if known is not None and not state.is_live(known.leader):
            before = state.recoveries.get(partition, UncleanRecovery(known.leader_epoch))
            forced[partition] = replace(before, is_forced=True, is_timed=False, is_over=False)
    return replace(state, recoveries={**state.recoveries, **forced})


def unsaid(partitions: Mapping[TopicPartition, PartitionState]) -> list[plans.ReportLoss]:
    """Leaders that have not recovered yet: the controller may have died before it reported the loss."""
    return [
        plans.ReportLoss(partition, known, known.isr)
        for partition, known in sorted(partitions.items())
        if known.recovering and known.leader != NO_LEADER
    ]


def losses(before: ClusterState, written: Mapping[TopicPartition, PartitionState]) -> list[plans.ReportLoss]:
    """The leaders among these new states that may lack acknowledged records."""
    found: list[plans.ReportLoss] = []
    for partition, now in sorted(written.items()):
        known = before.partitions.get(partition)
        if not now.recovering or now.leader == NO_LEADER or known is None:
            continue
        if known.leader != now.leader or not known.recovering:
            search = before.recoveries.get(partition)
            ends = {} if search is None else {b: end for (b, _), end in sorted(search.ends.items())}
            found.append(plans.ReportLoss(partition, now, known.isr, ends))
    return found
