"""A produce with acks=all from inside the broker: group offsets, and markers that end transactions.

Left to others: the records (groups/offset_records.py), markers (marker_writes.py), clients' produce requests
(handlers/produce.py).
"""

from collections.abc import Callable
from typing import TypeAlias

from ...base.types import NO_OFFSET, TopicPartition
from ...protocol.errors import ApiError, ErrorCode
from .partition import Partition
from .purgatory import Waiter
from .verification_guards import Guard

Committed: TypeAlias = Callable[[ErrorCode, int], None]  # the result, and the base offset


class LocalAppend(Waiter):
    """One such batch, until the high watermark passes it."""

    __slots__ = ("_base_offset", "_on_committed", "_partition")

    def __init__(self, on_committed: Committed) -> None:
        super().__init__()
        self._on_committed = on_committed
        self._base_offset: int = NO_OFFSET
        self._partition: Partition | None = None

    def begin(
        self,
        find: Callable[[TopicPartition], Partition],
        tp: TopicPartition,
        append: Callable[[Partition], int],
        deadline: float,
    ) -> None:
        """Append, then wait until what `append` returns is committed. An error is reported at once."""
        try:
            partition = find(tp)
            self._base_offset = partition.log.end_offset
            required = append(partition)
        except ApiError as error:
            self._on_committed(error.code, NO_OFFSET)
            return
        self._partition = partition
        if partition.shared.deadlines.add(self, deadline):
            partition.acks.add(required, self, 0)
        else:
            self._on_committed(ErrorCode.REQUEST_TIMED_OUT, self._base_offset)

    def reached(self, place: int, code: ErrorCode) -> None:
        assert self._partition is not None
        self._partition.shared.deadlines.remove(self)
        self._on_committed(code, self._base_offset)

    def expire(self) -> None:
        assert self._partition is not None
        self._partition.acks.one_expired()
        self._on_committed(ErrorCode.REQUEST_TIMED_OUT, self._base_offset)


def append_local(
    find: Callable[[TopicPartition], Partition],
    tp: TopicPartition,
    batch: bytearray,
    on_committed: Committed,
    deadline: float,
    guard: Guard | None = None,
) -> None:
    """Produce with acks=all from inside the broker. `on_committed` gets the result, perhaps at once. `guard`:
    of a batch that may begin a transaction in the partition (Partition.guard_for).
    """
    LocalAppend(on_committed).begin(find, tp, lambda partition: partition.append_own(batch, guard), deadline)
