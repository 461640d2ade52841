"""The table of requests: message classes, versions and listeners of each API key.

`advertised` is what ApiVersions tells clients, `served` what is answered on a client listener, `internal`
what brokers use among themselves. Produce is advertised from version 0, because old clients conclude from a
higher minimum that the broker cannot compress, and served from version 3.
Left to others: who handles a request (broker/handlers/table.py).
Why: docs/decisions/0001-kafkas-protocol-and-formats.md
"""

from enum import IntEnum
from typing import Any

from ..base.values import dataclass
from .messages import (
    api_versions,
    cluster,
    config_changes,
    consumer_groups,
    control,
    elections,
    features,
    fetch,
    group_admin,
    group_offsets,
    groups,
    inspection,
    log_dirs,
    metadata,
    offsets,
    produce,
    producers,
    reassignments,
    topics,
    transactions,
)
from .schema import Spec, spec_of


class Api(IntEnum):
    """The API keys of the requests."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    GET_REPLICA_LOG_INFO = 93
    INSPECT = 20_000  # our own, far from Kafka's keys; never advertised


@dataclass(frozen=True, slots=True)
class ApiSpec:
    """One request and its response. An empty `served` means: between brokers only."""

    api: Api
    request: type[Any]
    response: type[Any]
    advertised: range | None
    served: range
    internal: range | None

    @property
    def spec(self) -> Spec:
        """The request's `Spec`; the response has the same versions."""
        return spec_of(self.request)


def _versions(first: int, last: int) -> range:
    return range(first, last + 1)


def _public(
    api: Api,
    request: type[Any],
    response: type[Any],
    *,
    advertised: range | None = None,
    served: range | None = None,
    internal: range | None = None,
) -> ApiSpec:
    """A client request. Brokers may use any version of it unless `internal` says otherwise."""
    declared = spec_of(request).versions
    served = served or declared
    return ApiSpec(api, request, response, advertised or served, served, internal or declared)


def _private(api: Api, request: type[Any], response: type[Any]) -> ApiSpec:
    """Served to clients, but not advertised: a request of our own tools, or one that is only refused."""
    versions = spec_of(request).versions
    return ApiSpec(api, request, response, None, versions, versions)


def _between_brokers(api: Api, request: type[Any], response: type[Any]) -> ApiSpec:
    return ApiSpec(api, request, response, None, range(0), spec_of(request).versions)


