"""ListOffsets 1-8: where a partition begins and ends, and which record was the first at a time.

-1 the end, -2 the beginning, -3 the record with the largest timestamp (v7), -4 the earliest local record
(v8; all of ours are). A new leader answers none of what lies at the end before its high watermark covers
all that earlier leaders may have committed: an end once shown never goes back. v2 isolation level · v4
leader epoch · v6 flexible
"""

from typing import TYPE_CHECKING

from ...protocol.apis import Api
from ...protocol.errors import ApiError, KafkaStorageError, LeaderNotAvailable, OffsetNotAvailable
from ...protocol.kinds import TopicPartition
from ...protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ...storage.disk import DiskError
from ..exchange import Exchange, HandlerEntry
from ..partition import Partition

if TYPE_CHECKING:
    from ..context import Broker

LATEST, EARLIEST, LARGEST_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
BEGINNINGS = frozenset((EARLIEST, EARLIEST_LOCAL))
DEBUGGER = -2  # a replica id that asks for the very end of the log
NOT_AVAILABLE_FROM = 5
NOTHING_FOUND = (-1, -1, -1)

Found = tuple[int, int, int]  # timestamp, offset, leader epoch


def handle(broker: "Broker", exchange: Exchange, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """One answer for each partition."""
    sees_end = request.replica_id == DEBUGGER or (request.replica_id >= 0 and exchange.internal)

    def answer(topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        try:
            partition = broker.replicas.get(TopicPartition(topic, asked.partition_index))
            timestamp, offset, epoch = _look_up(partition, asked, sees_end, exchange.version)
        except ApiError as error:
            return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error.code)
        return ListOffsetsPartitionResponse(
            partition_index=asked.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch
        )

    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(name=t.name, partitions=[answer(t.name, p) for p in t.partitions])
            for t in request.topics
        ]
    )


def _look_up(partition: Partition, asked: ListOffsetsPartition, sees_end: bool, version: int) -> Found:
    leader = partition.led(asked.current_leader_epoch)
    log, time = partition.log, asked.timestamp
    if time in BEGINNINGS:
        return -1, log.start_offset, log.epochs.epoch_at(log.start_offset)
    if not leader.committed_whole and not sees_end:
        raise OffsetNotAvailable() if version >= NOT_AVAILABLE_FROM else LeaderNotAvailable()
    end = log.end_offset if sees_end else leader.high_watermark
    if time == LATEST:
        return -1, end, leader.epoch
    try:
        found = log.latest_timestamp(end) if time == LARGEST_TIMESTAMP else log.find_timestamp(time, end)
    except DiskError as error:
        raise partition.disk_failed(error) from error
    except OSError as error:
        raise KafkaStorageError(str(error)) from error
    return found if found is not None else NOTHING_FOUND


def refuse(request: ListOffsetsRequest, error: ApiError) -> ListOffsetsResponse:
    """Every partition with the same error."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=error.code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLERS = {Api.LIST_OFFSETS: HandlerEntry(handle, refuse)}
