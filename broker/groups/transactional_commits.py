"""Offsets that a producer commits to a group within a transaction, to count once that is committed (KIP-98).

They are a batch of the producer's transaction, which is therefore in the group's log what it is in any other
partition: open until its marker. They are pending in memory from the append on, whatever becomes of the
acknowledgement, because the log has them from then on, and settled when the marker is committed. So whoever
reads the log comes to the same end.
Left to others: what a pending offset is (offsets.py), reading them from the log (offset_loading.py), whether
this producer may write (replicas/partition.py), who may commit for the group (coordinator.py).
Sources: GroupMetadataManager.storeOffsets and handleTxnCompletion of Kafka 3.9.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

from ...base.types import TopicPartition
from ...protocol.errors import ErrorCode
from .counts import GroupCounts
from .forgetting import Stored, Written
from .offset_loading import offset_records
from .offsets import GroupOffset
from .shards import HeldGroup, Shard, ShardStore


class Producer(NamedTuple):
    """Who writes a transaction."""

    id: int
    epoch: int


Write: TypeAlias = Callable[[Shard, Stored, Written, Producer], None]


class TransactionalCommits:
    """Writes such offsets, and settles them as their transactions end.

    `write` appends one batch of the producer's transaction; `settled` hears of a shard where one has ended.
    """

    def __init__(
        self, shards: ShardStore, counts: GroupCounts, write: Write, settled: Callable[[Shard], None]
    ) -> None:
        self._shards = shards
        self._counts = counts
        self._write = write
        self._settled = settled

    def commit(
        self,
        held: HeldGroup,
        offsets: Mapping[TopicPartition, GroupOffset],
        producer: Producer,
        done: Callable[[ErrorCode], None],
    ) -> None:
        """Write offsets of a group; `done` when the ISR has them."""
        shard, log = held.shard, held.shard.source.log
        base_offset = log.end_offset

        def written(code: ErrorCode, base_offset: int) -> None:
            if code is ErrorCode.NONE:
                self._counts.offsets_committed += len(offsets)
            done(code)

        self._write(shard, offset_records(held.group.name, offsets), written, producer)
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
