"""Asks brokers for their settings, those of topics, and the first batch of each partition.

The first batch is enough: segments of a log begin with the oldest format that it has had. A fetch from the
start with a limit of one byte brings that batch alone, and Kafka does not convert it for a fetch of version 4
or later.
Left to others: what follows from it (checks_settings.py, checks_records.py).
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from ....base.types import TopicPartition
from ....client.admin.configs import ConfigSource, ResourceType
from ....protocol.apis import Api
from ....protocol.errors import ApiError, error_for
from ....protocol.messages.cluster import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from ....protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ....protocol.messages.offsets import (
    EARLIEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ....protocol.primitives import Buffer
from ..facts import PartitionFacts
from ..probe import Probe
from .facts import Head, Settings

BROKER_ID, NODE_ID, ROLES = "broker.id", "node.id", "process.roles"
TOPICS_AT_ONCE = 200
FETCHES_AT_ONCE = 16
FETCH_VERSION_MAX = 12  # later ones name topics by their ids
HELD_BACK_TIMES_MAX, HELD_BACK_S_MAX = 5, 2.0
MAGIC_AT = 16
ATTRIBUTES_AT = {0: 17, 1: 17, 2: 22}  # the byte of the attributes that has the codec, by format
CODEC_MASK = 0x07


async def ask_broker_settings(probe: Probe, broker: int) -> dict[str, str | None]:
    """What stands in the configuration file of this broker, under whatever is set while it runs."""
    (result,) = await _described(probe, ResourceType.BROKER, [str(broker)], with_synonyms=True)
    found = {
        one.name: one.value
        for config in result.configs
        for one in config.synonyms
        if one.source == ConfigSource.STATIC_BROKER_CONFIG
    }
    if ROLES not in found and found.get(NODE_ID) == found.get(BROKER_ID):
        found.pop(NODE_ID, None)  # Kafka tells each of the two where the other one was given
    return found


async def ask_topic_settings(probe: Probe, topics: Iterable[str]) -> dict[str, Settings]:
    """What each topic has of its own; nothing of one that is gone meanwhile."""
    names = sorted(topics)
    found: dict[str, Settings] = {}
    for at in range(0, len(names), TOPICS_AT_ONCE):
        for result in await _described(probe, ResourceType.TOPIC, names[at : at + TOPICS_AT_ONCE]):
            found[result.resource_name] = {
                one.name: one.value
                for one in result.configs
                if one.config_source == ConfigSource.DYNAMIC_TOPIC_CONFIG
            }
    return found


async def _described(
    probe: Probe, kind: ResourceType, names: Sequence[str], with_synonyms: bool = False
) -> list[DescribeConfigsResult]:
    resources = [DescribeConfigsResource(resource_type=kind, resource_name=name) for name in names]
    told = await probe.ask(DescribeConfigsRequest(resources=resources, include_synonyms=with_synonyms))
    for result in told.results:
        if result.error_code and kind is ResourceType.BROKER:
            raise error_for(result.error_code, result.error_message)
    return [result for result in told.results if not result.error_code]


# --- first batches ---------------------------------------------------------------------------------


async def ask_heads(
    probes: Mapping[int, Probe], partitions: Mapping[TopicPartition, PartitionFacts]
) -> tuple[dict[TopicPartition, Head], list[str]]:
    """What each of these partitions begins with, as far as it has a leader that answers and is not empty; and
    the partitions whose leaders did not say.
    """
    led: dict[int, list[TopicPartition]] = {}
    for tp, one in partitions.items():
        led.setdefault(one.leader, []).append(tp)
    found: dict[TopicPartition, Head] = {}
    silent: list[str] = []

    async def ask(leader: Probe, tp: TopicPartition, start: int) -> None:
        try:
            head = await _head(leader, tp, start)
        except (OSError, ApiError):
            silent.append(str(tp))
        else:
            if head is not None:
                found[tp] = head

    async def ask_all(leader: int, wanted: list[TopicPartition]) -> None:
        starts: dict[TopicPartition, int] = {}
        if leader in probes:
            with suppress(OSError, ApiError):
                starts = await _starts(probes[leader], wanted)
        begun = list(starts.items())
        for at in range(0, len(begun), FETCHES_AT_ONCE):
            some = begun[at : at + FETCHES_AT_ONCE]
            await asyncio.gather(*(ask(probes[leader], tp, start) for tp, start in some))
        silent.extend(str(tp) for tp in wanted if tp not in starts)

    await asyncio.gather(*(ask_all(leader, wanted) for leader, wanted in led.items()))
    return found, sorted(silent)


async def _starts(leader: Probe, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The first offset of each partition that this broker leads."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for tp in wanted:
        topics.setdefault(tp.topic, []).append(
            ListOffsetsPartition(partition_index=tp.partition, timestamp=EARLIEST)
        )
    told = await leader.ask(
        ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=of) for name, of in topics.items()])
    )
    return {
        TopicPartition(topic.name, one.partition_index): one.offset
        for topic in told.topics
        for one in topic.partitions
        if not one.error_code
    }


async def _head(leader: Probe, tp: TopicPartition, start: int) -> Head | None:
    asked = FetchPartition(partition=tp.partition, fetch_offset=start, partition_max_bytes=1)
    request = FetchRequest(
        max_wait_ms=0, min_bytes=0, max_bytes=1, topics=[FetchTopic(topic=tp.topic, partitions=[asked])]
    )
    version = min(FETCH_VERSION_MAX, leader.connection.versions.get(Api.FETCH, FETCH_VERSION_MAX))
    for _ in range(HELD_BACK_TIMES_MAX):
        told = await leader.ask(request, version)
        if told.responses:
            break  # else a quota of clients: Kafka tells no partition, and when to ask again
        await asyncio.sleep(min(told.throttle_time_ms / 1000, HELD_BACK_S_MAX))
    else:
        raise TimeoutError("a quota of clients held us back")
    ((one,),) = (topic.partitions for topic in told.responses)
    if one.error_code:
        raise error_for(one.error_code)
    return None if one.records is None else head_of(one.records)


def head_of(records: Buffer) -> Head | None:
    """The format and the codec of the batch, or the message, at the beginning; None if there is none."""
    if len(records) <= MAGIC_AT:
        return None
    magic = records[MAGIC_AT]
    at = ATTRIBUTES_AT.get(magic, MAGIC_AT)
    return Head(magic, records[at] & CODEC_MASK if len(records) > at > MAGIC_AT else 0)
