"""JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5: what members of a group ask.

JoinGroup: v1 rebalance timeout · v4 a newcomer is first told its id · v5 static members · v6 flexible
v7 protocol type in the answer · v8 reason · v9 skip_assignment
SyncGroup: v3 static members · v4 flexible · v5 protocol type and name
Heartbeat: v3 static members · v4 flexible · LeaveGroup: v3 several members at once · v4 flexible · v5 reason
Joins and syncs are parked: the coordinator answers them when the group is ready.
Left to others: the rules (../groups/group.py); finding a coordinator, describing, listing and deleting groups
(admin.py).
"""

from ....protocol.apis import Api
from ....protocol.errors import ApiError, ErrorCode, error_for
from ....protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from ...context import BrokerContext
from ...groups.state import JoinAsked, Joined, SyncAsked, Synced
from ...network.exchange import Exchange, HandlerEntry

MEMBER_ID_FIRST = 4
PROTOCOL_TYPE_SINCE = 7
SKIP_ASSIGNMENT_SINCE = 9
PROTOCOL_NAMED_SINCE = 5
SEVERAL_LEAVE_SINCE = 3


def join(broker: BrokerContext, exchange: Exchange, request: JoinGroupRequest) -> None:
    """Parked until the next generation begins."""
    session_ms = request.session_timeout_ms
    asked = JoinAsked(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=exchange.client_id or "",
        client_host=host_of(exchange),
        session_timeout_ms=session_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if request.rebalance_timeout_ms > 0 else session_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((protocol.name, protocol.metadata) for protocol in request.protocols),
        must_know_id=exchange.version >= MEMBER_ID_FIRST,
        may_skip_assignment=exchange.version >= SKIP_ASSIGNMENT_SINCE,
    )
    names_the_type = exchange.version >= PROTOCOL_TYPE_SINCE
    broker.groups.join(
        request.group_id, asked, lambda joined: exchange.answer(_join_response(joined, names_the_type))
    )


def _join_response(joined: Joined, names_the_type: bool) -> JoinGroupResponse:
    return JoinGroupResponse(
        error_code=joined.error,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol if names_the_type else joined.protocol or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=each.member_id, group_instance_id=each.instance_id, metadata=each.metadata
            )
            for each in joined.members
        ],
    )


def refuse_join(request: JoinGroupRequest, error: ApiError) -> JoinGroupResponse:
    return _join_response(Joined(error.code, request.member_id), names_the_type=False)


def sync(broker: BrokerContext, exchange: Exchange, request: SyncGroupRequest) -> None:
    """Parked until the leader has sent the assignment and its record is committed."""
    if exchange.version >= PROTOCOL_NAMED_SINCE and None in (request.protocol_type, request.protocol_name):
        raise error_for(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "protocol type and name must be given")
    asked = SyncAsked(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=tuple((each.member_id, each.assignment) for each in request.assignments),
    )
    broker.groups.sync(request.group_id, asked, lambda synced: exchange.answer(_sync_response(synced)))


def _sync_response(synced: Synced) -> SyncGroupResponse:
    return SyncGroupResponse(
        error_code=synced.error,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol,
        assignment=synced.assignment,
    )


def refuse_sync(request: SyncGroupRequest, error: ApiError) -> SyncGroupResponse:
    return SyncGroupResponse(error_code=error.code)


def heartbeat(broker: BrokerContext, exchange: Exchange, request: HeartbeatRequest) -> HeartbeatResponse:
    """A member is alive; the answer tells it whether to rejoin."""
    answer = broker.groups.heartbeat(
        request.group_id, request.member_id, request.group_instance_id, request.generation_id
    )
    return HeartbeatResponse(error_code=answer)


def refuse_heartbeat(request: HeartbeatRequest, error: ApiError) -> HeartbeatResponse:
    return HeartbeatResponse(error_code=error.code)


def leave(broker: BrokerContext, exchange: Exchange, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """One member leaves, or an administrator removes several."""
    if exchange.version < SEVERAL_LEAVE_SINCE:
        (answer,) = broker.groups.leave(request.group_id, [(request.member_id, None)])
        return LeaveGroupResponse(error_code=answer)
    asked = [(member.member_id, member.group_instance_id) for member in request.members]
    answers = broker.groups.leave(request.group_id, asked)
    members = [
        MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=answer)
        for (member_id, instance_id), answer in zip(asked, answers, strict=True)
    ]
    return LeaveGroupResponse(error_code=ErrorCode.NONE, members=members)


def refuse_leave(request: LeaveGroupRequest, error: ApiError) -> LeaveGroupResponse:
    return LeaveGroupResponse(error_code=error.code)


def host_of(exchange: Exchange) -> str:
    """The client's address as Kafka's tools show it: behind a slash, without a port."""
    peer = str(getattr(exchange.channel, "peer", ""))
    return "/" + peer.rpartition(":")[0]


HANDLERS: dict[Api, HandlerEntry[BrokerContext]] = {
    Api.JOIN_GROUP: HandlerEntry(join, refuse_join),
    Api.SYNC_GROUP: HandlerEntry(sync, refuse_sync),
    Api.HEARTBEAT: HandlerEntry(heartbeat, refuse_heartbeat),
    Api.LEAVE_GROUP: HandlerEntry(leave, refuse_leave),
}
