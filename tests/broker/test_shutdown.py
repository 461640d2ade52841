"""A broker that stops asks the controller to relieve it, and asks again as soon as that is of use."""

import asyncio
from types import SimpleNamespace
from typing import Any

from strandline.broker.metadata.cache import Picture
from strandline.broker.roles.controller_fence import ControlGate
from strandline.broker.shutdown import hand_over
from strandline.protocol.messages.control import (
    ControlledShutdownResponse,
    RemainingPartition,
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from strandline.protocol.primitives import NO_UUID

RETRY_S = 60.0
WITHIN_S = 20.0


def picture(*isrs: list[int]) -> Picture:
    """Broker 2 leads all partitions; it and broker 3 are registered."""
    states = [
        UpdateMetadataPartitionState(
            partition_index=index, controller_epoch=1, leader=2, leader_epoch=0, isr=isr, zk_version=0,
            replicas=[2, 3],
        )
        for index, isr in enumerate(isrs)
    ]  # fmt: skip
    topic = UpdateMetadataTopicState(topic_name="t", topic_id=NO_UUID, partition_states=states)
    return Picture().updated(
        UpdateMetadataRequest(
            controller_id=3,
            controller_epoch=1,
            topic_states=[topic],
            live_brokers=[UpdateMetadataBroker(id=id, endpoints=[]) for id in (2, 3)],
        )
    )


class Controller:
    """Relieves broker 2 of what has another replica in sync, as far as it is willing to."""

    def __init__(self, broker: Any) -> None:
        self.active, self.is_informed, self.controller_id = True, True, 3
        self.broker = broker
        self.asked: list[list[int]] = []
        self.epochs: list[int] = []
        self.unwilling = 0

    async def controlled_shutdown(self, broker: int, epoch: int) -> ControlledShutdownResponse:
        states = self.broker.metadata.topics["t"].partitions
        left = [index for index, state in states.items() if self.unwilling or state.isr == [2]]
        self.unwilling -= self.unwilling > 0
        self.asked.append(left)
        self.epochs.append(epoch)
        return ControlledShutdownResponse(
            remaining_partitions=[RemainingPartition(topic_name="t", partition_index=index) for index in left]
        )


def broker(*isrs: list[int], retry_s: float = RETRY_S) -> Any:
    made: Any = SimpleNamespace(id=2, incarnation=1, metadata=picture(*isrs))
    made.config = SimpleNamespace(
        controlled_shutdown_max_retries=2, controlled_shutdown_retry_backoff_ms=1000 * retry_s
    )
    made.controller = Controller(made)
    made.roles = SimpleNamespace(gate=ControlGate())
    return made


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0.01)


def test_who_waits_for_a_follower_asks_again_when_the_last_one_has_joined() -> None:
    """One that came back a moment ago is not in sync yet: it will be long before the next attempt."""

    async def story() -> None:
        stopping = broker([2], [2, 3], [2])
        handing = asyncio.ensure_future(hand_over(stopping))
        await until(lambda: stopping.controller.asked)
        stopping.metadata = picture([2, 3], [2, 3], [2])
        await asyncio.sleep(0)
        stopping.metadata = picture([2, 3], [2, 3], [2, 3])
        assert await handing
        assert stopping.controller.asked == [[0, 2], []]

    asyncio.run(asyncio.wait_for(story(), WITHIN_S))


def test_a_controller_that_is_not_willing_is_not_asked_all_the_time() -> None:
    """Its reasons are its own: they do not pass because a replica is in sync."""

    async def story() -> None:
        stopping = broker([2, 3], retry_s=0.3)
        stopping.controller.unwilling = 1
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert await hand_over(stopping)
        assert loop.time() - began >= 0.3
        assert stopping.controller.asked == [[0], []]

    asyncio.run(asyncio.wait_for(story(), WITHIN_S))


def test_a_controller_of_kafkas_is_told_no_incarnation() -> None:
    """It would take it for the czxid of an earlier registration, and refuse."""

    async def story() -> None:
        stopping = broker([2, 3])
        assert await hand_over(stopping)
        stopping.roles.gate.admit(7, -1, -1, 1)
        assert await hand_over(stopping)
        assert stopping.controller.epochs == [1, -1]

    asyncio.run(asyncio.wait_for(story(), WITHIN_S))
