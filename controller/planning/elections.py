"""Leader election. Pure: a cluster's state in, the next state of one partition out.

A replica may lead if it is registered, in the ISR, has lost no data since it joined the ISR, and its log
directory works. A controller remembers nothing else, so one elected just now decides the same as soon as the
brokers have answered it. A broker with failed directories is waited for: it is neither elected nor removed
from the ISR before it has said what lies there. A full disk or a broken path to the controller disqualifies
nobody; others are only preferred. A leader out of reach goes on leading, unless it was elected just now and
has not heard of it: then a replica that can be told takes its place.
An ISR without a member that may lead is never changed: its last members hold what was acknowledged. Suspicion
may be wrong, so it alone shrinks an ISR only down to the smallest one that acks=all needs.
Left to others: who leads when no member of the ISR can prove what it holds (`unclean_recovery.py`).
"""

from __future__ import annotations

from dataclasses import replace

from ...base.types import NO_LEADER, TopicPartition
from . import unclean_recovery
from .state import ClusterState, PartitionState


def is_intact(state: ClusterState, broker: int, partition: TopicPartition, known: PartitionState) -> bool:
    """Whether it is a registered ISR member that still has everything it had when it joined the ISR.

    Apache Kafka's brokers are taken at their word, as Kafka does. Its controllers and leaders leave out when
    members joined: then a broker has lost nothing if its present start found everything that an earlier one
    had, or is older than the partition.
    """
    if broker not in state.brokers or broker not in known.isr:
        return False
    there = state.brokers[broker]
    if there.is_kafkas:
        return True
    joined = known.isr_epochs.get(broker)
    if joined is None:
        return there.intact_for(partition) < there.incarnation or known.born > there.born > 0
    return joined >= there.intact_for(partition)


def is_electable(state: ClusterState, broker: int, partition: TopicPartition, known: PartitionState) -> bool:
    """Whether it may lead, and may stay in the ISR."""
    return (
        _would_be(state, broker, partition, known)
        and not state.is_suspected(broker)
        and not state.is_unheard(broker, partition)
    )


def _would_be(state: ClusterState, broker: int, partition: TopicPartition, known: PartitionState) -> bool:
    """Whether it may lead, unless it is suspected or has yet to say whether its log directory works."""
    return (
        is_intact(state, broker, partition, known)
        and not state.is_leaving(broker)
        and not state.is_offline(broker, partition)
    )


def is_reborn(state: ClusterState, known: PartitionState) -> bool:
    """Whether the leader registered again after its election: then that leadership is over.

    A state that a controller of Apache Kafka wrote does not tell, nor does one whose leader is Kafka's.
    """
    leader, elected = state.brokers.get(known.leader), known.isr_epochs.get(known.leader)
    return leader is not None and elected is not None and elected != leader.incarnation


def first_state(state: ClusterState, partition: TopicPartition) -> PartitionState | None:
    """The state of a new partition, or None while none of its brokers is live."""
    members = [r for r in state.replicas(partition) if state.is_live(r) and not state.is_leaving(r)]
    if not members:
        return None
    return PartitionState(
        leader=next(filter(state.is_reached, members), members[0]),
        leader_epoch=0,
        isr=tuple(members),
        isr_epochs=state.joined(members),
        controller_epoch=state.controller_epoch,
    )


def next_state(
    state: ClusterState,
    partition: TopicPartition,
    known: PartitionState,
    bounced: frozenset[int] = frozenset(),
) -> PartitionState | None:
    """What the partition's state should become, or None if it may stay.

    A leader in `bounced` has restarted: its leadership ended with the process, even if it may be elected
    again. A controller that did not see the restart finds it by the incarnation at which the leader was
    elected.
    """
    if is_reborn(state, known):
        bounced |= {known.leader}
    held = state.replicas(partition)
    order = [r for r in known.isr if r in held] if state.isr_order else held
    electable = [
        r
        for r in order
        if is_electable(state, r, partition, known) or _leads_on(state, r, partition, known, bounced)
    ]
    if electable:
        leader = _best(state, partition, known, electable, bounced)
        if partition in state.preferring and prefers(state, partition, known):
            leader = state.replicas(partition)[0]
        isr = _remaining(state, partition, known, electable)
        assert isr and {*isr} <= {*known.isr} & {*held}, "an ISR of replicas, to which only its leader adds"
        if leader == known.leader and isr == known.isr and leader not in bounced:
            return None
        return _next(state, known, leader, isr)
    intact = [
        member
        for member in known.isr
        if is_intact(state, member, partition, known) and not state.is_offline(member, partition)
    ]
    is_forced = unclean_recovery.is_forced(state, partition)
    if known.leader in intact and not is_forced:
        return None  # suspicion or a controlled shutdown alone does not take the last replica's leadership
    last_resort = None if intact and not is_forced else _last_resort(state, partition, known)
    return last_resort or _leaderless(state, known)


