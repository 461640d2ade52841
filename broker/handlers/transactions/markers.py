"""WriteTxnMarkers 1: end transactions in partitions that this broker leads.

A marker is answered when it is committed. Between brokers the coordinator of a transaction asks, and it has
decided. On a client's listener only what `kafka-transactions --abort` asks is allowed: to abort a transaction
that is open here, in the name of its own producer epoch and of no newer coordinator.
Left to others: the append and its checks (replicas/partition.py), the wait (replicas/marker_writes.py).
Why: docs/decisions/0052-clients-may-abort-but-not-commit.md
"""

from functools import partial
from typing import TYPE_CHECKING

from ....base.types import TopicPartition
from ....protocol.apis import Api
from ....protocol.errors import (
    ApiError,
    ClusterAuthorizationFailed,
    ErrorCode,
    InvalidProducerEpoch,
    InvalidTxnState,
    TransactionCoordinatorFenced,
)
from ....protocol.markers import EndMarker
from ....protocol.messages.transactions import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ...network.exchange import Exchange, HandlerEntry
from ...replicas.marker_writes import WRITE_SECONDS_MAX, write_marker
from ...replicas.partition import Partition
from ...roles.held_requests import hold

if TYPE_CHECKING:
    from ...context import BrokerContext

FIRST_COORDINATOR_EPOCH = 0  # what tools say for a producer that no coordinator has written for yet


def handle(
    broker: "BrokerContext", exchange: Exchange, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | None:
    """Write all markers; the answer leaves when each is committed or refused."""
    named = ((t.name, index) for m in request.markers for t in m.topics for index in t.partition_indexes)
    hold(broker.roles.change, broker.replicas, exchange, named)
    pending = PendingMarkers(exchange, request)
    shared, find = broker.shared, broker.replicas.get
    deadline = shared.loop.time() + WRITE_SECONDS_MAX
    for marker in request.markers:
        end = EndMarker(marker.transaction_result, marker.coordinator_epoch)
        for topic in marker.topics:
            for index in topic.partition_indexes:
                tp = TopicPartition(topic.name, index)
                pending.count += 1
                done = partial(pending.ended, marker.producer_id, tp)
                try:
                    if not exchange.internal:
                        _check_by_hand(find(tp), marker)
                except ApiError as error:
                    done(error.code)
                    continue
                write_marker(find, tp, marker.producer_id, marker.producer_epoch, end, done, deadline)
    return pending.begun()


def _check_by_hand(partition: Partition, marker: WritableTxnMarker) -> None:
    """Whether a client may write this marker. Raises the error if not."""
    partition.led()
    if marker.transaction_result:
        raise ClusterAuthorizationFailed("only a transaction's coordinator commits it")
    known = partition.log.producers.get(marker.producer_id)
    if known is None or known.transaction_first_offset < 0:
        raise InvalidTxnState(f"producer {marker.producer_id} has no open transaction in {partition.tp}")
    if marker.producer_epoch != known.epoch:
        raise InvalidProducerEpoch(
            f"the transaction of producer {marker.producer_id} has epoch {known.epoch}, the marker has "
            f"{marker.producer_epoch}"
        )
    if marker.coordinator_epoch > max(known.coordinator_epoch, FIRST_COORDINATOR_EPOCH):
        raise TransactionCoordinatorFenced(
            f"expected coordinator epoch {known.coordinator_epoch}, the marker has {marker.coordinator_epoch}"
        )


class PendingMarkers:
    """The markers of one request until all are committed or refused. Each write has its deadline."""

    __slots__ = ("_exchange", "_is_begun", "_results", "count")

    def __init__(self, exchange: Exchange, request: WriteTxnMarkersRequest) -> None:
        self._exchange = exchange
        self._is_begun = False
        self.count = 0  # how many are being written
        self._results: dict[int, dict[TopicPartition, int]] = {m.producer_id: {} for m in request.markers}

    def ended(self, producer_id: int, tp: TopicPartition, code: int) -> None:
        """One of them has its result."""
        results = self._results[producer_id]
        results[tp] = code or results.get(tp, ErrorCode.NONE)  # named twice: an error is not hidden
        self.count -= 1
        if self._is_begun and not self.count:
            self._exchange.answer(self.response())

    def begun(self) -> WriteTxnMarkersResponse | None:
        """All writes have begun. The response, if they have ended, too."""
        self._is_begun = True
        return None if self.count else self.response()

    def response(self) -> WriteTxnMarkersResponse:
        """The results, by producer, topic and partition."""
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(producer_id=producer_id, topics=_by_topic(results))
                for producer_id, results in self._results.items()
            ]
        )


def _by_topic(results: dict[TopicPartition, int]) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for tp, code in results.items():
        row = WritableTxnMarkerPartitionResult(partition_index=tp.partition, error_code=code)
        topics.setdefault(tp.topic, []).append(row)
    return [WritableTxnMarkerTopicResult(name=name, partitions=rows) for name, rows in topics.items()]


def refuse(request: WriteTxnMarkersRequest, error: ApiError) -> WriteTxnMarkersResponse:
    """Every partition with the same error."""
    found: dict[int, dict[TopicPartition, int]] = {}
    for marker in request.markers:
        for topic in marker.topics:
            for index in topic.partition_indexes:
                found.setdefault(marker.producer_id, {})[TopicPartition(topic.name, index)] = error.code
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(producer_id=producer_id, topics=_by_topic(results))
            for producer_id, results in found.items()
        ]
    )


HANDLERS = {Api.WRITE_TXN_MARKERS: HandlerEntry(handle, refuse)}
