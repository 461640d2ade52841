"""DescribeLogDirs 0-4 and AlterReplicaLogDirs 0-2: the log directories of one broker, what each replica takes
there, and which one it is to move to.

DescribeLogDirs: v1 throttling counts after the answer · v2 flexible · v3 an error for the whole · v4 bytes of
the volume · AlterReplicaLogDirs: v1 as before · v2 flexible
A field with a tag from 10000 on is our own: Kafka's tools skip it.
"""

from ..schema import Bool, Int16, Int32, Int64, String, message, since, struct, tagged


@struct
class DescribableLogDirTopic:
    """Partitions of one topic."""

    topic: String
    partitions: list[Int32]


@message(key=35, versions=(0, 4), flexible=2)
class DescribeLogDirsRequest:
    """Which partitions; null means all."""

    topics: list[DescribableLogDirTopic] | None = None


@struct
class DescribeLogDirsPartition:
    """One replica: its bytes, and how far its end lies behind what is known to be committed.

    `is_future_key`: a copy on its way here; it lies behind the end of the log that it will be.
    """

    partition_index: Int32
    partition_size: Int64
    offset_lag: Int64 = 0
    is_future_key: Bool = False


@struct
class DescribeLogDirsTopic:
    """Replicas of one topic."""

    name: String
    partitions: list[DescribeLogDirsPartition]


@struct
class DescribeLogDirsResult:
    """One directory; error 56 if it is offline. `is_full`: nothing is appended there for now."""

    error_code: Int16 = 0
    log_dir: String
    topics: list[DescribeLogDirsTopic] = since(0, default=[])
    total_bytes: Int64 = since(4, default=-1)
    usable_bytes: Int64 = since(4, default=-1)
    is_full: Bool = tagged(10000, default=False, since=2)


@message(key=35, versions=(0, 4), flexible=2)
class DescribeLogDirsResponse:
    """One result for each directory of the broker."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(3, default=0)
    results: list[DescribeLogDirsResult] = since(0, default=[])


@struct
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[Int32]


@struct
class AlterReplicaLogDir:
    """The replicas that shall be in one directory."""

    path: String
    topics: list[AlterReplicaLogDirTopic]


@message(key=34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsRequest:
    """Which replicas of this broker move where."""

    dirs: list[AlterReplicaLogDir]


@struct
class AlterReplicaLogDirPartitionResult:
    """What became of the wish; the move itself may take long."""

    partition_index: Int32
    error_code: Int16 = 0


@struct
class AlterReplicaLogDirTopicResult:
    """Partitions of one topic."""

    topic_name: String
    partitions: list[AlterReplicaLogDirPartitionResult]


@message(key=34, versions=(0, 2), flexible=2)
class AlterReplicaLogDirsResponse:
    """One result for each partition of the request."""

    throttle_time_ms: Int32 = 0
    results: list[AlterReplicaLogDirTopicResult]
