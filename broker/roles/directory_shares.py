"""One LeaderAndIsr, shared out by log directory: the progress and result of each share.

Left to others: obeying it (roles/leader_and_isr.py).
"""

import asyncio
import posixpath
from collections.abc import Sequence
from dataclasses import field

from ...base.types import TopicPartition
from ...base.values import dataclass
from ...protocol.errors import ErrorCode
from ...protocol.messages.control import LeaderAndIsrPartitionState, LeaderAndIsrRequest
from ...storage.directories.log_manager import Logs
from ...storage.log.new_log import Fresh
from ..replicas.partition import Partition
from .new_replicas import Named

NOWHERE = ""  # the "directory" of a log that is not here, or cannot be made
Removals = list[tuple[frozenset[TopicPartition], asyncio.Task[bool]]]  # removed logs, and the task to sync it


@dataclass(frozen=True, slots=True)
class Transition:
    """A transition that has begun, and the log's state then."""

    partition: Partition
    state: LeaderAndIsrPartitionState
    generation: int
    end_offset: int

    def holds(self) -> bool:
        """Whether the replica is still as it was when the transition began."""
        partition = self.partition
        return (
            partition.incomplete
            and partition.offline is None
            and partition.log.generation == self.generation
            and partition.log.end_offset == self.end_offset
        )


@dataclass(slots=True)
class DirectoryShare:
    """What of a request concerns one log directory."""

    wanted: list[Fresh] = field(default_factory=list)
    named: list[Named] = field(default_factory=list)
    codes: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    begun: list[Transition] = field(default_factory=list)


def directory_shares(
    logs: Logs, request: LeaderAndIsrRequest, wanted: Sequence[Fresh]
) -> list[DirectoryShare]:
    """The shares of a request. `wanted` are the logs to make for it."""
    directories = {fresh.partition: fresh.directory for fresh in wanted}
    shares: dict[str, DirectoryShare] = {}
    for fresh in wanted:
        shares.setdefault(fresh.directory, DirectoryShare()).wanted.append(fresh)
    for topic in request.topic_states:
        for state in topic.partition_states:
            tp = TopicPartition(topic.topic_name, state.partition_index)
            held = logs.get(tp)
            directory = directories.get(tp, NOWHERE) if held is None else posixpath.dirname(held.directory)
            shares.setdefault(directory, DirectoryShare()).named.append((tp, topic, state))
    return list(shares.values())
