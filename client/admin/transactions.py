"""Transactions as operators see them, for `Admin`: at coordinators, in partitions, and hanging ones.

A transaction hangs if a partition has one open of which no coordinator knows: nobody will end it, and readers
of committed records wait for ever. It is ended by hand, with an abort marker.
Left to others: the transactions of one's own producer (producer/transactions.py).
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ...base.types import TopicPartition
from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode, InvalidRequest, UnsupportedVersion, error_for
from ...protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from ...protocol.messages.transactions import (
    DescribedTransaction,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    ListTransactionsRequest,
    ListTransactionsResponse,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ..network.cluster import Cluster, CoordinatorKind
from ..network.per_leader import Question, ask_leaders

COORDINATOR_ERRORS = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
ENDED = frozenset({"Empty", "CompleteCommit", "CompleteAbort", "Dead"})
DURATIONS_SINCE = 1  # of ListTransactions; an earlier version lists all
NONE_OPEN = -1  # offset of the first record of a transaction
FENCING_TIMEOUT_MS = 60_000  # required on the wire; the id gets a producer that sends nothing


class TransactionListing(NamedTuple):
    """A transactional id at its coordinator."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id; `started_ms` is None outside of a transaction. The partitions are those that have
    no marker yet."""

    transactional_id: str
    coordinator: int
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


class ProducerDescription(NamedTuple):
    """What a partition knows of a producer; `transaction_start` is the first offset of its open transaction,
    None if it has none open."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    transaction_start: int | None


class OpenTransaction(NamedTuple):
    """A transaction that is open in a partition."""

    partition: TopicPartition
    producer: ProducerDescription


async def list_transactions(
    cluster: Cluster,
    deadline: float,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    duration_ms: int = -1,
) -> list[TransactionListing]:
    """The transactional ids of all coordinators that metadata names, as far as they pass the filters.

    Brokers take one that has ended for open since its beginning; here it has no duration.
    """
    names = {name.lower(): name for name in STATES}
    request = ListTransactionsRequest(
        state_filters=[names.get(state.lower(), state) for state in states],
        producer_id_filters=list(producer_ids),
        duration_filter=duration_ms,
    )

    async def ask(node: int) -> list[TransactionListing]:
        told: ListTransactionsResponse = await cluster.request(node, request, deadline)
        version = cluster.agreed_version(node, Api.LIST_TRANSACTIONS)
        if duration_ms >= 0 and version is not None and version < DURATIONS_SINCE:
            raise UnsupportedVersion(
                f"broker {node} does not look how long transactions are open: Apache Kafka does since 3.8"
            )
        if told.error_code:
            raise error_for(told.error_code)
        if told.unknown_state_filters:
            unknown = ", ".join(told.unknown_state_filters)
            raise InvalidRequest(f"no such state of transactions: {unknown}; expected {', '.join(STATES)}")
        return [
            TransactionListing(one.transactional_id, node, one.producer_id, one.transaction_state)
            for one in told.transaction_states
            if duration_ms < 0 or one.transaction_state not in ENDED
        ]

    answers = await cluster.everywhere(ask, deadline)
    return sorted(one for answer in answers.values() for one in answer)


async def describe_transactions(
    cluster: Cluster, ids: Iterable[str], deadline: float
) -> list[TransactionDescription]:
    """Each at its coordinator. Raises TransactionalIdNotFound."""

    async def describe(transactional_id: str) -> TransactionDescription:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])

        async def attempt() -> TransactionDescription:
            node, told = await _ask_coordinator(cluster, transactional_id, request, deadline)
            answer: DescribeTransactionsResponse = told
            (one,) = answer.transaction_states
            _check(cluster, transactional_id, one.error_code)
            return _description(one, node)

        return await cluster.persist(attempt, deadline)

    return list(await asyncio.gather(*map(describe, ids)))


async def fence_producers(cluster: Cluster, ids: Iterable[str], deadline: float) -> None:
    """Abort what the producers of these transactional ids have open, and let them write no more."""

    async def fence(transactional_id: str) -> None:
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=FENCING_TIMEOUT_MS
        )

        async def attempt() -> None:
            _, told = await _ask_coordinator(cluster, transactional_id, request, deadline)
            answer: InitProducerIdResponse = told
            _check(cluster, transactional_id, answer.error_code)

        await cluster.persist(attempt, deadline)

    await asyncio.gather(*map(fence, ids))


