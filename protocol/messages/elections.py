"""ElectLeaders 0-2: partitions get leaders of an operator's choice. GetReplicaLogInfo 0: how far logs go.

ElectLeaders: v1 kind of election, and a code for the whole request · v2 flexible
GetReplicaLogInfo is the question of KIP-966, asked between brokers only: by the controller, of every replica
of a partition that nobody may lead. `current_leader_epoch` says whether the replica has heard of that.
"""

from ..schema import Bool, Int8, Int16, Int32, Int64, String, Uuid, message, since, struct, tagged


@struct
class ElectedPartitions:
    """Some partitions of one topic."""

    topic: String
    partitions: list[Int32]


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersRequest:
    """Election type 0 wants preferred leaders, 1 any leader at all; null stands for all partitions."""

    election_type: Int8 = since(1, default=0)
    topic_partitions: list[ElectedPartitions] | None = None
    timeout_ms: Int32 = 60_000


@struct
class ElectionPartitionResult:
    """The result for one partition."""

    partition_id: Int32
    error_code: Int16 = 0
    error_message: String | None = None


@struct
class ReplicaElectionResult:
    """Partitions of one topic."""

    topic: String
    partition_result: list[ElectionPartitionResult]


@message(key=43, versions=(0, 2), flexible=2)
class ElectLeadersResponse:
    """One result for every partition; of a request for all, only for those that were not well led before."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(1, default=0)
    replica_election_results: list[ReplicaElectionResult] = since(0, default=[])


@struct
class LogInfoTopic:
    """Some partitions of one topic."""

    topic_id: Uuid
    partitions: list[Int32]
    topic: String = tagged(10000, default="")  # ours: topics of old tools have no id


@message(key=93, versions=(0, 0), flexible=0)
class GetReplicaLogInfoRequest:
    """The logs that the controller asks about."""

    topic_partitions: list[LogInfoTopic] | None = None


@struct
class PartitionLogInfo:
    """The end of one log: the epoch of its last record, and the offset after it."""

    partition: Int32
    last_written_leader_epoch: Int32 = -1
    current_leader_epoch: Int32 = -1
    log_end_offset: Int64 = -1
    error_code: Int16 = 0


@struct
class TopicLogInfo:
    """The logs of one topic."""

    topic_id: Uuid
    partition_log_info: list[PartitionLogInfo]


@message(key=93, versions=(0, 0), flexible=0)
class GetReplicaLogInfoResponse:
    """In the order of the request. `broker_epoch` is the start of the broker that answers.

    `truncated`: it did not get round to all.
    """

    throttle_time_ms: Int32 = 0
    broker_epoch: Int64 = -1
    truncated: Bool = False
    topic_partition_log_info_list: list[TopicLogInfo] = since(0, default=[])
