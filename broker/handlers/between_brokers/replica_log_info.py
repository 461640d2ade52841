"""GetReplicaLogInfo 0, between brokers: log end offsets, for a controller that looks for the longest log.

A replica answers in any role, with the leader epoch that it knows. The controller believes the answer only if
the replica has heard that there is no leader: then its log does not change.
Left to others: which replica leads then (controller/planning/unclean_recovery.py).
"""

from typing import TYPE_CHECKING

from ....base.types import TopicPartition
from ....protocol.apis import Api
from ....protocol.errors import ApiError, ErrorCode
from ....protocol.messages.elections import (
    GetReplicaLogInfoRequest,
    GetReplicaLogInfoResponse,
    LogInfoTopic,
    PartitionLogInfo,
    TopicLogInfo,
)
from ...network.exchange import Exchange, HandlerEntry

if TYPE_CHECKING:
    from ...context import BrokerContext


def handle(
    broker: "BrokerContext", exchange: Exchange, request: GetReplicaLogInfoRequest
) -> GetReplicaLogInfoResponse:
    """Every log asked about, in the order of the request."""
    return GetReplicaLogInfoResponse(
        broker_epoch=broker.incarnation,
        topic_partition_log_info_list=[
            TopicLogInfo(
                topic_id=topic.topic_id,
                partition_log_info=[_log_info(broker, topic, number) for number in topic.partitions],
            )
            for topic in request.topic_partitions or []
        ],
    )


def _log_info(broker: "BrokerContext", topic: LogInfoTopic, number: int) -> PartitionLogInfo:
    replicas = broker.replicas
    tp = TopicPartition(topic.topic or replicas.name_of(topic.topic_id) or "", number)
    partition = replicas.find(tp)
    if partition is None or (topic.topic_id.int and partition.log.topic_id != topic.topic_id):
        return PartitionLogInfo(partition=number, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.offline is not None:
        return PartitionLogInfo(partition=number, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    if partition.incomplete:
        return PartitionLogInfo(partition=number, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    log = partition.log
    last = max(log.end_offset - 1, log.start_offset)  # an empty log still knows the epoch it begins in
    return PartitionLogInfo(
        partition=number,
        last_written_leader_epoch=log.epochs.epoch_at(last),
        current_leader_epoch=partition.leader_epoch,
        log_end_offset=log.end_offset,
    )


def refuse(request: GetReplicaLogInfoRequest, error: ApiError) -> GetReplicaLogInfoResponse:
    """Every partition with the same error."""
    return GetReplicaLogInfoResponse(
        topic_partition_log_info_list=[
            TopicLogInfo(
                topic_id=topic.topic_id,
                partition_log_info=[
                    PartitionLogInfo(partition=number, error_code=error.code) for number in topic.partitions
                ],
            )
            for topic in request.topic_partitions or []
        ]
    )


HANDLERS = {Api.GET_REPLICA_LOG_INFO: HandlerEntry(handle, refuse)}
