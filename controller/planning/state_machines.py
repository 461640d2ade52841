"""The controller's two state machines as tables, and the stage of a partition or a replica in them. Pure.

The planner checks before it writes: a move that is not in the table is reported and not made. A stage is
never stored. It follows from what ZooKeeper is known to hold and from which brokers are live, so a newly
elected controller sees the same.
Left to others: what should change (elections.py, topic_deletion.py), the check itself (planner.py).
"""

from __future__ import annotations

from dataclasses import replace

from ...base.state_machine import Machine, Move
from ...base.types import NO_LEADER, TopicPartition
from .plans import Command, CreateStates, Refuse, WriteStates
from .state import ClusterState, PartitionState, Queued, Removing, Stopping

PARTITION = Machine(
    name="Partitions, as the controller sees them",
    about="A partition that cannot be led keeps its ISR: it names those who may end that.",
    first="NonExistent",
    states={
        "NonExistent": "It is in no assignment.",
        "New": "It is assigned, and has no state node yet.",
        "Online": "It has a leader.",
        "Offline": "It has no leader.",
    },
    moves=(
        Move("NonExistent", "New", "a topic is created, or grows"),
        Move("New", "Online", "one of its brokers is available: the state node is created"),
        Move("Online", "Offline", "no member of the ISR may lead any more, or the topic is being deleted"),
        Move("Offline", "Online", "an ISR member is back, or an unclean election is allowed"),
        Move("New", "NonExistent", "the topic is deleted before it had a leader"),
        Move("Offline", "NonExistent", "the topic's nodes have been removed"),
    ),
)

REPLICA = Machine(
    name="Replicas, as the controller sees them",
    about="A topic is deleted when all its replicas are: one that is left would come back as a stray.",
    first="NonExistent",
    states={
        "NonExistent": "It is in no assignment.",
        "New": "It is assigned; its partition has no state node yet.",
        "Online": "Its broker is available and can use its directory.",
        "Offline": "Its broker is gone, suspected, or cannot use its directory.",
        "DeletionStarted": "Its broker has been told to delete it.",
        "DeletionSuccessful": "It has been deleted; others of its topic have not.",
        "DeletionIneligible": "It is to be deleted, but its broker is not available.",
    },
    moves=(
        Move("NonExistent", "New", "its partition is assigned to its broker"),
        Move("NonExistent", "Online", "a reassignment adds it to a partition that has its state"),
        Move("NonExistent", "Offline", "a reassignment adds it, but its broker is not available"),
        Move("New", "Online", "the state node is created"),
        Move("New", "Offline", "the state node is created while its broker is not available"),
        Move("Online", "Offline", "its broker fails, or its directory"),
        Move("Offline", "Online", "its broker is back, or its directory"),
        Move("Online", "DeletionStarted", "its topic is to be deleted, and all its brokers are available"),
        Move("New", "DeletionStarted", "its topic is to be deleted, and all its brokers are available"),
        Move("Offline", "DeletionIneligible", "its topic is to be deleted"),
        Move("Online", "DeletionIneligible", "its topic is to be deleted, and its broker fails"),
        Move("DeletionIneligible", "Online", "its broker is back, others are missing: the topic waits"),
        Move("DeletionIneligible", "DeletionStarted", "its broker is back, and no other is missing"),
        Move("DeletionStarted", "DeletionSuccessful", "its broker has deleted it"),
        Move("DeletionStarted", "DeletionIneligible", "its broker fails before it has answered"),
        Move(
            "DeletionStarted", "Online", "a broker could not delete its replica: the topic waits in the queue"
        ),
        Move(
            "DeletionSuccessful",
            "Online",
            "a broker could not delete its replica: the topic waits in the queue",
        ),
        Move("DeletionSuccessful", "DeletionIneligible", "its broker fails before the others are done"),
        Move("DeletionSuccessful", "NonExistent", "the topic's nodes have been removed"),
        Move("New", "NonExistent", "the topic's nodes are removed"),
        Move("Online", "NonExistent", "the replica was moved elsewhere, or the topic's nodes are gone"),
        Move("Offline", "NonExistent", "the replica was moved elsewhere, or the topic's nodes are gone"),
    ),
)

MACHINES = (PARTITION, REPLICA)


def partition_stage(state: ClusterState, partition: TopicPartition) -> str:
    """The stage of a partition."""
    if not state.replicas(partition):
        return "NonExistent"
    known = state.partitions.get(partition)
    if known is None:
        return "New"
    deletion = state.deletions.get(partition.topic)
    return "Offline" if isinstance(deletion, Stopping | Removing) else stage_of(known)


def stage_of(known: PartitionState) -> str:
    """The stage of a partition with this state znode."""
    return "Offline" if known.leader == NO_LEADER else "Online"


def keep_legal(state: ClusterState, commands: list[Command]) -> tuple[ClusterState, list[Command]]:
    """The plan without writes that the table does not allow; each becomes a `Refuse`."""
    kept: list[Command] = []
    refused: list[Refuse] = []
    for command in commands:
        if isinstance(command, WriteStates | CreateStates):
            legal = {}
            for partition, wanted in command.writes.items():
                before, after = partition_stage(state, partition), stage_of(wanted)
                is_birth = isinstance(command, CreateStates)
                if PARTITION.allows(before, after) and is_birth == (before == "New"):
                    legal[partition] = wanted
                else:
                    refused.append(Refuse(partition, f"{before} -> {after}"))
            if len(legal) < len(command.writes):
                command = replace(command, writes=legal)
        kept.append(command)
    if not refused:
        return state, commands
    gone = {each.partition for each in refused}
    in_flight = {q: s for q, s in state.in_flight.items() if q not in gone}
    return replace(state, in_flight=in_flight), [*kept, *refused]


def replica_stage(state: ClusterState, broker: int, partition: TopicPartition) -> str:
    """The stage of one replica."""
    if broker not in state.replicas(partition):
        return "NonExistent"
    is_there = state.is_live(broker) and not state.is_offline(broker, partition)
    match state.deletions.get(partition.topic):
        case Removing():
            return "DeletionSuccessful"
        case Stopping(waiting):
            return "DeletionStarted" if (broker, partition) in waiting else "DeletionSuccessful"
        case Queued() if not is_there:
            return "DeletionIneligible"
    if partition not in state.partitions:
        return "New"
    return "Online" if is_there else "Offline"
