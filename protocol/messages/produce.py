"""Produce 3-11: append one batch to each of some partitions.

v3 batches of magic 2, transactional id · v5 log start offset · v7 zstd · v8 errors of single records
v9 flexible · v10 where the leader went · v11 may answer TRANSACTION_ABORTABLE
A field with a tag from 10000 on is our own: others skip it, and it is only sent to those that ask for it.
"""

from ..schema import Bool, Int16, Int32, Int64, Records, String, message, since, struct, tagged
from .common import OURS, LeaderIdAndEpoch, NodeEndpoint


@struct
class PartitionProduceData:
    """A batch for one partition."""

    index: Int32
    records: Records | None


@struct
class TopicProduceData:
    """Batches for one topic."""

    name: String
    partition_data: list[PartitionProduceData]


@message(key=0, versions=(3, 11), flexible=9)
class ProduceRequest:
    """`acks`: -1 all in-sync replicas, 1 the leader, 0 no answer at all. With `wants_durability` the answer
    to -1 tells who had each batch.
    """

    transactional_id: String | None = None
    acks: Int16
    timeout_ms: Int32
    topic_data: list[TopicProduceData]
    wants_durability: Bool = tagged(OURS, since=9, default=False)


@struct
class BatchIndexAndErrorMessage:
    """Which record of a batch was refused, and why."""

    batch_index: Int32
    batch_index_error_message: String | None = None


@struct
class ReplicaCopy:
    """A member of the ISR that had the batch when it was acknowledged, and how long after its append on the
    leader it was known to have it, in µs: 0 for the leader, -1 if it had it before this request.
    """

    broker: Int32
    after_us: Int64 = -1


@struct
class BatchDurability:
    """Who had a batch when acks=all was answered. `is_flushed`: on the leader's disk, not only in its page
    cache.
    """

    copies: list[ReplicaCopy]
    replicas: Int16
    min_isr: Int16
    is_flushed: Bool = False


@struct
class PartitionProduceResponse:
    """Where the batch begins in the log, or why it is not there."""

    index: Int32
    error_code: Int16 = 0
    base_offset: Int64
    log_append_time_ms: Int64 = -1
    log_start_offset: Int64 = since(5, default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = since(8, default=[])
    error_message: String | None = since(8, default=None)
    current_leader: LeaderIdAndEpoch | None = tagged(0, since=10, default=None)
    durability: BatchDurability | None = tagged(OURS, since=9, default=None)


@struct
class TopicProduceResponse:
    """Results of one topic."""

    name: String
    partition_responses: list[PartitionProduceResponse]


@message(key=0, versions=(3, 11), flexible=9)
class ProduceResponse:
    """One result for every partition of the request."""

    responses: list[TopicProduceResponse]
    throttle_time_ms: Int32 = 0
    node_endpoints: list[NodeEndpoint] = tagged(0, since=10, default=[])
