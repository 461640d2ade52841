"""DescribeLogDirs 0-4: this broker's log directories, the logs in them, and which are offline or full.

v1 throttling counts after the answer · v2 flexible · v3 an error for the whole · v4 bytes of the volume
Volume sizes are read in a thread: a disk that hangs must not block the event loop.
Left to others: moving replicas between directories.
"""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ...base.types import TopicPartition
from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode
from ...protocol.messages.log_dirs import (
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
    volumes = await asyncio.get_running_loop().run_in_executor(None, _volumes, logs.disk, usable)
    held = _held(broker, request)
    return DescribeLogDirsResponse(
        results=[
            DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory)
            if directory in logs.places.offline
            else _describe(broker, directory, held.get(directory, []), volumes.get(directory, UNKNOWN))
            for directory in logs.places.configured
        ]
    )


def refuse(request: DescribeLogDirsRequest, error: ApiError) -> DescribeLogDirsResponse:
    """Only the error."""
    return DescribeLogDirsResponse(error_code=error.code)


def _volumes(disk: Disk, directories: list[str]) -> Mapping[str, tuple[int, int]]:
    """Size and free bytes of each directory's file system. Blocking."""
    found = {}
    for directory in directories:
        try:
            found[directory] = disk.total_bytes(directory), disk.free_bytes(directory)
        except OSError:
            found[directory] = UNKNOWN
    return found


def _held(broker: "BrokerContext", request: DescribeLogDirsRequest) -> dict[str, list[Log]]:
    logs = broker.logs
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(one.topic, index) for one in request.topics for index in one.partitions}
    held: dict[str, list[Log]] = {}
    for tp in sorted(logs.logs if wanted is None else wanted & logs.logs.keys()):
        held.setdefault(logs.directory_of(tp), []).append(logs.logs[tp])
    return held


def _describe(
    broker: "BrokerContext", directory: str, held: list[Log], volume: tuple[int, int]
) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for each in held:
        one = DescribeLogDirsPartition(
            partition_index=each.partition.partition,
            partition_size=each.size,
            offset_lag=_lag(broker, each),
        )
        topics.setdefault(each.partition.topic, []).append(one)
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


HANDLERS = {Api.DESCRIBE_LOG_DIRS: HandlerEntry(handle, refuse)}
