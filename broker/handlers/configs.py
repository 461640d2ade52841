"""DescribeConfigs 1-4, AlterConfigs 0-2, IncrementalAlterConfigs 0-1: read here, changed by the controller.
ListConfigResources 0-1: what has settings.

DescribeConfigs: v3 types and documentation · v4 flexible · AlterConfigs: v2 · IncrementalAlterConfigs: v1
flexible · ListConfigResources: v0 asks for client metrics, of which there are none · v1 for any type
Each setting comes with its sources, the one in force first: the topic or group, this broker, all brokers, the
file this broker was started with, the default. Names, types and help come from the declarations.
The loggers of a broker (type 8) are read and changed at that broker.
Left to others: which values are valid (config/dynamic.py, config/groups.py), writing them
(controller/requests/configs.py), levels of loggers (config/loggers.py).
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...controller.requests.config_changes import Kind, alteration_of, repeated_resources
from ...protocol.apis import Api
from ...protocol.errors import (
    ApiError,
    ErrorCode,
    InvalidRequest,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from ...protocol.messages.cluster import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)
from ...protocol.messages.config_changes import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    AlteredResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalResource,
)
from ...storage.config import TOPIC_OPTIONS, Option, TopicConfig, text_of
from ...storage.idle_settings import IDLE
from ..config import loggers
from ..config.broker import OPTIONS, OptionPlace
from ..config.dynamic import DIRECTORIES_RATE, LONG, NO_THROTTLE, STRING, behind, type_of, type_of_idle
from ..config.groups import GROUP_OPTIONS
from ..network.exchange import Exchange, HandlerEntry
from ..topic_names import check_topic_name

if TYPE_CHECKING:
    from ..context import BrokerContext

FROM_TOPIC, FROM_THIS_BROKER, FROM_ALL_BROKERS, FROM_FILE, FROM_DEFAULT, FROM_LOGGER = range(1, 7)
FROM_GROUP = 8
BROKER_LOGGER, CLIENT_METRICS = 8, 16  # resource types that nobody can alter by the controller
PROTOCOL_VERSION = "inter.broker.protocol.version"
SPOKEN = "3.9"
PROTOCOL_VERSION_HELP = "What brokers speak among themselves; told so that tools know what they may ask."

RESOURCES_AT_ONCE = 10  # described without an await: a few milliseconds

Synonyms = list[DescribeConfigsSynonym]


# --- reading ---------------------------------------------------------------------------------------


async def describe_configs_afresh(
    broker: "BrokerContext", exchange: Exchange, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Changes are looked for first: the client may have made one by another broker just now. (Those of Kafka
    with ZooKeeper read the node of each topic that is asked for.) Each resource by itself: an error in one
    does not affect the others. Some tools ask for all topics at once: others are served in between.
    """
    await broker.refresh()
    results = []
    for place, asked in enumerate(request.resources, 1):
        results.append(_resource(broker, request, asked))
        if place % RESOURCES_AT_ONCE == 0:
            await asyncio.sleep(0)
    return DescribeConfigsResponse(results=results)


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
    broker: "BrokerContext", request: DescribeConfigsRequest, asked: DescribeConfigsResource
) -> DescribeConfigsResult:
    try:
        if asked.resource_type == Kind.TOPIC:
            found = list(_topic(broker, request, asked.resource_name))
        elif asked.resource_type == Kind.BROKER and asked.resource_name == "":
            found = list(_all_brokers(broker, request))
        elif asked.resource_type == Kind.BROKER:
            found = list(_broker(broker, request, asked.resource_name))
        elif asked.resource_type == BROKER_LOGGER:
            found = list(_loggers(broker, asked.resource_name))
        elif asked.resource_type == Kind.GROUP:
            found = list(_group(broker, request, asked.resource_name))
        else:
            raise InvalidRequest(
                f"resource type {asked.resource_type} has no configs: "
                "expected 2 (topic), 4 (broker), 8 (loggers of a broker) or 32 (group)"
            )
    except ApiError as error:
        return _refused(asked, error)
    if asked.configuration_keys is not None:
        found = [setting for setting in found if setting.name in asked.configuration_keys]
    return DescribeConfigsResult(
        resource_type=asked.resource_type, resource_name=asked.resource_name, configs=found
    )