_TABLE = (
    _public(
        Api.PRODUCE,
        produce.ProduceRequest,
        produce.ProduceResponse,
        advertised=_versions(0, 11),
        served=_versions(3, 11),
    ),
    _public(Api.FETCH, fetch.FetchRequest, fetch.FetchResponse),
    _public(Api.LIST_OFFSETS, offsets.ListOffsetsRequest, offsets.ListOffsetsResponse),
    _public(Api.METADATA, metadata.MetadataRequest, metadata.MetadataResponse),
    _between_brokers(Api.LEADER_AND_ISR, control.LeaderAndIsrRequest, control.LeaderAndIsrResponse),
    _between_brokers(Api.STOP_REPLICA, control.StopReplicaRequest, control.StopReplicaResponse),
    _between_brokers(Api.UPDATE_METADATA, control.UpdateMetadataRequest, control.UpdateMetadataResponse),
    _between_brokers(
        Api.CONTROLLED_SHUTDOWN, control.ControlledShutdownRequest, control.ControlledShutdownResponse
    ),
    _public(Api.OFFSET_COMMIT, group_offsets.OffsetCommitRequest, group_offsets.OffsetCommitResponse),
    _public(Api.OFFSET_FETCH, group_offsets.OffsetFetchRequest, group_offsets.OffsetFetchResponse),
    _public(Api.FIND_COORDINATOR, groups.FindCoordinatorRequest, groups.FindCoordinatorResponse),
    _public(Api.JOIN_GROUP, groups.JoinGroupRequest, groups.JoinGroupResponse),
    _public(Api.HEARTBEAT, groups.HeartbeatRequest, groups.HeartbeatResponse),
    _public(Api.LEAVE_GROUP, groups.LeaveGroupRequest, groups.LeaveGroupResponse),
    _public(Api.SYNC_GROUP, groups.SyncGroupRequest, groups.SyncGroupResponse),
    _public(Api.DESCRIBE_GROUPS, group_admin.DescribeGroupsRequest, group_admin.DescribeGroupsResponse),
    _public(Api.LIST_GROUPS, group_admin.ListGroupsRequest, group_admin.ListGroupsResponse),
    _private(Api.SASL_HANDSHAKE, api_versions.SaslHandshakeRequest, api_versions.SaslHandshakeResponse),
    _public(Api.API_VERSIONS, api_versions.ApiVersionsRequest, api_versions.ApiVersionsResponse),
    _public(Api.CREATE_TOPICS, topics.CreateTopicsRequest, topics.CreateTopicsResponse),
    _public(Api.DELETE_TOPICS, topics.DeleteTopicsRequest, topics.DeleteTopicsResponse),
    _public(Api.DELETE_RECORDS, topics.DeleteRecordsRequest, topics.DeleteRecordsResponse),
    _public(Api.INIT_PRODUCER_ID, producers.InitProducerIdRequest, producers.InitProducerIdResponse),
    _public(
        Api.OFFSET_FOR_LEADER_EPOCH,
        offsets.OffsetForLeaderEpochRequest,
        offsets.OffsetForLeaderEpochResponse,
    ),
    _public(
        Api.ADD_PARTITIONS_TO_TXN,
        transactions.AddPartitionsToTxnRequest,
        transactions.AddPartitionsToTxnResponse,
        served=_versions(0, 3),
    ),
    _public(
        Api.ADD_OFFSETS_TO_TXN, transactions.AddOffsetsToTxnRequest, transactions.AddOffsetsToTxnResponse
    ),
    _public(Api.END_TXN, transactions.EndTxnRequest, transactions.EndTxnResponse),
    _public(Api.WRITE_TXN_MARKERS, transactions.WriteTxnMarkersRequest, transactions.WriteTxnMarkersResponse),
    _public(
        Api.TXN_OFFSET_COMMIT, group_offsets.TxnOffsetCommitRequest, group_offsets.TxnOffsetCommitResponse
    ),
    _public(Api.DESCRIBE_CONFIGS, cluster.DescribeConfigsRequest, cluster.DescribeConfigsResponse),
    _public(Api.ALTER_CONFIGS, config_changes.AlterConfigsRequest, config_changes.AlterConfigsResponse),
    _public(
        Api.ALTER_REPLICA_LOG_DIRS, log_dirs.AlterReplicaLogDirsRequest, log_dirs.AlterReplicaLogDirsResponse
    ),
    _public(Api.DESCRIBE_LOG_DIRS, log_dirs.DescribeLogDirsRequest, log_dirs.DescribeLogDirsResponse),
    _public(Api.CREATE_PARTITIONS, topics.CreatePartitionsRequest, topics.CreatePartitionsResponse),
    _public(Api.DELETE_GROUPS, group_admin.DeleteGroupsRequest, group_admin.DeleteGroupsResponse),
    _public(Api.ELECT_LEADERS, elections.ElectLeadersRequest, elections.ElectLeadersResponse),
    _public(
        Api.INCREMENTAL_ALTER_CONFIGS,
        config_changes.IncrementalAlterConfigsRequest,
        config_changes.IncrementalAlterConfigsResponse,
    ),
    _public(
        Api.ALTER_PARTITION_REASSIGNMENTS,
        reassignments.AlterPartitionReassignmentsRequest,
        reassignments.AlterPartitionReassignmentsResponse,
    ),
    _public(
        Api.LIST_PARTITION_REASSIGNMENTS,
        reassignments.ListPartitionReassignmentsRequest,
        reassignments.ListPartitionReassignmentsResponse,
    ),
    _public(Api.OFFSET_DELETE, group_offsets.OffsetDeleteRequest, group_offsets.OffsetDeleteResponse),
    _public(Api.UPDATE_FEATURES, features.UpdateFeaturesRequest, features.UpdateFeaturesResponse),
    _public(Api.DESCRIBE_CLUSTER, cluster.DescribeClusterRequest, cluster.DescribeClusterResponse),
    _public(
        Api.DESCRIBE_PRODUCERS,
        transactions.DescribeProducersRequest,
        transactions.DescribeProducersResponse,
    ),
    _public(
        Api.DESCRIBE_TRANSACTIONS,
        transactions.DescribeTransactionsRequest,
        transactions.DescribeTransactionsResponse,
    ),
    _public(
        Api.LIST_TRANSACTIONS, transactions.ListTransactionsRequest, transactions.ListTransactionsResponse
    ),
    _public(
        Api.CONSUMER_GROUP_HEARTBEAT,
        consumer_groups.ConsumerGroupHeartbeatRequest,
        consumer_groups.ConsumerGroupHeartbeatResponse,
    ),
    _public(
        Api.CONSUMER_GROUP_DESCRIBE,
        consumer_groups.ConsumerGroupDescribeRequest,
        consumer_groups.ConsumerGroupDescribeResponse,
    ),
    _public(
        Api.LIST_CONFIG_RESOURCES, cluster.ListConfigResourcesRequest, cluster.ListConfigResourcesResponse
    ),
    _between_brokers(Api.ALTER_PARTITION, control.AlterPartitionRequest, control.AlterPartitionResponse),
    _between_brokers(
        Api.ALLOCATE_PRODUCER_IDS,
        producers.AllocateProducerIdsRequest,
        producers.AllocateProducerIdsResponse,
    ),
    _between_brokers(
        Api.GET_REPLICA_LOG_INFO, elections.GetReplicaLogInfoRequest, elections.GetReplicaLogInfoResponse
    ),
    _private(Api.INSPECT, inspection.InspectRequest, inspection.InspectResponse),
)

APIS: dict[Api, ApiSpec] = {entry.api: entry for entry in _TABLE}


def header_version(api: int, version: int) -> int:
    """The version of a request's header; 2, with a tag buffer, if the request is flexible."""
    return 2 if version >= APIS[Api(api)].spec.flexible else 1


def response_header_version(api: int, version: int) -> int:
    """The version of a response's header: 1 if flexible.

    ApiVersions always has 0, because its client does not know the broker's versions yet.
    """
    if api == Api.API_VERSIONS:
        return 0
    return 1 if version >= APIS[Api(api)].spec.flexible else 0
