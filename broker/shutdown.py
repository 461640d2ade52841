"""Controlled shutdown: the broker asks the controller to move its leaderships before it stops.

The controller's address comes from the metadata cache, not from ZooKeeper, so that a ZooKeeper outage cannot
hang a stop. Two things do not delay it: partitions that no other replica could lead, and an unreachable
controller while ZooKeeper, which would name another, is unreachable as well. Left to others: what the
controller does (controller/), the order of what is stopped afterwards (node.py).
Why: docs/decisions/0031-leaving-is-said-in-the-registration.md
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import structlog

from ..base.types import NO_BROKER_EPOCH, TopicPartition
from ..client.network.connection import Connection
from ..protocol.errors import ApiError, ErrorCode
from ..protocol.messages.control import ControlledShutdownRequest, ControlledShutdownResponse
from ..protocol.schema import spec_of

if TYPE_CHECKING:
    from .context import BrokerContext

logger = structlog.get_logger(__name__)

ANSWER_S_MAX = 5.0
ANSWER_WITHOUT_ZOOKEEPER_S_MAX = 3.0
LOOK_EVERY_S = 0.1


async def hand_over(broker: "BrokerContext") -> bool:
    """Ask until this broker leads nothing that another could lead. False if that failed in all attempts."""
    config, asked = broker.config, broker.controller.controller_id
    left: list[TopicPartition] | None = None
    for attempt in range(config.controlled_shutdown_max_retries + 1):
        if attempt:
            await _pause(broker, config.controlled_shutdown_retry_backoff_ms / 1000, asked, left or [])
        asked = broker.controller.controller_id
        left = await _ask(broker)
        if left is not None and not left:
            logger.info("leadership_handed_over", attempts=attempt + 1)
            return True
        if not _is_replicated(broker):
            return True
        if left is None and not broker.controller.is_informed:
            break
        names = None if left is None else [str(partition) for partition in left]
        logger.warning("leadership_not_handed_over", attempt=attempt + 1, partitions=names)
    logger.warning("broker_stopped_as_leader", zookeeper_connected=broker.controller.is_informed)
    return False


async def _pause(
    broker: "BrokerContext", pause_s: float, asked: int | None, left: Sequence[TopicPartition]
) -> None:
    """Wait before the next attempt, unless there is a new controller or waiting is pointless.

    If partitions could not move for lack of an in-sync replica, stop waiting as soon as all have one: a
    follower that has just come back joins within a second.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + pause_s
    controller = broker.controller
    lacked = not _are_in_sync_elsewhere(broker, left)
    while loop.time() < until and _is_replicated(broker) and controller.controller_id in (None, asked):
        if not controller.is_informed or (lacked and _are_in_sync_elsewhere(broker, left)):
            return
        await asyncio.sleep(min(LOOK_EVERY_S, pause_s))


def _are_in_sync_elsewhere(broker: "BrokerContext", partitions: Sequence[TopicPartition]) -> bool:
    """Whether each of them, by the metadata cache, has a live ISR member other than this broker."""
    return all(broker.metadata.is_in_sync_elsewhere(broker.id, partition) for partition in partitions)


async def _ask(broker: "BrokerContext") -> list[TopicPartition] | None:
    """The partitions still to be handed over; None if the controller could not be asked."""
    # Apache Kafka compares another number, the czxid of the registration, or takes none
    epoch = NO_BROKER_EPOCH if broker.roles.gate.is_kafkas else broker.incarnation
    request = ControlledShutdownRequest(broker_id=broker.id, broker_epoch=epoch)
    try:
        async with asyncio.timeout(
            ANSWER_S_MAX if broker.controller.is_informed else ANSWER_WITHOUT_ZOOKEEPER_S_MAX
        ):
            response = await _response(broker, request)
    except (OSError, ApiError) as error:
        logger.warning("controlled_shutdown_failed", reason=str(error) or type(error).__name__)
        return None
    if response is None or response.error_code != ErrorCode.NONE:
        return None
    return [
        TopicPartition(left.topic_name, left.partition_index)
        for left in response.remaining_partitions
        if _could_be_led_elsewhere(broker, left.topic_name, left.partition_index)
    ]


async def _response(
    broker: "BrokerContext", request: ControlledShutdownRequest
) -> ControlledShutdownResponse | None:
    if broker.controller.active:
        return await broker.controller.controlled_shutdown(request.broker_id, request.broker_epoch)
    target = broker.controller.controller_id
    address = None
    if target is not None:
        address = broker.metadata.address(target, broker.config.inter_broker_listener)
    if address is None:
        return None
    deadline = asyncio.get_running_loop().time() + ANSWER_S_MAX
    spec = spec_of(ControlledShutdownRequest)
    connection = await Connection.open(
        address.host,
        address.port,
        client_id=f"broker-{broker.id}",
        deadline=deadline,
        versions={spec.key: spec.versions[-1]},
    )
    try:
        answer: ControlledShutdownResponse = await connection.request(request, deadline=deadline)
        return answer
    finally:
        await connection.close()


def _could_be_led_elsewhere(broker: "BrokerContext", topic: str, partition: int) -> bool:
    state = broker.metadata.partition(topic, partition)
    return state is not None and any(r != broker.id and r in broker.metadata.brokers for r in state.replicas)


def _is_replicated(broker: "BrokerContext") -> bool:
    """Whether any partition led here has a replica on another live broker."""
    return any(
        state.leader == broker.id and _could_be_led_elsewhere(broker, topic.name, state.partition_index)
        for topic in broker.metadata.topics.values()
        for state in topic.partitions.values()
    )
