"""A produce with acks=all from inside the broker whose outcome is never left unknown: the state of
transactions, and offsets of groups once their client has been told that they take too long.

It waits on after its deadline, until its batch is committed or this broker leads the partition no more.
Left to others: the records (transactions/records.py), writes that may time out (local_appends.py).
"""

from collections.abc import Callable
from typing import TypeAlias

from ...base.types import TopicPartition
from ...protocol.errors import ErrorCode
from .partition import Partition
from .purgatory import Waiter

Outcome: TypeAlias = Callable[[ErrorCode], None]

STANDING = -1  # the slot of a waiter without a deadline


class CommitWait(Waiter):
    """Waits for the high watermark without a deadline of its own: until it comes, or we lead no more."""

    __slots__ = ("_on_outcome",)

    def __init__(self, on_outcome: Outcome) -> None:
        super().__init__()
        self._on_outcome = on_outcome
        self.slot = STANDING

    def reached(self, place: int, code: ErrorCode) -> None:
        self.slot = None
        committed = code in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
        self._on_outcome(ErrorCode.NONE if committed else code)


class SureWait(CommitWait):
    """Waits for as many replicas as acks=all promises, too: what is decided here is acknowledged, and told to
    partitions, and must not go with the only broker that has it.
    """

    __slots__ = ()
    insists = True


class Patience(Waiter):
    """Tells once that something takes long."""

    __slots__ = ("_on_late",)

    def __init__(self, on_late: Callable[[], None]) -> None:
        super().__init__()
        self._on_late = on_late

    def expire(self) -> None:
        self._on_late()


def append_surely(
    find: Callable[[TopicPartition], Partition],
    tp: TopicPartition,
    batch: bytearray,
    on_outcome: Outcome,
    on_late: Callable[[], None],
    late_at: float,
) -> None:
    """Append a batch. Raises ApiError if nothing was appended. Else `on_outcome` hears NONE when it is
    committed, and on no fewer replicas than `min.insync.replicas`, however late; or NOT_LEADER_OR_FOLLOWER
    when we lead no more: then it is unknown whether it will be. Before that, `on_late` hears that it is not
    so at `late_at`.
    """
    partition = find(tp)
    required = partition.append_own(batch)
    deadlines, patience = partition.shared.deadlines, Patience(on_late)

    def told(code: ErrorCode) -> None:
        deadlines.remove(patience)
        on_outcome(code)

    partition.acks.add(required, SureWait(told), 0)
    partition.mark()  # a timer's write is in no request, so no request's end would sweep it
    if not deadlines.add(patience, late_at):
        on_late()


def when_committed(
    find: Callable[[TopicPartition], Partition], tp: TopicPartition, offset: int, on_outcome: Outcome
) -> None:
    """`on_outcome` hears NONE when all before `offset` is committed, perhaps at once, or
    NOT_LEADER_OR_FOLLOWER when we lead no more.
    """
    partition = find(tp)
    if partition.leading is not None and partition.high_watermark >= offset:
        on_outcome(ErrorCode.NONE)
    else:
        partition.acks.add(offset, CommitWait(on_outcome), 0)
        partition.mark()
