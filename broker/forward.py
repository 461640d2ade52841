"""Forwards admin requests to the controller, so that clients may send them to any broker.

If this broker is the active controller, it is asked directly; else the controller's broker, over the
inter-broker listener. While there is no controller, or it is moving, the request is retried until its own
deadline. An earlier try may have succeeded, with only its answer lost. Then the retry must not fail because
the topic exists that it created (so the topic id is chosen here), because the topic is unknown that it
deleted, or because the topic already has the partitions that it added.
Left to others: what is done with the request (controller/), which names are legal (handlers/topics.py).
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeGuard
from uuid import UUID

import structlog

from ..base.tasks import Tasks
from ..client.network.connection import Connection
from ..controller.controller import Controller
from ..controller.requests.table import REQUESTS
from ..protocol.errors import ErrorCode, NotController, RequestTimedOut, UnsupportedVersion
from ..protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
)
from ..protocol.schema import spec_of
from .config.live import LiveConfig
from .metadata.cache import MetadataCache
from .metadata.held_answers import HeldAnswers
from .network.metrics import Metrics

logger = structlog.get_logger(__name__)

RETRY_S = 0.05
REACH_MS = 1_000
"""The controller is looked for so long, however little the client will wait: with a timeout of 0 it takes
REQUEST_TIMED_OUT for a sign that what it wants is under way."""
CREATION_TIMEOUT_MS = 10_000
CREATIONS_MAX = 1000


class Forwarder:
    """Sends requests to the controller, over one connection, opened when needed and kept per controller."""

    def __init__(
        self,
        config: LiveConfig,
        cache: MetadataCache,
        controller: Controller,
        held: HeldAnswers,
        metrics: Metrics,
        tasks: Tasks,
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._config = config
        self._cache = cache
        self._controller = controller
        self._held = held
        self._metrics = metrics
        self._tasks = tasks
        self._random_bytes = random_bytes
        self._connection: Connection | None = None
        self._connected_to: int | None = None
        self._creating: set[str] = set()

    async def submit(self, request: Any, timeout_ms: int) -> Any:
        """The controller's answer. Raises RequestTimedOut if there is none in time, UnsupportedVersion if the
        controller, of an earlier Kafka, does not know such a request.
        """
        created = [topic.name for topic in request.topics] if _creates(request) else []
        for name in created:
            self._held.creating(name)
        try:
            return await self._submit(request, timeout_ms)
        finally:
            for name in created:
                self._held.created(name)

    async def _submit(self, request: Any, timeout_ms: int) -> Any:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + max(timeout_ms, REACH_MS) / 1000
        if _creates(request):
            request = self._with_ids(request)
        grows = self._with_sizes(request) if isinstance(request, CreatePartitionsRequest) else None
        there = self._there(request) if isinstance(request, DeleteTopicsRequest) else None
        first = True
        while True:
            response = await self._try(request, deadline)
            if response is not None:
                return response if first or there is None else _deleted_before(response, there)
            first, request = False, grows or request
            if loop.time() + RETRY_S >= deadline:
                raise RequestTimedOut("no controller answered in time")
            await asyncio.sleep(RETRY_S)

    def _with_ids(self, request: CreateTopicsRequest) -> CreateTopicsRequest:
        topics = [replace(topic, topic_id=UUID(bytes=self._random_bytes(16))) for topic in request.topics]
        return replace(request, topics=topics)

    def _with_sizes(self, request: CreatePartitionsRequest) -> CreatePartitionsRequest:
        known = self._cache.picture.topics
        sizes = {
            topic.name: len(known[topic.name].partitions) for topic in request.topics if topic.name in known
        }
        topics = [replace(topic, grows_from=sizes.get(topic.name, -1)) for topic in request.topics]
        return replace(request, topics=topics)

    def _there(self, request: DeleteTopicsRequest) -> set[str | UUID]:
        """Which of the topics to delete exist, by name or id."""
        picture = self._cache.picture
        wanted = [*request.topic_names, *(topic.name or topic.topic_id for topic in request.topics)]
        return {one for one in wanted if one in picture.topics or one in picture.names}

    def create_soon(self, name: str) -> None:
        """Create a topic with the defaults, without waiting. Does nothing if that is already under way."""
        if name not in self._creating and len(self._creating) < CREATIONS_MAX:
            self._creating.add(name)
            self._held.creating(name)
            self._tasks.spawn(self._create(CreatableTopic(name=name)), f"create-{name}")

    async def stop(self) -> None:
        """Close the connection to the controller."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _create(self, topic: CreatableTopic) -> None:
        try:
            response: CreateTopicsResponse = await self.submit(
                CreateTopicsRequest(topics=[topic], timeout_ms=CREATION_TIMEOUT_MS), CREATION_TIMEOUT_MS
            )
            code = response.topics[0].error_code if response.topics else ErrorCode.UNKNOWN_SERVER_ERROR
            reason = response.topics[0].error_message if response.topics else None
        except (RequestTimedOut, UnsupportedVersion) as error:
            code, reason = error.code, error.message
        finally:
            self._creating.discard(topic.name)
        if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            logger.warning("topic_not_created", topic=topic.name, code=ErrorCode(code).name, reason=reason)

    async def _try(self, request: Any, deadline: float) -> Any:
        """One attempt; None if no controller could be asked."""
        controller = self._controller
        self._metrics.forwarded += 1
        if controller.active:
            try:
                response = await controller.ask(request)
            except NotController:
                return None
        else:
            response = await self._ask_other(request, deadline)
        return None if response is None or _is_not_controller(response) else response

    async def _ask_other(self, request: Any, deadline: float) -> Any:
        target = self._controller.controller_id
        if target is None or target == self._config.current.id:
            return None
        try:
            connection = await self._connect(target, deadline)
            if connection is None:
                return None
            return await connection.request(request, deadline=deadline)
        except OSError as error:  # includes ConnectionLost and a passed deadline
            logger.info("controller_unreachable", controller=target, reason=str(error))
            return None

    async def _connect(self, target: int, deadline: float) -> Connection | None:
        known = self._connection
        if known is not None and not known.is_lost and self._connected_to == target:
            return known
        config = self._config.current
        address = self._cache.picture.address(target, config.inter_broker_listener)
        if address is None:
            return None
        await self.stop()
        made = await Connection.open(
            address.host,
            address.port,
            client_id=f"broker-{config.broker_id}",
            deadline=deadline,
            highest=HIGHEST,  # a controller of Apache Kafka may be of an earlier version
        )
        if self._connection is not None and not self._connection.is_lost:
            await made.close()  # another request has connected while we did
            return self._connection
        self._connection, self._connected_to = made, target
        return made


HIGHEST: dict[int, int] = {spec_of(kind).key: spec_of(kind).versions[-1] for kind in REQUESTS}


def _deleted_before(response: DeleteTopicsResponse, there: set[str | UUID]) -> DeleteTopicsResponse:
    """The answer to a repeated deletion: topics that existed before and are unknown now count as deleted."""
    gone = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    told = [
        replace(row, error_code=ErrorCode.NONE, error_message=None)
        if row.error_code in gone and (row.name or row.topic_id) in there
        else row
        for row in response.responses
    ]
    return replace(response, responses=told)


def _creates(request: Any) -> TypeGuard[CreateTopicsRequest]:
    return isinstance(request, CreateTopicsRequest) and not request.validate_only


def _is_not_controller(response: Any) -> bool:
    """Whether the broker that answered is not the controller (any more, or yet)."""
    answers = [response]
    for rows in ("topics", "responses", "results"):
        answers += getattr(response, rows, ())
    return any(getattr(one, "error_code", 0) == ErrorCode.NOT_CONTROLLER for one in answers)
