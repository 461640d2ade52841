"""The consumer: positions, seeks, leaders that move and die, groups that share and rebalance."""

import asyncio
import weakref
from typing import Any

import pytest

from strandline.client import (
    CommitFailed,
    Consumer,
    OffsetOutOfRange,
    Producer,
    RebalanceListener,
    TopicPartition,
)
from strandline.client.consumer.consumer import FOREVER_MS
from strandline.local.processes import machine_is_slower
from strandline.protocol.apis import Api
from strandline.protocol.batches import LOG_APPEND_TIME, seal
from strandline.protocol.compression import Codec
from strandline.protocol.records import BatchBuilder
from tests.client.broker_harness import SWALLOW, Broker, Double
from tests.patience import HANG_S

SOON_S = 0.9  # less than the second for which metadata rests where nothing is in doubt

T0 = TopicPartition("t", 0)


def fill(partition: Any, count: int, per_batch: int = 10) -> None:
    """Values 0, 1, 2 ... at timestamps 1000, 1001 ..."""
    for first in range(0, count, per_batch):
        builder = BatchBuilder(Codec.GZIP if first % 20 else Codec.NONE)
        for n in range(first, min(first + per_batch, count)):
            builder.append(1000 + n, b"k", b"%d" % n)
        partition.append(builder.build())


