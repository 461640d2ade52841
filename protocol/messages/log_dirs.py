"""DescribeLogDirs 0-4: the log directories of one broker, and how much each replica takes there.

v1 throttling counts after the answer · v2 flexible · v3 an error for the whole · v4 bytes of the volume
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
    """One replica: its bytes, and how far its end lies behind what is known to be committed."""

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
