"""CreateTopics 2-7, DeleteTopics 1-6, CreatePartitions 0-3: forwarded to the controller.

CreateTopics: v4 -1 asks for defaults · v5 configurations in the answer, never null · v7 topic ids
DeleteTopics: v5 error message · v6 by id · CreatePartitions: v2 flexible
Illegal topic names are refused here, before they reach ZooKeeper. Left to others: all the rest.
"""

from typing import TYPE_CHECKING, Any

from ...protocol.apis import Api
from ...protocol.errors import ApiError, InvalidTopic, TopicDeletionDisabled
from ...protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ..network.exchange import Exchange, HandlerEntry
from ..topic_names import check_topic_name

if TYPE_CHECKING:
    from ..context import BrokerContext

TIMEOUT_MS_MAX = 300_000


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
    return CreateTopicsResponse(topics=[*refused, *(_complete(topic) for topic in answer.topics)])


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
    """Forwarded: only the controller knows how many partitions there are."""
    return await broker.forwarder.submit(request, timeout_ms(request))


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
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=t.name, error_code=error.code, error_message=error.message)
            for t in request.topics
        ]
    )


def _created(topic: CreatableTopic, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)


def _complete(result: CreatableTopicResult) -> CreatableTopicResult:
    """Java's admin client fails on null configurations, so send an empty list."""
    if result.configs is not None:
        return result
    return CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_code=result.error_code,
        error_message=result.error_message,
        num_partitions=result.num_partitions,
        replication_factor=result.replication_factor,
        configs=[],
    )


HANDLERS = {
    Api.CREATE_TOPICS: HandlerEntry(create, refuse_create),
    Api.DELETE_TOPICS: HandlerEntry(delete, refuse_delete),
    Api.CREATE_PARTITIONS: HandlerEntry(create_partitions, refuse_create_partitions),
}
