"""DescribeLogDirs 0-4 and AlterReplicaLogDirs 0-2: this broker's log directories, the logs in them, which are
offline or full; and which replicas are to be elsewhere.

DescribeLogDirs: v1 throttling counts after the answer · v2 flexible · v3 an error for the whole · v4 bytes of
the volume · AlterReplicaLogDirs: v2 flexible
Volume sizes are read in a thread: a disk that hangs must not block the event loop. A wish to move a replica
is answered at once; DescribeLogDirs tells of the copy (`is_future_key`) until it is the log.
Left to others: moving (upkeep/log_dir_moves.py).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ...base.types import TopicPartition
from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode
from ...protocol.messages.log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from ...storage.disk import Disk
from ...storage.log.log import Log
from ..network.exchange import Exchange, HandlerEntry

if TYPE_CHECKING:
    from ..context import BrokerContext

UNKNOWN = (-1, -1)


async def handle(
    broker: "BrokerContext", exchange: Exchange, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    """Each directory by itself; the logs of an offline one are not listed."""
    logs = broker.logs
    usable = logs.places.usable
    found = await asyncio.get_running_loop().run_in_executor(None, volumes, logs.disk, usable)
    wanted = _wanted(request)
    held, coming = _held(broker, wanted), _coming(broker, wanted)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory)
            if directory in logs.places.offline
            else _describe(
                broker,
                directory,
                held.get(directory, []),
                coming.get(directory, []),
                found.get(directory, UNKNOWN),
            )
            for directory in logs.places.configured
        ]
    )


def refuse(request: DescribeLogDirsRequest, error: ApiError) -> DescribeLogDirsResponse:
    """Only the error."""
    return DescribeLogDirsResponse(error_code=error.code)


def volumes(disk: Disk, directories: list[str]) -> Mapping[str, tuple[int, int]]:
    """Size and free bytes of each directory's file system. Blocking."""
    found = {}
    for directory in directories:
        try:
            found[directory] = disk.total_bytes(directory), disk.free_bytes(directory)
        except OSError:
            found[directory] = UNKNOWN
    return found


def _wanted(request: DescribeLogDirsRequest) -> set[TopicPartition] | None:
    """The partitions that are asked for; None: all of them."""
    if request.topics is None:
        return None
    return {TopicPartition(one.topic, index) for one in request.topics for index in one.partitions}


def _held(broker: "BrokerContext", wanted: set[TopicPartition] | None) -> dict[str, list[Log]]:
    logs = broker.logs
    held: dict[str, list[Log]] = {}
    for tp in sorted(logs.logs if wanted is None else wanted & logs.logs.keys()):
        held.setdefault(logs.directory_of(tp), []).append(logs.logs[tp])
    return held


Row = tuple[TopicPartition, DescribeLogDirsPartition]


def _coming(broker: "BrokerContext", wanted: set[TopicPartition] | None) -> dict[str, list[Row]]:
    """By directory: the replicas that are on their way there."""
    found: dict[str, list[Row]] = {}
    for tp, directory, nbytes, lag in broker.moves.coming():
        if wanted is None or tp in wanted:
            one = DescribeLogDirsPartition(
                partition_index=tp.partition, partition_size=nbytes, offset_lag=lag, is_future_key=True
            )
            found.setdefault(directory, []).append((tp, one))
    return found


def _describe(
    broker: "BrokerContext", directory: str, held: list[Log], coming: list[Row], volume: tuple[int, int]
) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for each in held:
        one = DescribeLogDirsPartition(
            partition_index=each.partition.partition,
            partition_size=each.size,
            offset_lag=_lag(broker, each),
        )
        topics.setdefault(each.partition.topic, []).append(one)
    for tp, one in coming:
        topics.setdefault(tp.topic, []).append(one)
    return DescribeLogDirsResult(
        log_dir=directory,
        topics=[DescribeLogDirsTopic(name=name, partitions=those) for name, those in topics.items()],
        total_bytes=volume[0],
        usable_bytes=volume[1],
        is_full=directory in broker.logs.places.full,
    )


def _lag(broker: "BrokerContext", each: Log) -> int:
    """How far the log end is behind the high watermark: 0 unless records were removed."""
    hosted = broker.replicas.find(each.partition)
    return 0 if hosted is None else max(hosted.high_watermark - each.end_offset, 0)


def alter(
    broker: "BrokerContext", exchange: Exchange, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    """Each replica by itself: its move is begun, or why not."""

    def code(directory: str, tp: TopicPartition) -> int:
        try:
            broker.moves.want(tp, directory)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    return _altered(request, code)


def refuse_alter(request: AlterReplicaLogDirsRequest, error: ApiError) -> AlterReplicaLogDirsResponse:
    """Each replica with the same error."""
    return _altered(request, lambda directory, tp: error.code)


def _altered(
    request: AlterReplicaLogDirsRequest, code: Callable[[str, TopicPartition], int]
) -> AlterReplicaLogDirsResponse:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for one in request.dirs:
        for topic in one.topics:
            for index in topic.partitions:
                found = code(one.path, TopicPartition(topic.name, index))
                row = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=found)
                topics.setdefault(topic.name, []).append(row)
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows) for name, rows in topics.items()
        ]
    )


HANDLERS = {
    Api.DESCRIBE_LOG_DIRS: HandlerEntry(handle, refuse),
    Api.ALTER_REPLICA_LOG_DIRS: HandlerEntry(alter, refuse_alter),
}
