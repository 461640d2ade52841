"""The controller's decisions: (state, event) -> (state, commands). Pure.

An event's facts go into the state. Then every partition that it concerns is judged again (`elections.py`),
and what should be different is written. Nothing else is remembered: after a write that fails the partition is
read and judged again, so an event may come twice, late, or together with others.
A partition with a write in flight is not judged before the answer, and news of it are told after that.
Left to others: topic deletion (`topic_deletion.py`), carrying the commands out
(`controller/active_controller.py`).
Why: docs/decisions/0003-pure-rules-thin-shells.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from ...base.types import TopicPartition
from . import hearing, plans, preferred, reassignment, topic_deletion, unclean_recovery
from .elections import first_state
from .recipients import (
    existing,
    hosts,
    introduce,
    leader_and_isr,
    stop_followers,
    tell,
    update_all_metadata,
    update_metadata,
)
from .state import ClusterState, PartitionState, Queued
from .state_machines import keep_legal

Plan = tuple[ClusterState, list[plans.Command]]


def plan(state: ClusterState, event: plans.Event) -> Plan:
    """What follows from an event."""
    epoch = state.controller_epoch
    state, commands = keep_legal(*HANDLERS[type(event)](state, event))
    assert state.controller_epoch == epoch, "a term has one epoch"
    for command in commands:
        if isinstance(command, plans.WriteStates | plans.CreateStates):
            assert all(state.in_flight.get(q) is s for q, s in command.writes.items()), "writes are in flight"
    commands.sort(key=lambda command: isinstance(command, plans.AskEnds))  # last: by then it knows the epoch
    return state, commands


def _elected(state: ClusterState, event: plans.Elected) -> Plan:
    """Repair what is wrong, and tell all brokers the current state."""
    state = replace(
        state,
        brokers=event.brokers,
        topics=event.topics,
        partitions=event.partitions,
        broken=event.broken,
        suspected=event.suspected,
    )
    state = replace(state, deletions={name: Queued() for name in sorted(event.deleting)})
    state = reassignment.resumed(hearing.unheard(state, event.brokers))
    news = update_all_metadata(state, state.live)
    state, repairs = _judge(state, state.all_partitions())
    state, removals = topic_deletion.resume(state)
    unsaid = unclean_recovery.unsaid(event.partitions)
    told = [each.leader_and_isr for each in hosts(state, state.live)]
    stops = stop_followers(state, existing(state))
    return state, [*unsaid, *repairs, news, *told, *stops, *removals]


def _brokers_read(state: ClusterState, event: plans.BrokersRead) -> Plan:
    """Brokers have gone, come, or restarted between two looks."""
    before, now = state.brokers, event.brokers
    bounced = {b for b in now if b in before and before[b].incarnation != now[b].incarnation}
    came = sorted({b for b in now if b not in before} | bounced)
    went = sorted(b for b in before if b not in now)
    moved = any(
        (before[b].endpoints, before[b].leaving) != (now[b].endpoints, now[b].leaving)
        for b in now
        if b in before
    )
    starts = {(b, broker.incarnation) for b, broker in now.items()}
    state = replace(
        state,
        brokers=now,
        suspected=state.suspected & starts,
        unreached=state.unreached & starts,
        leaving=state.leaving & starts,
        offline={start: those for start, those in state.offline.items() if start in starts},
        full={start: those for start, those in state.full.items() if start in starts},
        unheard={start: those for start, those in state.unheard.items() if start in starts},
        undeleted={start: those for start, those in state.undeleted.items() if start in starts},
    )
    state = hearing.unheard(state, came)
    if not came and not went and not moved:
        return state, []
    state = topic_deletion.brokers_lost(state, frozenset(went) | bounced)
    state, repairs = _judge(state, _touching(state, {*came, *went}), frozenset(bounced))
    others = [broker for broker in state.live if broker not in came]
    state, resumed = topic_deletion.resume(state)
    news = update_metadata(state, others, state.leaderless_on(came))
    return state, [*repairs, news, *introduce(state, came), *resumed]


def _suspected(state: ClusterState, event: plans.BrokerSuspected) -> Plan:
    broker = state.brokers.get(event.broker)
    start = (event.broker, event.incarnation)
    if broker is None or broker.incarnation != event.incarnation or start in state.suspected:
        return state, []
    state = replace(state, suspected=state.suspected | {start})
    state = topic_deletion.brokers_lost(state, frozenset({event.broker}))
    touched = _touching(state, {event.broker})
    state, repairs = _judge(state, touched)
    return state, [
        *repairs,
        update_metadata(state, state.live, []),
        *_look_for_heirs(state, event.broker, touched),
    ]


def _look_for_heirs(
    state: ClusterState, broker: int, touched: Iterable[TopicPartition]
) -> list[plans.Command]:
    """Read the states that the broker leads with a reduced ISR: it may have had no time to report joins."""
    left = tuple(
        q
        for q in touched
        if q not in state.in_flight
        and (known := state.partitions.get(q)) is not None
        and known.leader == broker
        and len(state.replicas(q)) > len(known.isr)
    )
    return [plans.ReadStates(left)] if left else []


def _cleared(state: ClusterState, event: plans.BrokerCleared) -> Plan:
    start = (event.broker, event.incarnation)
    if start not in state.suspected:
        return state, []
    state = replace(state, suspected=state.suspected - {start})
    state, repairs = _judge(state, _touching(state, {event.broker}))
    state, resumed = topic_deletion.resume(state)
    return state, [
        *repairs,
        update_metadata(state, state.live, []),
        *introduce(state, [event.broker]),
        *resumed,
    ]


def _reach_changed(state: ClusterState, event: plans.ReachChanged) -> Plan:
    """Reach counts when a leader is chosen. A leader goes on leading, unless it has not heard of its election
    yet and another replica can be told.
    """
    start = (event.broker, event.incarnation)
    if event.is_reached or start != state.start_of(event.broker):
        state = replace(state, unreached=state.unreached - {start})
    else:
        state = replace(state, unreached=state.unreached | {start})
    return _judge(state, _waiting_in_vain(state))


def _reach_doubted(state: ClusterState, event: plans.ReachDoubted) -> Plan:
    """While this controller may itself be cut off, no leader is replaced for being out of its reach."""
    state = replace(state, doubts_reach=event.doubts)
    return _judge(state, _waiting_in_vain(state))


def _waiting_in_vain(state: ClusterState) -> list[TopicPartition]:
    return [q for q in sorted(state.untold) if hearing.waits_in_vain(state, q)]


def _overflowed(state: ClusterState, event: plans.QueueOverflowed) -> Plan:
    """The broker's queue was dropped, so it is told everything again."""
    if not state.is_live(event.broker):
        return state, []
    state = topic_deletion.brokers_lost(state, frozenset({event.broker}))
    state, resumed = topic_deletion.resume(state)
    return state, [*introduce(state, [event.broker]), *resumed]