def _topic(
    broker: "BrokerContext", request: DescribeConfigsRequest, name: str
) -> Iterator[DescribeConfigsResourceResult]:
    if check_topic_name(name) not in broker.metadata.topics:
        raise UnknownTopicOrPartition(f"topic {name} does not exist")
    settings = broker.settings
    return of_topic(broker, request, settings.config_of(name), settings.understood(name))


def of_topic(
    broker: "BrokerContext",
    request: DescribeConfigsRequest,
    config: TopicConfig,
    overrides: Mapping[str, str],
) -> Iterator[DescribeConfigsResourceResult]:
    """All settings of a topic with these overrides."""
    in_force = config.to_names()
    for setting, option in TOPIC_OPTIONS.items():
        sources = _sources(broker, OPTIONS[behind(option).kafka or ""])
        if setting in overrides:
            own = DescribeConfigsSynonym(name=setting, value=in_force[setting], source=FROM_TOPIC)
            sources.insert(0, own)
        yield _setting(request, setting, in_force[setting], option, sources, read_only=False)
    for setting, idle in IDLE.items():
        value, sources = idle.default, []
        if setting in overrides:
            value = overrides[setting]
            sources = [DescribeConfigsSynonym(name=setting, value=value, source=FROM_TOPIC)]
        yield DescribeConfigsResourceResult(
            name=setting,
            value=value,
            config_source=FROM_TOPIC if sources else FROM_DEFAULT,
            synonyms=sources if request.include_synonyms else [],
            config_type=type_of_idle(setting),
            documentation=idle.help if request.include_documentation else None,
        )


def _broker(
    broker: "BrokerContext", request: DescribeConfigsRequest, name: str
) -> Iterator[DescribeConfigsResourceResult]:
    if name != str(broker.id):
        raise InvalidRequest(f"this is broker {broker.id}: send the request to broker {name}")
    for setting, place in OPTIONS.items():
        value = place.value(broker.config)
        sources = _sources(broker, place)
        text = None if value is None else text_of(value)
        yield _setting(request, setting, text, place.option, sources, read_only=place.option.restart)
    of_this, of_all = broker.live.of_this.get(DIRECTORIES_RATE), broker.live.of_all.get(DIRECTORIES_RATE)
    told = ((of_this, FROM_THIS_BROKER), (of_all, FROM_ALL_BROKERS))
    if given := [(text, source) for text, source in told if text is not None]:
        yield _without_effect(request, given)
    yield _protocol_version(request)


def _without_effect(
    request: DescribeConfigsRequest, given: Sequence[tuple[str, int]]
) -> DescribeConfigsResourceResult:
    """The setting of brokers that is kept for tools, though it does nothing: what it was given, and where."""
    sources = [DescribeConfigsSynonym(name=DIRECTORIES_RATE, value=text, source=of) for text, of in given]
    return DescribeConfigsResourceResult(
        name=DIRECTORIES_RATE,
        value=sources[0].value,
        config_source=sources[0].source,
        synonyms=sources if request.include_synonyms else [],
        config_type=LONG,
        documentation=NO_THROTTLE if request.include_documentation else None,
    )


