"""DescribeProducers 0: who writes to a partition, and whose transaction is open.

Any replica answers from its own log, as in Kafka: the tool that looks for hanging transactions may ask each
of them.
Left to others: what is known of a producer (storage/log/producer_state.py).
"""

from typing import TYPE_CHECKING

from ....base.types import TopicPartition
from ....protocol.apis import Api
from ....protocol.errors import ApiError, UnknownTopicOrPartition
from ....protocol.messages.transactions import (
    DescribeProducersPartitionResponse,
    DescribeProducersRequest,
    DescribeProducersResponse,
    DescribeProducersTopicResponse,
    ProducerOnPartition,
)
from ...network.exchange import Exchange, HandlerEntry
from ...roles.held_requests import hold
from ...topic_names import check_topic_name

if TYPE_CHECKING:
    from ...context import BrokerContext


def handle(
    broker: "BrokerContext", exchange: Exchange, request: DescribeProducersRequest
) -> DescribeProducersResponse:
    """All producers of each partition, or its error."""
    named = ((topic.name, index) for topic in request.topics for index in topic.partition_indexes)
    hold(broker.roles.change, broker.replicas, exchange, named)
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
                name=topic.name,
                partitions=[_partition(broker, topic.name, index) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _partition(broker: "BrokerContext", topic: str, index: int) -> DescribeProducersPartitionResponse:
    try:
        if check_topic_name(topic) not in broker.metadata.topics:
            raise UnknownTopicOrPartition()
        producers = broker.replicas.get(TopicPartition(topic, index)).producers()
    except ApiError as error:
        return _refused(index, error)
    return DescribeProducersPartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerOnPartition(
                producer_id=producer_id,
                producer_epoch=known.epoch,
                last_sequence=known.last_sequence,
                last_timestamp=known.last_timestamp,
                coordinator_epoch=known.coordinator_epoch,
                current_txn_start_offset=known.transaction_first_offset,
            )
            for producer_id, known in producers
        ],
    )


def _refused(index: int, error: ApiError) -> DescribeProducersPartitionResponse:
    return DescribeProducersPartitionResponse(
        partition_index=index, error_code=error.code, error_message=error.message, active_producers=[]
    )


def refuse(request: DescribeProducersRequest, error: ApiError) -> DescribeProducersResponse:
    """Every partition with the same error."""
    return DescribeProducersResponse(
        topics=[
            DescribeProducersTopicResponse(
                name=topic.name, partitions=[_refused(index, error) for index in topic.partition_indexes]
            )
            for topic in request.topics
        ]
    )


HANDLERS = {Api.DESCRIBE_PRODUCERS: HandlerEntry(handle, refuse)}
