"""What a transactional producer asks its coordinator, what brokers tell each other, and what tools look at.

AddPartitionsToTxn: v3 flexible · v4 several transactions, or only a check whether they have the partitions;
  from brokers only · v5 may answer TRANSACTION_ABORTABLE
AddOffsetsToTxn, EndTxn: v2 may answer PRODUCER_FENCED · v3 flexible · v4 may answer TRANSACTION_ABORTABLE
WriteTxnMarkers: v1 flexible
ListTransactions: v1 by the time that they have been open
Left to others: InitProducerId (producers.py), TxnOffsetCommit (group_offsets.py).
"""

from ..schema import Bool, Int16, Int32, Int64, String, message, since, struct


@struct
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: String
    partitions: list[Int32]


@struct
class AddPartitionsToTxnTransaction:
    """One transaction, and the partitions that it is about to write or says that it writes."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    verify_only: Bool = False
    topics: list[AddPartitionsToTxnTopic]


@message(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnRequest:
    """Until version 3 of one producer, about its transaction."""

    transactions: list[AddPartitionsToTxnTransaction] = since(4, default=[])
    v3_and_below_transactional_id: String = since(0, default="", until=3)
    v3_and_below_producer_id: Int64 = since(0, default=-1, until=3)
    v3_and_below_producer_epoch: Int16 = since(0, default=-1, until=3)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = since(0, default=[], until=3)


@struct
class AddPartitionsToTxnPartitionResult:
    """The result for one partition."""

    partition_index: Int32
    partition_error_code: Int16 = 0


@struct
class AddPartitionsToTxnTopicResult:
    """Partitions of one topic."""

    name: String
    results_by_partition: list[AddPartitionsToTxnPartitionResult]


@struct
class AddPartitionsToTxnResult:
    """One transaction."""

    transactional_id: String
    topic_results: list[AddPartitionsToTxnTopicResult]


@message(key=24, versions=(0, 5), flexible=3)
class AddPartitionsToTxnResponse:
    """If one partition cannot be added, none is."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(4, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4, default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = since(0, default=[], until=3)


@message(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnRequest:
    """The transaction will commit offsets of this group."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


@message(key=25, versions=(0, 4), flexible=3)
class AddOffsetsToTxnResponse:
    """The result."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


@message(key=26, versions=(0, 4), flexible=3)
class EndTxnRequest:
    """Commit or abort."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


@message(key=26, versions=(0, 4), flexible=3)
class EndTxnResponse:
    """Success: the outcome is decided, and will be told to every partition."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0


@struct
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: String
    partition_indexes: list[Int32]


@struct
class WritableTxnMarker:
    """The outcome of one transaction, for some of its partitions."""

    producer_id: Int64
    producer_epoch: Int16
    transaction_result: Bool
    topics: list[WritableTxnMarkerTopic]
    coordinator_epoch: Int32


@message(key=27, versions=(1, 1), flexible=1)
class WriteTxnMarkersRequest:
    """Markers for partitions that the asked broker leads."""

    markers: list[WritableTxnMarker]


@struct
class WritableTxnMarkerPartitionResult:
    """The result for one partition."""

    partition_index: Int32
    error_code: Int16 = 0


@struct
class WritableTxnMarkerTopicResult:
    """Partitions of one topic."""

    name: String
    partitions: list[WritableTxnMarkerPartitionResult]


@struct
class WritableTxnMarkerResult:
    """One transaction."""

    producer_id: Int64
    topics: list[WritableTxnMarkerTopicResult]


@message(key=27, versions=(1, 1), flexible=1)
class WriteTxnMarkersResponse:
    """A marker without an error is committed."""

    markers: list[WritableTxnMarkerResult]


@struct
class DescribeProducersTopic:
    """Partitions of one topic."""

    name: String
    partition_indexes: list[Int32]


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersRequest:
    """Who writes to these partitions? Their leaders know."""

    topics: list[DescribeProducersTopic]


@struct
class ProducerOnPartition:
    """What a partition knows of a producer. `current_txn_start_offset` is -1 without an open transaction."""

    producer_id: Int64
    producer_epoch: Int32
    last_sequence: Int32 = -1
    last_timestamp: Int64 = -1
    coordinator_epoch: Int32
    current_txn_start_offset: Int64 = -1


@struct
class DescribeProducersPartitionResponse:
    """The producers of one partition."""

    partition_index: Int32
    error_code: Int16 = 0
    error_message: String | None = None
    active_producers: list[ProducerOnPartition]


@struct
class DescribeProducersTopicResponse:
    """Partitions of one topic."""

    name: String
    partitions: list[DescribeProducersPartitionResponse]


@message(key=61, versions=(0, 0), flexible=0)
class DescribeProducersResponse:
    """Every partition of the request."""

    throttle_time_ms: Int32 = 0
    topics: list[DescribeProducersTopicResponse]


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsRequest:
    """The state of these transactional ids. Their coordinators know."""

    transactional_ids: list[String]


@struct
class DescribedTransactionTopic:
    """Partitions of one topic."""

    topic: String
    partitions: list[Int32]


@struct
class DescribedTransaction:
    """One transactional id."""

    error_code: Int16 = 0
    transactional_id: String
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    topics: list[DescribedTransactionTopic] = since(0, default=[])


@message(key=65, versions=(0, 0), flexible=0)
class DescribeTransactionsResponse:
    """One for every id of the request."""

    throttle_time_ms: Int32 = 0
    transaction_states: list[DescribedTransaction]


@message(key=66, versions=(0, 1), flexible=0)
class ListTransactionsRequest:
    """All transactional ids of the asked coordinator that pass every filter; empty and -1 let all pass."""

    state_filters: list[String] = since(0, default=[])
    producer_id_filters: list[Int64] = since(0, default=[])
    duration_filter: Int64 = since(1, default=-1)


@struct
class ListedTransaction:
    """One transactional id."""

    transactional_id: String
    producer_id: Int64
    transaction_state: String


@message(key=66, versions=(0, 1), flexible=0)
class ListTransactionsResponse:
    """States that the broker does not know are named."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String] = since(0, default=[])
    transaction_states: list[ListedTransaction] = since(0, default=[])
