"""Groups from outside: DescribeGroups 0-5, ListGroups 0-5, DeleteGroups 0-2.

DescribeGroups: v3 authorized operations · v4 static members · v5 flexible
ListGroups: v3 flexible · v4 filter by state · v5 types (KIP-848) · DeleteGroups: v2 flexible
"""

from ..schema import Bool, Bytes, Int16, Int32, String, message, since, struct
from .metadata import UNKNOWN_OPERATIONS


@message(key=15, versions=(0, 5), flexible=5)
class DescribeGroupsRequest:
    """Which groups."""

    groups: list[String]
    include_authorized_operations: Bool = since(3, default=False)


@struct
class DescribedGroupMember:
    """A member with what it asked for and what it got."""

    member_id: String
    group_instance_id: String | None = since(4, default=None)
    client_id: String
    client_host: String
    member_metadata: Bytes = b""
    member_assignment: Bytes = b""


@struct
class DescribedGroup:
    """A group; one that does not exist is Dead."""

    error_code: Int16 = 0
    group_id: String
    group_state: String = ""
    protocol_type: String = ""
    protocol_data: String = ""
    members: list[DescribedGroupMember] = since(0, default=[])
    authorized_operations: Int32 = since(3, default=UNKNOWN_OPERATIONS)


@message(key=15, versions=(0, 5), flexible=5)
class DescribeGroupsResponse:
    """One description for every group of the request."""

    throttle_time_ms: Int32 = since(1, default=0)
    groups: list[DescribedGroup]


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsRequest:
    """No states means any, no types too."""

    states_filter: list[String] = since(4, default=[])
    types_filter: list[String] = since(5, default=[])


@struct
class ListedGroup:
    """A group that this broker coordinates."""

    group_id: String
    protocol_type: String
    group_state: String = since(4, default="")
    group_type: String = since(5, default="")


@message(key=16, versions=(0, 5), flexible=3)
class ListGroupsResponse:
    """The groups that this broker coordinates."""

    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = 0
    groups: list[ListedGroup] = since(0, default=[])


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsRequest:
    """Which groups; only empty ones can be deleted."""

    groups_names: list[String]


@struct
class DeletableGroupResult:
    """The result for one group."""

    group_id: String
    error_code: Int16 = 0


@message(key=42, versions=(0, 2), flexible=2)
class DeleteGroupsResponse:
    """One result for every group of the request."""

    throttle_time_ms: Int32 = 0
    results: list[DeletableGroupResult]