def _leads_on(
    state: ClusterState,
    broker: int,
    partition: TopicPartition,
    known: PartitionState,
    bounced: frozenset[int],
) -> bool:
    """Whether it is the leader and may stay so: it need not have said yet whether its log directory works."""
    is_steady = broker == known.leader and broker not in bounced and not state.is_suspected(broker)
    return is_steady and _would_be(state, broker, partition, known)


def _remaining(
    state: ClusterState, partition: TopicPartition, known: PartitionState, electable: list[int]
) -> tuple[int, ...]:
    """Who stays in the ISR: the electable, those that are waited for, and as many of the suspected as
    acks=all needs, if the ISR was that large.
    """
    others = [
        r for r in state.replicas(partition) if r not in electable and _would_be(state, r, partition, known)
    ]
    staying = {*electable, *(r for r in others if not state.is_suspected(r))}
    needed = state.min_isr_of(partition.topic)
    missing = needed - len(staying) if len(known.isr) >= needed else 0
    staying |= {*[r for r in others if r not in staying][: max(0, missing)]}
    return tuple(member for member in known.isr if member in staying)


def prefers(state: ClusterState, partition: TopicPartition, known: PartitionState) -> bool:
    """Whether the preferred replica may lead, can be reached, and has room."""
    first = state.replicas(partition)[0]
    may_lead = is_electable(state, first, partition, known) and state.is_reached(first)
    return may_lead and not state.is_full(first, partition)


def _best(
    state: ClusterState,
    partition: TopicPartition,
    known: PartitionState,
    electable: list[int],
    bounced: frozenset[int],
) -> int:
    """The best of the electable. Preferred are, in this order: one that leads and knows it, or can be told;
    one with room for records; one that did not restart; the current leader.
    """
    leads = NO_LEADER if state.is_untold(partition, known) else known.leader
    near = [r for r in electable if state.is_reached(r) or r == leads] or electable
    roomy = [r for r in near if not state.is_full(r, partition)] or near
    steady = [r for r in roomy if r not in bounced]
    return known.leader if known.leader in steady else (steady or roomy)[0]


def _leaderless(state: ClusterState, known: PartitionState) -> PartitionState | None:
    """No leader. The ISR stays: it names the replicas that may lead when they are back."""
    return None if known.leader == NO_LEADER else _next(state, known, NO_LEADER, known.isr)


def _last_resort(
    state: ClusterState, partition: TopicPartition, known: PartitionState
) -> PartitionState | None:
    """A leader that may lack records: if the topic allows it, or if no other replica can have more."""
    if state.allows_unclean(partition.topic):
        present = [r for r in state.replicas(partition) if unclean_recovery.is_present(state, r, partition)]
        leader = present[0] if present else None
    else:
        leader = unclean_recovery.longest(state, partition, known)
    if leader is None:
        return None
    return replace(_next(state, known, leader, (leader,)), recovering=True)


def _next(state: ClusterState, known: PartitionState, leader: int, isr: tuple[int, ...]) -> PartitionState:
    assert leader == NO_LEADER or leader in isr, "a leader is an ISR member"
    assert leader == NO_LEADER or state.is_live(leader), "a leader is elected among the living"
    isr_epochs = state.still_joined(known.isr_epochs, isr)
    if leader != NO_LEADER:
        isr_epochs |= state.joined([leader])  # what it holds now is the history
    return PartitionState(
        leader=leader,
        leader_epoch=known.leader_epoch + 1,
        isr=isr,
        isr_epochs=isr_epochs,
        controller_epoch=state.controller_epoch,
        recovering=known.recovering,
        version=known.version,
        born=known.born,
    )
