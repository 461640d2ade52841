"""The brokers' log directories, for `Admin`: sizes, which are offline or full, and moves between them.

Left to others: all other requests (admin.py).
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

from ...base.types import TopicPartition
from ...protocol.errors import ApiError, error_for
from ...protocol.messages.log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from ..network.cluster import Cluster


class ReplicaSize(NamedTuple):
    """A replica in a log directory, or on its way there."""

    partition: TopicPartition
    size_bytes: int
    offset_lag: int
    is_future: bool = False


class LogDirDescription(NamedTuple):
    """A log directory of a broker. Bytes are -1 if the broker does not say."""

    path: str
    is_offline: bool
    is_full: bool  # nothing is appended there for now; only a Strandline broker says so
    total_bytes: int
    usable_bytes: int
    replicas: tuple[ReplicaSize, ...]


async def describe_log_dirs(
    cluster: Cluster, brokers: Iterable[int] | None, deadline: float
) -> dict[int, list[LogDirDescription]]:
    """Ask each of these brokers, or all that are known, until all have answered.

    Raises BrokerNotAvailable.
    """

    if brokers is None:
        return await cluster.everywhere(lambda node: _ask(cluster, node, deadline), deadline)

    async def ask(node: int) -> list[LogDirDescription]:
        async def attempt() -> list[LogDirDescription]:
            await cluster.listed(node, deadline)
            return await _ask(cluster, node, deadline)

        return await cluster.persist(attempt, deadline)

    nodes = sorted(brokers)
    return dict(zip(nodes, await asyncio.gather(*map(ask, nodes)), strict=True))


async def describe_known_log_dirs(
    cluster: Cluster, brokers: Iterable[int], deadline: float
) -> dict[int, list[LogDirDescription]]:
    """Ask each of these brokers once; those that do not answer are left out."""
    found: dict[int, list[LogDirDescription]] = {}

    async def ask(node: int) -> None:
        with suppress(OSError, ApiError):
            found[node] = await _ask(cluster, node, deadline)

    await asyncio.gather(*map(ask, brokers))
    return dict(sorted(found.items()))


async def alter_replica_log_dirs(
    cluster: Cluster, broker: int, targets: Mapping[TopicPartition, str], deadline: float
) -> dict[TopicPartition, ApiError]:
    """Let replicas of a broker move to these directories of it. The refusals; the moves may take long.

    Raises BrokerNotAvailable.
    """
    topics: dict[str, dict[str, list[int]]] = {}
    for partition, path in targets.items():
        topics.setdefault(path, {}).setdefault(partition.topic, []).append(partition.partition)
    request = AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[AlterReplicaLogDirTopic(name=name, partitions=ns) for name, ns in found.items()],
            )
            for path, found in topics.items()
        ]
    )

    async def attempt() -> AlterReplicaLogDirsResponse:
        await cluster.listed(broker, deadline)
        told: AlterReplicaLogDirsResponse = await cluster.request(broker, request, deadline)
        return told

    refused: dict[TopicPartition, ApiError] = {}
    for topic in (await cluster.persist(attempt, deadline)).results:
        for one in topic.partitions:
            if one.error_code:
                partition = TopicPartition(topic.topic_name, one.partition_index)
                about = f"{partition} to {targets[partition]} of broker {broker}"
                refused[partition] = error_for(one.error_code, about)
    return refused


async def _ask(cluster: Cluster, node: int, deadline: float) -> list[LogDirDescription]:
    told: DescribeLogDirsResponse = await cluster.request(node, DescribeLogDirsRequest(topics=None), deadline)
    if told.error_code:
        raise error_for(told.error_code)
    return [_description(one) for one in told.results]


def _description(one: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        one.log_dir,
        one.error_code != 0,
        one.is_full,
        one.total_bytes,
        one.usable_bytes,
        tuple(
            ReplicaSize(
                TopicPartition(topic.name, replica.partition_index),
                replica.partition_size,
                replica.offset_lag,
                replica.is_future_key,
            )
            for topic in one.topics
            for replica in topic.partitions
        ),
    )
