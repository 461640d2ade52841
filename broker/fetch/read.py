"""Reads the partitions of one fetch, in order and within its limits; a parked fetch reads again.

A follower reads up to the log end offset, a consumer up to the high watermark, with read_committed up to the
last stable offset; it is told which of the transactions before that were aborted. These offsets are read once
per partition and read: what is shown and what is told are of one moment. A follower that is not in sync, nor
about to be, gets nothing of a throttled partition while its leader is in debt (broker/throttle.py).
Left to others: the message around it (handlers/fetch.py), the wait (parked.py).
"""

from collections.abc import Callable
from uuid import UUID

from ...base.types import KAFKAS, NO_EPOCH, BrokerId, Incarnation, TopicPartition
from ...base.values import dataclass
from ...protocol.errors import ApiError, ErrorCode, NotLeaderOrFollower
from ...protocol.messages.fetch import (
    AbortedTransaction,
    FetchEpochEndOffset,
    FetchPartition,
    PartitionData,
)
from ...protocol.primitives import NO_UUID, Slices
from ...replication.leader import Leader
from ...storage.log.uncached_read import ReadApart
from ...storage.segment.not_resident import Cold
from ..replicas.partition import Partition
from ..throttle import Throttle

READ_COMMITTED = 1
UNKNOWN = -1
NO_SESSION = 0
COLD_TRIES = 3  # then a thread reads the records itself: they were brought, and evicted again


@dataclass(frozen=True, slots=True)
class FetchSource:
    """Who fetches: a follower by its broker id and incarnation, or a consumer (-1)."""

    replica: BrokerId
    incarnation: Incarnation
    is_replica: bool = True  # not a property: it is asked for a dozen times in every fetch

    @property
    def is_kafkas(self) -> bool:
        """Whether it is a follower of Apache Kafka, which may fetch in several threads, each at a connection
        of its own (num.replica.fetchers).
        """
        return self.is_replica and not -1 < self.incarnation < KAFKAS


CONSUMER = FetchSource(BrokerId(-1), Incarnation(-1), is_replica=False)


class FetchItem:
    """One partition of a fetch."""

    __slots__ = ("apart", "asked", "cold_tries", "error", "parting", "partition", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: UUID, asked: FetchPartition) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.asked = asked
        self.partition: Partition | None = None
        self.error: int = ErrorCode.NONE
        self.parting: tuple[int, int] | None = None
        self.cold_tries = 0
        self.apart: ReadApart | None = None  # a thread reads it, or has read it

    def look_up(self, name: str | None, get: Callable[[TopicPartition], Partition]) -> None:
        """Find the replica by `name`, the topic name for the id; None if the topic id is unknown."""
        self.error, self.partition = ErrorCode.NONE, None
        self.warm_up()
        self.topic = name or ""
        if name is None:
            self.error = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            self.find(get)

    def warm_up(self) -> None:
        """It is asked for again: what was cold may be in memory now."""
        self.cold_tries, self.apart = 0, None

    def acknowledge(self, fetcher: FetchSource) -> None:
        """A follower holds everything before the offset that it fetches: record its progress."""
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
        """Look up the replica here. One with another topic id gives INCONSISTENT_TOPIC_ID."""
        try:
            found = get(TopicPartition(self.topic, self.asked.partition))
        except ApiError as error:
            self.error = error.code
            return
        if NO_UUID in (self.topic_id, found.log.topic_id or NO_UUID) or found.log.topic_id == self.topic_id:
            self.partition = found
        else:
            self.error = ErrorCode.INCONSISTENT_TOPIC_ID


def no_aborted(isolation_level: int) -> list[AbortedTransaction] | None:
    """No aborted transactions: an empty list for read_committed, null otherwise, as in Kafka."""
    return [] if isolation_level == READ_COMMITTED else None


def refused(
    partition: int, error: int, isolation_level: int, log_start_offset: int = UNKNOWN
) -> PartitionData:
    """The response for a partition with an error.

    Its records are empty, never null: librdkafka takes null for corruption, drops the whole response, with
    the error in it, and fetches again at once.
    """
    return PartitionData(
        partition_index=partition,
        error_code=error,
        high_watermark=UNKNOWN,
        log_start_offset=log_start_offset,
        aborted_transactions=no_aborted(isolation_level),
        records=b"",
    )


def charge(throttle: Throttle, fetcher: FetchSource, partition: Partition, nbytes: int) -> None:
    """Count records that a follower is sent."""
    leader = partition.leading
    if leader is not None:
        now = partition.shared.loop.time()
        throttle.took(partition.tp, nbytes, now, lags=not leader.waits_for(fetcher.replica, now))


Found = tuple[list[FetchItem], list[PartitionData]]  # the partitions, and the data of each


