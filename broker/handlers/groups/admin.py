"""Groups from outside: DescribeGroups 0-5, ListGroups 0-5, DeleteGroups 0-2.

DescribeGroups: v3 authorized operations · v4 static members · v5 flexible
ListGroups: v3 flexible · v4 filter by state · v5 by type · DeleteGroups: v2 flexible
Each broker answers for the groups it coordinates; a group that does not exist is Dead, not an error.
Left to others: life in a group (membership.py), where it is coordinated (coordinators.py), its offsets
(offsets.py, offset_deletion.py).
"""

from functools import partial

from ....protocol.apis import Api
from ....protocol.errors import ApiError, ErrorCode
from ....protocol.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from ....protocol.messages.metadata import UNKNOWN_OPERATIONS
from ...context import BrokerContext
from ...groups.group import Group
from ...groups.state import GroupState
from ...network.exchange import Exchange, HandlerEntry

GROUP_OPERATIONS = sum(1 << code for code in (3, 6, 8))  # read, delete, describe: there are no ACLs


def describe(
    broker: BrokerContext, exchange: Exchange, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    """State and members of each group asked for."""
    allowed = GROUP_OPERATIONS if request.include_authorized_operations else UNKNOWN_OPERATIONS
    return DescribeGroupsResponse(groups=[_described(broker, name, allowed) for name in request.groups])


def _described(broker: BrokerContext, name: str, allowed: int) -> DescribedGroup:
    try:
        held = broker.groups.find(name, empty_name_ok=True)  # a simple consumer's offsets may have none
    except ApiError as error:
        return DescribedGroup(group_id=name, error_code=error.code)
    group = held.group if held is not None else None
    if not isinstance(group, Group):  # groups by the new protocol are described by ConsumerGroupDescribe
        return DescribedGroup(group_id=name, group_state=GroupState.DEAD.value, authorized_operations=allowed)
    stable = group.state is GroupState.STABLE
    return DescribedGroup(
        group_id=name,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=group.protocol or "" if stable else "",
        members=_members(group, stable),
        authorized_operations=allowed,
    )


def _members(group: Group, stable: bool) -> list[DescribedGroupMember]:
    """Subscriptions and assignments are included only in a stable group: in a rebalance they are changing."""
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata_for(group.protocol) if stable else b"",
            member_assignment=member.assignment if stable else b"",
        )
        for member in group.members
    ]


def refuse_describe(request: DescribeGroupsRequest, error: ApiError) -> DescribeGroupsResponse:
    groups = [DescribedGroup(group_id=name, error_code=error.code) for name in request.groups]
    return DescribeGroupsResponse(groups=groups)


def list_groups(broker: BrokerContext, exchange: Exchange, request: ListGroupsRequest) -> ListGroupsResponse:
    """All groups here, or those of the states and types asked for."""
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if broker.groups.is_loading else ErrorCode.NONE
    states = {state.lower() for state in request.states_filter}
    types = {kind.lower() for kind in request.types_filter}
    return ListGroupsResponse(
        error_code=error,
        groups=[
            ListedGroup(
                group_id=group.name,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=group.type.value,
            )
            for group in broker.groups.all_groups()
            if (not states or group.state.value.lower() in states) and (not types or group.type in types)
        ],
    )


def refuse_list(request: ListGroupsRequest, error: ApiError) -> ListGroupsResponse:
    return ListGroupsResponse(error_code=error.code)


def delete(broker: BrokerContext, exchange: Exchange, request: DeleteGroupsRequest) -> None:
    """Parked until every group is deleted or refused; each has its own error."""
    results: dict[str, ErrorCode] = {}
    names = list(dict.fromkeys(request.groups_names))

    def settle(name: str, error: ErrorCode) -> None:
        results[name] = error
        if len(results) == len(names):
            answered = [
                DeletableGroupResult(group_id=name, error_code=results[name]) for name in request.groups_names
            ]
            exchange.answer(DeleteGroupsResponse(results=answered))

    if not names:
        exchange.answer(DeleteGroupsResponse(results=[]))
    for name in names:
        try:
            broker.groups.delete(name, partial(settle, name))
        except ApiError as error:
            settle(name, error.code)


def refuse_delete(request: DeleteGroupsRequest, error: ApiError) -> DeleteGroupsResponse:
    results = [DeletableGroupResult(group_id=name, error_code=error.code) for name in request.groups_names]
    return DeleteGroupsResponse(results=results)


HANDLERS: dict[Api, HandlerEntry[BrokerContext]] = {
    Api.DESCRIBE_GROUPS: HandlerEntry(describe, refuse_describe),
    Api.LIST_GROUPS: HandlerEntry(list_groups, refuse_list),
    Api.DELETE_GROUPS: HandlerEntry(delete, refuse_delete),
}
