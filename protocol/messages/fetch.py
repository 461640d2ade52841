"""Fetch 4-17: batches from an offset on, for consumers and for followers.

v4 isolation level, aborted transactions · v5 log start offset · v7 sessions · v9 leader epoch · v10 zstd
v11 rack · v12 flexible, epoch of the last record, diverging epoch, current leader · v13 topic ids
v15 the follower's incarnation · v16 node endpoints · v17 replica directory
"""

from ..primitives import NO_UUID
from ..schema import Bool, Int8, Int16, Int32, Int64, Records, String, Uuid, message, since, struct, tagged
from .common import LeaderIdAndEpoch, NodeEndpoint


@struct
class ReplicaState:
    """Who fetches: a broker id and its broker epoch, in Kafka the czxid of its registration. Ours counts its
    starts.
    """

    replica_id: Int32 = -1
    replica_epoch: Int64 = -1
    counts_starts: Bool = tagged(10000, default=False)


@struct
class FetchPartition:
    """A partition to fetch, and the offset to begin at."""

    partition: Int32
    current_leader_epoch: Int32 = since(9, default=-1)
    fetch_offset: Int64
    last_fetched_epoch: Int32 = since(12, default=-1)
    log_start_offset: Int64 = since(5, default=-1)
    partition_max_bytes: Int32
    replica_directory_id: Uuid = tagged(0, since=17, default=NO_UUID)


@struct
class FetchTopic:
    """Partitions wanted of one topic."""

    topic: String = since(0, default="", until=12)
    topic_id: Uuid = since(13, default=NO_UUID)
    partitions: list[FetchPartition]


@struct
class ForgottenTopic:
    """Partitions to be dropped from a session."""

    topic: String = since(7, default="", until=12)
    topic_id: Uuid = since(13, default=NO_UUID)
    partitions: list[Int32] = since(7, default=[])


@message(key=1, versions=(4, 17), flexible=12)
class FetchRequest:
    """A follower says who it is in `replica_id`, from version 15 on in `replica_state`."""

    cluster_id: String | None = tagged(0, since=12, default=None)
    replica_id: Int32 = since(0, default=-1, until=14)
    replica_state: ReplicaState | None = tagged(1, since=15, default=None)
    max_wait_ms: Int32
    min_bytes: Int32
    max_bytes: Int32 = 0x7FFFFFFF
    isolation_level: Int8 = 0
    session_id: Int32 = since(7, default=0)
    session_epoch: Int32 = since(7, default=-1)
    topics: list[FetchTopic]
    forgotten_topics_data: list[ForgottenTopic] = since(7, default=[])
    rack_id: String = since(11, default="")


@struct
class FetchEpochEndOffset:
    """The leader's largest epoch at or below the follower's, and its end offset."""

    epoch: Int32 = -1
    end_offset: Int64 = -1


@struct
class SnapshotId:
    """A snapshot to be fetched instead of the log; only a metadata quorum has them."""

    end_offset: Int64 = -1
    epoch: Int32 = -1


@struct
class AbortedTransaction:
    """An aborted transaction, whose records a read_committed consumer skips."""

    producer_id: Int64
    first_offset: Int64


@struct
class PartitionData:
    """Batches of one partition, and how far it is committed.

    `records` may be null by Kafka's definition, but librdkafka takes that for damage: the default is empty.
    """

    partition_index: Int32
    error_code: Int16 = 0
    high_watermark: Int64
    last_stable_offset: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1)
    diverging_epoch: FetchEpochEndOffset | None = tagged(0, since=12, default=None)
    current_leader: LeaderIdAndEpoch | None = tagged(1, since=12, default=None)
    snapshot_id: SnapshotId | None = tagged(2, since=12, default=None)
    aborted_transactions: list[AbortedTransaction] | None = None
    preferred_read_replica: Int32 = since(11, default=-1)
    records: Records | None = b""


@struct
class FetchableTopicResponse:
    """Partitions of one topic."""

    topic: String = since(0, default="", until=12)
    topic_id: Uuid = since(13, default=NO_UUID)
    partitions: list[PartitionData]


@message(key=1, versions=(4, 17), flexible=12)
class FetchResponse:
    """`session_id` 0: the broker keeps no session, and the next fetch names all partitions again."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(7, default=0)
    session_id: Int32 = since(7, default=0)
    responses: list[FetchableTopicResponse]
    node_endpoints: list[NodeEndpoint] = tagged(0, since=16, default=[])
