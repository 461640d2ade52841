"""What a group has read: OffsetCommit 2-9, OffsetFetch 1-9, TxnOffsetCommit 0-4, OffsetDelete 0.

OffsetCommit: v3 throttle time · v2-4 retention · v6 leader epoch · v7 static members · v8 flexible
OffsetFetch: v2 null means all, top-level error · v5 leader epoch · v6 flexible · v7 stable offsets
  v8 several groups
TxnOffsetCommit: v2 leader epoch · v3 flexible, the member (KIP-447) · v4 may answer TRANSACTION_ABORTABLE
"""

from ..schema import Bool, Int16, Int32, Int64, String, message, since, struct

NEVER_FLEXIBLE = 99


@struct
class OffsetCommitRequestPartition:
    """The next offset to be read."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(6, default=-1)
    committed_metadata: String | None = None


@struct
class OffsetCommitRequestTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[OffsetCommitRequestPartition]


@message(key=8, versions=(2, 9), flexible=8)
class OffsetCommitRequest:
    """Generation -1 and no member: a consumer outside of group management."""

    group_id: String
    generation_id_or_member_epoch: Int32 = -1
    member_id: String = ""
    group_instance_id: String | None = since(7, default=None)
    retention_time_ms: Int64 = since(2, default=-1, until=4)
    topics: list[OffsetCommitRequestTopic]


@struct
class OffsetCommitResponsePartition:
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16 = 0


@struct
class OffsetCommitResponseTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[OffsetCommitResponsePartition]


@message(key=8, versions=(2, 9), flexible=8)
class OffsetCommitResponse:
    """One result for every partition of the request."""

    throttle_time_ms: Int32 = since(3, default=0)
    topics: list[OffsetCommitResponseTopic]


@struct
class OffsetFetchRequestTopic:
    """Partitions asked for, until version 7."""

    name: String
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestTopics:
    """Partitions asked for, from version 8 on."""

    name: String
    partition_indexes: list[Int32]


@struct
class OffsetFetchRequestGroup:
    """A group asked for; no topics (null) means all it has committed."""

    group_id: String
    member_id: String | None = since(9, default=None)
    member_epoch: Int32 = since(9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = None


@message(key=9, versions=(1, 9), flexible=6)
class OffsetFetchRequest:
    """One group until version 7, several from version 8 on."""

    group_id: String = since(0, default="", until=7)
    topics: list[OffsetFetchRequestTopic] | None = since(0, default=None, until=7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = since(8, default=[])
    require_stable: Bool = since(7, default=False)


@struct
class OffsetFetchResponsePartition:
    """A committed offset, or -1, until version 7."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(5, default=-1)
    metadata: String | None = ""
    error_code: Int16 = 0


@struct
class OffsetFetchResponseTopic:
    """Partitions of one topic, until version 7."""

    name: String
    partitions: list[OffsetFetchResponsePartition]


@struct
class OffsetFetchResponsePartitions:
    """A committed offset, or -1, from version 8 on."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = -1
    metadata: String | None = ""
    error_code: Int16 = 0


@struct
class OffsetFetchResponseTopics:
    """Partitions of one topic, from version 8 on."""

    name: String
    partitions: list[OffsetFetchResponsePartitions]


@struct
class OffsetFetchResponseGroup:
    """The offsets of one group."""

    group_id: String
    topics: list[OffsetFetchResponseTopics]
    error_code: Int16 = 0


@message(key=9, versions=(1, 9), flexible=6)
class OffsetFetchResponse:
    """One group until version 7, several from version 8 on."""

    throttle_time_ms: Int32 = since(3, default=0)
    topics: list[OffsetFetchResponseTopic] = since(0, default=[], until=7)
    error_code: Int16 = since(2, default=0, until=7)
    groups: list[OffsetFetchResponseGroup] = since(8, default=[])


@struct
class TxnOffsetCommitRequestPartition:
    """The next offset to be read, if the transaction is committed."""

    partition_index: Int32
    committed_offset: Int64
    committed_leader_epoch: Int32 = since(2, default=-1)
    committed_metadata: String | None = None


@struct
class TxnOffsetCommitRequestTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[TxnOffsetCommitRequestPartition]


@message(key=28, versions=(0, 4), flexible=3)
class TxnOffsetCommitRequest:
    """Offsets that count from the moment that the transaction is committed."""

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = since(3, default=-1)
    member_id: String = since(3, default="")
    group_instance_id: String | None = since(3, default=None)
    topics: list[TxnOffsetCommitRequestTopic]


@struct
class TxnOffsetCommitResponsePartition:
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16 = 0


@struct
class TxnOffsetCommitResponseTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[TxnOffsetCommitResponsePartition]


@message(key=28, versions=(0, 4), flexible=3)
class TxnOffsetCommitResponse:
    """One result for every partition of the request."""

    throttle_time_ms: Int32 = 0
    topics: list[TxnOffsetCommitResponseTopic]


@struct
class OffsetDeleteRequestPartition:
    """One partition."""

    partition_index: Int32


@struct
class OffsetDeleteRequestTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[OffsetDeleteRequestPartition]


@message(key=47, versions=(0, 0), flexible=NEVER_FLEXIBLE)
class OffsetDeleteRequest:
    """Forget what a group has committed for some partitions."""

    group_id: String
    topics: list[OffsetDeleteRequestTopic]


@struct
class OffsetDeleteResponsePartition:
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16 = 0


@struct
class OffsetDeleteResponseTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[OffsetDeleteResponsePartition]


@message(key=47, versions=(0, 0), flexible=NEVER_FLEXIBLE)
class OffsetDeleteResponse:
    """The result for the group, and for every partition of the request."""

    error_code: Int16 = 0
    throttle_time_ms: Int32 = 0
    topics: list[OffsetDeleteResponseTopic] = since(0, default=[])
