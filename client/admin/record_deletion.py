"""Asks partition leaders to delete records up to an offset.

A request can be repeated without harm: deleted records stay deleted.
Left to others: whom to ask, and how often (network/per_leader.py).
"""

from collections.abc import Iterator, Mapping

from ...base.types import TopicPartition
from ...protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from ..network.cluster import Cluster
from ..network.per_leader import Question, ask_leaders

ALL_COMMITTED = -1  # as an offset


async def delete_records(
    cluster: Cluster, before: Mapping[TopicPartition, int], deadline: float
) -> dict[TopicPartition, int]:
    """Delete records before an offset (-1: all committed ones). Returns where each partition begins now."""

    def request(wanted: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for partition, offset in wanted.items():
            asked = DeleteRecordsPartition(partition_index=partition.partition, offset=offset)
            topics.setdefault(partition.topic, []).append(asked)
        return DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=asked) for name, asked in topics.items()],
            timeout_ms=cluster.patience_ms(deadline),
        )

    return await ask_leaders(cluster, before, Question(request, _low_watermarks), deadline)


def _low_watermarks(answer: DeleteRecordsResponse) -> Iterator[tuple[TopicPartition, int, int]]:
    for topic in answer.topics:
        for one in topic.partitions:
            yield TopicPartition(topic.name, one.partition_index), one.error_code, one.low_watermark