class Reading:
    """The partitions of one fetch, and its limits.

    `nbytes`, `is_cold`, `must_be_told` and `held_until` are those of the last `read`.
    """

    __slots__ = (
        "_awaited", "_bytes_max", "_isolation_level", "_throttle", "_to_end", "fetcher", "held_until",
        "is_cold", "must_be_told", "nbytes", "wanted",
    )  # fmt: skip

    def __init__(
        self,
        fetcher: FetchSource,
        wanted: list[FetchItem],
        bytes_max: int,
        isolation_level: int,
        throttle: Throttle | None = None,
    ) -> None:
        """`throttle`: of what is sent to followers; None if there is none."""
        self.fetcher = fetcher
        self.wanted = wanted
        self.nbytes = 0
        self.is_cold = False  # some records are being read from disk
        self.must_be_told = False  # an error or a diverged log: answer now
        self.held_until = 0.0  # when the throttle lets more through; 0: it holds nothing back
        self._throttle = throttle
        self._awaited = 0  # bytes that threads read for it; in all no more than a response
        self._bytes_max = bytes_max
        self._to_end = fetcher.is_replica
        self._isolation_level = isolation_level

    def acknowledge(self) -> None:
        """Record a follower's progress from its fetch offsets. Once per request, before `read`."""
        for item in self.wanted:
            item.acknowledge(self.fetcher)

    @property
    def parks_at(self) -> list[Partition]:
        """The partitions at which it waits for news."""
        return [item.partition for item in self.wanted if item.partition is not None]

    @property
    def session_id(self) -> int:
        """The id of its fetch session; 0 for none."""
        return NO_SESSION

    @property
    def is_vain(self) -> bool:
        """Whether it is known without a read that there is nothing to read, nor to tell."""
        return False

    def told(self, found: list[PartitionData]) -> Found:
        """What of the last `read` goes into the response."""
        return self.wanted, found

    def read(self) -> list[PartitionData]:
        """One result for each partition; at least one complete batch, however large, if there is any."""
        self.nbytes = self._awaited = 0
        self.is_cold = self.must_be_told = False
        self.held_until = 0.0
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

    def _read_one(self, item: FetchItem, partition: Partition) -> PartitionData:
        asked = item.asked
        leader = partition.led(asked.current_leader_epoch)
        if not self._to_end and partition.is_forsaken:
            raise NotLeaderOrFollower()
        parting = item.parting
        if not self._to_end and asked.last_fetched_epoch != NO_EPOCH:
            parting = partition.parting(asked.last_fetched_epoch, asked.fetch_offset)
        high_watermark = leader.high_watermark
        stable = partition.log.last_stable_offset(high_watermark)
        if parting is not None:
            self.must_be_told = True
            return PartitionData(
                partition_index=asked.partition,
                high_watermark=high_watermark,
                last_stable_offset=stable,
                log_start_offset=partition.log.start_offset,
                diverging_epoch=FetchEpochEndOffset(epoch=parting[0], end_offset=parting[1]),
                aborted_transactions=no_aborted(self._isolation_level),
                records=b"",
            )
        room = min(asked.partition_max_bytes, self._bytes_max - self.nbytes)
        if self._to_end:  # a follower of Kafka fails for good if it is sent more than fits a segment
            room = min(room, partition.topic_config.segment_bytes)
        committed = self._isolation_level == READ_COMMITTED
        end = partition.log.end_offset if self._to_end else stable if committed else high_watermark
        if self._throttle is not None and self._holds_back(self._throttle, item, leader, partition):
            records = Slices()
        else:
            records = self._records(item, partition, max(room, 0), end)
        aborted = no_aborted(self._isolation_level)
        if committed and records.nbytes:
            found = partition.aborted(asked.fetch_offset, records.nbytes, end)
            aborted = [AbortedTransaction(producer_id=one, first_offset=first) for one, first in found]
        self.nbytes += records.nbytes
        return PartitionData(
            partition_index=asked.partition,
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=partition.log.start_offset,
            aborted_transactions=aborted,
            records=records,
        )

    def _holds_back(self, throttle: Throttle, item: FetchItem, leader: Leader, partition: Partition) -> bool:
        """Whether the throttle holds back what there is; never from a follower that acks=all waits for."""
        now = partition.shared.loop.time()
        if item.asked.fetch_offset >= partition.log.end_offset or leader.waits_for(self.fetcher.replica, now):
            return False
        until = throttle.held_until(partition.tp, now)
        if not until:
            return False
        self.held_until = until
        leader.held_back(self.fetcher.replica)
        self._put_aside(item)
        return True

    def _put_aside(self, item: FetchItem) -> None:
        """The throttle holds it back. A session need not look at it meanwhile."""

    def _records(self, item: FetchItem, partition: Partition, room: int, end: int) -> Slices:
        """The records; none if they are not in memory: a thread brings them, then parked fetches retry."""
        try:
            return partition.read(item.asked.fetch_offset, room, end, at_least_one=self.nbytes == 0)
        except Cold as cold:
            if cold.is_blind or item.cold_tries >= COLD_TRIES:
                return self._read_apart(item, partition, room, end)
            item.cold_tries += 1
            self.is_cold = True
            partition.shared.cold_reads.bring(partition, cold)
            return Slices()

    def _read_apart(self, item: FetchItem, partition: Partition, room: int, end: int) -> Slices:
        """The records that a thread has read, if they are still valid; none until then."""
        first, earlier = self.nbytes == 0, item.apart
        left = room - self._awaited
        apart = partition.log.apart(item.asked.fetch_offset, max(left, 1), end, earlier)
        found = apart.found
        if found is not None and (first or found.nbytes <= room):
            return found
        self.is_cold = True
        if apart is not earlier:
            begins = left > 0 or (first and not self._awaited)
            item.apart = apart if begins and partition.shared.cold_reads.bring(partition, apart) else None
        if item.apart is not None:
            self._awaited += apart.bytes_max if found is None else found.nbytes
        return Slices()

    def _refused(self, item: FetchItem, error: int) -> PartitionData:
        """The response with this error. A follower out of range learns the log start, to restart there."""
        start = UNKNOWN
        if error == ErrorCode.OFFSET_OUT_OF_RANGE and self._to_end and item.partition is not None:
            start = item.partition.log.start_offset
        return refused(item.asked.partition, error, self._isolation_level, start)
