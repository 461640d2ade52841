"""A controller of an earlier Kafka is asked in its own versions, and for nothing that it does not know."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from strandline.broker.handlers import reassignments, topics
from strandline.protocol.apis import Api
from strandline.protocol.connection import frame_response
from strandline.protocol.errors import ErrorCode, UnsupportedVersion
from strandline.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.control import UpdateMetadataBroker, UpdateMetadataEndpoint
from strandline.protocol.messages.reassignments import AlterPartitionReassignmentsRequest
from strandline.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tests.broker.test_handlers_front import broker, exchange, forwarding
from tests.broker.test_metadata_picture import update
from tests.listener import Listener, read_request

PATIENT_MS = 60_000
"""Who waits for a controller that knows the request waits in vain."""


class Earlier:
    """Broker 2, which creates topics, and offers what it is told to."""

    def __init__(self, *offered: ApiVersion, takes_s: float = 0.0) -> None:
        self.takes_s = takes_s
        self.offered = [ApiVersion(api_key=Api.API_VERSIONS, min_version=0, max_version=3), *offered]
        self.asked: list[tuple[int, int]] = []
        self.listener = Listener(self.serve)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, request = await read_request(reader)
            answer: Any = ApiVersionsResponse(api_keys=self.offered)
            if not isinstance(request, ApiVersionsRequest):
                self.asked.append((head.api_key, head.version))
                rows = [CreatableTopicResult(name=one.name, configs=None) for one in request.topics]
                answer = CreateTopicsResponse(topics=rows)
            await asyncio.sleep(self.takes_s)
            writer.writelines(frame_response(head.api_key, head.version, head.correlation_id, answer))


@asynccontextmanager
async def ruled_by(earlier: Earlier) -> AsyncIterator[Any]:
    """Broker 1, whose controller is broker 2."""
    made = broker()
    forwarder = forwarding(made)
    made.controller.active, made.controller.controller_id = False, 2
    place = UpdateMetadataEndpoint(
        port=await earlier.listener.listen(), host="127.0.0.1", listener="PLAINTEXT"
    )
    told = update(brokers=())
    told.live_brokers.append(UpdateMetadataBroker(id=2, endpoints=[place]))
    made.cache.picture = made.cache.picture.updated(told)
    try:
        yield made
    finally:
        await forwarder.stop()
        earlier.listener.close()


CREATES = ApiVersion(api_key=Api.CREATE_TOPICS, min_version=0, max_version=3)


async def test_what_it_does_not_know_is_refused_at_once_and_not_asked() -> None:
    async with ruled_by(earlier := Earlier(CREATES)) as made:
        request = AlterPartitionReassignmentsRequest(topics=[], timeout_ms=PATIENT_MS)
        with pytest.raises(
            UnsupportedVersion, match="share no version of ALTER_PARTITION_REASSIGN"
        ) as caught:
            await reassignments.alter(made, exchange(Api.ALTER_PARTITION_REASSIGNMENTS, 0), request)
        refused = reassignments.refuse_alter(request, caught.value)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "share no version" in (refused.error_message or "")
        assert earlier.asked == []


async def test_what_it_knows_is_asked_in_its_version_over_the_same_connection() -> None:
    async with ruled_by(earlier := Earlier(CREATES)) as made:
        request = CreateTopicsRequest(topics=[CreatableTopic(name="x")], timeout_ms=PATIENT_MS)
        with pytest.raises(UnsupportedVersion):
            await made.forwarder.submit(AlterPartitionReassignmentsRequest(topics=[]), PATIENT_MS)
        connection = made.forwarder._connection
        answer = await topics.create(made, exchange(Api.CREATE_TOPICS, 7), request)
        assert [(one.name, one.error_code) for one in answer.topics] == [("x", 0)]
        assert earlier.asked == [(Api.CREATE_TOPICS, 3)]
        assert made.forwarder._connection is connection is not None


async def test_who_does_not_want_to_wait_has_the_controller_asked_all_the_same() -> None:
    """With a timeout of 0 a client takes REQUEST_TIMED_OUT for: it is under way."""
    async with ruled_by(earlier := Earlier(CREATES, takes_s=0.02)) as made:
        request = CreateTopicsRequest(topics=[CreatableTopic(name="x")], timeout_ms=0)
        answer = await topics.create(made, exchange(Api.CREATE_TOPICS, 7), request)
        assert [(one.name, one.error_code) for one in answer.topics] == [("x", 0)]
        assert earlier.asked == [(Api.CREATE_TOPICS, 3)]


async def test_a_topic_that_it_cannot_create_is_told_in_the_log_and_tried_again() -> None:
    async with ruled_by(Earlier()) as made:
        with capture_logs() as logs:
            for _ in range(2):
                made.forwarder.create_soon("new")
                while made.forwarder._creating:
                    await asyncio.sleep(0.001)
        told = [
            (one["event"], one["topic"], one["code"]) for one in logs if one["event"] == "topic_not_created"
        ]
        assert told == [("topic_not_created", "new", "UNSUPPORTED_VERSION")] * 2