def _protocol_version(request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    """Tools conclude from it what a broker can do: without it Kafka UI, say, alters nothing incrementally."""
    default = DescribeConfigsSynonym(name=PROTOCOL_VERSION, value=SPOKEN, source=FROM_DEFAULT)
    return DescribeConfigsResourceResult(
        name=PROTOCOL_VERSION,
        value=SPOKEN,
        read_only=True,
        config_source=FROM_DEFAULT,
        synonyms=[default] if request.include_synonyms else [],
        config_type=STRING,
        documentation=PROTOCOL_VERSION_HELP if request.include_documentation else None,
    )


def _loggers(broker: "BrokerContext", name: str) -> Iterator[DescribeConfigsResourceResult]:
    loggers.check_broker(name, broker.id)
    for logger, level in loggers.levels().items():
        yield DescribeConfigsResourceResult(name=logger, value=level, config_source=FROM_LOGGER)


def _group(
    broker: "BrokerContext", request: DescribeConfigsRequest, name: str
) -> Iterator[DescribeConfigsResourceResult]:
    """Of any name, since settings do not wait for their group."""
    if not name:
        raise InvalidRequest("a group needs a name")
    own = broker.group_settings.of(name)
    in_force = broker.group_settings.terms(name).by_name()
    for setting, option in GROUP_OPTIONS.items():
        value = str(in_force[setting])
        sources = _sources(broker, OPTIONS[option.kafka or ""])
        if setting in own:
            sources.insert(0, DescribeConfigsSynonym(name=setting, value=value, source=FROM_GROUP))
        yield _setting(request, setting, value, option, sources, read_only=False)


def _all_brokers(
    broker: "BrokerContext", request: DescribeConfigsRequest
) -> Iterator[DescribeConfigsResourceResult]:
    """Only settings for all brokers. What each broker was started with is described under its own id."""
    for setting, text in sorted(broker.live.of_all.items()):
        if setting == DIRECTORIES_RATE:
            yield _without_effect(request, [(text, FROM_ALL_BROKERS)])
            continue
        source = DescribeConfigsSynonym(name=setting, value=text, source=FROM_ALL_BROKERS)
        yield _setting(request, setting, text, OPTIONS[setting].option, [source], read_only=False)


def _sources(broker: "BrokerContext", place: OptionPlace) -> Synonyms:
    """The sources of a broker's option, the one in force first."""
    option, live = place.option, broker.live
    name = option.kafka or option.field
    found: list[tuple[str | None, int]] = []
    if name in live.of_this:
        found.append((live.of_this[name], FROM_THIS_BROKER))
    if name in live.of_all:
        found.append((live.of_all[name], FROM_ALL_BROKERS))
    if place.is_given(live.started_with):
        found.append((_text(place.value(live.started_with)), FROM_FILE))
    if option.default is not ... and "Undefined" not in str(option.default):
        found.append((_text(option.default), FROM_DEFAULT))
    return [DescribeConfigsSynonym(name=name, value=text, source=source) for text, source in found]


def _text(value: object) -> str | None:
    return None if value is None else text_of(value)


def _setting(
    request: DescribeConfigsRequest,
    name: str,
    value: str | None,
    option: Option,
    sources: Synonyms,
    *,
    read_only: bool,
) -> DescribeConfigsResourceResult:
    if option.secret:
        value = None
        sources = [DescribeConfigsSynonym(name=s.name, value=None, source=s.source) for s in sources]
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=read_only,
        config_source=sources[0].source if sources else FROM_DEFAULT,
        is_sensitive=option.secret,
        synonyms=sources if request.include_synonyms else [],
        config_type=type_of(name, option),
        documentation=option.help if request.include_documentation else None,
    )


