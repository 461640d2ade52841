"""Metadata 0-12: brokers, topics, leaders.

v1 null means all topics, racks, controller · v2 cluster id · v3 throttle time · v4 auto-creation is asked for
v5 offline replicas · v7 leader epochs · v8-10 cluster operations · v9 flexible
v10 topic ids · v12 topics by id
"""

from ..primitives import NO_UUID
from ..schema import Bool, Int16, Int32, String, Uuid, message, since, struct

UNKNOWN_OPERATIONS = -(1 << 31)


@struct
class MetadataRequestTopic:
    """A topic asked for, by name or by id."""

    topic_id: Uuid = since(10, default=NO_UUID)
    name: String | None = since(0, default=None, nullable=10)


@message(key=3, versions=(0, 12), flexible=9)
class MetadataRequest:
    """No topics (null) means all of them; in version 0 the empty list does."""

    topics: list[MetadataRequestTopic] | None = since(0, default=None, nullable=1)
    allow_auto_topic_creation: Bool = since(4, default=True)
    include_cluster_authorized_operations: Bool = since(8, default=False, until=10)
    include_topic_authorized_operations: Bool = since(8, default=False)


@struct
class MetadataResponseBroker:
    """A live broker, and where this listener's clients reach it."""

    node_id: Int32
    host: String
    port: Int32
    rack: String | None = since(1, default=None)


@struct
class MetadataResponsePartition:
    """A partition's leader, replicas and ISR."""

    error_code: Int16 = 0
    partition_index: Int32
    leader_id: Int32
    leader_epoch: Int32 = since(7, default=-1)
    replica_nodes: list[Int32]
    isr_nodes: list[Int32]
    offline_replicas: list[Int32] = since(5, default=[])


@struct
class MetadataResponseTopic:
    """A topic and its partitions, or why there is none."""

    error_code: Int16 = 0
    name: String | None = since(0, default=None, nullable=12)
    topic_id: Uuid = since(10, default=NO_UUID)
    is_internal: Bool = since(1, default=False)
    partitions: list[MetadataResponsePartition] = since(0, default=[])
    topic_authorized_operations: Int32 = since(8, default=UNKNOWN_OPERATIONS)


@message(key=3, versions=(0, 12), flexible=9)
class MetadataResponse:
    """The cluster as the answering broker sees it."""

    throttle_time_ms: Int32 = since(3, default=0)
    brokers: list[MetadataResponseBroker]
    cluster_id: String | None = since(2, default=None)
    controller_id: Int32 = since(1, default=-1)
    topics: list[MetadataResponseTopic]
    cluster_authorized_operations: Int32 = since(8, default=UNKNOWN_OPERATIONS, until=10)
