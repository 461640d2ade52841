"""What one fetch reads: its partitions in order, within its limits. Read again when it was parked.

A follower reads to the end of the log, a consumer to the high watermark (there are no transactions, so
that is where committed reads end, too). The watermark is looked at once per partition and read.
Left to others: the message around it (handlers/fetch.py), the wait (parked_fetch.py).
"""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from ..protocol.errors import ApiError, ErrorCode
from ..protocol.kinds import NO_EPOCH, BrokerId, Incarnation, TopicPartition
from ..protocol.messages.fetch import FetchEpochEndOffset, FetchPartition, PartitionData
from ..protocol.primitives import NO_UUID, Slices
from ..storage.cold import Cold
from .partition import Partition

READ_COMMITTED = 1
UNKNOWN = -1
NO_SESSION = 0
COLD_TRIES = 3  # then what has been brought and was thrown out again is waited for


@dataclass(frozen=True, slots=True)
class Fetcher:
    """Who fetches: a follower by its broker id and incarnation, or a consumer (-1)."""

    replica: BrokerId
    incarnation: Incarnation

    @property
    def is_replica(self) -> bool:
        return self.replica >= 0


CONSUMER = Fetcher(BrokerId(-1), Incarnation(-1))


class Wanted:
    """One partition of a fetch."""

    __slots__ = ("asked", "cold_tries", "error", "parting", "partition", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: UUID, asked: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.asked = asked
        self.partition: Partition | None = None
        self.error: int = ErrorCode.NONE
        self.parting: tuple[int, int] | None = None
        self.cold_tries = 0

    def look_up(self, name: str | None, get: Callable[[TopicPartition], Partition]) -> None:
        """Find the replica of a topic by the name that its id has; None: no such topic is known."""
        self.error, self.partition, self.cold_tries = ErrorCode.NONE, None, 0
        self.topic = name or ""
        if name is None:
            self.error = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            self.find(get)

    def acknowledge(self, fetcher: Fetcher) -> None:
        """A follower holds all before the offset that it asks for."""
        partition, asked = self.partition, self.asked
        if partition is None:
            return
        self.error, self.parting = ErrorCode.NONE, None
        try:
            self.parting = partition.follower_fetched(
                fetcher.replica,
                fetcher.incarnation,
                asked.fetch_offset,
                asked.last_fetched_epoch,
                asked.current_leader_epoch,
                asked.log_start_offset,
            )
        except ApiError as error:
            self.error = error.code

    def find(self, get: Callable[[TopicPartition], Partition]) -> None:
        """Look up the replica that is here; one of an earlier topic of that name will not do."""
        try:
            found = get(TopicPartition(self.topic, self.asked.partition))
        except ApiError as error:
            self.error = error.code
            return
        if NO_UUID in (self.topic_id, found.log.topic_id or NO_UUID) or found.log.topic_id == self.topic_id:
            self.partition = found
        else:
            self.error = ErrorCode.INCONSISTENT_TOPIC_ID


Found = tuple[list[Wanted], list[PartitionData]]  # which partitions, and what of each


class Reading:
    """The partitions of one fetch, and its limits. `nbytes`, `is_cold` and `must_be_told` are of the last
    `read`.
    """

    __slots__ = (
        "_aborted", "_bytes_max", "_to_end", "fetcher", "is_cold", "must_be_told", "nbytes", "wanted",
    )  # fmt: skip

    def __init__(self, fetcher: Fetcher, wanted: list[Wanted], bytes_max: int, isolation_level: int) -> None:
        self.fetcher = fetcher
        self.wanted = wanted
        self.nbytes = 0
        self.is_cold = False  # some records are on their way from the medium
        self.must_be_told = False  # an error or a parting of histories: no reason to wait
        self._bytes_max = bytes_max
        self._to_end = fetcher.is_replica
        self._aborted = isolation_level == READ_COMMITTED

    def acknowledge(self) -> None:
        """A follower holds all before the offsets that it asks for. Once per request, before it is read."""
        for item in self.wanted:
            item.acknowledge(self.fetcher)

    @property
    def parks_at(self) -> list[Partition]:
        """Where it waits for news."""
        return [item.partition for item in self.wanted if item.partition is not None]

    @property
    def session_id(self) -> int:
        """Of the session that it belongs to; 0 for none."""
        return NO_SESSION

    def told(self, found: list[PartitionData]) -> Found:
        """What is answered, of what the last `read` has found."""
        return self.wanted, found

    def read(self) -> list[PartitionData]:
        """One result for each partition; at least one whole batch, however large, if there is any at all."""
        self.nbytes = 0
        self.is_cold = self.must_be_told = False
        found = []
        for item in self.wanted:
            error = item.error
            if not error and item.partition is not None:
                try:
                    found.append(self._read_one(item, item.partition))
                    continue
                except ApiError as trouble:
                    error = trouble.code
            self.must_be_told = True
            found.append(self._refused(item, error))
        return found

    def _read_one(self, item: Wanted, partition: Partition) -> PartitionData:
        asked = item.asked
        leader = partition.led(asked.current_leader_epoch)
        parting = item.parting
        if not self._to_end and asked.last_fetched_epoch != NO_EPOCH:
            parting = partition.parting(asked.last_fetched_epoch, asked.fetch_offset)
        if parting is not None:
            self.must_be_told = True
            return PartitionData(
                partition_index=asked.partition,
                high_watermark=leader.high_watermark,
                last_stable_offset=leader.high_watermark,
                log_start_offset=partition.log.start_offset,
                diverging_epoch=FetchEpochEndOffset(epoch=parting[0], end_offset=parting[1]),
                aborted_transactions=[] if self._aborted else None,
                records=b"",
            )
        room = min(asked.partition_max_bytes, self._bytes_max - self.nbytes)
        records = self._records(item, partition, max(room, 0))
        self.nbytes += records.nbytes
        high_watermark = leader.high_watermark
        return PartitionData(
            partition_index=asked.partition,
            high_watermark=high_watermark,
            last_stable_offset=high_watermark,
            log_start_offset=partition.log.start_offset,
            aborted_transactions=[] if self._aborted else None,
            records=records,
        )

    def _records(self, item: Wanted, partition: Partition, room: int) -> Slices:
        """Nothing if that is not in memory: it is brought, and who is parked at the partition looks again."""
        first, patient = self.nbytes == 0, item.cold_tries >= COLD_TRIES
        try:
            return partition.read(item.asked.fetch_offset, room, self._to_end, first, wait=patient)
        except Cold as cold:
            item.cold_tries += 1
            self.is_cold = True
            partition.host.cold_reads.bring(partition, cold)
            return Slices()

    def _refused(self, item: Wanted, error: int) -> PartitionData:
        """A follower out of range learns where this log begins, so that it can begin there."""
        start = UNKNOWN
        if error == ErrorCode.OFFSET_OUT_OF_RANGE and self._to_end and item.partition is not None:
            start = item.partition.log.start_offset
        return PartitionData(
            partition_index=item.asked.partition,
            error_code=error,
            high_watermark=UNKNOWN,
            log_start_offset=start,
            aborted_transactions=[] if self._aborted else None,
            records=b"",
        )