async def list_config_resources(
    broker: "BrokerContext", exchange: Exchange, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """What has settings: every topic and broker, and groups with settings of their own."""
    if exchange.version > 0:
        await broker.refresh()
    brokers = [str(each) for each in sorted(broker.metadata.brokers)]
    known: dict[int, Iterable[str]] = {
        Kind.TOPIC: sorted(broker.metadata.topics),
        Kind.BROKER: brokers,
        BROKER_LOGGER: brokers,
        CLIENT_METRICS: (),
        Kind.GROUP: sorted(broker.group_settings.names),
    }
    wanted = [CLIENT_METRICS] if exchange.version == 0 else request.resource_types or list(known)
    if unknown := set(wanted) - known.keys():
        raise UnsupportedVersion(f"resources of type {min(unknown)} have no settings")
    return ListConfigResourcesResponse(
        config_resources=[
            ListedConfigResource(resource_name=name, resource_type=kind)
            for kind in dict.fromkeys(wanted)
            for name in known[kind]
        ]
    )


def refuse_list(request: ListConfigResourcesRequest, error: ApiError) -> ListConfigResourcesResponse:
    return ListConfigResourcesResponse(error_code=error.code)


# --- changing --------------------------------------------------------------------------------------


async def alter_configs(broker: "BrokerContext", exchange: Exchange, request: AlterConfigsRequest) -> Any:
    """Replace all settings of each resource by these."""
    return await _change(broker, request, AlterConfigsRequest, AlterConfigsResponse)


async def incremental_alter_configs(
    broker: "BrokerContext", exchange: Exchange, request: IncrementalAlterConfigsRequest
) -> Any:
    """Apply these changes to the settings of each resource."""
    return await _change(broker, request, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse)


async def _change(broker: "BrokerContext", request: Any, asking: type[Any], answering: type[Any]) -> Any:
    """What concerns this broker alone is done here; the rest goes to the controller."""
    answers: dict[int, AlteredResource] = {}
    forwarded: list[tuple[int, Any]] = []
    has_own = False
    repeated = repeated_resources(request)
    for place, asked in enumerate(request.resources):
        try:
            if asked.resource_type == Kind.TOPIC:
                check_topic_name(asked.resource_name)
            if (asked.resource_type, asked.resource_name) in repeated:
                raise InvalidRequest("the resource is in the request more than once")
            is_logger = asked.resource_type == BROKER_LOGGER and isinstance(asked, IncrementalResource)
            if not is_logger and not _is_own(broker, asked):
                forwarded.append((place, asked))
                continue
            if is_logger:
                loggers.check_broker(asked.resource_name, broker.id)
                loggers.alter(alteration_of(asked).changes, request.validate_only)
            else:
                await broker.controller.alter_own(alteration_of(asked), request.validate_only)
                has_own = True
            answers[place] = _altered(asked)
        except ApiError as error:
            answers[place] = _altered(asked, error)
    if forwarded:
        rest = asking(resources=[asked for _, asked in forwarded], validate_only=request.validate_only)
        told = await broker.forwarder.submit(rest, broker.config.request_timeout_ms)
        answers.update(zip((place for place, _ in forwarded), told.responses, strict=True))
    if (forwarded or has_own) and not request.validate_only:
        await broker.refresh()
    return answering(responses=[answers[place] for place in sorted(answers)])


def _is_own(broker: "BrokerContext", asked: Any) -> bool:
    """Whether it is this broker that writes the settings: a controller of Kafka does not."""
    is_me = asked.resource_type == Kind.BROKER and asked.resource_name == str(broker.id)
    return is_me and broker.roles.gate.is_kafkas and not broker.controller.active


def refuse_alter_configs(request: AlterConfigsRequest, error: ApiError) -> AlterConfigsResponse:
    """Each resource with the same error."""
    return AlterConfigsResponse(responses=[_altered(asked, error) for asked in request.resources])


def refuse_incremental(
    request: IncrementalAlterConfigsRequest, error: ApiError
) -> IncrementalAlterConfigsResponse:
    """Each resource with the same error."""
    return IncrementalAlterConfigsResponse(responses=[_altered(asked, error) for asked in request.resources])


def _altered(asked: Any, error: ApiError | None = None) -> AlteredResource:
    return AlteredResource(
        error_code=error.code if error is not None else ErrorCode.NONE,
        error_message=error.message if error is not None else None,
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
    )


HANDLERS = {
    Api.DESCRIBE_CONFIGS: HandlerEntry(describe_configs_afresh, refuse_describe_configs),
    Api.LIST_CONFIG_RESOURCES: HandlerEntry(list_config_resources, refuse_list),
    Api.ALTER_CONFIGS: HandlerEntry(alter_configs, refuse_alter_configs),
    Api.INCREMENTAL_ALTER_CONFIGS: HandlerEntry(incremental_alter_configs, refuse_incremental),
}
