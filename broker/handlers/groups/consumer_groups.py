"""ConsumerGroupHeartbeat 0-1 and ConsumerGroupDescribe 0-1: groups whose assignments the broker computes.

A heartbeat is answered when everything that its answer rests on is committed. A group by the classic protocol
is not found here, so that tools ask for it with DescribeGroups.
Left to others: the rules (groups/consumer/), members that speak the classic protocol (membership.py).
"""

from collections.abc import Iterable
from uuid import UUID

from ....protocol.apis import Api
from ....protocol.errors import ApiError, ErrorCode, GroupIdNotFound, UnsupportedVersion
from ....protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupMember,
    DescribedAssignment,
    DescribedConsumerGroup,
    HeartbeatAssignment,
    HeartbeatTopicPartitions,
    NamedTopicPartitions,
)
from ....protocol.messages.metadata import UNKNOWN_OPERATIONS
from ...context import BrokerContext
from ...groups.consumer.group import ConsumerGroup
from ...groups.consumer.heartbeats import check
from ...groups.consumer.state import Beat, Beaten, Partitions
from ...groups.consumer.target import assignor_of
from ...network.exchange import Exchange, HandlerEntry
from .admin import GROUP_OPERATIONS
from .membership import host_of

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def heartbeat(broker: BrokerContext, exchange: Exchange, request: ConsumerGroupHeartbeatRequest) -> None:
    """Parked until what the answer rests on is committed."""
    _check_served(broker)
    names, owned = request.subscribed_topic_names, request.topic_partitions
    beat = Beat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=frozenset(names) if names is not None else None,
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_flat(owned) if owned is not None else None,
        client_id=exchange.client_id or "",
        client_host=host_of(exchange),
    )
    check(beat, exchange.version, broker.config.groups.consumer_assignor_names)
    broker.groups.consumer_heartbeat(
        request.group_id, beat, lambda beaten: exchange.answer(_beaten_response(beaten))
    )


def _check_served(broker: BrokerContext) -> None:
    if not broker.config.groups.has_consumer_protocol:
        raise UnsupportedVersion(
            "group.coordinator.rebalance.protocols has no consumer: use group.protocol=classic"
        )


def _flat(topics: Iterable[HeartbeatTopicPartitions]) -> Partitions:
    return frozenset((each.topic_id, number) for each in topics for number in each.partitions)


def _by_topic(partitions: Partitions) -> dict[UUID, list[int]]:
    topics: dict[UUID, list[int]] = {}
    for topic, number in sorted(partitions):
        topics.setdefault(topic, []).append(number)
    return topics


def _beaten_response(beaten: Beaten) -> ConsumerGroupHeartbeatResponse:
    assignment = None
    if beaten.assignment is not None:
        topics = [
            HeartbeatTopicPartitions(topic_id=topic, partitions=numbers)
            for topic, numbers in _by_topic(beaten.assignment).items()
        ]
        assignment = HeartbeatAssignment(topic_partitions=topics)
    return ConsumerGroupHeartbeatResponse(
        error_code=beaten.error,
        error_message=None if beaten.error is ErrorCode.NONE else beaten.error.meaning,
        member_id=beaten.member_id,
        member_epoch=beaten.epoch,
        heartbeat_interval_ms=beaten.interval_ms,
        assignment=assignment,
    )


def refuse_heartbeat(
    request: ConsumerGroupHeartbeatRequest, error: ApiError
) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def describe(
    broker: BrokerContext, exchange: Exchange, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    """State, epochs and members of each group asked for."""
    _check_served(broker)
    allowed = GROUP_OPERATIONS if request.include_authorized_operations else UNKNOWN_OPERATIONS
    return ConsumerGroupDescribeResponse(
        groups=[_described(broker, name, allowed) for name in request.group_ids]
    )


def _described(broker: BrokerContext, name: str, allowed: int) -> DescribedConsumerGroup:
    try:
        held = broker.groups.find(name)
        if held is None or not isinstance(held.group, ConsumerGroup) or held.group.is_dead:
            raise GroupIdNotFound(f"Group {name} is not a consumer group.")
    except ApiError as error:
        return DescribedConsumerGroup(group_id=name, error_code=error.code, error_message=error.message)
    group = held.group
    return DescribedConsumerGroup(
        group_id=name,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=assignor_of(group),
        members=[_member(group, member_id) for member_id in group.subscriptions],
        authorized_operations=allowed,
    )


def _member(group: ConsumerGroup, member_id: str) -> ConsumerGroupMember:
    said, progress = group.subscriptions[member_id], group.progress_of(member_id)
    return ConsumerGroupMember(
        member_id=member_id,
        instance_id=said.instance_id,
        rack_id=said.rack_id,
        member_epoch=progress.epoch,
        client_id=said.client_id,
        client_host=said.client_host,
        subscribed_topic_names=sorted(said.topics),
        subscribed_topic_regex=said.regex,
        assignment=_assignment(group, progress.assigned),
        target_assignment=_assignment(group, group.target_of(member_id)),
        member_type=CONSUMER_MEMBER if said.classic is None else CLASSIC_MEMBER,
    )


def _assignment(group: ConsumerGroup, partitions: Partitions) -> DescribedAssignment:
    """Topics that are gone are left out: they have no name."""
    names = {facts.id: name for name, facts in group.topics.items()}
    return DescribedAssignment(
        topic_partitions=[
            NamedTopicPartitions(topic_id=topic, topic_name=names[topic], partitions=numbers)
            for topic, numbers in _by_topic(partitions).items()
            if topic in names
        ]
    )


def refuse_describe(request: ConsumerGroupDescribeRequest, error: ApiError) -> ConsumerGroupDescribeResponse:
    groups = [
        DescribedConsumerGroup(group_id=name, error_code=error.code, error_message=error.message)
        for name in request.group_ids
    ]
    return ConsumerGroupDescribeResponse(groups=groups)


HANDLERS: dict[Api, HandlerEntry[BrokerContext]] = {
    Api.CONSUMER_GROUP_HEARTBEAT: HandlerEntry(heartbeat, refuse_heartbeat),
    Api.CONSUMER_GROUP_DESCRIBE: HandlerEntry(describe, refuse_describe),
}
