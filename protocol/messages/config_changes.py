"""AlterConfigs 0-2 and IncrementalAlterConfigs 0-1: the settings of topics, brokers and groups are changed.

AlterConfigs: v2 flexible · IncrementalAlterConfigs: v1 flexible
Left to others: reading settings (cluster.py).
"""

from ..schema import Bool, Int8, Int16, Int32, String, message, since, struct


@struct
class AlterableConfig:
    """The new value of a setting."""

    name: String
    value: String | None = None


@struct
class AlterConfigsResource:
    """Resource type 2 is a topic, 4 a broker (without a name: all brokers), 32 a group. Settings that are not
    named are removed.
    """

    resource_type: Int8
    resource_name: String
    configs: list[AlterableConfig]


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsRequest:
    """All settings of some resources are replaced."""

    resources: list[AlterConfigsResource]
    validate_only: Bool = False


@struct
class AlteredResource:
    """The result for one resource."""

    error_code: Int16 = 0
    error_message: String | None = None
    resource_type: Int8
    resource_name: String


@message(key=33, versions=(0, 2), flexible=2)
class AlterConfigsResponse:
    """One result for every resource of the request."""

    throttle_time_ms: Int32 = 0
    responses: list[AlteredResource] = since(0, default=[])


@struct
class IncrementalConfig:
    """One change: operation 0 sets, 1 deletes, 2 appends to a list, 3 removes from a list."""

    name: String
    config_operation: Int8
    value: String | None = None


@struct
class IncrementalResource:
    """Changes of one resource; settings that are not named stay."""

    resource_type: Int8
    resource_name: String
    configs: list[IncrementalConfig]


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsRequest:
    """Changes of some resources."""

    resources: list[IncrementalResource]
    validate_only: Bool = False


@message(key=44, versions=(0, 1), flexible=1)
class IncrementalAlterConfigsResponse:
    """One result for every resource of the request."""

    throttle_time_ms: Int32 = 0
    responses: list[AlteredResource] = since(0, default=[])
