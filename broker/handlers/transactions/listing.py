"""DescribeTransactions 0, ListTransactions 0-1: what this coordinator knows of transactional ids.

ListTransactions: v1 only those that began long ago enough
Left to others: which partitions have transactions without a coordinator (describe_producers.py).
"""

from itertools import groupby

from ....protocol.apis import Api
from ....protocol.errors import ApiError, CoordinatorLoadInProgress, ErrorCode
from ....protocol.messages.transactions import (
    DescribedTransaction,
    DescribedTransactionTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ...context import BrokerContext
from ...network.exchange import Exchange, HandlerEntry
from ...transactions.state import TransactionState
from ...transactions.transaction import Transaction

KNOWN_STATES = frozenset(TransactionState)


def describe(
    broker: BrokerContext, exchange: Exchange, request: DescribeTransactionsRequest
) -> DescribeTransactionsResponse:
    """Each transactional id has its own error."""
    return DescribeTransactionsResponse(
        transaction_states=[_described(broker, each) for each in request.transactional_ids]
    )


def _described(broker: BrokerContext, transactional_id: str) -> DescribedTransaction:
    try:
        found = broker.transactions.find(transactional_id)
    except ApiError as error:
        return DescribedTransaction(error_code=error.code, transactional_id=transactional_id)
    if found is None or found.standing is None:
        code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return DescribedTransaction(error_code=code, transactional_id=transactional_id)
    now = found.standing
    by_topic = groupby(sorted(found.unmarked), key=lambda tp: tp.topic)
    return DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=now.state.value,
        transaction_timeout_ms=now.timeout_ms,
        transaction_start_time_ms=now.started_ms,
        producer_id=now.producer.id,
        producer_epoch=now.producer.epoch,
        topics=[
            DescribedTransactionTopic(topic=topic, partitions=[tp.partition for tp in partitions])
            for topic, partitions in by_topic
        ],
    )


def refuse_describe(request: DescribeTransactionsRequest, error: ApiError) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribedTransaction(error_code=error.code, transactional_id=each)
            for each in request.transactional_ids
        ]
    )


def list_all(
    broker: BrokerContext, exchange: Exchange, request: ListTransactionsRequest
) -> ListTransactionsResponse:
    """Those that pass every filter; states that nobody knows are named."""
    if broker.transactions.is_loading:
        raise CoordinatorLoadInProgress("partitions of __transaction_state are being loaded")
    now_ms = broker.transactions.wall_ms()
    found = (each for each in broker.transactions.all_transactions() if _passes(each, request, now_ms))
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in KNOWN_STATES],
        transaction_states=[
            ListedTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.standing.producer.id,
                transaction_state=each.standing.state.value,
            )
            for each in found
            if each.standing is not None
        ],
    )


def _passes(transaction: Transaction, request: ListTransactionsRequest, now_ms: int) -> bool:
    now = transaction.standing
    if now is None:
        return False
    if request.producer_id_filters and now.producer.id not in request.producer_id_filters:
        return False
    if request.state_filters and now.state not in request.state_filters:
        return False
    return request.duration_filter < 0 or now_ms - now.started_ms > request.duration_filter


def refuse_list(request: ListTransactionsRequest, error: ApiError) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error.code)


HANDLERS: dict[Api, HandlerEntry[BrokerContext]] = {
    Api.DESCRIBE_TRANSACTIONS: HandlerEntry(describe, refuse_describe),
    Api.LIST_TRANSACTIONS: HandlerEntry(list_all, refuse_list),
}