async def take(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(HANG_S):
        while len(found) < count:
            found += [int(one.value) for one in await consumer.poll(200)]
    return found


def test_reads_all_in_order_and_goes_on(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 95)
            async with Consumer(double.servers, topics=["t"], auto_offset_reset="earliest") as consumer:
                assert await take(consumer, 95) == list(range(95))
                assert await consumer.position(T0) == 95
                assert consumer.high_watermark(T0) == 95
                async with Producer(double.servers) as producer:
                    await producer.send("t", b"95")
                assert (await anext(consumer)).value == b"95"

    run(story())


def test_a_record_tells_whose_timestamp_it_has_and_under_which_leader_it_was_appended(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 2)
            double.move("t", 0, 1)
            builder = BatchBuilder()
            builder.append(1002, b"k", b"2")
            stamped = bytearray(builder.build())
            stamped[22] |= LOG_APPEND_TIME
            seal(stamped, 0, len(stamped))
            log.append(stamped)
            async with Consumer(double.servers, topics=["t"], auto_offset_reset="earliest") as consumer:
                found = [await anext(consumer) for _ in range(3)]
            assert [one.leader_epoch for one in found] == [0, 0, 1]
            assert [one.timestamp_type.name for one in found] == [
                "CREATE_TIME",
                "CREATE_TIME",
                "LOG_APPEND_TIME",
            ]

    run(story())


def test_seeks_and_looks_up_times(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 50)
            async with Consumer(double.servers, topics=["t"], fetch_max_wait_ms=20) as consumer:
                assert await consumer.position(T0) == 50
                consumer.seek(T0, 13)
                assert (await take(consumer, 2))[:2] == [13, 14]
                consumer.seek_to_timestamp(1042)
                assert (await take(consumer, 1))[0] == 42
                consumer.seek_to_beginning(T0)
                assert (await anext(consumer)).offset == 0
                assert await consumer.position(T0) == 1
                consumer.seek_to_end()
                assert await consumer.position(T0) == 50
                assert await consumer.beginning_offsets([T0]) == {T0: 0}
                assert await consumer.end_offsets([T0]) == {T0: 50}
                times = await consumer.offsets_for_times({T0: 1007})
                assert times[T0] is not None and times[T0][:2] == (7, 1007)
                assert await consumer.offsets_for_times({T0: 99999}) == {T0: None}

    run(story())


def test_pauses_and_batches(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            logs = double.topic("t", 2)
            fill(logs[0], 30)
            fill(logs[1], 30)
            both = [T0, TopicPartition("t", 1)]
            async with Consumer(
                double.servers, auto_offset_reset="earliest", fetch_max_wait_ms=20
            ) as consumer:
                consumer.assign(both)
                consumer.pause(T0)
                seen = await consumer.poll(2000)
                assert {one.partition for one in seen} == {1}
                assert await consumer.poll(100) == []
                consumer.resume(T0)
                batches = await consumer.poll_batch(2000)
                assert [(one.partition, one.columns.offset.tolist()) for one in batches] == [
                    (T0, list(range(30)))
                ]
                assert await consumer.position(T0) == 30

    run(story())


@pytest.mark.parametrize("way", ["one by one", "lists", "batches"])
def test_who_waits_goes_on_at_once_when_held_records_are_resumed(run: Any, way: str) -> None:
    """Nothing needs to be fetched for it: the records came before the pause."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 30, per_batch=30)
            options: dict[str, Any] = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}
            async with Consumer(double.servers, topics=["t"], max_poll_records=10, **options) as consumer:
                assert [one.offset for one in await consumer.poll(2000)] == list(range(10))
                consumer.pause(T0)
                waiting: asyncio.Task[Any]
                if way == "one by one":
                    waiting = asyncio.ensure_future(anext(consumer))
                elif way == "lists":
                    waiting = asyncio.ensure_future(anext(consumer.records()))
                else:
                    waiting = asyncio.ensure_future(consumer.poll_batch(FOREVER_MS))
                await waits(consumer)
                assert consumer._fetcher.places[T0].chunks, "it holds the rest"
                consumer.resume(T0)
                async with asyncio.timeout(20):
                    await waiting
                assert await consumer.position(T0) == {"one by one": 11, "lists": 20}.get(way, 30)

    run(story())


async def waits(consumer: Consumer) -> None:
    """Until somebody waits for records to arrive."""
    async with asyncio.timeout(20):
        while not consumer._fetcher.arrived._waiters:
            await asyncio.sleep(0.01)


def test_an_iterator_that_waits_holds_no_record(run: Any) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Held:
        def __init__(self, raw: bytes) -> None:
            alive.add(self)

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 30)
            options: dict[str, Any] = {"auto_offset_reset": "earliest", "deserializer": Held}
            async with Consumer(double.servers, topics=["t"], **options) as consumer:
                for n in range(30):
                    assert (await anext(consumer)).offset == n
                waiting = asyncio.ensure_future(anext(consumer))
                await waits(consumer)
                assert len(alive) == 0
                waiting.cancel()
                await asyncio.wait([waiting])

    run(story())


def test_a_closed_consumer_hands_out_nothing_and_holds_nothing(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 30, per_batch=30)
            options: dict[str, Any] = {"auto_offset_reset": "earliest", "max_poll_records": 10}
            async with Consumer(double.servers, topics=["t"], **options) as consumer:
                assert (await anext(consumer)).offset == 0
                (place,) = consumer._fetcher.places.values()
                assert place.chunks
            assert not place.chunks and place.position == 1
            for ask in (consumer.poll, consumer.poll_batch, consumer.__anext__):
                with pytest.raises(RuntimeError, match="closed"):
                    await ask()
            assert place.position == 1

    run(story())


def test_an_offset_out_of_range_follows_the_policy(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            async with Consumer(double.servers, topics=["t"], auto_offset_reset="earliest") as consumer:
                consumer.assignment()
                await consumer.position(T0)
                consumer.seek(T0, 500)
                assert (await take(consumer, 1))[0] == 0
            async with Consumer(double.servers, topics=["t"], auto_offset_reset="none") as consumer:
                with pytest.raises(OffsetOutOfRange):
                    await consumer.poll(2000)

    run(story())


def test_what_was_taken_back_and_written_anew_is_read_again(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            options = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 20}
            async with Consumer(double.servers, topics=["t"], **options) as consumer:
                assert await take(consumer, 20) == list(range(20))
                del log.batches[1:]
                log.end, log.epoch = 10, 1
                fill(log, 15)
                assert await take(consumer, 15) == list(range(15)), "offsets 10 to 24, of which ten are new"
                assert await consumer.position(T0) == 25

    run(story())


def test_a_moved_and_a_dead_leader_cost_only_time(run: Any) -> None:
    async def story() -> None:
        async with Double(3) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            async with Consumer(double.servers, topics=["t"], auto_offset_reset="earliest") as consumer:
                assert await take(consumer, 20) == list(range(20))
                double.move("t", 0, 2)
                async with Producer(double.servers) as producer:
                    await producer.send("t", b"20")
                    assert await take(consumer, 1) == [20]
                    double.kill(2)
                    await asyncio.sleep(0.3)
                    double.move("t", 0, 3)
                    start = asyncio.get_running_loop().time()
                    await producer.send("t", b"21")
                    assert await take(consumer, 1) == [21]
                    assert asyncio.get_running_loop().time() - start < 0.9 * machine_is_slower(), (
                        "no rest of a second"
                    )

    run(story())


def test_a_group_shares_commits_and_hands_over(run: Any) -> None:
    class Listener(RebalanceListener):
        def __init__(self) -> None:
            self.heard: list[tuple[str, int]] = []

        def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
            self.heard.append(("revoked", len(partitions)))

        async def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
            self.heard.append(("assigned", len(partitions)))

    async def story() -> None:
        async with Double(2) as double:
            for log in double.topic("t", 4):
                fill(log, 10)
            options: dict[str, Any] = {
                "group": "g",
                "auto_offset_reset": "earliest",
                "heartbeat_interval_ms": 50,
                "fetch_max_wait_ms": 20,
            }
            ear = Listener()
            async with Consumer(double.servers, topics=["t"], listener=ear, **options) as first:
                assert len(await take(first, 40)) == 40
                async with Consumer(double.servers, topics=["t"], **options) as second:
                    async with asyncio.timeout(20):
                        while len(second.assignment()) != 2 or len(first.assignment()) != 2:
                            await first.poll(50)
                    assert await second.poll(200) == []
                    assert first.assignment().isdisjoint(second.assignment())
                async with asyncio.timeout(20):
                    while len(first.assignment()) != 4:
                        await first.poll(50)
                await first.commit({T0: 3})
                committed = await first.committed(T0)
                assert committed[T0] is not None and committed[T0].offset == 3
            assert ear.heard[:3] == [("assigned", 4), ("revoked", 4), ("assigned", 2)]
            offsets = double.groups.group("g").offsets
            assert [offset for offset, _ in offsets.values()] == [10] * 4, "auto-commit tells what is done"

    run(story())


GROUP: dict[str, Any] = {
    "group": "g",
    "auto_offset_reset": "earliest",
    "heartbeat_interval_ms": 20,
    "fetch_max_wait_ms": 20,
}


def test_a_rebalance_commits_nothing_that_the_caller_still_works_on(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            log, _ = double.topic("t", 2)
            fill(log, 20)
            committed = double.groups.group("g").offsets
            async with Consumer(double.servers, topics=["t"], **GROUP) as first:
                async with asyncio.timeout(20):
                    while not await first.poll(50, max_records=10):
                        pass
                async with Consumer(double.servers, topics=["t"], **GROUP) as second:
                    async with asyncio.timeout(20):
                        while not second.assignment() or len(first.assignment()) != 1:
                            await asyncio.sleep(0.01)
                    await first._subscription.commit_processed(1_000)
                    assert committed[T0][0] == 0, "the caller has not come back for more"
                async with asyncio.timeout(20):
                    while len(first.assignment()) != 2:
                        await asyncio.sleep(0.01)
                await first._subscription.commit_processed(1_000)
                assert committed[T0][0] == 0, "nor after it had them to itself again"
                await first.poll(1_000)
                await first._subscription.commit_processed(1_000)
                assert committed[T0][0] == 10, "now it has"

    run(story())


def test_who_was_expelled_cannot_take_its_group_back(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 20)
            group = double.groups.group("g")
            options = {**GROUP, "enable_auto_commit": False}
            async with Consumer(double.servers, topics=["t"], max_poll_interval_ms=100, **options) as late:
                assert len(await take(late, 20)) == 20
                async with asyncio.timeout(20):
                    while group.members:  # until it says itself that it polls too late
                        await asyncio.sleep(0.01)
                async with Consumer(double.servers, topics=["t"], **options) as other:
                    assert len(await take(other, 20)) == 20
                    await other.commit({T0: 10})
                with pytest.raises(CommitFailed, match="has left group g"):
                    await late.commit({T0: 3})
                assert group.offsets[T0][0] == 10
                assert len(await take(late, 10)) == 10, "it polls, and is a member again"
                await late.commit({T0: 12})
                assert group.offsets[T0][0] == 12
            async with Consumer(double.servers, group="g") as alone:
                alone.assign([T0])
                await alone.commit({T0: 5})
                assert group.offsets[T0][0] == 5, "who assigns itself needs no membership"

    run(story())


@pytest.mark.parametrize("api", [Api.JOIN_GROUP, Api.SYNC_GROUP], ids=["join", "sync"])
def test_a_coordinator_that_vanishes_while_members_wait_is_left_for_its_successor(api: Api, run: Any) -> None:
    """Nobody closes the connection, and metadata goes on to list the broker."""

    async def story() -> None:
        async with Double(2) as double:
            log, _ = double.topic("t", 2)
            log.leader = 2
            fill(log, 10)

            def vanish(broker: Broker, asked: int, request: Any) -> Any:
                if broker.node != 1 or asked != api or not request.member_id:
                    return None
                broker.stopped = True
                return SWALLOW

            double.hook = vanish
            async with Consumer(double.servers, topics=["t"], request_timeout_ms=300, **GROUP) as consumer:
                assert len(await take(consumer, 10)) == 10
                assert double.brokers[1].stopped

    run(story())


@pytest.mark.parametrize("api", [Api.JOIN_GROUP, Api.SYNC_GROUP], ids=["join", "sync"])
def test_a_question_that_was_lost_with_its_connection_is_asked_again(api: Api, run: Any) -> None:
    """The coordinator is as well as can be, on every connection but this one."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            fill(log, 10)
            asked: list[Any] = []

            def lose_the_first(broker: Broker, its_api: int, request: Any) -> Any:
                if its_api != api or not request.member_id:
                    return None
                asked.append(request)
                return SWALLOW if len(asked) == 1 else None

            double.hook = lose_the_first
            async with Consumer(double.servers, topics=["t"], request_timeout_ms=300, **GROUP) as consumer:
                assert len(await take(consumer, 10)) == 10
            assert asked[0] == asked[1], "the same question of the same member"

    run(story())


def test_a_cooperative_group_moves_only_what_must(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t", 4)
            options: dict[str, Any] = {
                "group": "g",
                "heartbeat_interval_ms": 50,
                "fetch_max_wait_ms": 20,
                "partition_assignment_strategy": ["cooperative-sticky"],
            }
            async with Consumer(double.servers, topics=["t"], **options) as first:
                async with asyncio.timeout(20):
                    while len(first.assignment()) != 4:
                        await first.poll(50)
                async with Consumer(double.servers, topics=["t"], **options) as second:
                    least = 4
                    async with asyncio.timeout(20):
                        while len(second.assignment()) != 2:
                            await first.poll(20)
                            least = min(least, len(first.assignment()))
                    assert least == 2
                    double.groups.lose("g")
                    async with asyncio.timeout(20):
                        while len(second.assignment() | first.assignment()) != 4 or second.assignment() & (
                            first.assignment()
                        ):
                            await asyncio.gather(first.poll(20), second.poll(20))

    run(story())


def test_without_reading_nothing_is_polled(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double, Consumer(double.servers) as consumer:
            with pytest.raises(RuntimeError):
                await consumer.poll(10)
            with pytest.raises(ValueError, match="not assigned"):
                consumer.seek(T0, 0)
            assert Api.FETCH not in [api for api, _ in double.brokers[1].requests]

    run(story())
