"""A group changes its protocol: to the new one with its first member that speaks it, and back with the last.

An upgrade takes over the generation as the epoch, and for every member what it may own: what it was
assigned, and what it said it owned when it last joined, which counts during a rebalance. So nobody else gets
a partition before its owner has joined again and no longer claims it. After a downgrade all join anew.
Source of the rules: ConsumerGroup.fromClassicGroup and ClassicGroup.fromConsumerGroup of Kafka 4.0, which
take over the assignments alone, and do not let the others join anew if a static member came back with the
classic protocol: a partition may then be read by two for a while.
Left to others: writing the change, and what the members are told (performing.py).
"""

from collections.abc import Iterable
from uuid import UUID

from ....base.types import TopicPartition
from ....client.consumer.assignors import SubscribedMember
from ....client.consumer.group_protocol import decode_assignment, decode_subscription, encode_assignment
from ....protocol.errors import ErrorCode, error_for
from ..group import Group
from ..members import Member
from .classic_members import any_unheard, with_ids, with_names
from .group import CONSUMER_PROTOCOL, ConsumerGroup
from .state import (
    ClassicTerms,
    ConsumerLimits,
    Progress,
    Subject,
    Subscription,
    Topics,
)


def may_upgrade(classic: Group, limits: ConsumerLimits) -> bool:
    """Whether this group with members may go on by the new protocol."""
    fits = len(classic.members) <= limits.members_max
    return limits.may_upgrade and classic.protocol_type == CONSUMER_PROTOCOL and fits


def upgraded(classic: Group, limits: ConsumerLimits, topics: Topics, now: float) -> ConsumerGroup:
    """The same group by the new protocol, all of its members still classic. Raises Malformed if what they
    said cannot be read, ApiError as long as this broker may not know the topics of what they own.
    """
    group = ConsumerGroup(classic.name, limits, now)
    told = {member.member_id: _told(member, classic.protocol) for member in classic.members}
    claims: list[tuple[str, Iterable[TopicPartition]]] = [
        (each.member_id, decode_assignment(each.assignment)) for each in classic.members
    ]
    claims += [(member_id, each.owned) for member_id, each in told.items()]
    if any(any_unheard(partitions, topics) for _, partitions in claims):
        raise error_for(
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
            f"not all topics of group {classic.name} are known here yet",
        )
    owners: dict[tuple[UUID, int], str] = {}
    for member_id, partitions in claims:  # assignments first: what a member says it owns may be out of date
        for one in with_ids(partitions, topics):
            owners.setdefault(one, member_id)
    for member in classic.members:
        member_id = member.member_id
        mine = frozenset(one for one, owner in owners.items() if owner == member_id)
        group.put(Subject.SUBSCRIPTION, _subscription(member, told[member_id]), member_id)
        group.put(Subject.TARGET, mine, member_id)
        progress = Progress(classic.generation, classic.generation, assigned=mine)
        group.put(Subject.PROGRESS, progress, member_id)
        group.heard(member_id, now)
    group.put(Subject.EPOCH, classic.generation)
    group.put(Subject.TARGET_EPOCH, classic.generation)
    return group


def _told(member: Member, protocol: str | None) -> SubscribedMember:
    metadata = member.metadata_for(protocol) or member.protocols[0][1]
    return decode_subscription(member.member_id, member.instance_id, metadata)


def _subscription(member: Member, told: SubscribedMember) -> Subscription:
    return Subscription(
        instance_id=member.instance_id,
        rack_id=told.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        topics=frozenset(told.topics),
        classic=ClassicTerms(member.session_timeout_ms, member.protocols),
    )


def would_be_classic(group: ConsumerGroup, leaving: str, classic_members_max: int) -> bool:
    """Whether the group has only classic members once this one has left, and may be theirs again."""
    others = [member_id for member_id in group.subscriptions if member_id != leaving]
    return (
        group.limits.may_downgrade
        and 0 < len(others) <= classic_members_max
        and not group.speaks_classic(leaving)
        and all(map(group.speaks_classic, others))
    )


def downgrade(group: ConsumerGroup, leaving: str, classic: Group, now: float) -> None:
    """Fill `classic` with the members of `group`, except the one that leaves."""
    classic.generation = group.epoch
    classic.protocol_type = CONSUMER_PROTOCOL
    members = [_member(group, each) for each in group.subscriptions if each != leaving]
    classic.restore(members, None, now)
    classic.protocol = classic.members.choose_protocol()


def _member(group: ConsumerGroup, member_id: str) -> Member:
    said = group.subscriptions[member_id]
    assert said.classic is not None, "only classic members are left"
    assigned = group.progress_of(member_id).assigned
    return Member(
        member_id=member_id,
        instance_id=said.instance_id,
        client_id=said.client_id,
        client_host=said.client_host,
        session_timeout_ms=said.classic.session_timeout_ms,
        rebalance_timeout_ms=said.rebalance_timeout_ms,
        protocols=said.classic.protocols,
        assignment=encode_assignment(with_names(group, assigned)),
    )
