"""Partitions moved to other brokers, for `Admin`: asked of the controller, by way of any broker.

A request can be repeated without harm: it gives the replicas that a partition should have, not a step.
Left to others: how often to try (network/cluster.py), who moves them (the controller).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ...base.types import TopicPartition
from ...protocol.errors import ApiError, UnknownTopicOrPartition, error_for
from ...protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListedTopic,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ..network.cluster import Cluster


class PartitionReassignment(NamedTuple):
    """A moving partition: its replicas now, those being added, those being removed."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when the move is done, the preferred leader first."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)


async def alter_partition_reassignments(
    cluster: Cluster, targets: Mapping[TopicPartition, Sequence[int] | None], deadline: float
) -> dict[TopicPartition, ApiError]:
    """Move partitions, or move them back (None). Returns those that were refused, with the reason."""
    topics: dict[str, list[ReassignablePartition]] = {}
    for partition, target in targets.items():
        replicas = None if target is None else list(target)
        asked = ReassignablePartition(partition_index=partition.partition, replicas=replicas)
        topics.setdefault(partition.topic, []).append(asked)
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=cluster.patience_ms(deadline),
        topics=[ReassignableTopic(name=name, partitions=asked) for name, asked in topics.items()],
    )
    answer: AlterPartitionReassignmentsResponse = await _ask(cluster, request, deadline)
    return {
        TopicPartition(topic.name, one.partition_index): error_for(one.error_code, one.error_message)
        for topic in answer.responses
        for one in topic.partitions
        if one.error_code
    }


async def list_partition_reassignments(
    cluster: Cluster, partitions: Iterable[TopicPartition] | None, deadline: float
) -> dict[TopicPartition, PartitionReassignment]:
    """The reassignments under way, of these partitions or of all."""
    topics: dict[str, list[int]] | None = None
    if partitions is not None:
        topics = {}
        for partition in partitions:
            topics.setdefault(partition.topic, []).append(partition.partition)
    request = ListPartitionReassignmentsRequest(
        timeout_ms=cluster.patience_ms(deadline),
        topics=None
        if topics is None
        else [ListedTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
    )
    answer: ListPartitionReassignmentsResponse = await _ask(cluster, request, deadline)
    return {
        TopicPartition(topic.name, one.partition_index): PartitionReassignment(
            tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
        )
        for topic in answer.topics
        for one in topic.partitions
    }


async def _ask(cluster: Cluster, request: Any, deadline: float) -> Any:
    """The answer to the whole request; raises its error."""

    async def attempt() -> Any:
        controller = cluster.view.controller_id
        if controller in cluster.view.brokers:
            answer = await cluster.request(controller, request, deadline)
        else:
            answer = await cluster.ask_any(request, deadline)
        if answer.error_code:
            raise error_for(answer.error_code, answer.error_message)
        return answer

    return await cluster.persist(attempt, deadline)


def first_refusal(refused: Mapping[TopicPartition, ApiError]) -> ApiError | None:
    """One error that says which partition it is about."""
    for partition, error in sorted(refused.items()):
        if isinstance(error, UnknownTopicOrPartition):
            return UnknownTopicOrPartition(error.message or f"partition {partition} does not exist")
        return error_for(error.code, f"{partition}: {error.message}")
    return None
