"""Groups that the broker assigns for (KIP-848): ConsumerGroupHeartbeat 0-1, ConsumerGroupDescribe 0-1.

ConsumerGroupHeartbeat: v1 a subscription by a regular expression, and members that name themselves
ConsumerGroupDescribe: v1 by which protocol a member lives
"""

from ..schema import Bool, Int8, Int16, Int32, String, Uuid, message, since, struct

NO_OPERATIONS = -(1 << 31)


@struct
class HeartbeatTopicPartitions:
    """Partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32]


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatRequest:
    """A member joins (epoch 0), is alive, or leaves (-1; -2: a static member, for a while). Null: as
    before.
    """

    group_id: String
    member_id: String
    member_epoch: Int32
    instance_id: String | None = None
    rack_id: String | None = None
    rebalance_timeout_ms: Int32 = -1
    subscribed_topic_names: list[String] | None = None
    subscribed_topic_regex: String | None = since(1, default=None)
    server_assignor: String | None = None
    topic_partitions: list[HeartbeatTopicPartitions] | None = None


@struct
class HeartbeatAssignment:
    """All that the member may have now."""

    topic_partitions: list[HeartbeatTopicPartitions]


@message(key=68, versions=(0, 1), flexible=0)
class ConsumerGroupHeartbeatResponse:
    """The member's epoch, and its assignment if that has changed."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    member_id: String | None = None
    member_epoch: Int32 = 0
    heartbeat_interval_ms: Int32 = 0
    assignment: HeartbeatAssignment | None = None


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeRequest:
    """Which groups."""

    group_ids: list[String]
    include_authorized_operations: Bool = False


@struct
class NamedTopicPartitions:
    """Partitions of one topic, which is named too."""

    topic_id: Uuid
    topic_name: String
    partitions: list[Int32]


@struct
class DescribedAssignment:
    """What a member has, or shall have."""

    topic_partitions: list[NamedTopicPartitions]


@struct
class ConsumerGroupMember:
    """A member."""

    member_id: String
    instance_id: String | None = None
    rack_id: String | None = None
    member_epoch: Int32 = 0
    client_id: String
    client_host: String
    subscribed_topic_names: list[String]
    subscribed_topic_regex: String | None = None
    assignment: DescribedAssignment
    target_assignment: DescribedAssignment
    member_type: Int8 = since(1, default=-1)  # 0: it speaks the classic protocol, 1: the new one


@struct
class DescribedConsumerGroup:
    """A group, or why it cannot be described."""

    error_code: Int16 = 0
    error_message: String | None = None
    group_id: String
    group_state: String = ""
    group_epoch: Int32 = 0
    assignment_epoch: Int32 = 0
    assignor_name: String = ""
    members: list[ConsumerGroupMember] = since(0, default=[])
    authorized_operations: Int32 = NO_OPERATIONS


@message(key=69, versions=(0, 1), flexible=0)
class ConsumerGroupDescribeResponse:
    """One description for each group of the request."""

    throttle_time_ms: Int32 = 0
    groups: list[DescribedConsumerGroup]
