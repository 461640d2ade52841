"""OffsetForLeaderEpoch 2-4: where an epoch ends in the leader's log, for callers that may have diverged.

v3 replica id, accepted only on the listener between brokers · v4 flexible
"""

from typing import TYPE_CHECKING

from ...base.types import TopicPartition
from ...protocol.apis import Api
from ...protocol.errors import ApiError, TopicAuthorizationFailed
from ...protocol.messages.offsets import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)
from ..network.exchange import Exchange, HandlerEntry
from ..roles.held_requests import hold

if TYPE_CHECKING:
    from ..context import BrokerContext


def handle(
    broker: "BrokerContext", exchange: Exchange, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    """One end offset for each partition, or an error unless we lead it in the epoch that the caller knows."""
    if request.replica_id >= 0 and not exchange.internal:
        raise TopicAuthorizationFailed(
            "a request with a replica id must come from a broker, on inter.broker.listener.name"
        )
    asked = ((t.topic, p.partition) for t in request.topics for p in t.partitions)
    hold(broker.roles.change, broker.replicas, exchange, asked)

    def answer(topic: str, asked: OffsetForLeaderPartition) -> EpochEndOffset:
        try:
            partition = broker.replicas.get(TopicPartition(topic, asked.partition))
            partition.led(asked.current_leader_epoch)
            epoch, end = partition.log.end_offset_for(asked.leader_epoch)
        except ApiError as error:
            return EpochEndOffset(partition=asked.partition, error_code=error.code)
        return EpochEndOffset(partition=asked.partition, leader_epoch=epoch, end_offset=end)

    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(topic=t.topic, partitions=[answer(t.topic, p) for p in t.partitions])
            for t in request.topics
        ]
    )


def refuse(request: OffsetForLeaderEpochRequest, error: ApiError) -> OffsetForLeaderEpochResponse:
    """Every partition with the same error."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=p.partition, error_code=error.code) for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLERS = {Api.OFFSET_FOR_LEADER_EPOCH: HandlerEntry(handle, refuse)}
