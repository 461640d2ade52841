"""AlterPartitionReassignments 0 and ListPartitionReassignments 0: partitions move to other brokers.

Both are flexible from the beginning.
"""

from ..schema import Int16, Int32, String, message, since, struct


@struct
class ReassignablePartition:
    """A partition's new replicas, the preferred leader first; null cancels its move."""

    partition_index: Int32
    replicas: list[Int32] | None = None


@struct
class ReassignableTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[ReassignablePartition]


@message(key=45, versions=(0, 0), flexible=0)
class AlterPartitionReassignmentsRequest:
    """Partitions to be moved, and moves to be cancelled."""

    timeout_ms: Int32 = 60_000
    topics: list[ReassignableTopic] = since(0, default=[])


@struct
class ReassignedPartition:
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16 = 0
    error_message: String | None = None


@struct
class ReassignedTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[ReassignedPartition]


@message(key=45, versions=(0, 0), flexible=0)
class AlterPartitionReassignmentsResponse:
    """One result for every partition of the request, unless all of it was refused."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    responses: list[ReassignedTopic] = since(0, default=[])


@struct
class ListedTopic:
    """Partitions of one topic that are asked about."""

    name: String
    partition_indexes: list[Int32]


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsRequest:
    """Which partitions; null means all that are moving."""

    timeout_ms: Int32 = 60_000
    topics: list[ListedTopic] | None = None


@struct
class OngoingPartition:
    """A moving partition: its replicas, those being added, those being removed."""

    partition_index: Int32
    replicas: list[Int32]
    adding_replicas: list[Int32]
    removing_replicas: list[Int32]


@struct
class OngoingTopic:
    """Moving partitions of one topic."""

    name: String
    partitions: list[OngoingPartition]


@message(key=46, versions=(0, 0), flexible=0)
class ListPartitionReassignmentsResponse:
    """What is moving now."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    topics: list[OngoingTopic] = since(0, default=[])
