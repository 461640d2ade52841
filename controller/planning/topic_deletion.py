"""Topic deletion: Queued -> Stopping -> Removing -> its znodes are gone. Pure.

A topic waits in the queue while one of its brokers is away: a replica that is not deleted now would come back
as a stray. If a broker dies or fails midway, its topics go back into the queue.
Nothing waits for a replica that was moved away. If it could not be deleted, its broker is told again when it
reports a change of its log directories.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from . import hearing
from .plans import Command, RemoveTopic, ReplicasDeleted, SendStopReplica
from .recipients import farewell
from .state import ClusterState, Deletion, Queued, Removing, Stopping

Plan = tuple[ClusterState, list[Command]]


def request(state: ClusterState, topics: frozenset[str]) -> Plan:
    """Queue what is not queued yet, and start what can be started."""
    new = {name: Queued() for name in sorted(topics) if name not in state.deletions}
    return resume(replace(state, deletions={**state.deletions, **new}))


def resume(state: ClusterState) -> Plan:
    """Start every queued deletion whose brokers are all there."""
    commands: list[Command] = []
    for name, deletion in sorted(state.deletions.items()):
        if isinstance(deletion, Queued) and _is_ready(state, name):
            state, more = _start(state, name)
            commands += more
    return state, commands


def answered(state: ClusterState, event: ReplicasDeleted) -> Plan:
    """A broker has deleted its replicas, or could not."""
    state = _noted(state, event)
    commands: list[Command] = []
    for name in sorted({q.topic for q in event.deleted | event.failed}):
        deletion = state.deletions.get(name)
        if not isinstance(deletion, Stopping):
            continue
        if any(q.topic == name for q in event.failed):
            state = _set(state, name, Queued())
            continue
        waiting = deletion.waiting - {(event.broker, q) for q in event.deleted}
        state = _set(state, name, Stopping(waiting) if waiting else Removing())
        if not waiting:
            commands.append(RemoveTopic(name))
    return state, commands


def _noted(state: ClusterState, event: ReplicasDeleted) -> ClusterState:
    broker = state.brokers.get(event.broker)
    if broker is None:
        return state
    start = (event.broker, broker.incarnation)
    before = state.undeleted.get(start, frozenset())
    moved = {q for q in event.failed if q.topic not in state.deletions}
    left = (before | moved) - event.deleted
    return state if left == before else replace(state, undeleted={**state.undeleted, start: left})


def again(state: ClusterState, brokers: Iterable[int]) -> list[Command]:
    """Tell these brokers again to delete what they could not, unless it is assigned to them now."""
    commands: list[Command] = []
    for broker in brokers:
        left = state.undeleted.get((broker, state.brokers[broker].incarnation), frozenset())
        deletes = {
            q: state.partitions[q].leader_epoch
            for q in sorted(left)
            if q in state.partitions and broker not in state.replicas(q) and not state.is_ending(q.topic)
        }
        commands += [SendStopReplica(broker, deletes, delete=True)] if deletes else []
    return commands


def to_try_again(state: ClusterState, brokers: Iterable[int]) -> ClusterState:
    """Count offline replicas on these brokers as online if their topic is being deleted: the brokers are told
    nothing of such a topic any more, so no answer would say that the replica is back.
    """
    offline = dict(state.offline)
    for broker in brokers:
        start = state.start_of(broker)
        left = frozenset(q for q in offline.get(start, ()) if not state.is_ending(q.topic))
        offline = hearing.with_start(offline, start, left)
    return replace(state, offline=offline)


def brokers_lost(state: ClusterState, brokers: frozenset[int]) -> ClusterState:
    """Deletions that waited for these brokers go back into the queue."""
    for name, deletion in sorted(state.deletions.items()):
        if isinstance(deletion, Stopping) and any(broker in brokers for broker, _ in deletion.waiting):
            state = _set(state, name, Queued())
    return state


def _is_ready(state: ClusterState, name: str) -> bool:
    if any(q.topic == name for q in state.in_flight):
        return False
    topic = state.topics.get(name)
    if topic is not None and topic.moves:
        return False
    return topic is None or all(
        state.is_live(r) and not state.is_offline(r, q) for q in topic.partitions for r in state.replicas(q)
    )


def _start(state: ClusterState, name: str) -> Plan:
    topic = state.topics.get(name)
    if topic is None or not any(topic.replicas.values()):
        return _set(state, name, Removing()), [RemoveTopic(name)]
    waiting = frozenset((broker, q) for q in topic.partitions for broker in state.replicas(q))
    return _set(state, name, Stopping(waiting)), farewell(state, name)


def _set(state: ClusterState, name: str, deletion: Deletion) -> ClusterState:
    assert not isinstance(state.deletions.get(name), Removing), "a topic without replicas does not come back"
    return replace(state, deletions={**state.deletions, name: deletion})