async def describe_producers(
    cluster: Cluster, partitions: Iterable[TopicPartition], deadline: float
) -> dict[TopicPartition, list[ProducerDescription]]:
    """Who writes to these partitions, as their leaders know it."""
    wanted = dict.fromkeys(partitions, 0)
    return await ask_leaders(cluster, wanted, Question(_producers_request, _producers), deadline)


async def abort_transaction(
    cluster: Cluster, partition: TopicPartition, producer: ProducerDescription, deadline: float
) -> None:
    """End a producer's open transaction in one partition with an abort marker, without its coordinator."""

    def request(wanted: Mapping[TopicPartition, int]) -> WriteTxnMarkersRequest:
        topics: dict[str, list[int]] = {}
        for one in wanted:
            topics.setdefault(one.topic, []).append(one.partition)
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=ns) for name, ns in topics.items()],
            coordinator_epoch=max(producer.coordinator_epoch, 0),
        )
        return WriteTxnMarkersRequest(markers=[marker])

    await ask_leaders(cluster, {partition: 0}, Question(request, _written), deadline)


async def find_hanging(
    cluster: Cluster, partitions: Iterable[TopicPartition], idle_ms: int, now_ms: int, deadline: float
) -> list[OpenTransaction]:
    """Transactions open in these partitions, without a record for `idle_ms`, that no coordinator knows."""
    found = [
        OpenTransaction(partition, producer)
        for partition, producers in (await describe_producers(cluster, partitions, deadline)).items()
        for producer in producers
        if producer.transaction_start is not None and now_ms - producer.last_timestamp >= idle_ms
    ]
    if not found:
        return []
    ids = {one.producer.producer_id for one in found}
    listed = await list_transactions(cluster, deadline, producer_ids=sorted(ids))
    known = set[tuple[TopicPartition, int]]()
    for listing in listed:
        try:
            (one,) = await describe_transactions(cluster, [listing.transactional_id], deadline)
        except ApiError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:  # it has expired meanwhile
                raise
            continue
        known |= {(partition, one.producer_id) for partition in one.partitions}
    hanging = [one for one in found if (one.partition, one.producer.producer_id) not in known]
    return sorted(hanging)


async def _ask_coordinator(
    cluster: Cluster, transactional_id: str, request: object, deadline: float
) -> tuple[int, Any]:
    node = await cluster.coordinator(transactional_id, deadline, CoordinatorKind.TRANSACTION)
    try:
        return node, await cluster.request(node, request, deadline)
    except (OSError, ApiError):
        cluster.forget_coordinator(transactional_id, CoordinatorKind.TRANSACTION)
        raise


def _check(cluster: Cluster, transactional_id: str, code: int) -> None:
    if code in COORDINATOR_ERRORS:
        cluster.forget_coordinator(transactional_id, CoordinatorKind.TRANSACTION)
    if code:
        raise error_for(code, transactional_id)


def _description(one: DescribedTransaction, coordinator: int) -> TransactionDescription:
    return TransactionDescription(
        one.transactional_id,
        coordinator,
        one.transaction_state,
        one.producer_id,
        one.producer_epoch,
        one.transaction_timeout_ms,
        one.transaction_start_time_ms if one.transaction_start_time_ms >= 0 else None,
        tuple(TopicPartition(topic.topic, number) for topic in one.topics for number in topic.partitions),
    )


def _producers_request(wanted: Mapping[TopicPartition, int]) -> DescribeProducersRequest:
    topics: dict[str, list[int]] = {}
    for one in wanted:
        topics.setdefault(one.topic, []).append(one.partition)
    return DescribeProducersRequest(
        topics=[DescribeProducersTopic(name=name, partition_indexes=ns) for name, ns in topics.items()]
    )


def _producers(
    answer: DescribeProducersResponse,
) -> Iterator[tuple[TopicPartition, int, list[ProducerDescription]]]:
    for topic in answer.topics:
        for one in topic.partitions:
            producers = [
                ProducerDescription(
                    each.producer_id,
                    each.producer_epoch,
                    each.last_sequence,
                    each.last_timestamp,
                    each.coordinator_epoch,
                    None if each.current_txn_start_offset == NONE_OPEN else each.current_txn_start_offset,
                )
                for each in one.active_producers
            ]
            yield TopicPartition(topic.name, one.partition_index), one.error_code, producers


def _written(answer: WriteTxnMarkersResponse) -> Iterator[tuple[TopicPartition, int, None]]:
    for marker in answer.markers:
        for topic in marker.topics:
            for one in topic.partitions:
                yield TopicPartition(topic.name, one.partition_index), one.error_code, None
