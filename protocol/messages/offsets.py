"""ListOffsets 1-9 and OffsetForLeaderEpoch 2-4: where a log, a time, an epoch begins and ends.

ListOffsets: v2 isolation level · v4 leader epoch · v6 flexible · v7 largest timestamp (-3)
  v8 earliest local offset (-4) · v9 last offset in remote storage (-5)
OffsetForLeaderEpoch: v3 replica id · v4 flexible
"""

from ..schema import Int8, Int16, Int32, Int64, String, message, since, struct

LATEST, EARLIEST, LARGEST_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = range(-1, -6, -1)  # in place of a time


@struct
class ListOffsetsPartition:
    """A time asked for: -1 the end, -2 the beginning, -3 the largest timestamp."""

    partition_index: Int32
    current_leader_epoch: Int32 = since(4, default=-1)
    timestamp: Int64


@struct
class ListOffsetsTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[ListOffsetsPartition]


@message(key=2, versions=(1, 9), flexible=6)
class ListOffsetsRequest:
    """`isolation_level` 1 asks for the last stable offset in place of the high watermark."""

    replica_id: Int32 = -1
    isolation_level: Int8 = since(2, default=0)
    topics: list[ListOffsetsTopic]


@struct
class ListOffsetsPartitionResponse:
    """The first record at or after the time asked for; -1, -1 if there is none."""

    partition_index: Int32
    error_code: Int16 = 0
    timestamp: Int64 = -1
    offset: Int64 = -1
    leader_epoch: Int32 = since(4, default=-1)


@struct
class ListOffsetsTopicResponse:
    """Partitions of one topic."""

    name: String
    partitions: list[ListOffsetsPartitionResponse]


@message(key=2, versions=(1, 9), flexible=6)
class ListOffsetsResponse:
    """One offset for every partition of the request."""

    throttle_time_ms: Int32 = since(2, default=0)
    topics: list[ListOffsetsTopicResponse]


@struct
class OffsetForLeaderPartition:
    """A leader epoch; its end offset is asked for."""

    partition: Int32
    current_leader_epoch: Int32 = -1
    leader_epoch: Int32


@struct
class OffsetForLeaderTopic:
    """Partitions of one topic."""

    topic: String
    partitions: list[OffsetForLeaderPartition]


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochRequest:
    """`replica_id` is -1 for a consumer, and -2 from one too old to say."""

    replica_id: Int32 = since(3, default=-2)
    topics: list[OffsetForLeaderTopic]


@struct
class EpochEndOffset:
    """The largest epoch not above the one asked for, and its end offset (exclusive); -1, -1 if unknown."""

    error_code: Int16 = 0
    partition: Int32
    leader_epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class OffsetForLeaderTopicResult:
    """Partitions of one topic."""

    topic: String
    partitions: list[EpochEndOffset]


@message(key=23, versions=(2, 4), flexible=4)
class OffsetForLeaderEpochResponse:
    """One end for every partition of the request."""

    throttle_time_ms: Int32 = 0
    topics: list[OffsetForLeaderTopicResult]
