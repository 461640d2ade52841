"""OffsetDelete 0: a group forgets what it has committed for some partitions.

A group that reads a topic keeps its offsets of it (GROUP_SUBSCRIBED_TO_TOPIC). An error of the group stands
alone in the answer; else each partition has its own. Answered when the tombstones are committed.
Left to others: what may be deleted, and how (groups/forgetting.py); whole groups (admin.py).
"""

from ....base.types import TopicPartition
from ....protocol.apis import Api
from ....protocol.errors import ApiError, ErrorCode
from ....protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ...context import BrokerContext
from ...network.exchange import Exchange, HandlerEntry


def delete(broker: BrokerContext, exchange: Exchange, request: OffsetDeleteRequest) -> None:
    """Parked until the tombstones are committed; a partition that does not exist has nothing to delete."""
    asked = [
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        for each in topic.partitions
    ]
    known = [tp for tp in dict.fromkeys(asked) if broker.metadata.partition(*tp) is not None]

    def done(error: ErrorCode, refused: dict[TopicPartition, ErrorCode]) -> None:
        if error is not ErrorCode.NONE:
            return exchange.answer(OffsetDeleteResponse(error_code=error))
        unknown = dict.fromkeys(set(asked).difference(known), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return exchange.answer(_response(request, {**unknown, **refused}))

    broker.groups.delete_offsets(request.group_id, known, done)


def _response(request: OffsetDeleteRequest, errors: dict[TopicPartition, ErrorCode]) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=errors.get(
                            TopicPartition(topic.name, each.partition_index), ErrorCode.NONE
                        ),
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def refuse(request: OffsetDeleteRequest, error: ApiError) -> OffsetDeleteResponse:
    return OffsetDeleteResponse(error_code=error.code)


HANDLERS: dict[Api, HandlerEntry[BrokerContext]] = {Api.OFFSET_DELETE: HandlerEntry(delete, refuse)}
