"""Asks who holds a last stable offset back, and whether any coordinator knows of that transaction.

Left to others: which partitions are held back (checks_groups.py), how long is too long (the same).
"""

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, TypeVar

from ...base.clock import SystemClock
from ...base.types import TopicPartition
from ...protocol.errors import ApiError, UnsupportedVersion, error_for
from ...protocol.messages.transactions import (
    DescribeProducersRequest,
    DescribeProducersTopic,
    DescribeTransactionsRequest,
    ListTransactionsRequest,
)
from .ask_broker import Asked
from .facts import OpenTransaction, TopicFacts

PARTITIONS_MAX = 100
NONE_OPEN = -1

Found = TypeVar("Found")


async def ask_transactions(
    held: Iterable[TopicPartition], topics: Mapping[str, TopicFacts], brokers: Mapping[int, Asked]
) -> tuple[OpenTransaction, ...]:
    """The open transactions of these partitions. Nothing if a coordinator does not answer: it may know; that
    it did not answer is told.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    for one in sorted(held)[:PARTITIONS_MAX]:
        by_leader.setdefault(topics[one.topic].partitions[one.partition].leader, []).append(one)
    if not by_leader:
        return ()
    now_ms = SystemClock().wall_ms()
    try:
        opened = [
            found
            for each in await asyncio.gather(
                *(
                    _told(brokers[id], _open(brokers[id], own, now_ms))
                    for id, own in by_leader.items()
                    if id in brokers
                )
            )
            for found in each
        ]
        known = await _known(brokers.values(), sorted({one.producer_id for one in opened}))
    except (OSError, ApiError):
        return ()
    return tuple(
        OpenTransaction(
            one.partition,
            one.producer_id,
            one.start_offset,
            one.idle_ms,
            *known.get((one.partition, one.producer_id), (None, None)),
        )
        for one in opened
    )


async def _told(broker: Asked, answer: Coroutine[Any, Any, Found]) -> Found:
    """The answer. That there is none is noted, except of a broker that is too old for the request."""
    try:
        return await answer
    except UnsupportedVersion:
        raise
    except (OSError, ApiError) as error:
        broker.failed["transactions"] = str(error) or type(error).__name__
        raise


async def _open(leader: Asked, partitions: list[TopicPartition], now_ms: int) -> list[OpenTransaction]:
    assert leader.probe is not None
    wanted: dict[str, list[int]] = {}
    for one in partitions:
        wanted.setdefault(one.topic, []).append(one.partition)
    told = await leader.probe.ask(
        DescribeProducersRequest(
            topics=[DescribeProducersTopic(name=name, partition_indexes=ns) for name, ns in wanted.items()]
        )
    )
    return [
        OpenTransaction(
            TopicPartition(topic.name, one.partition_index),
            each.producer_id,
            each.current_txn_start_offset,
            max(now_ms - each.last_timestamp, 0),
        )
        for topic in told.topics
        for one in topic.partitions
        for each in one.active_producers
        if each.current_txn_start_offset != NONE_OPEN
    ]


async def _known(
    brokers: Iterable[Asked], producer_ids: list[int]
) -> dict[tuple[TopicPartition, int], tuple[str, str]]:
    """Transactional id and state of each transaction that a coordinator has, by partition and producer. A
    coordinator may know the producer and not the partition: then it does not end the transaction there.
    """
    answers = await asyncio.gather(*(_told(each, _known_to(each, producer_ids)) for each in brokers))
    return {key: value for answer in answers for key, value in answer.items()}


async def _known_to(
    coordinator: Asked, producer_ids: list[int]
) -> dict[tuple[TopicPartition, int], tuple[str, str]]:
    assert coordinator.probe is not None
    told = await coordinator.probe.ask(ListTransactionsRequest(producer_id_filters=producer_ids))
    if told.error_code:
        raise error_for(told.error_code)
    ids = [one.transactional_id for one in told.transaction_states]
    if not ids:
        return {}
    described = await coordinator.probe.ask(DescribeTransactionsRequest(transactional_ids=ids))
    return {
        (TopicPartition(topic.topic, number), one.producer_id): (one.transactional_id, one.transaction_state)
        for one in described.transaction_states
        for topic in one.topics
        for number in topic.partitions
    }