def _topics_read(state: ClusterState, event: plans.TopicsRead) -> Plan:
    """New partitions are read first: another controller may have begun to create them."""
    before = state
    lost = event.gone | {
        name
        for name, topic in event.topics.items()
        if name in state.topics and state.topics[name].id != topic.id
    }
    old = {q for q in state.all_partitions() if q.topic not in lost}
    kept = {name: topic for name, topic in state.topics.items() if name not in lost}
    known = {q: s for q, s in state.partitions.items() if q.topic not in lost}
    waiting = {q: s for q, s in state.in_flight.items() if q.topic not in lost}
    pending = {name: d for name, d in state.deletions.items() if name not in lost}
    changed = [
        name
        for name, topic in event.topics.items()
        if name in kept and (kept[name].configs != topic.configs or kept[name].configs_at != topic.configs_at)
    ]
    restored = [
        plans.RestorePartitions(name, kept[name].id, {n: kept[name].assignment(n) for n in sorted(missing)})
        for name, topic in event.topics.items()
        if name in kept and (missing := kept[name].replicas.keys() - topic.replicas.keys())
    ]
    told = {**event.topics, **{r.topic: kept[r.topic].joined(event.topics[r.topic]) for r in restored}}
    event = replace(event, topics=told)
    state = replace(
        state,
        topics={**kept, **told},
        partitions=known,
        in_flight=waiting,
        deletions=pending,
        untold={q: epoch for q, epoch in state.untold.items() if q.topic not in lost},
        refused={q: epoch for q, epoch in state.refused.items() if q.topic not in lost},
        unshown=frozenset(q for q in state.unshown if q.topic not in lost),
        broken=frozenset(q for q in state.broken if q.topic not in lost and q.topic not in event.topics),
    )
    state = reassignment.reassigned(before, event.topics, state)
    new = [q for q in _of_topics(state, event.topics) if q not in old]
    commands: list[plans.Command] = [plans.ReadStates(tuple(new))] if new else []
    commands += restored
    retold = [q for q in _of_topics(state, changed) if q in known]
    if retold:
        commands += tell(state, retold)
    commands += reassignment.unfinished(state, event.topics)
    moving = reassignment.concerned(state, event.topics)
    state, elections = _judge(state, sorted({*retold, *moving}))  # they may allow an unclean leader now
    state, resumed = topic_deletion.resume(state)
    return state, [*commands, *elections, *resumed]


