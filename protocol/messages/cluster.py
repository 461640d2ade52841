"""DescribeCluster 0-1, DescribeConfigs 1-4, ListConfigResources 0-1: the brokers, and what has settings.

DescribeCluster: v1 endpoint type · DescribeConfigs: v3 types and documentation · v4 flexible
ListConfigResources: v0 has the name ListClientMetricsResources · v1 resources of any type
"""

from ..schema import Bool, Int8, Int16, Int32, String, message, since, struct
from .metadata import UNKNOWN_OPERATIONS


@message(key=60, versions=(0, 1), flexible=0)
class DescribeClusterRequest:
    """Endpoint type 1 means brokers, 2 means controllers of a metadata quorum."""

    include_cluster_authorized_operations: Bool = False
    endpoint_type: Int8 = since(1, default=1)


@struct
class DescribeClusterBroker:
    """A live broker, and where this listener's clients reach it."""

    broker_id: Int32
    host: String
    port: Int32
    rack: String | None = None


@message(key=60, versions=(0, 1), flexible=0)
class DescribeClusterResponse:
    """The cluster without its topics."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None
    endpoint_type: Int8 = since(1, default=1)
    cluster_id: String
    controller_id: Int32 = -1
    brokers: list[DescribeClusterBroker] = since(0, default=[])
    cluster_authorized_operations: Int32 = UNKNOWN_OPERATIONS


@struct
class DescribeConfigsResource:
    """Resource type 2 is a topic, 4 a broker, 8 its loggers, 32 a group; no keys (null) means all of them."""

    resource_type: Int8
    resource_name: String
    configuration_keys: list[String] | None = None


@message(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsRequest:
    """The settings wanted, by resource."""

    resources: list[DescribeConfigsResource]
    include_synonyms: Bool = False
    include_documentation: Bool = since(3, default=False)


@struct
class DescribeConfigsSynonym:
    """Another place that a setting may come from."""

    name: String
    value: String | None
    source: Int8


@struct
class DescribeConfigsResourceResult:
    """One setting."""

    name: String
    value: String | None
    read_only: Bool = False
    config_source: Int8 = -1
    is_sensitive: Bool = False
    synonyms: list[DescribeConfigsSynonym] = since(1, default=[])
    config_type: Int8 = since(3, default=0)
    documentation: String | None = since(3, default=None)


@struct
class DescribeConfigsResult:
    """The settings of one resource."""

    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8
    resource_name: String
    configs: list[DescribeConfigsResourceResult] = since(0, default=[])


@message(key=32, versions=(1, 4), flexible=4)
class DescribeConfigsResponse:
    """One result for every resource of the request."""

    throttle_time_ms: Int32 = 0
    results: list[DescribeConfigsResult]


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesRequest:
    """The types wanted, all if there are none. Version 0 wants those of client metrics (16)."""

    resource_types: list[Int8] = since(1, default=[])


@struct
class ListedConfigResource:
    """Something that has settings."""

    resource_name: String
    resource_type: Int8 = since(1, default=16)


@message(key=74, versions=(0, 1), flexible=0)
class ListConfigResourcesResponse:
    """What has settings."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    config_resources: list[ListedConfigResource] = since(0, default=[])
