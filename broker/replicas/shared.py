"""ReplicaShared: what all replicas of a broker share: identity, options, and events for parts above.

Left to others: the replica itself (partition.py), building this (broker/parts.py).
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ...base.event import Event
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
from .skipped_batches import RefusedBatches

if TYPE_CHECKING:
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


class Traffic:
    """What was produced and consumed, since the start: records, and bytes of batches as they are stored."""

    __slots__ = ("batches_in", "bytes_in", "bytes_out", "messages_in")

    def __init__(self) -> None:
        self.messages_in = 0
        self.batches_in = 0
        self.bytes_in = 0
        self.bytes_out = 0  # to consumers

    def add(self, other: "Traffic") -> None:
        """Count that of another too."""
        self.messages_in += other.messages_in
        self.batches_in += other.batches_in
        self.bytes_in += other.bytes_in
        self.bytes_out += other.bytes_out


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
    lower: Callable[[Mapping[TopicPartition, Bounds]], Lowered]  # Logs.lower
    lift: Callable[[Lowered], None]  # Logs.lift
    cold_reads: ColdReads
    recoding: Recoding
    recorder: Recorder
    keeps_aside: bool = True  # a copy of what a truncation removes
    verifies_transactions: bool = False  # the coordinator is asked before one begins in a partition
    truncated_below_watermark: int = 0
    replication_bytes_in: int = 0  # from leaders
    replication_bytes_out: int = 0  # to followers
    gone_traffic: Traffic = field(default_factory=Traffic)  # of replicas that are here no more
    cutting_in: Turns = field(default_factory=Turns)
    refused: RefusedBatches = field(default_factory=RefusedBatches)
    disconnected: bool = False  # from ZooKeeper; the session may last all the same
    sessionless: bool = False  # our session may have ended: others may have been elected
    fenced: bool = False  # sessionless, and leader.fence.on.zk.loss is set
    # Events, which parts above subscribe to.
    on_disk_failed: Event["Partition | None", DiskError] = field(default_factory=Event)  # None: of no replica
    on_order_failed: Event[DiskError] = field(default_factory=Event)  # after on_disk_failed
    on_leading: Event["Partition"] = field(default_factory=Event)
    on_resigned: Event[TopicPartition] = field(default_factory=Event)
    on_transaction_ended: Event[TopicPartition, int, bool, int] = field(default_factory=Event)
    """A producer's marker is committed in a partition that we lead: producer id, whether its transaction is
    committed or aborted, and the marker's offset.
    """
    on_start_reported: Event["Partition"] = field(default_factory=Event)  # a follower has a new log start
    on_brokers: Event[frozenset[BrokerId]] = field(default_factory=Event)  # these are registered now
    told: Event[TopicPartition, int] = field(default_factory=Event)  # the controller has told this epoch
    untold: Event[[]] = field(default_factory=Event)  # we may have missed a request of the controller
    on_roles_read: Event[[]] = field(default_factory=Event)  # in ZooKeeper, and are about to begin
    lost: Event[BrokerId] = field(default_factory=Event)  # we are not connected to it; repeated
    back: Event[BrokerId] = field(default_factory=Event)
    left: Event[BrokerId] = field(default_factory=Event)  # we need no connection to it any more

    def brokers_are(self, registered: frozenset[BrokerId], away: frozenset[BrokerId] = frozenset()) -> None:
        """Which brokers are registered. One in `away` is shutting down or may be dead: it joins no ISR, so no
        high watermark waits for it (KAFKA-15021).
        """
        self.membership.live = registered - away
        self.on_brokers(registered)

    def epoch_error(self, asked: int, known: Epoch) -> ErrorCode:
        """The error for a request with another leader epoch. A later one means that we have missed news."""
        wrong = self.options.semantics.epoch_error(asked, known)
        if wrong == ErrorCode.UNKNOWN_LEADER_EPOCH:
            self.untold()
        return wrong
