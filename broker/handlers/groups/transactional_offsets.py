"""TxnOffsetCommit 0-4: the offsets that a producer has read up to, as part of its transaction.

v2 leader epoch · v3 flexible, the member that has read (KIP-447) · v4 TRANSACTION_ABORTABLE for a transaction
that this is no part of. Before v2 a client may crash if it is told that the coordinator is still loading.
Answered when the offsets are in the log; they count from the marker of the transaction on.
Left to others: what is checked and written (groups/coordinator.py, groups/transactional_commits.py).
"""

from ....base.types import TopicPartition
from ....protocol.apis import Api
from ....protocol.errors import ApiError, ErrorCode
from ....protocol.messages.group_offsets import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ...context import BrokerContext
from ...groups.transactional_commits import Producer
from ...network.exchange import Exchange, HandlerEntry
from .offsets import offsets_in

LOADING_SINCE = 2
ABORTABLE_SINCE = 4


def commit(broker: BrokerContext, exchange: Exchange, request: TxnOffsetCommitRequest) -> None:
    """Parked until the offsets are in the log; a refused partition does not affect the others."""
    offsets, errors = offsets_in(broker, request.topics)

    def done(error: ErrorCode) -> None:
        exchange.answer(_response(request, errors, _in_version(error, exchange.version)))

    if not offsets:
        return done(ErrorCode.NONE)
    member = (request.member_id, request.group_instance_id, request.generation_id)
    producer = Producer(request.transactional_id, request.producer_id, request.producer_epoch)
    try:
        return broker.groups.commit_in_transaction(request.group_id, member, producer, offsets, done)
    except ApiError as error:
        return done(error.code)


def _in_version(error: ErrorCode, version: int) -> ErrorCode:
    """The error as clients of this version understand it."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < LOADING_SINCE:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE):
        is_told = version >= ABORTABLE_SINCE
        return ErrorCode.TRANSACTION_ABORTABLE if is_told else ErrorCode.INVALID_TXN_STATE
    return error


def _response(
    request: TxnOffsetCommitRequest, errors: dict[TopicPartition, ErrorCode], otherwise: ErrorCode
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=errors.get(TopicPartition(topic.name, each.partition_index), otherwise),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refuse(request: TxnOffsetCommitRequest, error: ApiError) -> TxnOffsetCommitResponse:
    return _response(request, {}, error.code)


HANDLERS: dict[Api, HandlerEntry[BrokerContext]] = {Api.TXN_OFFSET_COMMIT: HandlerEntry(commit, refuse)}
