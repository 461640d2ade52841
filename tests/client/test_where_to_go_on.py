"""Where a caller wants to go on, said wrongly: it is told so, and what it was about to read still comes."""

import asyncio
from typing import Any

import pytest

from strandline.client import Consumer, TopicPartition
from tests.client.broker_harness import Double
from tests.client.numbered import fill, take
from tests.patience import HANG_S

T0, T1, OTHER = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("not read", 0)


WRONG: dict[str, Any] = {
    "an offset beyond 64 bits": (ValueError, lambda one: one.seek(T0, 1 << 63)),
    "half an offset": (TypeError, lambda one: one.seek(T0, 1.5)),
    "an offset as text": (TypeError, lambda one: one.seek(T0, "3")),
    "a time beyond 64 bits": (ValueError, lambda one: one.seek_to_timestamp(1 << 63)),
    "half a time": (TypeError, lambda one: one.seek_to_timestamp(1.5)),
    "a partition beside one that is not read": (ValueError, lambda one: one.seek_to_beginning(OTHER, T0)),
    "an end beside one that is not read": (ValueError, lambda one: one.seek_to_end(OTHER, T0)),
    "a time beside one that is not read": (ValueError, lambda one: one.seek_to_timestamp(1, OTHER, T0)),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_seek_changes_nothing(what: str, run: Any) -> None:
    error, seek = WRONG[what]

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, range(10))
            options: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}
            async with Consumer(double.servers, **options) as consumer:
                consumer.assign([T0])
                assert await take(consumer, 3) == [0, 1, 2]
                await anext(consumer)
                with pytest.raises(error):
                    seek(consumer)
                assert await take(consumer, 6) == [4, 5, 6, 7, 8, 9]
                fill(log, range(10, 20))
                assert await take(consumer, 10) == list(range(10, 20))

    run(story())


def test_times_that_cannot_be_sent_are_refused(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with Consumer(double.servers, group="g") as consumer:
                with pytest.raises(ValueError, match="64 bits"):
                    await consumer.offsets_for_times({T0: 1 << 63})
                with pytest.raises(ValueError, match="above"):
                    await consumer.commit({T0: 1 << 63})

    run(story())


def test_who_polls_hears_of_it_if_nothing_can_be_fetched_any_more(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with Consumer(double.servers, topics=["t"]) as consumer:

                def broken(now: float) -> bool:
                    raise ZeroDivisionError("a mistake of ours")

                monkeypatch.setattr(consumer._fetcher, "_pump", broken)
                consumer._fetcher.wake()
                for _ in range(2):
                    with pytest.raises(ZeroDivisionError):
                        async with asyncio.timeout(HANG_S):
                            await anext(consumer)

    run(story())


@pytest.mark.parametrize("how", ["it fails", "it is cancelled"])
def test_a_start_that_is_given_up_leaves_nothing_behind(
    how: str, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            consumer = Consumer(double.servers, topics=["t"])
            before, reached = asyncio.all_tasks(), asyncio.Event()

            def subscribe(*_: Any) -> None:
                raise ZeroDivisionError("a mistake of ours")

            async def for_ever() -> None:
                await connect()
                reached.set()
                await asyncio.Event().wait()

            connect = consumer._cluster.start
            if how == "it fails":
                monkeypatch.setattr(consumer._subscription, "subscribe", subscribe)
            else:
                monkeypatch.setattr(consumer._cluster, "start", for_ever)
            starting = asyncio.create_task(consumer.start())
            if how == "it is cancelled":
                await reached.wait()
                starting.cancel()
            with pytest.raises(ZeroDivisionError if how == "it fails" else asyncio.CancelledError):
                async with asyncio.timeout(HANG_S):
                    await starting
            async with asyncio.timeout(HANG_S):  # the broker's tasks end with the connections
                while not asyncio.all_tasks() <= before | {starting}:
                    await asyncio.sleep(0.01)

    run(story())