def _defaults_changed(state: ClusterState, event: plans.DefaultsChanged) -> Plan:
    now = replace(state, unclean=event.unclean, strategy=event.strategy, min_isr=event.min_isr)
    return (state, []) if now == state else _judge(now, existing(now))


def _isrs_changed(state: ClusterState, event: plans.IsrsChanged) -> Plan:
    known = tuple(sorted({q for q in event.partitions if state.replicas(q)}))
    return state, [plans.ReadStates(known)] if known else []


def _states_read(state: ClusterState, event: plans.StatesRead) -> Plan:
    """State znodes as read. What is new in them is passed on to brokers."""
    newer = max((s.controller_epoch for s in event.states.values() if s is not None), default=0)
    if newer > state.controller_epoch:
        return state, [plans.Resign(f"a partition state was written by the newer controller epoch {newer}")]
    read = {
        q: s
        for q, s in event.states.items()
        if s is not None and (q not in state.partitions or s.version >= state.partitions[q].version)
    }
    before = state.partitions
    news = sorted(q for q, s in read.items() if before.get(q) != s and state.replicas(q))
    elected = [q for q in news if q not in before or before[q].leader_epoch != read[q].leader_epoch]
    led = {q: read[q].leader_epoch for q in news if q in before and q not in elected}
    state = hearing.told(state, led)  # only its leader writes it in the same epoch
    state = replace(
        state.with_partitions({q: read[q] for q in news}),
        broken=(state.broken - event.states.keys()) | event.broken,
    )
    state, repairs = _judge(state, sorted(event.states))
    late = {q for q in state.unshown.intersection(event.states) if state.replicas(q)}
    state, told = _held_back(state, {*news, *late})
    if not told:
        return state, repairs
    requests = leader_and_isr(state, [q for q in told if q in late or q in elected])
    return state, [*repairs, *requests, update_metadata(state, state.live, told)]


def _held_back(
    state: ClusterState, news: Iterable[TopicPartition]
) -> tuple[ClusterState, list[TopicPartition]]:
    """Of these partitions with news, those to tell of now. The others are being written: what is written will
    be told, or, if another write was faster, what is read after that.
    """
    due = frozenset(q for q in news if not state.is_ending(q.topic))
    held = due.intersection(state.in_flight)
    return replace(state, unshown=(state.unshown - due) | held), sorted(due - held)


