"""AddPartitionsToTxn 0-5, AddOffsetsToTxn 0-4, EndTxn 0-4: a producer tells its coordinator what it is doing.

v2 may answer PRODUCER_FENCED, older versions INVALID_PRODUCER_EPOCH · v3 flexible
AddPartitionsToTxn: v4 and v5, from brokers only: several transactions, or only a check that they have the
partitions (KIP-890)
Each is answered once its record is committed. If one partition does not exist, none is added. What comes
while the last transaction is being ended waits for that (patience.py).
Left to others: what the answer is (transactions/transaction.py), finding it (transactions/coordinator.py).
"""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

from ....base.types import TopicPartition
from ....protocol.apis import Api
from ....protocol.errors import ApiError, ErrorCode
from ....protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
)
from ...context import BrokerContext
from ...coordinator_partitions import partition_of
from ...network.exchange import Exchange, HandlerEntry
from ...topic_names import OFFSETS_TOPIC
from ...transactions.state import Answer, ProducerIdentity, Reply
from .patience import Patient

FENCED_SINCE = 2
SEVERAL_SINCE = 4

Codes = Mapping[TopicPartition, int]


def add_partitions(broker: BrokerContext, exchange: Exchange, request: AddPartitionsToTxnRequest) -> None:
    """Parked until every transaction of the request has its result."""
    asked = _transactions(exchange.version, request)
    results: dict[int, Codes] = {}

    def done(place: int, codes: Codes) -> None:
        results[place] = codes
        if len(results) == len(asked):
            told = [(each.transactional_id, results[place]) for place, each in enumerate(asked)]
            exchange.answer(_added(exchange.version, told))

    if not asked:
        exchange.answer(_added(exchange.version, []))
    for place, each in enumerate(asked):
        _add(broker, exchange, each, lambda codes, place=place: done(place, codes))  # type: ignore[misc]


def _add(
    broker: BrokerContext,
    exchange: Exchange,
    asked: AddPartitionsToTxnTransaction,
    done: Callable[[Codes], None],
) -> None:
    producer = ProducerIdentity(asked.producer_id, asked.producer_epoch)
    partitions = [TopicPartition(topic.name, each) for topic in asked.topics for each in topic.partitions]
    unknown = {tp for tp in partitions if broker.metadata.partition(*tp) is None}
    if unknown:
        return done(
            {
                tp: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if tp in unknown
                else ErrorCode.OPERATION_NOT_ATTEMPTED
                for tp in partitions
            }
        )

    def answer(told: Answer) -> None:
        done(dict.fromkeys(partitions, fit(told.error, exchange)))

    try:
        if asked.verify_only:
            return done(broker.transactions.verify(asked.transactional_id, *producer, partitions))
        return _ask_to_add(broker, exchange, asked.transactional_id, producer, frozenset(partitions), answer)
    except ApiError as error:
        return done(dict.fromkeys(partitions, error.code))


def _ask_to_add(
    broker: BrokerContext,
    exchange: Exchange,
    transactional_id: str,
    producer: ProducerIdentity,
    partitions: frozenset[TopicPartition],
    reply: Reply,
) -> None:
    def ask(answered: Reply) -> None:
        broker.transactions.add_partitions(transactional_id, producer, partitions, answered)

    Patient(broker, exchange, transactional_id, ask, reply).begin()


def _transactions(version: int, request: AddPartitionsToTxnRequest) -> list[AddPartitionsToTxnTransaction]:
    if version >= SEVERAL_SINCE:
        return request.transactions
    one = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return [one]


def _added(version: int, told: Iterable[tuple[str, Codes]]) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnResult(transactional_id=name, topic_results=_by_topic(codes))
        for name, codes in told
    ]
    if version >= SEVERAL_SINCE:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _by_topic(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=each, partition_error_code=code)
                for (_, each), code in found
            ],
        )
        for topic, found in groupby(sorted(codes.items()), key=lambda item: item[0].topic)
    ]


def refuse_add(request: AddPartitionsToTxnRequest, error: ApiError) -> AddPartitionsToTxnResponse:
    """Fills both forms, of one transaction and of several: only the one of the version goes on the wire."""
    return AddPartitionsToTxnResponse(
        error_code=error.code,
        results_by_topic_v3_and_below=[_refused(each, error) for each in request.v3_and_below_topics],
    )


def _refused(topic: AddPartitionsToTxnTopic, error: ApiError) -> AddPartitionsToTxnTopicResult:
    codes = {TopicPartition(topic.name, each): int(error.code) for each in topic.partitions}
    return AddPartitionsToTxnTopicResult(
        name=topic.name,
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(partition_index=tp.partition, partition_error_code=code)
            for tp, code in codes.items()
        ],
    )


def add_offsets(broker: BrokerContext, exchange: Exchange, request: AddOffsetsToTxnRequest) -> None:
    """The partition of `__consumer_offsets` that has the group becomes part of the transaction."""
    partition = partition_of(request.group_id, broker.groups.partition_count())

    def answer(told: Answer) -> None:
        exchange.answer(AddOffsetsToTxnResponse(error_code=fit(told.error, exchange)))

    _ask_to_add(
        broker,
        exchange,
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        frozenset({TopicPartition(OFFSETS_TOPIC, partition)}),
        answer,
    )


def refuse_offsets(request: AddOffsetsToTxnRequest, error: ApiError) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=error.code)


def end(broker: BrokerContext, exchange: Exchange, request: EndTxnRequest) -> None:
    """Answered when the outcome is decided for good; the partitions are told after that."""

    def answer(told: Answer) -> None:
        exchange.answer(EndTxnResponse(error_code=fit(told.error, exchange)))

    broker.transactions.end(
        request.transactional_id,
        ProducerIdentity(request.producer_id, request.producer_epoch),
        request.committed,
        answer,
    )


def refuse_end(request: EndTxnRequest, error: ApiError) -> EndTxnResponse:
    return EndTxnResponse(error_code=error.code)


def fit(code: ErrorCode, exchange: Exchange, fenced_since: int = FENCED_SINCE) -> ErrorCode:
    """The code as clients of this version know it."""
    if code is ErrorCode.PRODUCER_FENCED and exchange.version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


HANDLERS: dict[Api, HandlerEntry[BrokerContext]] = {
    Api.ADD_PARTITIONS_TO_TXN: HandlerEntry(add_partitions, refuse_add),
    Api.ADD_OFFSETS_TO_TXN: HandlerEntry(add_offsets, refuse_offsets),
    Api.END_TXN: HandlerEntry(end, refuse_end),
}
