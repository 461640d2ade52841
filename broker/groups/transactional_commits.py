"""Offsets that a producer commits to a group within a transaction, to count once that is committed (KIP-98).

They are a batch of the producer's transaction, which is therefore in the group's log what it is in any other
partition: open until its marker. They are pending in memory from the append on, whatever becomes of the
acknowledgement, because the log has them from then on, and settled when the marker is committed. So whoever
reads the log comes to the same end.
Left to others: what a pending offset is (offsets.py), reading them from the log (offset_loading.py), whether
this producer may write (replicas/partition.py), who may commit for the group (coordinator.py).
Sources: GroupMetadataManager.storeOffsets and handleTxnCompletion of Kafka 3.9.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, TypeAlias

from ...base.types import TopicPartition
from ...protocol.errors import ApiError, ErrorCode
from ...protocol.records import BatchBuilder
from ..replicas.verification_guards import Guard
from .counts import GroupCounts
from .forgetting import Written
from .offset_loading import offset_records
from .offsets import GroupOffset
from .shards import HeldGroup, Shard, ShardStore

# If a transaction's coordinator says the left, the client hears the right: it tries again, and need not look
# for another coordinator of the group before.
UNVERIFIED = dict.fromkeys(
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
    ),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


class Producer(NamedTuple):
    """Who writes a transaction."""

    transactional_id: str
    id: int
    epoch: int


Ask: TypeAlias = Callable[
    [str, int, int, Collection[TopicPartition]], "asyncio.Future[dict[TopicPartition, ErrorCode]]"
]
Verified: TypeAlias = Callable[[ErrorCode, Guard | None], None]
Append: TypeAlias = Callable[[Shard, bytearray, Written, Guard | None], None]


class TransactionalCommits:
    """Writes such offsets, and settles them as their transactions end.

    `ask` asks the transaction's coordinator, `append` appends one batch; `settled` hears of a shard where a
    transaction has ended.
    """

    def __init__(
        self,
        shards: ShardStore,
        counts: GroupCounts,
        ask: Ask,
        append: Append,
        settled: Callable[[Shard], None],
    ) -> None:
        self._shards = shards
        self._counts = counts
        self._ask = ask
        self._append = append
        self._settled = settled

    def verify(self, shard: Shard, producer: Producer, verified: Verified) -> None:
        """Make sure that the producer's transaction is in this partition, if the next batch is its first
        here (KIP-890). `verified` gets why not, or NONE and what to append it with; perhaps at once.
        """
        try:
            guard = shard.source.guard_for(producer.id, producer.epoch)
        except ApiError as error:
            return verified(error.code, None)
        if guard is None:
            return verified(ErrorCode.NONE, None)
        place = shard.partition

        def answered(answer: "asyncio.Future[dict[TopicPartition, ErrorCode]]") -> None:
            code = answer.result()[place]
            verified(UNVERIFIED.get(code, code), guard)

        answer = self._ask(*producer, [place])
        return answered(answer) if answer.done() else answer.add_done_callback(answered)

    def write(
        self,
        held: HeldGroup,
        producer: Producer,
        offsets: Mapping[TopicPartition, GroupOffset],
        now_ms: int,
        guard: Guard | None,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Write offsets of a group; `done` when the ISR has them."""
        shard, log = held.shard, held.shard.source.log
        base_offset = log.end_offset

        def written(code: ErrorCode, base_offset: int) -> None:
            if code is ErrorCode.NONE:
                self._counts.offsets_committed += len(offsets)
            done(code)

        self._append(shard, _batch(held.group.name, producer, offsets, now_ms), written, guard)
        if log.end_offset == base_offset:
            return  # it was refused
        for place, (partition, committed) in enumerate(offsets.items()):
            held.offsets.pend(producer.id, partition, committed, base_offset + place)
        shard.writers.setdefault(producer.id, {})[held.group.name] = None

    def ended(self, tp: TopicPartition, producer_id: int, committed: bool, marker_offset: int) -> None:
        """The marker of the producer's transaction in this partition is committed."""
        shard = self._shards.get(tp.partition)
        if shard is None:
            return
        if shard.loading:
            shard.ended.append((producer_id, committed, marker_offset))
        else:
            self._end(shard, producer_id, committed, marker_offset)

    def loaded(self, shard: Shard) -> None:
        """The shard serves: apply the markers that were committed while its log was read."""
        ended, shard.ended = shard.ended, []
        for producer_id, committed, marker_offset in ended:
            self._end(shard, producer_id, committed, marker_offset)

    def _end(self, shard: Shard, producer_id: int, committed: bool, marker_offset: int) -> None:
        for name in shard.writers.pop(producer_id, ()):
            held = shard.groups.get(name)
            if held is None:
                continue  # deleted meanwhile, and its tombstones are behind what was pending
            held.offsets.transaction_ended(producer_id, committed, marker_offset)
            if producer_id in held.offsets.producers:  # by now it writes its next transaction
                shard.writers.setdefault(producer_id, {})[name] = None
        self._settled(shard)


def _batch(
    group_id: str, producer: Producer, offsets: Mapping[TopicPartition, GroupOffset], now_ms: int
) -> bytearray:
    """The batch that keeps offsets of a group as part of the producer's transaction, in their order."""
    builder = BatchBuilder(producer_id=producer.id, producer_epoch=producer.epoch, transactional=True)
    for key, value in offset_records(group_id, offsets):
        builder.append(now_ms, key, value)
    return bytearray(builder.build())
