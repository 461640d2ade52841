"""DeleteRecords 0-2: move the log start offset of partitions up; -1 stands for the high watermark.

Answered when the new start is durable on the leader and no live replica has records before it, or at the
timeout: then the records are gone from the leader and will go from the others. v2 flexible
Left to others: the move and the wait (upkeep/delete_records.py), what happens to the
segments (upkeep/passes.py).
"""

from typing import TYPE_CHECKING

from ...base.types import TopicPartition
from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode
from ...protocol.messages.topics import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ..network.exchange import Exchange, HandlerEntry
from ..replicas.partition import Partition
from ..replicas.purgatory import Deadlines, Waiter
from ..upkeep.delete_records import Deletions, Wait, delete_before, low_watermark

if TYPE_CHECKING:
    from ..context import BrokerContext

SECONDS_MIN = 1.0  # even with a shorter timeout, the leader's own disk is waited for

Results = dict[TopicPartition, DeleteRecordsPartitionResult]


def handle(
    broker: "BrokerContext", exchange: Exchange, request: DeleteRecordsRequest
) -> DeleteRecordsResponse | None:
    """Move the log starts at once, then wait for the other replicas."""
    results: Results = {}
    moved: list[tuple[Partition, int]] = []
    for topic in request.topics:
        for asked in topic.partitions:
            tp = TopicPartition(topic.name, asked.partition_index)
            if tp in results:
                continue  # named twice: the first one counts
            results[tp] = DeleteRecordsPartitionResult(partition_index=tp.partition)
            try:
                partition = broker.replicas.get(tp)
                moved.append((partition, delete_before(partition, asked.offset)))
            except ApiError as error:
                results[tp] = _refused(tp, error.code)
    if not moved:
        return _response(results)
    shared = broker.shared
    pending = DeleteRecordsWaiter(exchange, shared.deadlines, broker.deletions, results)
    deadline = shared.loop.time() + max(request.timeout_ms / 1000, SECONDS_MIN)
    return pending.wait(moved, deadline)


class DeleteRecordsWaiter(Waiter):
    """A request from the move of the log starts to its answer."""

    __slots__ = ("_deadlines", "_deletions", "_exchange", "_left", "_results")

    def __init__(
        self, exchange: Exchange, deadlines: Deadlines, deletions: Deletions, results: Results
    ) -> None:
        super().__init__()
        self._exchange = exchange
        self._deadlines = deadlines
        self._deletions = deletions
        self._results = results
        self._left: dict[int, Partition] = {}

    def wait(self, moved: list[tuple[Partition, int]], deadline: float) -> DeleteRecordsResponse | None:
        """Wait for each partition. Returns the answer if there is no room to wait."""
        self._left = {place: partition for place, (partition, _) in enumerate(moved)}
        has_room = self._deadlines.add(self, deadline)
        for place, (partition, start) in enumerate(moved):
            self._deletions.begin(Wait(partition, start, self, place))
        if has_room:
            return None
        self._time_out()
        return _response(self._results)

    def reached(self, place: int, code: ErrorCode) -> None:
        partition = self._left.pop(place)
        tp = partition.tp
        self._results[tp] = (
            _refused(tp, code)
            if code
            else DeleteRecordsPartitionResult(
                partition_index=tp.partition, low_watermark=low_watermark(partition)
            )
        )
        if not self._left:
            self._deadlines.remove(self)
            self._exchange.answer(_response(self._results))

    def expire(self) -> None:
        self._time_out()
        self._exchange.answer(_response(self._results))

    def _time_out(self) -> None:
        """The log starts have moved here; how far the other replicas are is unknown."""
        for partition in self._left.values():
            self._deletions.expired(partition)
            self._results[partition.tp] = _refused(partition.tp, ErrorCode.REQUEST_TIMED_OUT)
        self._left.clear()


def _refused(tp: TopicPartition, code: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(partition_index=tp.partition, error_code=code)


def _response(results: Results) -> DeleteRecordsResponse:
    topics: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for tp, result in results.items():
        topics.setdefault(tp.topic, []).append(result)
    return DeleteRecordsResponse(
        topics=[DeleteRecordsTopicResult(name=name, partitions=each) for name, each in topics.items()]
    )


def refuse(request: DeleteRecordsRequest, error: ApiError) -> DeleteRecordsResponse:
    """Every partition with the same error."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(partition_index=p.partition_index, error_code=error.code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLERS = {Api.DELETE_RECORDS: HandlerEntry(handle, refuse)}
