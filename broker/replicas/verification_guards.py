"""Guards of transactions that are about to begin in a partition (KIP-890 part 1). Pure.

The first batch of a transaction is appended only after its coordinator has said that the partition is part of
the ongoing transaction. Its guard is taken before the coordinator is asked. It is void once anything has
happened to the transaction meanwhile: after a marker the answer may be out of date, and a late batch would
open a transaction that nobody ends.
A guard also keeps the lowest sequence that has asked. While an earlier batch must be sent again, a later one
is refused: a producer that is new here could begin anywhere else.
Left to others: who is asked (broker/transactions/verification.py), the append (partition.py).
"""

from ...protocol.batches import BatchHeader
from ...protocol.errors import ErrorCode, error_for

GUARDS_MAX = 1000  # per partition; the oldest makes room, and its producer asks again


class Guard:
    """One producer's transaction that has not begun in this partition."""

    __slots__ = ("lowest_sequence", "producer_epoch", "void")

    def __init__(self, producer_epoch: int, sequence: int) -> None:
        self.producer_epoch = producer_epoch
        self.lowest_sequence = sequence
        self.void: ErrorCode = ErrorCode.NONE  # why nothing can be appended with it any more


class VerificationGuards:
    """The guards of one partition, by producer id."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        self._of: dict[int, Guard] = {}

    def __len__(self) -> int:
        return len(self._of)

    def take(self, producer_id: int, producer_epoch: int, sequence: int) -> Guard:
        """The guard of a batch, before its coordinator is asked."""
        guard = self._of.get(producer_id)
        if guard is None or producer_epoch > guard.producer_epoch:
            self.end(producer_id, ErrorCode.INVALID_PRODUCER_EPOCH)
            guard = self._of[producer_id] = Guard(producer_epoch, sequence)
            if len(self._of) > GUARDS_MAX:
                self.end(next(iter(self._of)), ErrorCode.NOT_ENOUGH_REPLICAS)
        elif producer_epoch == guard.producer_epoch:
            guard.lowest_sequence = min(guard.lowest_sequence, sequence)
        return guard

    def check(self, header: BatchHeader, guard: Guard | None) -> None:
        """Whether a batch may begin a transaction. Raises the error if not."""
        if guard is None:
            raise error_for(ErrorCode.INVALID_TXN_STATE, "the batch is not part of an ongoing transaction")
        if guard.void:
            raise error_for(guard.void, "the transaction has changed while its coordinator was asked")
        assert self._of.get(header.producer_id) is guard, "a guard that is not void is here"
        if header.producer_epoch < guard.producer_epoch:
            raise error_for(ErrorCode.INVALID_PRODUCER_EPOCH, "a newer producer of the same id has begun")
        if header.base_sequence > guard.lowest_sequence:
            raise error_for(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id}: the batch has sequence {header.base_sequence}, and an "
                f"earlier one with {guard.lowest_sequence} is not here yet",
            )

    def end(self, producer_id: int, why: ErrorCode = ErrorCode.INVALID_TXN_STATE) -> None:
        """The producer's transaction has begun here, has ended, or cannot begin."""
        guard = self._of.pop(producer_id, None)
        if guard is not None:
            guard.void = why

    def clear(self, why: ErrorCode) -> None:
        """We do not lead any more."""
        for producer_id in tuple(self._of):
            self.end(producer_id, why)
