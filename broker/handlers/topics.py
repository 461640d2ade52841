"""CreateTopics 2-7, DeleteTopics 1-6, CreatePartitions 0-3: forwarded to the controller.

CreateTopics: v4 -1 asks for defaults · v5 configurations in the answer, never null · v7 topic ids
DeleteTopics: v5 error message · v6 by id · CreatePartitions: v2 flexible
Illegal topic names are refused here, before they reach ZooKeeper; a new topic's settings are told from here,
because the controller knows what was asked, not what a broker adds to it. Left to others: all the rest.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...protocol.apis import Api
from ...protocol.errors import ApiError, ErrorCode, InvalidTopic, PolicyViolation, TopicDeletionDisabled
from ...protocol.messages.cluster import DescribeConfigsRequest, DescribeConfigsResourceResult
from ...protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ...storage.config import InvalidOption, TopicConfig
from ..network.exchange import Exchange, HandlerEntry
from ..topic_names import INTERNAL_TOPICS, check_topic_name
from .configs import of_topic

if TYPE_CHECKING:
    from ..context import BrokerContext

TIMEOUT_MS_MAX = 300_000
SETTINGS_FROM = 5
NOT_GROWN = (
    "with more partitions, groups would not find their offsets any more, nor transactional ids their state: "
    "the number is set before the topic is made"
)


async def create(
    broker: "BrokerContext", exchange: Exchange, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Topics with legal names go to the controller; the others are refused here."""
    legal: list[CreatableTopic] = []
    refused: list[CreatableTopicResult] = []
    for topic in request.topics:
        try:
            check_topic_name(topic.name)
        except InvalidTopic as error:
            refused.append(_created(topic, error))
        else:
            legal.append(topic)
    if not legal:
        return CreateTopicsResponse(topics=refused)
    asked = CreateTopicsRequest(
        topics=legal, timeout_ms=request.timeout_ms, validate_only=request.validate_only
    )
    answer: CreateTopicsResponse = await broker.forwarder.submit(asked, timeout_ms(request))
    if exchange.version < SETTINGS_FROM:
        return CreateTopicsResponse(topics=[*refused, *answer.topics])
    given = {topic.name: topic.configs for topic in legal}
    return CreateTopicsResponse(
        topics=[*refused, *(_complete(broker, topic, given[topic.name]) for topic in answer.topics)]
    )


async def delete(broker: "BrokerContext", exchange: Exchange, request: DeleteTopicsRequest) -> Any:
    """Forwarded, unless `delete.topic.enable` of the broker that the client asked says no."""
    if not broker.config.controller.delete_topic_enable:
        raise TopicDeletionDisabled()
    if exchange.version < 6:
        # the controller is asked in the newest version, which names topics one by one
        from_names = [DeleteTopicState(name=name) for name in request.topic_names]
        request = DeleteTopicsRequest(topics=from_names, timeout_ms=request.timeout_ms)
    return await broker.forwarder.submit(request, timeout_ms(request))


async def create_partitions(
    broker: "BrokerContext", exchange: Exchange, request: CreatePartitionsRequest
) -> Any:
    """Forwarded: only the controller knows how many partitions there are. An internal topic is not grown: by
    their number groups and transactional ids find their partition, and they would look in others for theirs.
    """
    kept = [topic for topic in request.topics if _grows_internal(broker, topic)]
    if not kept:
        return await broker.forwarder.submit(request, timeout_ms(request))
    told = [_not_grown(topic, PolicyViolation(NOT_GROWN)) for topic in kept]
    rest = [topic for topic in request.topics if topic not in kept]
    if rest:
        answer = await broker.forwarder.submit(replace(request, topics=rest), timeout_ms(request))
        told += answer.results
    return CreatePartitionsResponse(results=told)


def _grows_internal(broker: "BrokerContext", topic: CreatePartitionsTopic) -> bool:
    known = broker.metadata.topics.get(topic.name) if topic.name in INTERNAL_TOPICS else None
    return known is not None and topic.count > len(known.partitions)


def _not_grown(topic: CreatePartitionsTopic, error: ApiError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)


def timeout_ms(request: CreateTopicsRequest | DeleteTopicsRequest | CreatePartitionsRequest) -> int:
    """How long to look for the controller: the client's timeout, at most TIMEOUT_MS_MAX."""
    return min(max(request.timeout_ms, 0), TIMEOUT_MS_MAX)


def refuse_create(request: CreateTopicsRequest, error: ApiError) -> CreateTopicsResponse:
    """Each topic with the same error."""
    return CreateTopicsResponse(topics=[_created(topic, error) for topic in request.topics])


def refuse_delete(request: DeleteTopicsRequest, error: ApiError) -> DeleteTopicsResponse:
    """Each topic with the same error."""
    by_name = [
        DeletableTopicResult(name=n, error_code=error.code, error_message=error.message)
        for n in request.topic_names
    ]
    by_state = [
        DeletableTopicResult(
            name=t.name, topic_id=t.topic_id, error_code=error.code, error_message=error.message
        )
        for t in request.topics
    ]
    return DeleteTopicsResponse(responses=[*by_name, *by_state])


def refuse_create_partitions(request: CreatePartitionsRequest, error: ApiError) -> CreatePartitionsResponse:
    """Each topic with the same error."""
    return CreatePartitionsResponse(results=[_not_grown(topic, error) for topic in request.topics])


def _created(topic: CreatableTopic, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)


def _complete(
    broker: "BrokerContext", result: CreatableTopicResult, given: list[CreatableTopicConfig]
) -> CreatableTopicResult:
    """With the settings of the topic, which this broker knows as well as the controller. Of a topic that was
    refused there are none, but a list: Java's admin client fails on null.
    """
    overrides = {config.name: config.value or "" for config in given}
    settings: Iterable[DescribeConfigsResourceResult] = ()
    if result.error_code == ErrorCode.NONE:
        try:
            config = TopicConfig.from_names(overrides, broker.config.storage)
        except InvalidOption:  # a controller of a newer version knows it
            return replace(result, configs=[], topic_config_error_code=ErrorCode.INVALID_CONFIG)
        settings = of_topic(broker, DescribeConfigsRequest(resources=[]), config, overrides)
    return replace(
        result,
        configs=[
            CreatableTopicConfigs(
                name=each.name,
                value=each.value,
                config_source=each.config_source,
            )
            for each in settings
        ],
    )


HANDLERS = {
    Api.CREATE_TOPICS: HandlerEntry(create, refuse_create),
    Api.DELETE_TOPICS: HandlerEntry(delete, refuse_delete),
    Api.CREATE_PARTITIONS: HandlerEntry(create_partitions, refuse_create_partitions),
}
