"""Groups, for `Admin`: listed by every broker, the rest asked of each group's coordinator.

Left to others: what a group has committed (consumer/commits.py), results (descriptions.py).
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

from ...base.types import TopicPartition
from ...protocol.errors import ApiError, ErrorCode, UnsupportedVersion, error_for
from ...protocol.messages.consumer_groups import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ...protocol.messages.group_admin import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ...protocol.messages.group_offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from ...protocol.messages.groups import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from ..consumer.commits import ask_coordinator, check
from ..network.cluster import Cluster
from .descriptions import GroupDescription, GroupListing, describe_consumer_group, describe_group

T = TypeVar("T")

DEAD = "Dead"
STATES = {
    name.lower(): name
    for name in (
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
        DEAD,
        "Empty",
        "Assigning",
        "Reconciling",
    )
}
REMOVED = "removed by an administrator"


class MemberToRemove(NamedTuple):
    """A member by its id, or a static one by its instance id."""

    member_id: str = ""
    instance_id: str | None = None


def group_states(names: Iterable[str]) -> list[str]:
    """The states of these names, in any case. Brokers answer one that does not exist with no group at all."""
    if unknown := [name for name in names if name.lower() not in STATES]:
        raise ValueError(
            f"no such state of groups: {', '.join(unknown)}; expected {', '.join(STATES.values())}"
        )
    return [STATES[name.lower()] for name in names]


async def list_groups(cluster: Cluster, states: Iterable[str], deadline: float) -> list[GroupListing]:
    """The groups of all brokers that metadata names."""
    request = ListGroupsRequest(states_filter=list(states))

    async def ask(node: int) -> list[GroupListing]:
        told: ListGroupsResponse = await cluster.request(node, request, deadline)
        if told.error_code:
            raise error_for(told.error_code)
        return [GroupListing(one.group_id, one.protocol_type, one.group_state) for one in told.groups]

    answers = await cluster.everywhere(ask, deadline)
    return sorted({one for answer in answers.values() for one in answer})


async def describe_groups(cluster: Cluster, groups: Iterable[str], deadline: float) -> list[GroupDescription]:
    """State and members, of groups by either protocol."""

    async def describe(group: str) -> GroupDescription:
        classic = await _describe_classic(cluster, group, deadline)
        if classic.state != DEAD:
            return classic
        return await _describe_consumer(cluster, group, deadline) or classic

    return list(await asyncio.gather(*(describe(group) for group in groups)))


async def _describe_classic(cluster: Cluster, group: str, deadline: float) -> GroupDescription:
    """As Dead if there is no such group by the classic protocol."""

    def found(told: DescribeGroupsResponse) -> GroupDescription:
        (one,) = told.groups
        if one.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            return GroupDescription(group, DEAD, "", "", ())
        check(cluster, group, one.error_code, group)
        return describe_group(one)

    return await _ask(cluster, group, DescribeGroupsRequest(groups=[group]), found, deadline)


async def _describe_consumer(cluster: Cluster, group: str, deadline: float) -> GroupDescription | None:
    """None if there is no such group by the consumer protocol, or brokers do not know that protocol."""

    def found(told: ConsumerGroupDescribeResponse) -> GroupDescription | None:
        (one,) = told.groups
        if one.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
            return None
        check(cluster, group, one.error_code, group)
        return describe_consumer_group(one)

    try:
        return await _ask(cluster, group, ConsumerGroupDescribeRequest(group_ids=[group]), found, deadline)
    except UnsupportedVersion:
        return None


async def delete_groups(cluster: Cluster, groups: Iterable[str], deadline: float) -> None:
    """Delete groups without members, and their offsets."""

    async def delete(group: str) -> None:
        def found(told: DeleteGroupsResponse) -> None:
            check(cluster, group, told.results[0].error_code, group)

        await _ask(cluster, group, DeleteGroupsRequest(groups_names=[group]), found, deadline)

    await asyncio.gather(*(delete(group) for group in groups))


async def remove_members(
    cluster: Cluster, group: str, members: Iterable[MemberToRemove] | None, deadline: float
) -> None:
    """Let members leave the group, or all of them. Tries all, then raises the first refusal."""
    if members is None:
        (described,) = await describe_groups(cluster, [group], deadline)
        members = [
            MemberToRemove(instance_id=one.instance_id)
            if one.instance_id is not None
            else MemberToRemove(one.member_id)
            for one in described.members
        ]
    leaving = [
        MemberIdentity(member_id=one.member_id, group_instance_id=one.instance_id, reason=REMOVED)
        for one in members
    ]
    if not leaving:
        return

    def found(told: LeaveGroupResponse) -> None:
        check(cluster, group, told.error_code, group)
        for one in told.members:
            check(cluster, group, one.error_code, f"{group}: {one.group_instance_id or one.member_id}")

    await _ask(cluster, group, LeaveGroupRequest(group_id=group, members=leaving), found, deadline)


async def delete_offsets(
    cluster: Cluster, group: str, partitions: Iterable[TopicPartition], deadline: float
) -> dict[TopicPartition, ApiError]:
    """Forget what a group has committed. Returns the partitions that were refused, with the reason."""
    topics: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for one in partitions:
        topics.setdefault(one.topic, []).append(OffsetDeleteRequestPartition(partition_index=one.partition))
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[OffsetDeleteRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )

    def found(told: OffsetDeleteResponse) -> dict[TopicPartition, ApiError]:
        check(cluster, group, told.error_code, group)
        return {
            TopicPartition(topic.name, one.partition_index): error_for(
                one.error_code, f"{topic.name}-{one.partition_index}"
            )
            for topic in told.topics
            for one in topic.partitions
            if one.error_code
        }

    return await _ask(cluster, group, request, found, deadline)


async def _ask(cluster: Cluster, group: str, request: Any, found: Callable[[Any], T], deadline: float) -> T:
    """Ask the group's coordinator until its answer passes `found`."""

    async def attempt() -> T:
        return found(await ask_coordinator(cluster, group, request, deadline))

    return await cluster.persist(attempt, deadline)
