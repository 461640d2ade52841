"""ListOffsets 1-9: where a partition begins and ends, and the first record at or after a timestamp.

-1 the end, -2 the beginning, -3 the record with the largest timestamp (v7), -4 the earliest local record
(v8; all of ours are), -5 the last one in remote storage (v9; there is none). For read_committed a partition
ends at its last stable offset. A new leader answers -1, -3 and times only once its high watermark covers all
that earlier leaders may have committed, so an end that was shown never goes back. Timestamps are looked up in
a thread, since that may read from disk. v2 isolation level · v4 leader epoch · v6 flexible
"""

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING

from ...base.types import TopicPartition
from ...protocol.apis import Api
from ...protocol.errors import (
    ApiError,
    ErrorCode,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OffsetNotAvailable,
    UnsupportedVersion,
)
from ...protocol.messages.offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LARGEST_TIMESTAMP,
    LATEST,
    LATEST_TIERED,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ...replication.leader import Leader
from ...storage.disk import DiskError
from ..network.exchange import Exchange, HandlerEntry
from ..replicas.partition import Partition
from ..replicas.purgatory import Waiter
from ..replicas.shared import ReplicaShared
from ..roles.held_requests import hold

if TYPE_CHECKING:
    from ..context import BrokerContext

BEGINNINGS = frozenset((EARLIEST, EARLIEST_LOCAL))
SERVED_FROM = {LATEST: 1, EARLIEST: 1, LARGEST_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
NEVER = 1 << 15
INT64_MAX = (1 << 63) - 1
DEBUGGER = -2  # a replica id that asks for the log end offset
NOT_AVAILABLE_FROM = 5
NOTHING_FOUND = (-1, -1, -1)
LOOKUP_SECONDS_MAX = 20.0
LOOKUP_TRIES = 3

READ_COMMITTED = 1

Bound = Callable[[Partition], int]  # where a partition ends for whoever asks
LOG_END: Bound = attrgetter("log.end_offset")
HIGH_WATERMARK: Bound = attrgetter("high_watermark")
LAST_STABLE: Bound = attrgetter("last_stable_offset")

Found = tuple[int, int, int]  # timestamp, offset, leader epoch
Place = tuple[str, int]  # topic and partition


def handle(
    broker: "BrokerContext", exchange: Exchange, request: ListOffsetsRequest
) -> ListOffsetsResponse | None:
    """One answer for each partition, at once unless a timestamp is looked up."""
    named = ((t.name, p.partition_index) for t in request.topics for p in t.partitions)
    hold(broker.roles.change, broker.replicas, exchange, named)
    answers = Answers(exchange, request)
    shared = broker.shared
    bound = HIGH_WATERMARK if request.isolation_level != READ_COMMITTED else LAST_STABLE
    if request.replica_id == DEBUGGER or (request.replica_id >= 0 and exchange.internal):
        bound = LOG_END
    for topic in request.topics:
        for asked in topic.partitions:
            place = topic.name, asked.partition_index
            try:
                partition = broker.replicas.get(TopicPartition(*place))
                question = OffsetQuestion(partition, asked, bound, exchange.version)
                found = question.at_once()
                if found is not None:
                    answers.give(place, found)
                elif answers.begin(place) and not question.look_up(place, answers):
                    answers.refuse(place, ErrorCode.REQUEST_TIMED_OUT)
            except ApiError as error:
                answers.refuse(place, error.code)
    if answers.complete:
        return answers.response()
    if shared.deadlines.add(answers, shared.loop.time() + LOOKUP_SECONDS_MAX):
        return None
    answers.give_up()
    return answers.response()


class OffsetQuestion:
    """What is asked of one partition. Leadership and epoch are checked again after a lookup."""

    __slots__ = ("_asked", "_bound", "_tries", "_version", "partition")

    def __init__(self, partition: Partition, asked: ListOffsetsPartition, bound: Bound, version: int) -> None:
        self.partition = partition
        self._asked = asked
        self._bound = bound
        self._version = version
        self._tries = 0

    def at_once(self) -> Found | None:
        """The answer, or None if a timestamp must be looked up."""
        log, time = self.partition.log, self._asked.timestamp
        if time < 0 and self._version < SERVED_FROM.get(time, NEVER):
            raise UnsupportedVersion(f"timestamp {time} has no meaning in version {self._version}")
        if time == LATEST_TIERED:
            self.partition.led(self._asked.current_leader_epoch)
            return NOTHING_FOUND
        if time in BEGINNINGS:
            self.partition.led(self._asked.current_leader_epoch)
            return -1, log.start_offset, log.epochs.epoch_at(log.start_offset)
        leader, end = self._end()
        return (-1, end, leader.epoch) if time == LATEST else None

    def _end(self) -> tuple[Leader, int]:
        leader = self.partition.led(self._asked.current_leader_epoch)
        if not leader.committed_whole and self._bound is not LOG_END:
            raise OffsetNotAvailable() if self._version >= NOT_AVAILABLE_FROM else LeaderNotAvailable()
        return leader, self._bound(self.partition)

    def look_up(self, place: Place, answers: "Answers") -> bool:
        """Search the log in a thread. False if too many wait for one."""
        leader, end = self._end()
        time, shared = self._asked.timestamp, self.partition.shared
        lookup = self.partition.log.lookup(end, None if time == LARGEST_TIMESTAMP else time)
        self._tries += 1

        def looked() -> None:
            try:
                if self._end()[0] is leader and not lookup.stale:
                    answers.give(place, lookup.found() or NOTHING_FOUND)
                elif self._tries >= LOOKUP_TRIES or not self.look_up(place, answers):
                    raise NotLeaderOrFollower()  # it keeps changing: the client must ask again
            except ApiError as error:
                answers.refuse(place, error.code)
            except DiskError as error:
                answers.refuse(place, self.partition.disk_failed(error).code)
            answers.answer_if_complete(shared)

        return shared.cold_reads.run(self.partition.log, lookup, lookup.run, looked)


class Answers(Waiter):
    """The answers to one request, collected as lookups end."""

    __slots__ = ("_begun", "_exchange", "_given", "_missing", "_request")

    def __init__(self, exchange: Exchange, request: ListOffsetsRequest) -> None:
        super().__init__()
        self._exchange = exchange
        self._request = request
        self._given: dict[Place, ListOffsetsPartitionResponse] = {}
        self._missing = {(t.name, p.partition_index) for t in request.topics for p in t.partitions}
        self._begun: set[Place] = set()

    def begin(self, place: Place) -> bool:
        """Whether a lookup must begin. A partition that is named again is not looked up again: one request
        could fill the queue of all lookups.
        """
        is_first = place not in self._begun
        self._begun.add(place)
        return is_first

    def give(self, place: Place, found: Found) -> None:
        """Note what was found."""
        timestamp, offset, epoch = found
        timestamp = max(-INT64_MAX, min(timestamp, INT64_MAX))  # the sum of two numbers that a producer sent
        self._missing.discard(place)
        self._given[place] = ListOffsetsPartitionResponse(
            partition_index=place[1], timestamp=timestamp, offset=offset, leader_epoch=epoch
        )

    def refuse(self, place: Place, code: int) -> None:
        """Note an error."""
        self._missing.discard(place)
        self._given[place] = ListOffsetsPartitionResponse(partition_index=place[1], error_code=code)

    @property
    def complete(self) -> bool:
        """Whether every partition has its answer."""
        return not self._missing

    def give_up(self) -> None:
        """Lookups that have not ended get REQUEST_TIMED_OUT."""
        for place in list(self._missing):
            self.refuse(place, ErrorCode.REQUEST_TIMED_OUT)

    def answer_if_complete(self, shared: ReplicaShared) -> None:
        """A lookup has ended: answer if it was the last."""
        if self.slot is not None and self.complete:
            shared.deadlines.remove(self)
            self._exchange.answer(self.response())

    def expire(self) -> None:
        self.give_up()
        self._exchange.answer(self.response())

    def response(self) -> ListOffsetsResponse:
        """All of them, in the order of the request."""
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=t.name, partitions=[self._given[t.name, p.partition_index] for p in t.partitions]
                )
                for t in self._request.topics
            ]
        )


def refuse(request: ListOffsetsRequest, error: ApiError) -> ListOffsetsResponse:
    """Every partition with the same error."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=error.code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLERS = {Api.LIST_OFFSETS: HandlerEntry(handle, refuse)}
