"""CreateTopics 2-7, DeleteTopics 1-6, DeleteRecords 0-2, CreatePartitions 0-3.

CreateTopics: v4 -1 asks for the broker's defaults · v5 flexible, the topic's configuration · v7 topic ids
DeleteTopics: v4 flexible · v5 error message · v6 by id
DeleteRecords: v2 flexible
CreatePartitions: v2 flexible
"""

from ..primitives import NO_UUID
from ..schema import Bool, Int8, Int16, Int32, Int64, String, Uuid, message, since, struct, tagged


@struct
class CreatableReplicaAssignment:
    """Brokers chosen by the caller for one partition."""

    partition_index: Int32
    broker_ids: list[Int32]


@struct
class CreatableTopicConfig:
    """A setting of the new topic."""

    name: String
    value: String | None


@struct
class CreatableTopic:
    """A topic to be created; with `assignments` both counts are -1."""

    name: String
    num_partitions: Int32 = -1
    replication_factor: Int16 = -1
    assignments: list[CreatableReplicaAssignment] = since(0, default=[])
    configs: list[CreatableTopicConfig] = since(0, default=[])
    topic_id: Uuid = tagged(10000, since=5, default=NO_UUID)  # between brokers: told apart by it


@message(key=19, versions=(2, 7), flexible=5)
class CreateTopicsRequest:
    """`validate_only`: check only, change nothing."""

    topics: list[CreatableTopic]
    timeout_ms: Int32 = 60_000
    validate_only: Bool = False


@struct
class CreatableTopicConfigs:
    """A setting in force for the new topic."""

    name: String
    value: String | None
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False


@struct
class CreatableTopicResult:
    """The result for one topic."""

    name: String
    topic_id: Uuid = since(7, default=NO_UUID)
    error_code: Int16 = 0
    error_message: String | None = None
    topic_config_error_code: Int16 = tagged(0, since=5, default=0)
    num_partitions: Int32 = since(5, default=-1)
    replication_factor: Int16 = since(5, default=-1)
    configs: list[CreatableTopicConfigs] | None = since(5, default=[])


@message(key=19, versions=(2, 7), flexible=5)
class CreateTopicsResponse:
    """One result for every topic of the request."""

    throttle_time_ms: Int32 = 0
    topics: list[CreatableTopicResult]


@struct
class DeleteTopicState:
    """A topic named by its name or by its id."""

    name: String | None = None
    topic_id: Uuid = NO_UUID


@message(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsRequest:
    """Until version 5 topics have names only."""

    topics: list[DeleteTopicState] = since(6, default=[])
    topic_names: list[String] = since(0, default=[], until=5)
    timeout_ms: Int32


@struct
class DeletableTopicResult:
    """The result for one topic."""

    name: String | None = since(0, default=None, nullable=6)
    topic_id: Uuid = since(6, default=NO_UUID)
    error_code: Int16 = 0
    error_message: String | None = since(5, default=None)


@message(key=20, versions=(1, 6), flexible=4)
class DeleteTopicsResponse:
    """One result for every topic of the request."""

    throttle_time_ms: Int32 = 0
    responses: list[DeletableTopicResult]


@struct
class DeleteRecordsPartition:
    """Delete all records before `offset`; -1 means the high watermark."""

    partition_index: Int32
    offset: Int64


@struct
class DeleteRecordsTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[DeleteRecordsPartition]


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsRequest:
    """Asked of the leader of each partition."""

    topics: list[DeleteRecordsTopic]
    timeout_ms: Int32


@struct
class DeleteRecordsPartitionResult:
    """Every live replica starts at `low_watermark` or later; -1 if unknown."""

    partition_index: Int32
    low_watermark: Int64 = -1
    error_code: Int16 = 0


@struct
class DeleteRecordsTopicResult:
    """Partitions of one topic."""

    name: String
    partitions: list[DeleteRecordsPartitionResult]


@message(key=21, versions=(0, 2), flexible=2)
class DeleteRecordsResponse:
    """One result for every partition of the request."""

    throttle_time_ms: Int32 = 0
    topics: list[DeleteRecordsTopicResult]


@struct
class CreatePartitionsAssignment:
    """Brokers chosen by the caller for one new partition."""

    broker_ids: list[Int32]


@struct
class CreatePartitionsTopic:
    """A topic and its new total number of partitions."""

    name: String
    count: Int32
    assignments: list[CreatePartitionsAssignment] | None = None
    grows_from: Int32 = tagged(10000, since=2, default=-1)  # between brokers, asked once more: had then


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsRequest:
    """`validate_only`: check only, change nothing."""

    topics: list[CreatePartitionsTopic]
    timeout_ms: Int32
    validate_only: Bool = False


@struct
class CreatePartitionsTopicResult:
    """The result for one topic."""

    name: String
    error_code: Int16 = 0
    error_message: String | None = None


@message(key=37, versions=(0, 3), flexible=2)
class CreatePartitionsResponse:
    """One result for every topic of the request."""

    throttle_time_ms: Int32 = 0
    results: list[CreatePartitionsTopicResult]
