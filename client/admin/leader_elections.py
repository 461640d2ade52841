"""Elections that an operator asks for: of preferred leaders, or of any at all; for `Admin`.

A request can be repeated without harm: the second finds that no election is needed.
Left to others: who may lead (the controller), how often to try (network/cluster.py).
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Self

from ...base.types import TopicPartition
from ...protocol.errors import ApiError, NotController, error_for
from ...protocol.messages.elections import ElectedPartitions, ElectLeadersRequest, ElectLeadersResponse
from ..network.cluster import Cluster

Outcomes = dict[TopicPartition, ApiError | None]


class Election(IntEnum):
    """Which leaders are wanted, with Kafka's numbers."""

    PREFERRED = 0  # the first replica of the assignment, if it may lead
    UNCLEAN = 1  # any live replica, where there is no leader: records may be lost

    @classmethod
    def of(cls, name: str) -> Self:
        """By its name, in any case."""
        found = cls.__members__.get(name.upper())
        if found is None:
            raise ValueError(f"election={name!r}: expected {' or '.join(one.name.lower() for one in cls)}")
        return cls(found)


async def elect_leaders(
    cluster: Cluster, kind: Election, partitions: Iterable[TopicPartition] | None, deadline: float
) -> Outcomes:
    """The outcome for each partition: None, or why it does not have the leader that was asked for.

    A request for all partitions (None) returns only those that did not have such a leader before.
    """
    wanted: list[ElectedPartitions] | None = None
    if partitions is not None:
        topics: dict[str, list[int]] = {}
        for partition in sorted(set(partitions)):
            topics.setdefault(partition.topic, []).append(partition.partition)
        wanted = [ElectedPartitions(topic=name, partitions=numbers) for name, numbers in topics.items()]

    async def attempt() -> Outcomes:
        request = ElectLeadersRequest(
            election_type=int(kind),
            topic_partitions=wanted,
            timeout_ms=cluster.patience_ms(deadline),
        )
        controller = cluster.view.controller_id
        told: ElectLeadersResponse
        if controller in cluster.view.brokers:
            told = await cluster.request(controller, request, deadline)
        else:
            told = await cluster.ask_any(request, deadline)
        if told.error_code:
            raise error_for(told.error_code)
        outcomes = {
            TopicPartition(topic.topic, one.partition_id): (
                error_for(one.error_code, one.error_message) if one.error_code else None
            )
            for topic in told.replica_election_results
            for one in topic.partition_result
        }
        for refusal in outcomes.values():
            if isinstance(refusal, NotController):  # Apache Kafka with ZooKeeper says so of each partition
                raise refusal
        return outcomes

    return await cluster.persist(attempt, deadline)
