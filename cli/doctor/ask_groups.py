"""Asks for groups and what they commit, twice: only a second look tells what stands still.

The second look is repeated until everything has moved that seemed to stand still, or the time to watch is
over. So a healthy cluster costs no wait.
Left to others: what follows from it (checks_groups.py), open transactions (ask_transactions.py).
"""

import asyncio
from collections.abc import Iterable, Mapping

from ...base.types import TopicPartition
from ...client.admin.descriptions import GroupDescription, describe_consumer_group, describe_group
from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode, error_for
from ...protocol.messages.consumer_groups import ConsumerGroupDescribeRequest
from ...protocol.messages.group_admin import DescribeGroupsRequest, ListGroupsRequest
from ...protocol.messages.group_offsets import OffsetFetchRequest
from ...protocol.messages.offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from .ask_broker import Asked
from .checks_groups import standing_still
from .facts import Ends, GroupFacts, Member, Sample, TopicFacts
from .findings import plural

OFFSET_FETCH_VERSION_MAX = 7  # later ones ask for several groups
NO_GROUP_STATES = 3  # ListGroups up to here does not tell states
GROUPS_MAX = 1_000
LOOK_AGAIN_S = 0.5
READ_COMMITTED = 1


async def ask_groups(brokers: Iterable[Asked]) -> dict[str, GroupFacts]:
    """The groups of all coordinators that answer, with their members."""
    found: dict[str, GroupFacts] = {}
    for groups in await asyncio.gather(*(_groups(each) for each in brokers)):
        found |= groups
    return found


async def _groups(coordinator: Asked) -> dict[str, GroupFacts]:
    assert coordinator.probe is not None
    try:
        told = await coordinator.probe.ask(ListGroupsRequest())
        if told.error_code:
            raise error_for(told.error_code)
    except (OSError, ApiError) as error:
        coordinator.failed["groups"] = str(error)
        return {}
    listed = [one for one in told.groups if one.protocol_type in ("consumer", "")]
    if (more := len(listed) - GROUPS_MAX) > 0:
        coordinator.unseen["groups"] = (
            f"{plural(more, 'group')} of broker {coordinator.id}: only {GROUPS_MAX:,} are looked at"
        )
    listed = listed[:GROUPS_MAX]
    described = await asyncio.gather(
        *(_described(coordinator, one.group_id, one.group_type) for one in listed)
    )
    return {one.name: one for one in described}


async def _described(coordinator: Asked, name: str, kind: str) -> GroupFacts:
    try:
        if kind.lower() == "consumer":
            members = await _members_of_the_consumer_protocol(coordinator, name)
        else:
            members = await _members(coordinator, name)
    except (OSError, ApiError) as error:
        return GroupFacts(name, coordinator.id, kind or "classic", failed=str(error))
    return GroupFacts(name, coordinator.id, kind.lower() or "classic", members)


async def _members(coordinator: Asked, name: str) -> tuple[Member, ...]:
    assert coordinator.probe is not None
    told = await coordinator.probe.ask(DescribeGroupsRequest(groups=[name]))
    (one,) = told.groups
    if one.error_code:
        raise error_for(one.error_code, name)
    return _told(describe_group(one))


async def _members_of_the_consumer_protocol(coordinator: Asked, name: str) -> tuple[Member, ...]:
    assert coordinator.probe is not None
    told = await coordinator.probe.ask(ConsumerGroupDescribeRequest(group_ids=[name]))
    (one,) = told.groups
    if one.error_code:
        raise error_for(one.error_code, name)
    return _told(describe_consumer_group(one))


def _told(group: GroupDescription) -> tuple[Member, ...]:
    return tuple(
        Member(each.member_id, each.client_id, each.host, each.instance_id, frozenset(each.assignment))
        for each in group.members
    )


# --- samples ---------------------------------------------------------------------------------------


async def watch(
    groups: Mapping[str, GroupFacts],
    topics: Mapping[str, TopicFacts],
    brokers: Mapping[int, Asked],
    watch_s: float,
) -> tuple[Sample, ...]:
    """A first sample, and a last one: as soon as all that seemed to stand still has moved, or at the end."""
    loop = asyncio.get_running_loop()
    first = await sample(groups, topics, brokers)
    if not standing_still(first, first, groups):
        return (first,)
    until = loop.time() + watch_s
    while True:
        await asyncio.sleep(min(LOOK_AGAIN_S, max(until - loop.time(), 0)))
        last = await sample(groups, topics, brokers)
        if loop.time() >= until or not standing_still(first, last, groups):
            return first, last


