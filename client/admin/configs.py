"""Settings of topics, brokers and groups: described, set, deleted; for `Admin`.

A change can be repeated without harm: it gives the result, not a step. Each broker is asked for its own
settings. Changes go to the broker that they concern if it is alive, as Apache Kafka wants it, else to any.
Left to others: which values are good (the brokers), how often to try (network/cluster.py).
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from ...protocol.errors import ApiError, ErrorCode, UnknownTopicOrPartition, error_for
from ...protocol.messages.cluster import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    ListConfigResourcesRequest,
)
from ...protocol.messages.config_changes import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalConfig,
    IncrementalResource,
)
from ..network.cluster import Cluster


class ResourceType(IntEnum):
    """The kind of a resource that has settings."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigSource(IntEnum):
    """Where a setting comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8

    @classmethod
    def _missing_(cls, value: object) -> "ConfigSource":
        return cls.UNKNOWN


class ConfigType(IntEnum):
    """The type of a setting's value."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @classmethod
    def _missing_(cls, value: object) -> "ConfigType":
        return cls.UNKNOWN


class AlterConfigOp(IntEnum):
    """What happens to a setting; the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSynonym(NamedTuple):
    """One source that a setting's value may come from."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """A setting in force."""

    name: str
    value: str | None
    is_read_only: bool
    source: ConfigSource
    is_sensitive: bool
    type: ConfigType = ConfigType.UNKNOWN
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None


class ConfigChange(NamedTuple):
    """A change of one setting."""

    name: str
    value: str | None = None
    operation: AlterConfigOp = AlterConfigOp.SET


class ConfigResource(NamedTuple):
    """A topic, a group, a broker, or (a broker without a name) all brokers."""

    type: ResourceType
    name: str

    @classmethod
    def of(
        cls, topic: str | None, broker: int | None, all_brokers: bool, group: str | None
    ) -> "ConfigResource":
        """The resource that the arguments name."""
        if (topic is not None) + (broker is not None) + all_brokers + (group is not None) != 1:
            raise ValueError("expected exactly one of topic, broker, all_brokers, group")
        if topic is not None:
            return cls(ResourceType.TOPIC, topic)
        if group is not None:
            return cls(ResourceType.GROUP, group)
        return cls(ResourceType.BROKER, "" if broker is None else str(broker))

    @property
    def broker(self) -> int | None:
        """The one broker that can describe it."""
        return int(self.name) if self.type is ResourceType.BROKER and self.name else None


async def describe_configs(
    cluster: Cluster, resource: ConfigResource, documentation: bool, deadline: float
) -> list[ConfigEntry]:
    """The settings of a resource. A broker that does not know a topic is asked again until it must have heard
    of it. Raises BrokerNotAvailable for a broker that does not run."""
    asked = DescribeConfigsResource(resource_type=resource.type, resource_name=resource.name)
    request = DescribeConfigsRequest(
        resources=[asked], include_synonyms=True, include_documentation=documentation
    )

    heard_at = cluster.heard_everywhere_at()

    async def attempt() -> list[ConfigEntry] | UnknownTopicOrPartition:
        told: DescribeConfigsResponse
        if resource.broker is not None:
            await cluster.listed(resource.broker, deadline)
            told = await cluster.request(resource.broker, request, deadline)
        else:
            told = await cluster.ask_any(request, deadline)
        for result in told.results:
            if result.error_code:
                refusal = error_for(result.error_code, result.error_message)
                if isinstance(refusal, UnknownTopicOrPartition) and cluster.now() >= heard_at:
                    return refusal
                raise refusal
        return [_entry(one) for result in told.results for one in result.configs]

    found = await cluster.persist(attempt, deadline)
    if isinstance(found, UnknownTopicOrPartition):
        raise found
    return found


def _entry(one: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        one.name,
        one.value,
        one.read_only,
        ConfigSource(one.config_source),
        one.is_sensitive,
        ConfigType(one.config_type),
        tuple(ConfigSynonym(s.name, s.value, ConfigSource(s.source)) for s in one.synonyms),
        one.documentation,
    )


async def list_config_resources(
    cluster: Cluster, types: Iterable[ResourceType], deadline: float
) -> list[ConfigResource]:
    """What has settings, of these types or of all."""
    wanted = [int(each) for each in types]
    request = ListConfigResourcesRequest(resource_types=wanted)

    async def attempt() -> list[ConfigResource]:
        told = await cluster.ask_any(request, deadline)
        if told.error_code:
            raise error_for(told.error_code)
        return [
            ConfigResource(ResourceType(one.resource_type), one.resource_name)
            for one in told.config_resources
            if not wanted or one.resource_type in wanted  # a broker that knows only version 0 tells others
        ]

    return await cluster.persist(attempt, deadline)


async def alter_configs(
    cluster: Cluster,
    resource: ConfigResource,
    settings: Mapping[str, str],
    validate_only: bool,
    deadline: float,
) -> None:
    """Give the resource exactly these settings."""
    configs = [AlterableConfig(name=name, value=value) for name, value in settings.items()]
    asked = AlterConfigsResource(resource_type=resource.type, resource_name=resource.name, configs=configs)
    request = AlterConfigsRequest(resources=[asked], validate_only=validate_only)
    await _change(cluster, resource, request, deadline)


async def incremental_alter_configs(
    cluster: Cluster,
    resource: ConfigResource,
    changes: Sequence[ConfigChange],
    validate_only: bool,
    deadline: float,
) -> None:
    """Change these settings of the resource; others stay."""
    configs = [
        IncrementalConfig(name=one.name, config_operation=one.operation, value=one.value) for one in changes
    ]
    asked = IncrementalResource(resource_type=resource.type, resource_name=resource.name, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[asked], validate_only=validate_only)
    await _change(cluster, resource, request, deadline)


async def _change(cluster: Cluster, resource: ConfigResource, request: Any, deadline: float) -> None:
    async def attempt() -> ApiError | None:
        answer = await _asked(cluster, resource, request, deadline)
        for one in answer.responses:
            if one.error_code:
                refusal = error_for(one.error_code, one.error_message or one.resource_name)
                if isinstance(refusal, UnknownTopicOrPartition):
                    return refusal  # the controller knows every topic: asking again would not help
                raise refusal
        return None

    refusal = await cluster.persist(attempt, deadline)
    if refusal is not None:
        raise refusal


async def _asked(cluster: Cluster, resource: ConfigResource, request: Any, deadline: float) -> Any:
    """The answer of the broker that is concerned, or of any if that one cannot be reached: it may be told
    here that it has announced an address (advertised.listeners) at which nobody finds it.
    """
    if resource.broker not in cluster.view.brokers:
        return await cluster.ask_any(request, deadline)
    try:
        return await cluster.request(resource.broker, request, deadline)
    except OSError:
        answer = await cluster.ask_any(request, deadline)
        if any(one.error_code == ErrorCode.INVALID_REQUEST for one in answer.responses):
            raise  # Apache Kafka's brokers with ZooKeeper change their own settings only
        return answer


def changes_of(settings: Mapping[str, str], delete: Iterable[str]) -> list[ConfigChange]:
    """Settings to set, and names of those to delete."""
    deleted = [ConfigChange(name, None, AlterConfigOp.DELETE) for name in delete]
    return [*(ConfigChange(name, value) for name, value in settings.items()), *deleted]
