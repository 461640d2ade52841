"""Who is told of a decision: LeaderAndIsr for brokers with replicas, metadata for all brokers. Pure.

A leader that has lost data is announced as no leader, even while ZooKeeper still names it: otherwise
followers would truncate their logs to its own. So is one that has restarted since its election: it would go
on in the same epoch, with the high watermark of its last checkpoint.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from ...base.types import NO_LEADER, TopicPartition
from ...base.values import dataclass
from .elections import is_intact, is_reborn
from .plans import (
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    Command,
    PartitionRole,
    SendLeaderAndIsr,
    SendStopReplica,
    SendUpdateMetadata,
)
from .state import ClusterState


def roles_of(
    state: ClusterState, partitions: Iterable[TopicPartition], new: frozenset[TopicPartition] = frozenset()
) -> tuple[PartitionRole, ...]:
    """Partitions as they are announced now. One list serves all brokers that are told."""
    return tuple(_role(state, partition, partition in new) for partition in partitions)


def _role(state: ClusterState, partition: TopicPartition, is_new: bool) -> PartitionRole:
    known = state.partitions[partition]
    named = known.leader in state.brokers
    if named and (is_reborn(state, known) or not is_intact(state, known.leader, partition, known)):
        known = replace(known, leader=NO_LEADER)
    replicas = state.replicas(partition)
    offline = tuple(r for r in replicas if r not in state.brokers or state.is_offline(r, partition))
    assignment = state.assignment(partition)
    removing = tuple(r for r in assignment.removing if r in replicas)
    return PartitionRole(
        partition,
        state.topics[partition.topic].id,
        known,
        replicas,
        offline,
        is_new,
        assignment.adding if removing or replicas == assignment.replicas else (),
        removing,
    )


def update_metadata(
    state: ClusterState, brokers: Iterable[int], partitions: Iterable[TopicPartition]
) -> SendUpdateMetadata:
    """Metadata of these partitions, and the list of brokers: all that are registered, suspected or not."""
    return SendUpdateMetadata(tuple(brokers), roles_of(state, partitions))


def update_all_metadata(state: ClusterState, brokers: Iterable[int]) -> SendUpdateMetadata:
    """All metadata. Brokers forget whatever else they know, unless some znode cannot be parsed."""
    return replace(update_metadata(state, brokers, existing(state)), full=not state.broken)


def leader_and_isr(
    state: ClusterState, partitions: Iterable[TopicPartition], new: frozenset[TopicPartition] = frozenset()
) -> list[Command]:
    """One request for each live broker that has replicas of these partitions; the new leaders come first."""
    return _leader_and_isr(state, roles_of(state, partitions, new))


def tell(
    state: ClusterState, partitions: Iterable[TopicPartition], new: frozenset[TopicPartition] = frozenset()
) -> list[Command]:
    """Tell the brokers that have replicas of these partitions, and then all brokers, for their clients."""
    roles = roles_of(state, partitions, new)
    return [*_leader_and_isr(state, roles), SendUpdateMetadata(tuple(state.live), roles)]


def _leader_and_isr(state: ClusterState, roles: Iterable[PartitionRole]) -> list[Command]:
    roles = tuple(roles)
    by_broker: dict[int, list[PartitionRole]] = {}
    for one in roles:
        for broker in one.replicas:
            if state.is_live(broker):
                by_broker.setdefault(broker, []).append(one)
    leaders = {one.state.leader for one in roles}
    order = sorted(by_broker, key=lambda broker: (broker not in leaders, broker))
    return [SendLeaderAndIsr(broker, tuple(by_broker[broker])) for broker in order]


def introduce(state: ClusterState, brokers: Iterable[int]) -> list[Command]:
    """Tell brokers that have just come all metadata, and everything that they host."""
    commands: list[Command] = []
    for host in hosts(state, brokers):
        commands += [
            SendUpdateMetadata((host.broker,), host.known, full=not state.broken),
            host.leader_and_isr,
        ]
    return commands


@dataclass(frozen=True, slots=True)
class Hosted:
    """What one broker hosts, among all that is known."""

    broker: int
    known: tuple[PartitionRole, ...]
    leader_and_isr: SendLeaderAndIsr


def hosts(state: ClusterState, brokers: Iterable[int]) -> list[Hosted]:
    """Everything that each of these brokers hosts. If the list is complete, any other replica there is stray.

    The list is not complete while a znode cannot be parsed, a topic is being deleted, or a partition has no
    state yet. Then no replica may be set aside because it is not listed.
    """
    addressed = tuple(brokers)
    if not addressed:
        return []
    known = existing(state)
    roles = roles_of(state, known)
    is_all = not state.broken and len(known) == sum(1 for _ in state.all_partitions())
    held = {broker: tuple(one for one in roles if broker in one.replicas) for broker in addressed}
    return [
        Hosted(broker, roles, SendLeaderAndIsr(broker, held[broker], full=is_all)) for broker in addressed
    ]


def existing(state: ClusterState) -> list[TopicPartition]:
    """The partitions that have a state and are not being deleted."""
    return [q for q in state.all_partitions() if q in state.partitions and not state.is_ending(q.topic)]


def stop_followers(state: ClusterState, partitions: Iterable[TopicPartition]) -> list[Command]:
    """Tell brokers that shut down to stop their followers."""
    if not any(state.is_leaving(broker) for broker in state.live):
        return []
    stops: dict[int, dict[TopicPartition, int]] = {}
    for partition in partitions:
        known = state.partitions[partition]
        for broker in state.replicas(partition):
            if state.is_leaving(broker) and state.is_live(broker) and broker != known.leader:
                stops.setdefault(broker, {})[partition] = known.leader_epoch
    return [SendStopReplica(broker, stops[broker]) for broker in sorted(stops)]


def farewell(state: ClusterState, topic: str) -> list[Command]:
    """Delete a topic: brokers stop sending clients to it, and its replicas are deleted."""
    known = [q for q in state.topics[topic].partitions if q in state.partitions]
    gone = [
        replace(one, state=replace(one.state, leader=LEADER_DURING_DELETE, leader_epoch=EPOCH_DURING_DELETE))
        for one in roles_of(state, known)
    ]
    deletes: dict[int, dict[TopicPartition, int]] = {}
    for partition in state.topics[topic].partitions:
        for broker in state.replicas(partition):
            deletes.setdefault(broker, {})[partition] = EPOCH_DURING_DELETE
    stops = [SendStopReplica(broker, deletes[broker], delete=True) for broker in sorted(deletes)]
    return [SendUpdateMetadata(tuple(state.live), tuple(gone)), *stops]
