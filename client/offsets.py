"""Offsets asked of partition leaders: where a partition begins and ends, where a time lies in it.

Each partition is asked of its leader; those whose leader moved are asked again until the deadline.
Left to others: what a consumer does with them (fetcher.py, consumer.py).
"""

import asyncio
from collections.abc import Mapping

from ..protocol.errors import ApiError, ErrorCode, LeaderNotAvailable, error_for
from ..protocol.kinds import TopicPartition
from ..protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from .cluster import Cluster
from .shapes import OffsetAndTimestamp

LATEST, EARLIEST = -1, -2


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int, deadline: float
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The first offset at or after each partition's time (or LATEST, EARLIEST); -1 where there is none."""
    for topic in {partition.topic: None for partition in wanted}:
        await cluster.partitions(topic, deadline)
    found: dict[TopicPartition, OffsetAndTimestamp] = {}
    attempt = 0
    while True:
        missing = {partition: time for partition, time in wanted.items() if partition not in found}
        trouble = await _ask_leaders(cluster, missing, isolation, deadline, found)
        if len(found) == len(wanted):
            return found
        if trouble is not None and not trouble.retriable:
            raise trouble
        pause = cluster.pause(attempt)
        if cluster.now() + pause >= deadline:
            raise trouble or LeaderNotAvailable(", ".join(map(str, missing)))
        attempt += 1
        await asyncio.sleep(pause)


async def _ask_leaders(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: int,
    deadline: float,
    found: dict[TopicPartition, OffsetAndTimestamp],
) -> ApiError | None:
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for partition, time in wanted.items():
        leader = cluster.leader(partition)
        if leader is not None:
            by_leader.setdefault(leader.leader, {})[partition] = time
    questions = [
        _ask_leader(cluster, node, part, isolation, deadline, found) for node, part in by_leader.items()
    ]
    troubles = [trouble for trouble in await asyncio.gather(*questions) if trouble is not None]
    fatal = [trouble for trouble in troubles if not trouble.retriable]
    return fatal[0] if fatal else (troubles[0] if troubles else None)


async def _ask_leader(
    cluster: Cluster,
    node: int,
    wanted: Mapping[TopicPartition, int],
    isolation: int,
    deadline: float,
    found: dict[TopicPartition, OffsetAndTimestamp],
) -> ApiError | None:
    topics: dict[str, list[ListOffsetsPartition]] = {}
    epochs = {partition: cluster.view.epoch(partition) for partition in wanted}
    for partition, time in wanted.items():
        asked = ListOffsetsPartition(
            partition_index=partition.partition, timestamp=time, current_leader_epoch=epochs[partition]
        )
        topics.setdefault(partition.topic, []).append(asked)
    request = ListOffsetsRequest(
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
    )
    try:
        answer: ListOffsetsResponse = await cluster.request(node, request, deadline)
    except OSError as lost:
        for partition, epoch in epochs.items():
            cluster.doubt(partition, node, epoch)
        return error_for(ErrorCode.NETWORK_EXCEPTION, str(lost))
    except ApiError as trouble:
        return trouble
    trouble_met: ApiError | None = None
    for topic in answer.topics:
        for one in topic.partitions:
            partition = TopicPartition(topic.name, one.partition_index)
            if one.error_code:
                trouble_met = error_for(one.error_code, str(partition))
                cluster.doubt(partition, node, epochs.get(partition, -1))
            else:
                found[partition] = OffsetAndTimestamp(one.offset, one.timestamp, one.leader_epoch)
    return trouble_met
