"""Several fake brokers with real controllers, and what is asked of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from strandline.protocol.messages import topics
from tests.patience import HANG_S


@asynccontextmanager
async def cluster(make: Any, *ids: int) -> AsyncIterator[dict[int, Any]]:
    """These brokers, started in turn. The first one is the controller: nobody else stands until it is."""
    brokers: dict[int, Any] = {}
    dead: set[int] = set()
    for id in ids:
        brokers[id] = make(id)
        brokers[id].dead = dead
        await brokers[id].start()
        await until(lambda: ruler(brokers) is not None)
    await ruler(brokers).controller.reach.until(lambda state: state.brokers.keys() == brokers.keys())
    try:
        yield brokers
    finally:
        for broker in brokers.values():
            if broker.id not in dead:
                await broker.stop()


def ruler(brokers: dict[int, Any]) -> Any:
    """Whose controller is active, of those that live."""
    alive = (b for b in brokers.values() if b.id not in b.dead)
    return next((b for b in alive if b.controller.active), None)


async def create(
    broker: Any, name: str, partitions: int, factor: int, **options: Any
) -> topics.CreatableTopicResult:
    wanted = topics.CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **options)
    answer = await broker.controller.ask(topics.CreateTopicsRequest(topics=[wanted], timeout_ms=5000))
    return answer.topics[0]  # type: ignore[no-any-return]


async def until(condition: Any, seconds: float = HANG_S) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "waited in vain"
        await asyncio.sleep(0.005)
