"""Guards of transactions that are about to begin in a partition (KIP-890 part 1). Pure.

The first batch of a transaction is appended only after its coordinator has said that the partition is part of
the ongoing transaction. Its guard is taken before the coordinator is asked. It is void once anything has
happened to the transaction meanwhile: after a marker the answer may be out of date, and a late batch would
open a transaction that nobody ends.
A guard also keeps the lowest sequence that has asked. While an earlier batch must be sent again, a later one
is refused: a producer that is new here could begin anywhere else. Each epoch has its own: before the
coordinator has answered, a batch may say any, and must not stand in the way of the true one.
Left to others: who is asked (broker/transactions/verification.py), the append (partition.py).
"""

from ...protocol.batches import BatchHeader
from ...protocol.errors import ErrorCode, error_for

GUARDS_MAX = 1000  # producers per partition; the oldest makes room, and asks again
EPOCHS_MAX = 4  # per producer, likewise


class Guard:
    """A transaction of one producer, in one epoch, that has not begun in this partition."""

    __slots__ = ("lowest_sequence", "producer_epoch", "void")

    def __init__(self, producer_epoch: int, sequence: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = sequence
        self.void: ErrorCode = ErrorCode.NONE  # why nothing can be appended with it any more


class VerificationGuards:
    """The guards of one partition, by producer id and epoch."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[int, dict[int, Guard]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def take(self, producer_id: int, producer_epoch: int, sequence: int) -> Guard:
        """The guard of a batch, before its coordinator is asked."""
        guards = self._of.setdefault(producer_id, {})
        guard = guards.get(producer_epoch)
        if guard is not None:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
            return guard
        guard = guards[producer_epoch] = Guard(producer_epoch, sequence)
        if len(guards) > EPOCHS_MAX:
            guards.pop(next(iter(guards))).void = ErrorCode.NOT_ENOUGH_REPLICAS
        if len(self._of) > GUARDS_MAX:
            self.end(next(iter(self._of)), ErrorCode.NOT_ENOUGH_REPLICAS)
        return guard

    def check(self, header: BatchHeader, guard: Guard | None) -> None:
        """Whether a batch may begin a transaction. Raises the error if not."""
        if guard is None:
            raise error_for(ErrorCode.INVALID_TXN_STATE, "the batch is not part of an ongoing transaction")
        if guard.void:
            raise error_for(guard.void, "the transaction has changed while its coordinator was asked")
        held = self._of.get(header.producer_id, {}).get(header.producer_epoch)
        assert held is guard, "a guard that is not void is here"
        if header.base_sequence > guard.lowest_sequence:
            raise error_for(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id}: the batch has sequence {header.base_sequence}, and an "
                f"earlier one with {guard.lowest_sequence} is not here yet",
            )

    def end(self, producer_id: int, why: ErrorCode = ErrorCode.INVALID_TXN_STATE) -> None:
        """The producer's transaction has begun here, has ended, or cannot begin."""
        for guard in self._of.pop(producer_id, {}).values():
            guard.void = why

    def clear(self, why: ErrorCode) -> None:
        """We do not lead any more."""
        for producer_id in tuple(self._of):
            self.end(producer_id, why)
