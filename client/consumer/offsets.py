"""Asks partition leaders for offsets: the first, the last, or the first at a time.

Left to others: whom to ask, and how often (network/per_leader.py), what a consumer does with them
(consumer.py).
"""

from collections.abc import Iterator, Mapping

from ...base.types import TopicPartition
from ...protocol.errors import ApiError
from ...protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from ..network.cluster import Cluster
from ..network.per_leader import Question, ask_briefly, ask_leaders, ask_once
from ..results import OffsetAndTimestamp


async def list_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int, deadline: float
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The first offset at or after each partition's time (or LATEST, EARLIEST); -1 where there is none."""
    return await ask_leaders(cluster, wanted, _question(cluster, isolation), deadline)


async def list_known_offsets(
    cluster: Cluster, wanted: Mapping[TopicPartition, int], isolation: int, deadline: float
) -> dict[TopicPartition, OffsetAndTimestamp]:
    """The same, for the partitions whose leaders can answer now."""
    return await ask_briefly(cluster, wanted, _question(cluster, isolation), deadline)


async def find_offsets(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, int],
    isolation: int,
    deadline: float,
    found: dict[TopicPartition, OffsetAndTimestamp],
) -> ApiError | None:
    """Make one attempt and add its results to `found`. Returns an error as `ask_once` does."""
    return await ask_once(cluster, wanted, _question(cluster, isolation), deadline, found)


def _question(cluster: Cluster, isolation: int) -> Question[OffsetAndTimestamp]:
    def request(wanted: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for partition, time in wanted.items():
            asked = ListOffsetsPartition(
                partition_index=partition.partition,
                timestamp=time,
                current_leader_epoch=cluster.view.epoch(partition),
            )
            topics.setdefault(partition.topic, []).append(asked)
        return ListOffsetsRequest(
            isolation_level=isolation,
            topics=[ListOffsetsTopic(name=name, partitions=asked) for name, asked in topics.items()],
        )

    return Question(request, _offsets)


def _offsets(answer: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, int, OffsetAndTimestamp]]:
    for topic in answer.topics:
        for one in topic.partitions:
            offset = OffsetAndTimestamp(one.offset, one.timestamp, one.leader_epoch)
            yield TopicPartition(topic.name, one.partition_index), one.error_code, offset
