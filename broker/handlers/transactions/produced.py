"""Asks about produced batches that would begin a transaction in their partition, before they are appended.

The produce request is held meanwhile (network/exchange.py): none of it is done, and its connection waits, so
batches keep their order. It is asked about once. When it is executed again it has, for each of these batches,
the guard to append it with, or the error to answer.
Left to others: whom to ask (broker/transactions/verification.py), the append (replicas/partition.py).
"""

from contextlib import suppress
from typing import TYPE_CHECKING

from ....base.types import TopicPartition
from ....protocol.batches import HEADER_SIZE, BatchHeader, read_header
from ....protocol.errors import (
    ApiError,
    ErrorCode,
    InvalidProducerIdMapping,
    InvalidTxnState,
    NotEnoughReplicas,
    TransactionAbortable,
    error_for,
)
from ....protocol.messages.produce import PartitionProduceData, ProduceRequest
from ....protocol.primitives import Slices
from ...network.exchange import Exchange, Held, Place
from ...replicas.verification_guards import Guard
from ...topic_names import INTERNAL_TOPICS
from ...transactions.verification import Verdicts

if TYPE_CHECKING:
    from ...context import BrokerContext

ABORTABLE_FROM = 11
PASSING = frozenset(  # the coordinator cannot say at the moment: every producer sends its batch again
    (
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # to the coordinator, which has not heard of a new topic yet
        ErrorCode.OPERATION_NOT_ATTEMPTED,  # because of another partition of the request
    )
)


def verify_produced(broker: "BrokerContext", exchange: Exchange, request: ProduceRequest) -> None:
    """Raises Held while the coordinator is asked. Raises InvalidProducerIdMapping for a request of several
    producers.
    """
    if exchange.verified is not None or request.transactional_id is None:
        return
    guards: dict[Place, Guard] = {}
    producers: set[tuple[int, int]] = set()
    for topic in request.topic_data:
        for data in topic.partition_data:
            header = _transactional(data)
            if header is None:
                continue
            producers.add((header.producer_id, header.producer_epoch))
            place = (topic.name, data.index)
            if topic.name not in INTERNAL_TOPICS and place not in guards:
                with suppress(ApiError):  # the append will raise it again
                    partition = broker.replicas.get(TopicPartition(*place))
                    guard = partition.guard_for(
                        header.producer_id, header.producer_epoch, header.base_sequence
                    )
                    if guard is not None:
                        guards[place] = guard
    if len(producers) > 1:
        raise InvalidProducerIdMapping("a request has batches of one producer")
    if guards:
        _ask(broker, exchange, request.transactional_id, producers.pop(), guards)


def _ask(
    broker: "BrokerContext",
    exchange: Exchange,
    transactional_id: str,
    producer: tuple[int, int],
    guards: dict[Place, Guard],
) -> None:
    partitions = [TopicPartition(*place) for place in guards]
    answer = broker.verification.ask(transactional_id, *producer, partitions)

    def answered(verdicts: Verdicts) -> None:
        exchange.verified = {
            place: _refusal(verdicts[TopicPartition(*place)], exchange.version) or guard
            for place, guard in guards.items()
        }

    if answer.done():
        answered(answer.result())
        return
    answer.add_done_callback(lambda done: answered(done.result()))
    raise Held(answer, ends_by_itself=True)


def _refusal(code: ErrorCode, version: int) -> ApiError | None:
    """The producer's error, for what the coordinator has said; None if the transaction may begin."""
    if code in PASSING:
        return NotEnoughReplicas(f"cannot verify that the partition is in the transaction: {code.name}")
    if code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE):
        kind = TransactionAbortable if version >= ABORTABLE_FROM else InvalidTxnState
        return kind("the partition is not in the ongoing transaction")
    return error_for(code) if code else None


def _transactional(data: PartitionProduceData) -> BatchHeader | None:
    """The header of a batch that is transactional; None for any other, and for what is no batch."""
    records = data.records
    if not records or isinstance(records, Slices) or len(records) < HEADER_SIZE:
        return None
    header = read_header(records)
    return header if header.is_transactional and header.producer_id >= 0 else None
