"""What a consumer commits: what its caller is done with, and never less than was committed before."""

import asyncio
from typing import Any

import pytest
from double import Double
from test_consumer import T0, fill

from strandline.client import Consumer


@pytest.mark.parametrize("policy", ["cut", "latest", "earliest"])
def test_where_the_log_goes_on_says_nothing_of_what_the_caller_works_on(policy: str, run: Any) -> None:
    """The log is cut behind the ten records that the caller has, or what it would read next is gone."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 30)
            committed = double.groups.group("g").offsets
            options: dict[str, Any] = {"group": "g", "fetch_max_wait_ms": 20, "auto_commit_interval_ms": 10}
            reset = "earliest" if policy == "cut" else policy
            async with Consumer(double.servers, auto_offset_reset=reset, **options) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 0)
                assert len(await consumer.poll(5_000, max_records=10)) == 10
                if policy == "cut":
                    del log.batches[2:]
                    log.end, log.epoch = 20, 1
                    fill(log, 20)
                else:
                    del log.batches[:]
                    log.start, log.end = 50, 60
                place = consumer._fetcher.places[T0]
                asked = place.age
                async with asyncio.timeout(5):
                    while place.age == asked or place.position is None:
                        await asyncio.sleep(0.01)
                await consumer._subscription.commit_processed(1_000)
                assert committed[T0][0] == 0, "the caller still works on 0 to 9"
                there = {"cut": 10, "earliest": 50, "latest": 60}[policy]
                assert place.position == there
                await consumer.poll(0, max_records=0)
                await consumer._subscription.commit_processed(1_000)
                assert committed[T0][0] == there, "it came back"

    run(story())


def test_who_has_no_record_in_hand_is_done_with_all_before_where_the_log_goes_on(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            log.start = log.end = 50
            async with Consumer(double.servers, group="g", fetch_max_wait_ms=20) as consumer:
                consumer.assign([T0])
                consumer.seek(T0, 10)
                async with asyncio.timeout(5):
                    while consumer._fetcher.places[T0].position != 50:
                        await asyncio.sleep(0.01)
                await consumer._subscription.commit_processed(1_000)
                assert double.groups.group("g").offsets[T0][0] == 50

    run(story())
