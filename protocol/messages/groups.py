"""A group's life: FindCoordinator 0-6, JoinGroup 0-9, SyncGroup 0-5, Heartbeat 0-4, LeaveGroup 0-5.

FindCoordinator: v1 transactions · v3 flexible · v4 several keys · v5 may answer TRANSACTION_ABORTABLE
  v6 share groups
JoinGroup: v1 rebalance timeout · v4 the member id is given first · v5 static members · v6 flexible
  v7 protocol type in the answer · v8 reason · v9 a static leader may skip the assignment
SyncGroup: v3 static members · v4 flexible · v5 protocol type and name
Heartbeat: v3 static members · v4 flexible · LeaveGroup: v3 several members · v4 flexible · v5 reason
The groups' offsets and their administration stand in files of their own, and are handed on here.
"""

from ..schema import Bool, Bytes, Int8, Int16, Int32, String, message, since, struct
from .group_admin import (
    DeletableGroupResult as DeletableGroupResult,
)
from .group_admin import (
    DeleteGroupsRequest as DeleteGroupsRequest,
)
from .group_admin import (
    DeleteGroupsResponse as DeleteGroupsResponse,
)
from .group_admin import (
    DescribedGroup as DescribedGroup,
)
from .group_admin import (
    DescribedGroupMember as DescribedGroupMember,
)
from .group_admin import (
    DescribeGroupsRequest as DescribeGroupsRequest,
)
from .group_admin import (
    DescribeGroupsResponse as DescribeGroupsResponse,
)
from .group_admin import (
    ListedGroup as ListedGroup,
)
from .group_admin import (
    ListGroupsRequest as ListGroupsRequest,
)
from .group_admin import (
    ListGroupsResponse as ListGroupsResponse,
)
from .group_offsets import (
    OffsetCommitRequest as OffsetCommitRequest,
)
from .group_offsets import (
    OffsetCommitRequestPartition as OffsetCommitRequestPartition,
)
from .group_offsets import (
    OffsetCommitRequestTopic as OffsetCommitRequestTopic,
)
from .group_offsets import (
    OffsetCommitResponse as OffsetCommitResponse,
)
from .group_offsets import (
    OffsetCommitResponsePartition as OffsetCommitResponsePartition,
)
from .group_offsets import (
    OffsetCommitResponseTopic as OffsetCommitResponseTopic,
)
from .group_offsets import (
    OffsetFetchRequest as OffsetFetchRequest,
)
from .group_offsets import (
    OffsetFetchRequestGroup as OffsetFetchRequestGroup,
)
from .group_offsets import (
    OffsetFetchRequestTopic as OffsetFetchRequestTopic,
)
from .group_offsets import (
    OffsetFetchRequestTopics as OffsetFetchRequestTopics,
)
from .group_offsets import (
    OffsetFetchResponse as OffsetFetchResponse,
)
from .group_offsets import (
    OffsetFetchResponseGroup as OffsetFetchResponseGroup,
)
from .group_offsets import (
    OffsetFetchResponsePartition as OffsetFetchResponsePartition,
)
from .group_offsets import (
    OffsetFetchResponsePartitions as OffsetFetchResponsePartitions,
)
from .group_offsets import (
    OffsetFetchResponseTopic as OffsetFetchResponseTopic,
)
from .group_offsets import (
    OffsetFetchResponseTopics as OffsetFetchResponseTopics,
)


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorRequest:
    """Key type 0 is a group, 1 a transaction; version 4 asks for several keys of one type."""

    key: String = since(0, default="", until=3)
    key_type: Int8 = since(1, default=0)
    coordinator_keys: list[String] = since(4, default=[])


@struct
class Coordinator:
    """Who coordinates one key."""

    key: String
    node_id: Int32
    host: String
    port: Int32
    error_code: Int16 = 0
    error_message: String | None = None


@message(key=10, versions=(0, 6), flexible=3)
class FindCoordinatorResponse:
    """Until version 3 the one coordinator is in the response itself."""

    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = since(0, default=0, until=3)
    error_message: String | None = since(1, default=None, until=3)
    node_id: Int32 = since(0, default=-1, until=3)
    host: String = since(0, default="", until=3)
    port: Int32 = since(0, default=-1, until=3)
    coordinators: list[Coordinator] = since(4, default=[])


@struct
class JoinGroupRequestProtocol:
    """A way of assigning that the member supports, and what it tells the group's leader."""

    name: String
    metadata: Bytes


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupRequest:
    """A member joins the next generation."""

    group_id: String
    session_timeout_ms: Int32
    rebalance_timeout_ms: Int32 = since(1, default=-1)
    member_id: String
    group_instance_id: String | None = since(5, default=None)
    protocol_type: String
    protocols: list[JoinGroupRequestProtocol]
    reason: String | None = since(8, default=None)


@struct
class JoinGroupResponseMember:
    """A member as the group's leader sees it."""

    member_id: String
    group_instance_id: String | None = since(5, default=None)
    metadata: Bytes


@message(key=11, versions=(0, 9), flexible=6)
class JoinGroupResponse:
    """Only the group's leader gets the members."""

    throttle_time_ms: Int32 = since(2, default=0)
    error_code: Int16 = 0
    generation_id: Int32 = -1
    protocol_type: String | None = since(7, default=None)
    protocol_name: String | None = since(0, default=None, nullable=7)
    leader: String
    skip_assignment: Bool = since(9, default=False)
    member_id: String
    members: list[JoinGroupResponseMember] = since(0, default=[])


@struct
class SyncGroupRequestAssignment:
    """The assignment of one member, from the group's leader."""

    member_id: String
    assignment: Bytes


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupRequest:
    """The leader brings the assignments, the others wait for theirs."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = since(3, default=None)
    protocol_type: String | None = since(5, default=None)
    protocol_name: String | None = since(5, default=None)
    assignments: list[SyncGroupRequestAssignment] = since(0, default=[])


@message(key=14, versions=(0, 5), flexible=4)
class SyncGroupResponse:
    """One member's assignment."""

    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = 0
    protocol_type: String | None = since(5, default=None)
    protocol_name: String | None = since(5, default=None)
    assignment: Bytes = b""


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatRequest:
    """A member is alive."""

    group_id: String
    generation_id: Int32
    member_id: String
    group_instance_id: String | None = since(3, default=None)


@message(key=12, versions=(0, 4), flexible=4)
class HeartbeatResponse:
    """REBALANCE_IN_PROGRESS asks the member to join again."""

    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = 0


@struct
class MemberIdentity:
    """A member that leaves."""

    member_id: String
    group_instance_id: String | None = None
    reason: String | None = since(5, default=None)


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupRequest:
    """Until version 2 one member, itself."""

    group_id: String
    member_id: String = since(0, default="", until=2)
    members: list[MemberIdentity] = since(3, default=[])


@struct
class MemberResponse:
    """The result for one member."""

    member_id: String
    group_instance_id: String | None = None
    error_code: Int16 = 0


@message(key=13, versions=(0, 5), flexible=4)
class LeaveGroupResponse:
    """One result for every member of the request."""

    throttle_time_ms: Int32 = since(1, default=0)
    error_code: Int16 = 0
    members: list[MemberResponse] = since(3, default=[])
