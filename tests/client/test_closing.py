"""A client is closed while other tasks wait for something of it: each is told so, and none waits on."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from strandline.client import Admin, BufferExhausted, Consumer, Producer, TopicPartition
from strandline.protocol.apis import Api
from tests.client.broker_harness import SWALLOW, Double
from tests.patience import HANG_S

T0 = TopicPartition("t", 0)
WAITING: dict[str, tuple[type[Any], Callable[[Any], Any]]] = {
    "the next record": (Consumer, anext),
    "a list of records": (Consumer, lambda one: one.poll(1 << 40)),
    "a batch": (Consumer, lambda one: one.poll_batch(1 << 40)),
    "a position": (Consumer, lambda one: one.position(T0)),
    "partitions, of a consumer": (Consumer, lambda one: one.partitions_for("missing")),
    "partitions, of a producer": (Producer, lambda one: one.partitions_for("missing")),
    "offsets": (Consumer, lambda one: one.end_offsets([T0])),
    "a topic that is not there": (Producer, lambda one: one.send_many("missing", [b"1"])),
    "a description": (Admin, lambda one: one.describe_groups(["g"])),
}


@pytest.mark.parametrize("what", WAITING)
def test_who_waits_is_told(what: str, run: Any) -> None:
    """Neither for the rest of its time, nor by what looks as if it had been cancelled itself."""
    kind, wait = WAITING[what]

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            silent = (Api.LIST_OFFSETS, Api.DESCRIBE_GROUPS)
            double.hook = lambda broker, api, request: SWALLOW if api in silent else None
            client = await kind(double.servers).start()
            if kind is Consumer:
                client.assign([T0])
            waiting = asyncio.create_task(wait(client))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            await client.close()
            async with asyncio.timeout(HANG_S / 2):
                with pytest.raises(RuntimeError, match=r"clos|stopp"):
                    await waiting

    run(story())


@pytest.mark.parametrize("options", [{}, {"transactional_id": "x"}], ids=["plain", "transactional"])
def test_a_close_that_is_cancelled_at_any_time_ends_all_tasks(options: dict[str, Any], run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            for turns in range(1, 30):
                before = asyncio.all_tasks()
                producer = await Producer(double.servers, **options).start()
                if options:
                    await producer.init_transactions()
                    producer.begin()
                sent = producer.send("t", b"1"), producer.send("missing", b"1")
                closing = asyncio.create_task(producer.close())
                for _ in range(turns):
                    await asyncio.sleep(0)
                closing.cancel()
                await asyncio.wait([closing])
                told = await asyncio.wait_for(asyncio.gather(*sent, return_exceptions=True), HANG_S)
                assert len(told) == 2
                left = asyncio.all_tasks() - before - {closing}
                assert not [task for task in left if "Link" not in repr(task)], turns

    run(story())


def test_who_asks_once_more_is_told(run: Any) -> None:
    """Several, of a broker that is dead: none waits for a connection that nobody opens any more."""

    async def story() -> None:
        async with Double(1) as double:
            client = await Admin(double.servers).start()
            double.kill(1)
            waiting = [asyncio.create_task(client.describe_groups(["g"])) for _ in range(3)]
            await asyncio.sleep(0.3)
            assert not any(one.done() for one in waiting)
            await client.close()
            async with asyncio.timeout(HANG_S):
                for one in waiting:
                    with pytest.raises(RuntimeError, match=r"clos|stopp"):
                        await one

    run(story())


def test_who_waits_for_room_behind_a_line_that_never_moved_is_told(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            producer = await Producer(double.servers).start()
            sent = producer.send("missing", b"1")
            waiting = asyncio.create_task(producer.room("missing"))
            await producer.close(flush=False)
            async with asyncio.timeout(HANG_S):
                await waiting
                with pytest.raises(BufferExhausted, match="closed"):
                    await sent

    run(story())