def _states_written(state: ClusterState, event: plans.StatesWritten) -> Plan:
    """Announce what ZooKeeper holds now, in one request for each broker that it concerns."""
    new = frozenset(q for q in event.written if q not in state.partitions)
    done = event.written.keys() | event.moved
    losses = unclean_recovery.losses(state, event.written)
    newest = {  # its leader may have written since
        q: s
        for q, s in event.written.items()
        if q not in state.partitions or s.version >= state.partitions[q].version
    }
    state = replace(
        state.with_partitions({q: s for q, s in newest.items() if state.replicas(q)}),
        in_flight={q: s for q, s in state.in_flight.items() if q not in done},
        untold=hearing.begun(state, newest),
        unshown=state.unshown.difference(event.written),
    )
    written = sorted(q for q in event.written if state.replicas(q) and not state.is_ending(q.topic))
    state, departed = reassignment.landed(state, event)
    commands: list[plans.Command] = []
    if written:
        commands = tell(state, written, new)
        commands += stop_followers(state, written)
        commands += reassignment.farewell(state, departed)
    if event.moved:
        commands.append(plans.ReadStates(tuple(sorted(event.moved))))
    state, repairs = _judge(state, written)
    state, resumed = topic_deletion.resume(state)
    return state, [*losses, *commands, *repairs, *resumed]


def _log_dirs_changed(state: ClusterState, event: plans.LogDirsChanged) -> Plan:
    """Send these brokers their LeaderAndIsr again: the answers say which replicas are offline or full."""
    brokers = sorted(broker for broker in event.brokers if state.is_live(broker))
    retold = [replace(each.leader_and_isr, full=False) for each in hosts(state, brokers)]
    state = topic_deletion.to_try_again(state, brokers)
    state, resumed = topic_deletion.resume(state)  # what could not be deleted may be now
    return state, [*retold, *topic_deletion.again(state, brokers), *resumed]


def _answered(state: ClusterState, event: plans.ReplicasAnswered) -> Plan:
    """A broker reports on its replicas. A change may move leaders."""
    known = state.brokers.get(event.broker)
    if known is None or known.incarnation != event.incarnation:
        return state, []
    start = (event.broker, event.incarnation)
    state = hearing.told(state, event.led)
    before, full_before = state.offline.get(start, frozenset()), state.full.get(start, frozenset())
    offline = (before - event.answered) | event.offline
    full = (full_before - event.answered) | event.full
    moved = sorted(before ^ offline)
    waited = state.unheard.get(start, frozenset())
    heard = waited & event.answered
    if not moved and full == full_before and not heard:
        return state, []
    state = replace(
        state,
        offline=hearing.with_start(state.offline, start, offline),
        full=hearing.with_start(state.full, start, full),
        unheard=hearing.with_start(state.unheard, start, waited - heard) if heard else state.unheard,
    )
    state, repairs = _judge(state, sorted((before ^ offline) | (full_before ^ full) | heard))
    state, told = _held_back(state, (q for q in moved if q in state.partitions and state.replicas(q)))
    news = [update_metadata(state, state.live, told)] if told else []
    state, resumed = topic_deletion.resume(state)
    return state, [*repairs, *news, *resumed]


def _roles_refused(state: ClusterState, event: plans.RolesRefused) -> Plan:
    """Begin a new epoch of each: all its replicas are told, and the broker takes what it refused."""
    if (event.broker, event.incarnation) != state.start_of(event.broker):
        return state, []
    state = hearing.refused(state, event.roles)
    return _judge(state, sorted(q for q in event.roles if q in state.partitions))


def _shutdown_wanted(state: ClusterState, event: plans.ShutdownWanted) -> Plan:
    broker = state.brokers.get(event.broker)
    if broker is None or broker.incarnation != event.incarnation:
        return state, []
    state = replace(state, leaving=state.leaving | {(event.broker, event.incarnation)})
    hosted = _touching(state, {event.broker})
    state, repairs = _judge(state, hosted)
    quiet = [q for q in hosted if q in state.partitions and q not in state.in_flight]
    return state, [*repairs, update_metadata(state, state.live, []), *stop_followers(state, quiet)]


def _ends_answered(state: ClusterState, event: plans.EndsAnswered) -> Plan:
    state, again = unclean_recovery.answered(state, event)
    state, elections = _judge(state, sorted(event.asked))
    return state, [*again, *elections]