async def sample(
    groups: Mapping[str, GroupFacts], topics: Mapping[str, TopicFacts], brokers: Mapping[int, Asked]
) -> Sample:
    """Where groups and partitions are now. What is not answered is left out."""
    at_s = asyncio.get_running_loop().time()
    names = [one.name for one in groups.values() if one.coordinator in brokers]
    committed, ends, states = await asyncio.gather(
        asyncio.gather(*(_committed(brokers[groups[name].coordinator], name) for name in names)),
        _ends(topics, brokers),
        asyncio.gather(*(_states(each) for each in brokers.values())),
    )
    every = {name: state for each in states for name, state in each.items()}
    return Sample(at_s, every, dict(zip(names, committed, strict=True)), ends)


async def _states(coordinator: Asked) -> dict[str, str]:
    """Of the groups that this broker coordinates; brokers older than Kafka 2.6 do not tell them."""
    assert coordinator.probe is not None
    if coordinator.probe.connection.versions.get(Api.LIST_GROUPS, 0) <= NO_GROUP_STATES:
        return {}
    try:
        told = await coordinator.probe.ask(ListGroupsRequest())
    except (OSError, ApiError) as error:
        coordinator.failed["states of groups"] = str(error)
        return {}
    return {one.group_id: one.group_state for one in told.groups}


async def _committed(coordinator: Asked, group: str) -> dict[TopicPartition, int]:
    assert coordinator.probe is not None
    agreed = coordinator.probe.connection.versions.get(Api.OFFSET_FETCH, OFFSET_FETCH_VERSION_MAX)
    try:
        told = await coordinator.probe.ask(
            OffsetFetchRequest(group_id=group, topics=None), min(agreed, OFFSET_FETCH_VERSION_MAX)
        )
        if told.error_code:
            raise error_for(told.error_code, group)
    except (OSError, ApiError) as error:
        coordinator.failed["committed offsets"] = str(error)
        return {}
    return {
        TopicPartition(topic.name, one.partition_index): one.committed_offset
        for topic in told.topics
        for one in topic.partitions
        if one.committed_offset >= 0 and not one.error_code
    }


async def _ends(topics: Mapping[str, TopicFacts], brokers: Mapping[int, Asked]) -> dict[TopicPartition, Ends]:
    """Beginning, high watermark and last stable offset of every partition whose leader answers."""
    led: dict[int, list[TopicPartition]] = {}
    for topic in topics.values():
        for number, one in topic.partitions.items():
            if one.leader in brokers and not topic.internal:
                led.setdefault(one.leader, []).append(TopicPartition(topic.name, number))
    found: dict[TopicPartition, Ends] = {}
    for each in await asyncio.gather(*(_ends_at(brokers[id], own) for id, own in led.items())):
        found |= each
    return found


async def _ends_at(leader: Asked, partitions: list[TopicPartition]) -> dict[TopicPartition, Ends]:
    starts, marks, stable = await asyncio.gather(
        _offsets(leader, partitions, EARLIEST, 0),
        _offsets(leader, partitions, LATEST, 0),
        _offsets(leader, partitions, LATEST, READ_COMMITTED),
    )
    return {
        each: Ends(starts[each], marks[each], stable[each])
        for each in partitions
        if each in starts and each in marks and each in stable
    }


async def _offsets(
    leader: Asked, partitions: list[TopicPartition], at: int, isolation: int
) -> dict[TopicPartition, int]:
    assert leader.probe is not None
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for one in partitions:
        wanted = ListOffsetsPartition(partition_index=one.partition, timestamp=at)
        topics.setdefault(one.topic, []).append(wanted)
    request = ListOffsetsRequest(
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
    )
    try:
        told = await leader.probe.ask(request)
    except (OSError, ApiError) as error:
        leader.failed["offsets"] = str(error)
        return {}
    wrong = [one.error_code for topic in told.topics for one in topic.partitions if one.error_code]
    if wrong:
        leader.unseen["offsets"] = (
            f"the lag in {plural(len(wrong), 'partition')} that broker {leader.id} leads: "
            f"{error_for(wrong[0]).code.name}"
        )
    return {
        TopicPartition(topic.name, one.partition_index): one.offset
        for topic in told.topics
        for one in topic.partitions
        if one.error_code == ErrorCode.NONE
    }
