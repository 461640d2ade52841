"""What all partitions of a broker share, and what they need of those who wait: the seams round a replica.

Left to others: the replica itself (partition.py), who fills this in (replicas.py).
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
from .cold_reads import ColdReads
from .per_directory import Turns
from .purgatory import Deadlines
from .recompression import Recoding

if TYPE_CHECKING:
    from .held_requests import RoleChange
    from .partition import Partition
    from .truncation import PendingTruncation


class Role(Enum):
    """What a replica does at the moment."""

    LEADING = "leading"
    FOLLOWING = "following"
    IDLE = "idle"  # no leader is known, or a transition is under way
    OFFLINE = "offline"  # its disk has failed, or it has seen what cannot be


class Woken(Protocol):
    """A fetch that found nothing; it is looked at again when one of its partitions has news."""

    def look_again(self) -> None: ...


class Parked(Protocol):
    """What stands at a partition for such a fetch: the log has grown, or the watermark has risen."""

    def news(self, grown: bool, risen: bool) -> None: ...


PerformForLeader: TypeAlias = Callable[["Partition", Leader, Effects], None]


@dataclass(slots=True)
class ReplicaShared:
    """What all partitions of a broker share."""

    me: BrokerId
    incarnation: Incarnation
    loop: asyncio.AbstractEventLoop
    clock: Clock
    wake: Callable[[], None]
    deadlines: Deadlines
    membership: LiveBrokers
    options: LeaderOptions
    flush_before_ack: bool
    validate_records: bool
    perform: PerformForLeader  # effects of a leadership that reach beyond the partition
    flush: Callable[[Log], None]  # more of this log must soon be on the medium
    on_disk_failed: Callable[["Partition | None", DiskError], None]  # None: beside any replica
    on_leading: Callable[["Partition"], None]
    on_resigned: Callable[[TopicPartition], None]
    on_start_reported: Callable[["Partition"], None]  # a follower's log begins elsewhere now
    cold_reads: ColdReads
    recoding: Recoding
    recorder: Recorder
    keeps_aside: bool = True  # what a cut takes away
    truncated_below_watermark: int = 0
    lower: Callable[[Mapping[TopicPartition, Bounds]], Lowered] = lambda cuts: Lowered([], {})  # Logs.lower
    lift: Callable[[Lowered], None] = lambda lowered: None  # Logs.lift
    on_order_failed: Callable[[DiskError], None] = lambda error: None  # on_disk_failed has been told
    told: Callable[[TopicPartition, int], None] = lambda tp, epoch: None  # the controller knows this epoch
    untold: Callable[[], None] = lambda: None  # something holds by now that no controller has said
    lost: Callable[[BrokerId], None] = lambda leader: None  # we are not connected to it; told again and again
    back: Callable[[BrokerId], None] = lambda leader: None
    left: Callable[[BrokerId], None] = lambda leader: None  # we do not want to be connected to it any more
    cutting_in: Turns = field(default_factory=Turns)
    cuts: list["PendingTruncation"] = field(default_factory=list)  # of the answer that is being taken
    sessionless: bool = False  # the session must be taken as ended: others may have been elected
    fenced: bool = False  # leader.fence.on.zk.loss, and the session must be taken as ended
    change: "RoleChange | None" = None  # of roles, that goes on at the moment
    dirty: list["Partition"] = field(default_factory=list)
    woken: dict[Woken, None] = field(default_factory=dict)

    def epoch_error(self, asked: int, known: Epoch) -> ErrorCode:
        """What somebody who speaks to the leader of another epoch is answered; he may know a later one."""
        wrong = self.options.semantics.epoch_error(asked, known)
        if wrong == ErrorCode.UNKNOWN_LEADER_EPOCH:
            self.untold()
        return wrong
