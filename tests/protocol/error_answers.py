"""What an answer must hold beside its error code: what Kafka's own brokers put there.

By Kafka's `getErrorResponse` of each request and KafkaApis; nulls only where those send them. A strict client
throws an answer away that has others: librdkafka takes null records for damage, Kafka's client for Java does
not survive null arrays.
"""

from typing import Any

from strandline.protocol.schema import fields_of

OMITTED = -(1 << 31)  # authorized operations that were not asked for
NO_PLACE = {"node_id": -1, "host": "", "port": -1}
NO_COMMIT = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}

BESIDE_ERRORS: dict[str, dict[str, Any]] = {
    "PartitionProduceResponse": {"base_offset": -1, "log_append_time_ms": -1, "log_start_offset": -1},
    "FetchResponse": {"responses": [], "session_id": 0},
    "PartitionData": {
        "high_watermark": -1, "last_stable_offset": -1, "preferred_read_replica": -1, "records": b"",
        "diverging_epoch": None, "snapshot_id": None,
    },
    "ListOffsetsPartitionResponse": {"timestamp": -1, "offset": -1, "leader_epoch": -1},
    "MetadataResponseTopic": {"partitions": []},
    "MetadataResponsePartition": {"leader_id": -1},
    "OffsetCommitResponsePartition": {},
    "OffsetFetchResponse": {},
    "OffsetFetchResponsePartition": NO_COMMIT,
    "OffsetFetchResponseGroup": {"topics": []},
    "OffsetFetchResponsePartitions": NO_COMMIT,
    "FindCoordinatorResponse": NO_PLACE,
    "Coordinator": NO_PLACE,
    "JoinGroupResponse": {"generation_id": -1, "leader": "", "skip_assignment": False, "members": []},
    "HeartbeatResponse": {},
    "LeaveGroupResponse": {"members": []},
    "MemberResponse": {},
    "SyncGroupResponse": {"protocol_type": None, "protocol_name": None, "assignment": b""},
    "DescribedGroup": {
        "group_state": "", "protocol_type": "", "protocol_data": "", "members": [],
        "authorized_operations": OMITTED,
    },
    "ListGroupsResponse": {"groups": []},
    "ConsumerGroupHeartbeatResponse": {
        "member_id": None, "member_epoch": 0, "heartbeat_interval_ms": 0, "assignment": None,
    },
    "DescribedConsumerGroup": {
        "group_state": "", "group_epoch": 0, "assignment_epoch": 0, "assignor_name": "", "members": [],
        "authorized_operations": OMITTED,
    },
    "ApiVersionsResponse": {},
    "CreatableTopicResult": {"num_partitions": -1, "replication_factor": -1, "configs": []},
    "DeletableTopicResult": {},
    "DeleteRecordsPartitionResult": {"low_watermark": -1},
    "InitProducerIdResponse": {"producer_id": -1, "producer_epoch": -1},
    "EpochEndOffset": {"leader_epoch": -1, "end_offset": -1},
    "DescribeConfigsResult": {"configs": []},
    "ListConfigResourcesResponse": {"config_resources": []},
    "AlteredResource": {},
    "DescribeLogDirsResponse": {"results": []},
    "DescribeLogDirsResult": {"topics": []},
    "AlterReplicaLogDirPartitionResult": {},
    "CreatePartitionsTopicResult": {},
    "DeletableGroupResult": {},
    "OffsetDeleteResponse": {"topics": []},
    "OffsetDeleteResponsePartition": {},
    "TxnOffsetCommitResponsePartition": {},
    "AddPartitionsToTxnPartitionResult": {},
    "AddOffsetsToTxnResponse": {},
    "EndTxnResponse": {},
    "WritableTxnMarkerPartitionResult": {},
    "DescribeProducersPartitionResponse": {"active_producers": []},
    "DescribedTransaction": {
        "transaction_state": "", "transaction_timeout_ms": 0, "transaction_start_time_ms": 0,
        "producer_id": 0, "producer_epoch": 0, "topics": [],
    },
    "ListTransactionsResponse": {"unknown_state_filters": [], "transaction_states": []},
    "ElectLeadersResponse": {},
    "ElectionPartitionResult": {},
    "AlterPartitionReassignmentsResponse": {},
    "ReassignedPartition": {},
    "ListPartitionReassignmentsResponse": {"topics": []},
    "UpdateFeaturesResponse": {"results": []},
    "UpdatableFeatureResult": {},
    "DescribeClusterResponse": {"controller_id": -1, "brokers": []},
}  # fmt: skip
"""By the struct that carries the code. What names the place that the error is about stands there as asked."""

MAY_BE_NULL = frozenset(
    {
        "aborted_transactions",  # nobody asked for committed records
        "assignment", "member_id",  # of a member that is told an error
        "cluster_id", "error_message", "group_instance_id", "protocol_name", "protocol_type", "rack",
        "value", "documentation", "batch_index_error_message",
        "name",  # of a topic that was asked for by an id that nobody knows
        "current_leader", "diverging_epoch", "durability", "snapshot_id",  # a tag that is not written
    }
)  # fmt: skip


def errors_in(answer: Any, version: int) -> list[int]:
    """Every error code in an answer of this version. What stands beside each must be as in Kafka's."""
    found: list[int] = []
    _walk(answer, version, type(answer).__name__, found)
    return found


def _walk(struct: Any, version: int, path: str, found: list[int]) -> None:
    fields = [field for field in fields_of(type(struct)) if field.present(version)]
    values = {field.name: getattr(struct, field.name) for field in fields}
    for field in fields:
        value, place = values[field.name], f"{path}.{field.name} v{version}"
        if value is None:
            assert field.nullable(version), f"{place}: null cannot be written"
            assert field.name in MAY_BE_NULL, f"{place}: Kafka sends no null there"
        elif isinstance(field.wire, type):
            for each in value if field.array else [value]:
                _walk(each, version, f"{path}.{field.name}", found)
    if code := values.get("error_code") or values.get("partition_error_code"):
        found.append(code)
        for name, expected in BESIDE_ERRORS[type(struct).__name__].items():
            if name in values:
                assert _plain(values[name]) == expected, f"{path}.{name} v{version} beside error {code}"


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, memoryview) else value
