"""Reassignment: how a partition moves from one set of brokers to another, and back. Pure.

A move has three steps. U: the topic's znode lists all replicas, old and new. A: a new leader epoch tells all
of them. B: when every replica of the target may lead, the state is written without those that leave (the
first of the target leads, unless another of it leads already). Then those are told to delete, and the topic's
znode is written without them. A controller that resumes at any point takes the same step again: nothing is
remembered outside ZooKeeper, and a step taken twice does no harm.
No replica leaves that might hold the last copy: replicas added by a cancelled or replaced move go at once
only if the ISR stays good enough without them. So a move may be cancelled even when it was almost done.
Left to others: the arithmetic of assignments (assignment.py), writing them (controller/assignment_nodes.py).
Why: docs/decisions/0032-nobody-leaves-before-those-who-stay-are-in-sync.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...base.types import NO_LEADER, TopicPartition
from ...protocol.errors import InvalidReplicaAssignment, NoReassignmentInProgress
from . import elections, hearing
from .assignment import Assignment
from .plans import Command, SendStopReplica, StatesWritten, WriteAssignments
from .state import ClusterState, Departure, PartitionState, Topic

Plan = tuple[ClusterState, list[Command]]


# --- what is asked for -----------------------------------------------------------------------------


def wanted(known: Assignment, target: Sequence[int] | None, live: Iterable[int]) -> Assignment:
    """The assignment that leads to `target`, or back if it is None.

    Raises InvalidReplicaAssignment, NoReassignmentInProgress.
    """
    if target is None:
        if not known.is_moving:
            raise NoReassignmentInProgress("the partition is not being reassigned: nothing to cancel")
        return known.towards(known.origin)
    if not target:
        raise InvalidReplicaAssignment("the list of replicas is empty")
    if len(set(target)) != len(target):
        raise InvalidReplicaAssignment(f"{list(target)} has a broker twice")
    if any(broker < 0 for broker in target):
        raise InvalidReplicaAssignment(f"{list(target)}: broker ids must not be negative")
    found = known.towards(target)
    if away := sorted(set(found.adding) - set(live)):
        raise InvalidReplicaAssignment(f"{list(target)}: brokers {away} are not available")
    return found


# --- one partition ---------------------------------------------------------------------------------


def next_state(
    state: ClusterState,
    partition: TopicPartition,
    known: PartitionState,
    bounced: frozenset[int] = frozenset(),
) -> PartitionState | None:
    """As `elections.next_state`, for a partition that may be moving."""
    departure = departure_of(state, partition, known)
    if departure is not None and departure.gone:
        without = replace(state, departures={partition: replace(departure, is_written=True)})
        chosen = elections.next_state(without, partition, known, bounced)
        return chosen or _renewed(state, known)
    chosen = elections.next_state(state, partition, known, bounced)
    is_due = partition in state.unannounced or hearing.is_refused(state, partition, known)
    if chosen is not None or not is_due:
        return chosen
    is_led = elections.is_electable(state, known.leader, partition, known)
    return _renewed(state, known) if is_led else None  # the next leader is told with its election


def departure_of(state: ClusterState, partition: TopicPartition, known: PartitionState) -> Departure | None:
    """Which replicas may leave now; None if the move cannot go on yet."""
    under_way = state.departures.get(partition)
    assignment = state.assignment(partition)
    if not assignment.is_moving or (under_way is not None and under_way.is_written):
        return None
    if set(assignment.target) != set(assignment.origin) and all(
        elections.is_electable(state, r, partition, known) for r in assignment.target
    ):
        return Departure(frozenset(assignment.removing), assignment, Assignment(assignment.target))
    abandoned = frozenset(assignment.abandoned)
    if abandoned and _may_shed(state, partition, known, abandoned):
        return Departure(abandoned, assignment, assignment.without(abandoned))
    if not assignment.abandoned and set(assignment.target) == set(assignment.origin):
        return Departure(frozenset(), assignment, Assignment(assignment.target))
    return None


def _may_shed(
    state: ClusterState, partition: TopicPartition, known: PartitionState, abandoned: frozenset[int]
) -> bool:
    """Whether the ISR loses nobody without them, or stays large enough."""
    left = [r for r in state.assignment(partition).replicas if r not in abandoned]
    staying = [r for r in left if elections.is_electable(state, r, partition, known)]
    needed = 1 if abandoned.isdisjoint(known.isr) else min(state.min_isr_of(partition.topic), len(left))
    return len(staying) >= max(1, needed)


def _renewed(state: ClusterState, known: PartitionState) -> PartitionState:
    """The same state in a new epoch, so that the leader learns the current replicas, or all take it."""
    joined = state.still_joined(known.isr_epochs, known.isr)
    if known.leader != NO_LEADER and known.leader in state.brokers:
        joined |= state.joined([known.leader])
    return replace(
        known,
        leader_epoch=known.leader_epoch + 1,
        isr_epochs=joined,
        controller_epoch=state.controller_epoch,
    )


# --- the planner's hooks ---------------------------------------------------------------------------


def resumed(state: ClusterState) -> ClusterState:
    """A term begins: it is not known which moves the previous controller has announced."""
    return replace(state, unannounced=frozenset(state.moving()))


def reassigned(before: ClusterState, topics: Mapping[str, Topic], state: ClusterState) -> ClusterState:
    """Topics have been read: partitions whose replicas have changed must be announced."""
    departures = {
        q: departure for q, departure in state.departures.items() if state.assignment(q) == departure.begun_at
    }
    state = replace(state, departures=departures)
    changed = [
        q
        for name in sorted(topics.keys() & before.topics.keys())
        for q in topics[name].partitions
        if q in state.partitions and before.replicas(q) != state.replicas(q)
    ]
    kept = frozenset(q for q in state.unannounced if state.replicas(q))
    return replace(state, unannounced=kept | frozenset(changed))


def is_out(state: ClusterState, partition: TopicPartition, begun_at: Assignment) -> bool:
    """Whether those that leave are out, and no other move was asked for since, not even one taken back."""
    departure = state.departures.get(partition)
    return departure is not None and departure.is_written and departure.begun_at == begun_at


def unfinished(state: ClusterState, topics: Iterable[str]) -> list[Command]:
    """Repeat the writes of assignments that are still due: one is skipped while requests change the move."""
    names = set(topics)
    return _assignments(
        state, sorted(q for q, d in state.departures.items() if d.is_written and q.topic in names)
    )


def concerned(state: ClusterState, topics: Iterable[str]) -> list[TopicPartition]:
    """Partitions of these topics that are moving, or have moved and not been announced."""
    names = set(topics)
    return sorted({q for q in (*state.moving(), *state.unannounced) if q.topic in names})


def depart(
    state: ClusterState, judged: Iterable[TopicPartition], writes: Mapping[TopicPartition, PartitionState]
) -> Plan:
    """Note the departures that the planned writes begin. If no replica leaves, only the assignment is due."""
    departures, settled = dict(state.departures), list[TopicPartition]()
    for partition in judged:
        if not state.topics or not state.assignment(partition).is_moving:
            continue
        known = state.partitions.get(partition)
        departure = None if known is None else departure_of(state, partition, known)
        if departure is None:
            continue
        if partition in writes and departure.gone:
            departures[partition] = departure
        elif not departure.gone and partition not in state.in_flight:
            departures[partition] = replace(departure, is_written=True)
            settled.append(partition)
    if departures == state.departures:
        return state, []
    state = replace(state, departures=departures)
    return state, _assignments(state, settled)


def landed(state: ClusterState, event: StatesWritten) -> tuple[ClusterState, list[TopicPartition]]:
    """States are written: replicas that have left there are out. The partitions where that just happened."""
    departures, out = dict(state.departures), list[TopicPartition]()
    for partition in sorted(event.written.keys() | event.moved):
        departure = departures.get(partition)
        if departure is None or departure.is_written:
            continue
        if partition in event.written and departure.gone.isdisjoint(event.written[partition].isr):
            departures[partition] = replace(departure, is_written=True)
            out.append(partition)
        else:
            del departures[partition]
    unannounced = state.unannounced - event.written.keys()
    return replace(state, departures=departures, unannounced=unannounced), out


def farewell(state: ClusterState, partitions: Sequence[TopicPartition]) -> list[Command]:
    """Tell the replicas that are out to delete their logs, in the leader epoch that began without them."""
    deletes: dict[int, dict[TopicPartition, int]] = {}
    for partition in partitions:
        for broker in sorted(state.departures[partition].gone):
            if state.is_live(broker):
                deletes.setdefault(broker, {})[partition] = state.partitions[partition].leader_epoch
    stops: list[Command] = [SendStopReplica(b, deletes[b], delete=True) for b in sorted(deletes)]
    return [*stops, *_assignments(state, partitions)]


def _assignments(state: ClusterState, partitions: Iterable[TopicPartition]) -> list[Command]:
    topics: dict[str, dict[int, tuple[Assignment, Assignment]]] = {}
    for partition in partitions:
        departure = state.departures[partition]
        change = (departure.begun_at, departure.then)
        topics.setdefault(partition.topic, {})[partition.partition] = change
    return [WriteAssignments(name, topics[name]) for name in sorted(topics)]
