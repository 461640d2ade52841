"""ReplicaShared: what all replicas of a broker share: identity, clock, options, and hooks to the other parts.

Left to others: the replica itself (partition.py), building this (replicas.py).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ...base.types import BrokerId, Clock, Epoch, Incarnation, TopicPartition
from ...base.values import dataclass
from ...protocol.errors import ErrorCode
from ...replication.effects import Effects
from ...replication.leader import Leader, LeaderOptions, LiveBrokers
from ...storage.directories.offset_checkpoints import Bounds, Lowered
from ...storage.disk import DiskError
from ...storage.log.log import Log
from ..recorder import Recorder
from ..turn import Turn
from .cold_reads import ColdReads
from .per_directory import Turns
from .purgatory import Deadlines
from .recompression import Recoding

if TYPE_CHECKING:
    from .held_requests import RoleChange
    from .partition import Partition


class Role(Enum):
    """What a replica does at the moment."""

    LEADING = "leading"
    FOLLOWING = "following"
    IDLE = "idle"  # no leader is known, or a transition is under way
    OFFLINE = "offline"  # its disk has failed, or it has met an impossible state


class Parked(Protocol):
    """The entry of such a fetch at a partition, told when the log grows or the high watermark rises."""

    def news(self, grown: bool, risen: bool) -> None: ...


PerformForLeader: TypeAlias = Callable[["Partition", Leader, Effects], None]


@dataclass(slots=True)
class ReplicaShared:
    """What all partitions of a broker share."""

    me: BrokerId
    incarnation: Incarnation
    loop: asyncio.AbstractEventLoop
    clock: Clock
    turn: Turn
    deadlines: Deadlines
    membership: LiveBrokers
    options: LeaderOptions
    flush_before_ack: bool
    validate_records: bool
    perform: PerformForLeader  # the leader's effects beyond the partition
    flush: Callable[[Log], None]  # this log must be flushed soon
    on_disk_failed: Callable[["Partition | None", DiskError], None]  # None: not of a replica
    on_leading: Callable[["Partition"], None]
    on_resigned: Callable[[TopicPartition], None]
    on_start_reported: Callable[["Partition"], None]  # a follower has a new log start
    cold_reads: ColdReads
    recoding: Recoding
    recorder: Recorder
    keeps_aside: bool = True  # a copy of what a truncation removes
    truncated_below_watermark: int = 0
    lower: Callable[[Mapping[TopicPartition, Bounds]], Lowered] = lambda cuts: Lowered([], {})  # Logs.lower
    lift: Callable[[Lowered], None] = lambda lowered: None  # Logs.lift
    on_order_failed: Callable[[DiskError], None] = lambda error: None  # called after on_disk_failed
    told: Callable[[TopicPartition, int], None] = lambda tp, epoch: None  # the controller has told this epoch
    untold: Callable[[], None] = lambda: None  # we may have missed a request of the controller
    lost: Callable[[BrokerId], None] = lambda leader: None  # we are not connected to it; called repeatedly
    back: Callable[[BrokerId], None] = lambda leader: None
    left: Callable[[BrokerId], None] = lambda leader: None  # we need no connection to it any more
    cutting_in: Turns = field(default_factory=Turns)
    sessionless: bool = False  # our session may have ended: others may have been elected
    fenced: bool = False  # sessionless, and leader.fence.on.zk.loss is set
    change: "RoleChange | None" = None  # the change of roles under way

    def epoch_error(self, asked: int, known: Epoch) -> ErrorCode:
        """The error for a request with another leader epoch. A later one means that we have missed news."""
        wrong = self.options.semantics.epoch_error(asked, known)
        if wrong == ErrorCode.UNKNOWN_LEADER_EPOCH:
            self.untold()
        return wrong
