"""Asks for topics, their settings, moves, and, of partitions that are not well, what brokers decided.

Left to others: what follows from it (checks_topics.py), the answers of `strandline why`
(broker/why_answers.py).
"""

import asyncio
from collections.abc import Iterable, Mapping

from ...base.types import TopicPartition
from ...broker.why_answers import Evidence
from ...client.admin.configs import ResourceType
from ...protocol.errors import ApiError
from ...protocol.messages.cluster import DescribeConfigsRequest, DescribeConfigsResource
from ...protocol.messages.inspection import InspectRequest
from ...protocol.messages.metadata import MetadataResponse
from ...protocol.messages.reassignments import ListPartitionReassignmentsRequest
from .ask_broker import Asked, inspect
from .facts import PartitionFacts, TopicFacts
from .probe import Probe

TOPIC_CONFIGS = ("min.insync.replicas", "unclean.leader.election.enable")
TOPICS_AT_ONCE = 500
EXPLAINED_MAX = 5  # partitions, each of another kind of trouble


async def ask_topics(told: MetadataResponse, probe: Probe) -> dict[str, TopicFacts]:
    """All topics of this view, with their settings as the broker behind `probe` knows them."""
    names = sorted(topic.name for topic in told.topics if topic.name and not topic.error_code)
    configs: dict[str, dict[str, str | None]] = {}
    for at in range(0, len(names), TOPICS_AT_ONCE):
        configs |= await _configs(names[at : at + TOPICS_AT_ONCE], probe)
    return {
        topic.name: TopicFacts(
            topic.name,
            topic.is_internal,
            {
                one.partition_index: PartitionFacts(
                    one.leader_id, one.leader_epoch, tuple(one.replica_nodes), tuple(one.isr_nodes)
                )
                for one in sorted(topic.partitions, key=lambda each: each.partition_index)
            },
            configs.get(topic.name, {}),
        )
        for topic in told.topics
        if topic.name and not topic.error_code
    }


async def _configs(names: list[str], probe: Probe) -> dict[str, dict[str, str | None]]:
    resources = [
        DescribeConfigsResource(
            resource_type=ResourceType.TOPIC, resource_name=name, configuration_keys=list(TOPIC_CONFIGS)
        )
        for name in names
    ]
    told = await probe.ask(DescribeConfigsRequest(resources=resources))
    return {
        result.resource_name: {one.name: one.value for one in result.configs}
        for result in told.results
        if not result.error_code
    }


async def ask_moves(probe: Probe) -> frozenset[TopicPartition]:
    """The partitions that a reassignment is moving; none if the controller does not tell."""
    try:
        told = await probe.ask(ListPartitionReassignmentsRequest(timeout_ms=1_000))
    except (OSError, ApiError):
        return frozenset()
    return frozenset(
        TopicPartition(topic.name, one.partition_index) for topic in told.topics for one in topic.partitions
    )


def worth_explaining(topics: Mapping[str, TopicFacts]) -> list[TopicPartition]:
    """Partitions without a leader or out of sync: one of each kind, for the others have the same cause."""
    found: dict[tuple[int, tuple[int, ...]], TopicPartition] = {}
    for topic in topics.values():
        for number, one in topic.partitions.items():
            if one.offline or one.missing:
                found.setdefault((one.leader, one.missing), TopicPartition(topic.name, number))
    return list(found.values())[:EXPLAINED_MAX]


async def ask_why(
    partitions: Iterable[TopicPartition], brokers: Iterable[Asked], wait_s: float
) -> dict[TopicPartition, Evidence]:
    """What Strandline's brokers know of each partition, and why the others do not answer."""
    everybody = list(brokers)
    silent = {each.id: each.dial.reach.value for each in everybody if not each.dial.answers}
    asked = [each for each in everybody if each.is_strandline]

    async def explain(partition: TopicPartition) -> Evidence:
        request = InspectRequest(about="partition", topic=partition.topic, partition=partition.partition)

        async def one(broker: Asked) -> dict[str, object] | str:
            try:
                return (await inspect(broker.place, request, wait_s))[0]
            except (OSError, ApiError) as error:
                return str(error)

        answers = dict(zip((each.id for each in asked), await asyncio.gather(*map(one, asked)), strict=True))
        documents = {id: told for id, told in answers.items() if isinstance(told, dict)}
        lost = {id: told for id, told in answers.items() if isinstance(told, str)}
        return Evidence(str(partition), documents, {**silent, **lost})

    wanted = list(partitions)
    if not asked:
        return {}
    return dict(zip(wanted, await asyncio.gather(*map(explain, wanted)), strict=True))