def _election_wanted(state: ClusterState, event: plans.ElectionWanted) -> Plan:
    heard = max(event.number, state.elections_heard)
    state = replace(preferred.want(state, event.kind, event.partitions), elections_heard=heard)
    return _judge(state, sorted(q for q in event.partitions if q in state.partitions))


def _rebalance_due(state: ClusterState, event: plans.RebalanceDue) -> Plan:
    away = preferred.imbalanced(state, event.percentage)
    return _judge(preferred.want(state, plans.ElectionKind.PREFERRED, away), away)


def _judge(
    state: ClusterState, partitions: Iterable[TopicPartition], bounced: frozenset[int] = frozenset()
) -> Plan:
    """Decide what should be different for these partitions, and write all of it in one plan."""
    writes: dict[TopicPartition, PartitionState] = {}
    births: dict[TopicPartition, PartitionState] = {}
    judged: list[TopicPartition] = []
    for partition in partitions:
        if partition in state.in_flight or partition in state.broken or state.is_ending(partition.topic):
            continue
        judged.append(partition)
        known = state.partitions.get(partition)
        if known is None:
            born = first_state(state, partition)
            if born is not None:
                births[partition] = born
        elif (wanted := reassignment.next_state(state, partition, known, bounced)) is not None:
            assert wanted.leader_epoch == known.leader_epoch + 1, (
                "each state that a controller writes is an epoch"
            )
            assert wanted.version == known.version, "it replaces the state that was judged"
            assert wanted.controller_epoch == state.controller_epoch >= known.controller_epoch
            writes[partition] = wanted
    commands: list[plans.Command] = []
    if writes:
        commands.append(plans.WriteStates(writes))
    if births:
        commands.append(plans.CreateStates(births))
    if state.preferring:  # what is asked for and written now may have to be written once more
        held = state.preferring.difference(q for q in judged if q not in writes)
        state = replace(state, preferring=held)
    state = replace(state, in_flight={**state.in_flight, **writes, **births})
    state, moves = reassignment.depart(state, judged, writes)
    state, questions = unclean_recovery.search(state, judged)
    return state, [*commands, *moves, *questions]


def _touching(state: ClusterState, brokers: set[int]) -> list[TopicPartition]:
    return [q for q in state.all_partitions() if not brokers.isdisjoint(state.replicas(q))]


def _of_topics(state: ClusterState, names: Iterable[str]) -> list[TopicPartition]:
    return [q for name in sorted(names) for q in state.topics[name].partitions]


HANDLERS: dict[type[Any], Callable[[ClusterState, Any], Plan]] = {
    plans.Elected: _elected,
    plans.BrokersRead: _brokers_read,
    plans.BrokerSuspected: _suspected,
    plans.BrokerCleared: _cleared,
    plans.ReachChanged: _reach_changed,
    plans.ReachDoubted: _reach_doubted,
    plans.QueueOverflowed: _overflowed,
    plans.TopicsRead: _topics_read,
    plans.DefaultsChanged: _defaults_changed,
    plans.IsrsChanged: _isrs_changed,
    plans.StatesRead: _states_read,
    plans.StatesWritten: _states_written,
    plans.LogDirsChanged: _log_dirs_changed,
    plans.ReplicasAnswered: _answered,
    plans.RolesRefused: _roles_refused,
    plans.ShutdownWanted: _shutdown_wanted,
    plans.EndsAnswered: _ends_answered,
    plans.AskAgainDue: lambda state, event: _judge(
        unclean_recovery.ask_again(state, event), sorted(event.partitions)
    ),
    plans.RecoveryTimeOver: lambda state, event: _judge(
        unclean_recovery.time_over(state, event), sorted(event.partitions)
    ),
    plans.ElectionWanted: _election_wanted,
    plans.RebalanceDue: _rebalance_due,
    plans.DeletionsWanted: lambda state, event: topic_deletion.request(state, event.topics),
    plans.ReplicasDeleted: lambda state, event: topic_deletion.answered(state, event),
}
