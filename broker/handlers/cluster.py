"""DescribeCluster 0-1 and DescribeConfigs 1-4: the brokers, and the settings of topics and of this broker.

DescribeCluster: v1 endpoint type · DescribeConfigs: v3 types and documentation · v4 flexible
Settings are read from their declarations, so names, types and help agree with docs/configuration.md.
Left to others: changing settings.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ...protocol.apis import Api
from ...protocol.errors import ApiError, InvalidConfig, InvalidRequest, UnknownTopicOrPartition
from ...protocol.messages.cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from ...protocol.messages.metadata import UNKNOWN_OPERATIONS
from ...storage.config import (
    DEFAULT_FROM,
    TOPIC_OPTIONS,
    Option,
    StorageConfig,
    TopicConfig,
    options,
    text_of,
)
from ...storage.config import InvalidConfig as BadTopicConfig
from ..config import OPTIONS
from ..exchange import Exchange, HandlerEntry
from ..topic_names import check_topic_name
from .metadata import CLUSTER_OPERATIONS, live_brokers

if TYPE_CHECKING:
    from ..context import Broker

BROKERS_ENDPOINT = 1
RESOURCE_TOPIC, RESOURCE_BROKER = 2, 4
FROM_TOPIC, FROM_BROKER, FROM_DEFAULT = 1, 4, 5
TYPE_CODES = {bool: 1, int: 5}
TEXT_TYPE = 2

STORAGE_OPTIONS: dict[str, Option] = {option.field: option for option in options(StorageConfig)}


def describe_cluster(
    broker: "Broker", exchange: Exchange, request: DescribeClusterRequest
) -> DescribeClusterResponse:
    """What Metadata says, without topics."""
    if request.endpoint_type != BROKERS_ENDPOINT:
        raise InvalidRequest("there are no endpoints of controllers, only of brokers")
    picture = broker.metadata
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=picture.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=b.node_id, host=b.host, port=b.port, rack=b.rack)
            for b in live_brokers(picture, exchange.listener.name)
        ],
        cluster_authorized_operations=(
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else UNKNOWN_OPERATIONS
        ),
    )


def refuse_describe_cluster(request: DescribeClusterRequest, error: ApiError) -> DescribeClusterResponse:
    """Nothing but the error."""
    return DescribeClusterResponse(error_code=error.code, error_message=error.message, cluster_id="")


def describe_configs(
    broker: "Broker", exchange: Exchange, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Each resource by itself; one that cannot be described does not spoil the others."""
    return DescribeConfigsResponse(results=[_resource(broker, request, asked) for asked in request.resources])


def refuse_describe_configs(request: DescribeConfigsRequest, error: ApiError) -> DescribeConfigsResponse:
    """Each resource with the same error."""
    return DescribeConfigsResponse(results=[_refused(asked, error) for asked in request.resources])


def _refused(asked: DescribeConfigsResource, error: ApiError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


def _resource(
    broker: "Broker", request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        if asked.resource_type == RESOURCE_TOPIC:
            found = list(_topic(broker, request, asked.resource_name))
        elif asked.resource_type == RESOURCE_BROKER:
            found = list(_broker(broker, request, asked.resource_name))
        else:
            raise InvalidRequest(f"resources of type {asked.resource_type} have no settings here")
    except ApiError as error:
        return _refused(asked, error)
    if asked.configuration_keys is not None:
        found = [setting for setting in found if setting.name in asked.configuration_keys]
    return DescribeConfigsResult(
        resource_type=asked.resource_type, resource_name=asked.resource_name, configs=found
    )


def _topic(
    broker: "Broker", request: DescribeConfigsRequest, name: str
) -> Iterator[DescribeConfigsResourceResult]:
    known = broker.metadata.topics.get(check_topic_name(name))
    if known is None:
        raise UnknownTopicOrPartition(f"there is no topic {name}")
    storage = broker.config.storage
    try:
        in_force = TopicConfig.from_names(known.configs, storage).to_names()
    except BadTopicConfig as error:
        raise InvalidConfig(str(error)) from error
    for setting, option in TOPIC_OPTIONS.items():
        behind = STORAGE_OPTIONS[DEFAULT_FROM[option.field]]
        sources = list(_broker_sources(behind, getattr(storage, behind.field)))
        if setting in known.configs:
            sources.insert(
                0, DescribeConfigsSynonym(name=setting, value=in_force[setting], source=FROM_TOPIC)
            )
        yield _setting(request, setting, in_force[setting], option, sources, read_only=False)


def _broker(
    broker: "Broker", request: DescribeConfigsRequest, name: str
) -> Iterator[DescribeConfigsResourceResult]:
    if name == "":
        return  # settings of all brokers together: there are none
    if name != str(broker.id):
        raise InvalidRequest(f"this is broker {broker.id}, ask broker {name} about its settings")
    for setting, place in OPTIONS.items():
        value = place.value(broker.config)
        sources = list(_broker_sources(place.option, value))
        text = None if value is None or place.option.secret else text_of(value)
        yield _setting(request, setting, text, place.option, sources, read_only=True)


def _broker_sources(option: Option, value: object) -> Iterator[DescribeConfigsSynonym]:
    name = option.kafka or option.field
    if value != option.default:
        yield DescribeConfigsSynonym(name=name, value=text_of(value), source=FROM_BROKER)
    default = None if option.default is None else text_of(option.default)
    yield DescribeConfigsSynonym(name=name, value=default, source=FROM_DEFAULT)


def _setting(
    request: DescribeConfigsRequest,
    name: str,
    value: str | None,
    option: Option,
    sources: list[DescribeConfigsSynonym],
    *,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=read_only,
        config_source=sources[0].source,
        is_sensitive=option.secret,
        synonyms=sources if request.include_synonyms else [],
        config_type=TYPE_CODES.get(option.type, TEXT_TYPE),
        documentation=option.help if request.include_documentation else None,
    )


HANDLERS = {
    Api.DESCRIBE_CLUSTER: HandlerEntry(describe_cluster, refuse_describe_cluster),
    Api.DESCRIBE_CONFIGS: HandlerEntry(describe_configs, refuse_describe_configs),
}
