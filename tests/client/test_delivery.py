"""What docs/delivery.md says of a record's way from its producer to the work it causes, each as a story."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from strandline.client import ApiError, ConfigError, Consumer, Producer, RebalanceListener, TopicPartition
from strandline.client.config import ProducerConfig, configure
from strandline.client.network.connection import Connection, ConnectionLost
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import produce
from tests.client.broker_harness import Double
from tests.client.numbered import take
from tests.patience import HANG_S

T0 = TopicPartition("t", 0)
GROUP: dict[str, Any] = {
    "group": "g",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "heartbeat_interval_ms": 20,
    "fetch_max_wait_ms": 20,
}


def values(log: Any) -> list[bytes]:
    return [bytes(record.value) for record in log.records()]


def append_and_say(log: Any, request: Any, code: ErrorCode) -> Any:
    """The leader appends, and the answer says otherwise, or is lost on its way."""
    answered = []
    for topic in request.topic_data:
        parts = []
        for one in topic.partition_data:
            if code is ErrorCode.REQUEST_TIMED_OUT:
                log.append(bytes(one.records))
            parts.append(produce.PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1))
        answered.append(produce.TopicProduceResponse(name=topic.name, partition_responses=parts))
    return produce.ProduceResponse(responses=answered)


@pytest.mark.parametrize(("idempotent", "kept"), [(True, 1), (False, 2)])
def test_a_lost_answer_is_a_duplicate_unless_the_producer_is_idempotent(
    run: Any, idempotent: bool, kept: int
) -> None:
    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            lost = iter([True])

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api == Api.PRODUCE and next(lost, False):
                    return append_and_say(log, request, ErrorCode.REQUEST_TIMED_OUT)
                return None

            double.hook = hook
            async with Producer(
                double.servers, enable_idempotence=idempotent, retry_backoff_ms=1
            ) as producer:
                await producer.send("t", b"paid 10")
            assert values(log) == [b"paid 10"] * kept

    run(story())


@pytest.mark.parametrize(("idempotent", "in_order"), [(True, True), (False, False)])
def test_a_retry_overtakes_unless_the_producer_is_idempotent(
    run: Any, idempotent: bool, in_order: bool
) -> None:
    """The first of three batches in flight is refused for a moment; the others are not."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            refused = iter([True])

            def hook(broker: Any, api: int, request: Any) -> Any:
                if api == Api.PRODUCE and next(refused, False):
                    return append_and_say(log, request, ErrorCode.NOT_ENOUGH_REPLICAS)
                return None

            async with Producer(
                double.servers, enable_idempotence=idempotent, retry_backoff_ms=20, batch_size=1
            ) as producer:
                await producer.send("t", b"warm")
                double.hook = hook
                await asyncio.gather(*(producer.send("t", b"%d" % n) for n in range(3)))
            told = values(log)[1:]
            assert sorted(told) == [b"0", b"1", b"2"]
            assert (told == sorted(told)) is in_order, told

    run(story())


async def crash(consumer: Consumer) -> None:
    """It goes without committing what it has."""
    await consumer.close(commit=False)


async def fill(double: Double, count: int) -> None:
    async with Producer(double.servers) as producer:
        for n in range(count):
            await producer.send("t", b"%d" % n)


def test_a_commit_before_the_work_loses_and_one_after_it_repeats(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            await fill(double, 9)
            done: list[int] = []

            early = await Consumer(double.servers, topics=["t"], **GROUP).start()
            taken = await take(early, 3)
            await early.commit()
            done += taken[:1]  # then it dies: 1 and 2 were committed and never done
            await crash(early)

            late = await Consumer(double.servers, topics=["t"], **GROUP).start()
            done += await take(late, 3)  # 3, 4, 5 are done, then it dies before it commits
            await crash(late)

            async with Consumer(double.servers, topics=["t"], **GROUP) as last:
                done += await take(last, 6)
                await last.commit()
            assert done == [0, 3, 4, 5, 3, 4, 5, 6, 7, 8], "1 and 2 are lost, 3 to 5 came twice"

    run(story())


class Committing(RebalanceListener):
    """Kafka's standard listener."""

    def __init__(self) -> None:
        self.consumer: Consumer | None = None
        self.done = asyncio.Event()

    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        assert self.consumer is not None
        await self.consumer.commit()
        self.done.set()


def test_a_listener_that_commits_commits_nothing_that_the_caller_still_works_on(run: Any) -> None:
    """It is called whenever the group changes, and not only while its caller polls, as Kafka's is."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            await fill(double, 9)
            options = GROUP | {"partition_assignment_strategy": ("range",)}
            listener = Committing()
            first = await Consumer(double.servers, topics=["t"], listener=listener, **options).start()
            listener.consumer = first
            assert await take(first, 3) == [0, 1, 2]
            assert await take(first, 2) == [3, 4], "with 0 to 2 it is done"
            async with Consumer(double.servers, topics=["t"], **options) as second, asyncio.timeout(HANG_S):
                await listener.done.wait()
                assert double.groups.group("g").offsets[T0][0] == 3
                await crash(first)  # it never did 3 and 4
                found: set[bytes] = set()
                while b"8" not in found:
                    found.update(one.value for one in await second.poll(50))
                assert {b"3", b"4"} <= found

    run(story())


def test_auto_commit_commits_what_the_caller_came_back_from(run: Any) -> None:
    """By default a crash repeats the last poll and loses nothing."""

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            await fill(double, 6)
            options = {**GROUP, "enable_auto_commit": True}
            first = await Consumer(double.servers, topics=["t"], **options).start()
            assert await take(first, 2) == [0, 1]
            assert await take(first, 2) == [2, 3]  # came back from 0 and 1; dies over 2 and 3
            await crash(first)
            async with Consumer(double.servers, topics=["t"], **options) as second:
                assert await take(second, 4) == [2, 3, 4, 5]

    run(story())


class Ledger:
    """A store that keeps results and the place of the record each came from, in one write."""

    def __init__(self) -> None:
        self.total = 0
        self.next_offset: dict[TopicPartition, int] = {}

    def book(self, record: Any) -> None:
        place = TopicPartition(record.topic, record.partition)
        if record.offset < self.next_offset.get(place, 0):
            return  # done before
        self.total += int(record.value)
        self.next_offset[place] = record.offset + 1


def test_results_that_are_kept_with_their_offset_count_each_record_once(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            await fill(double, 8)
            ledger = Ledger()
            for dies_after in (3, 5, 8):
                consumer = await Consumer(double.servers, topics=["t"], **GROUP).start()
                found = 0
                async with asyncio.timeout(HANG_S):
                    while found < dies_after:
                        for record in await consumer.poll(200, max_records=dies_after - found):
                            ledger.book(record)
                            found += 1
                await crash(consumer)  # nothing was ever committed: each begins at the beginning
            assert ledger.total == sum(range(8))

    run(story())


def test_records_of_one_key_keep_their_order_and_those_of_others_need_not(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            logs = double.topic("t", 4)
            async with Producer(double.servers) as producer:
                await asyncio.gather(
                    *(producer.send("t", b"%d" % n, key=b"k%d" % (n % 10)) for n in range(100))
                )
            for log in logs:
                by_key: dict[bytes, list[int]] = {}
                for record in log.records():
                    by_key.setdefault(bytes(record.key), []).append(int(record.value))
                assert all(found == sorted(found) and len(found) == 10 for found in by_key.values())
            assert sum(bool(log.records()) for log in logs) > 1, "and no order holds between partitions"

    run(story())


class Outbox:
    """Records that were written down before they were sent; what is confirmed is struck out."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def write_down(self, number: int, value: str) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"id": number, "value": value}) + "\n")

    def strike_out(self, number: int) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps({"id": number}) + "\n")

    def left(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for line in self.path.read_text().splitlines():
            entry = json.loads(line)
            if "value" in entry:
                found[entry["id"]] = entry["value"]
            else:
                found.pop(entry["id"], None)
        return found


async def send_all(double: Double, outbox: Outbox, dies_at: int | None = None) -> None:
    async with Producer(double.servers, delivery_timeout_ms=2_000) as producer:
        for number, value in outbox.left().items():
            await producer.send("t", value.encode(), key=b"%d" % number)
            if number == dies_at:
                return  # acknowledged, and the process ends before it is struck out
            outbox.strike_out(number)


def once_each(records: Iterable[Any]) -> list[str]:
    """The consumer's side: an id that came before is passed over."""
    seen: dict[bytes, str] = {}
    for record in records:
        seen.setdefault(bytes(record.key), bytes(record.value).decode())
    return list(seen.values())


def test_what_is_written_down_before_it_is_sent_survives_its_producer(run: Any, tmp_path: Path) -> None:
    """It is sent at least once whatever dies; with an id in the record it is taken once."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            outbox = Outbox(tmp_path / "outbox")
            for number in range(6):
                outbox.write_down(number, f"order {number}")
            await send_all(double, outbox, dies_at=3)
            await send_all(double, Outbox(tmp_path / "outbox"))  # the next process
            assert not outbox.left()
            assert [int(record.key) for record in log.records()] == [0, 1, 2, 3, 3, 4, 5]
            assert once_each(log.records()) == [f"order {number}" for number in range(6)]

    run(story())


def test_a_record_that_was_not_acknowledged_may_be_there_or_not(run: Any) -> None:
    """An error of `send` is no proof of absence: who must know looks, or makes a repetition harmless."""

    async def story() -> None:
        async with Double(1) as double:
            (log,) = double.topic("t")
            double.hook = lambda broker, api, request: (
                append_and_say(log, request, ErrorCode.REQUEST_TIMED_OUT) if api == Api.PRODUCE else None
            )
            async with Producer(
                double.servers,
                delivery_timeout_ms=100,
                request_timeout_ms=50,
                linger_ms=0,
                retry_backoff_ms=1,
            ) as producer:
                with pytest.raises(ApiError):
                    await producer.send("t", b"there")
            assert values(log)[:1] == [b"there"]

    run(story())


def test_what_was_read_is_read_again_by_going_back(run: Any) -> None:
    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            await fill(double, 5)
            async with Consumer(double.servers, topics=["t"], **GROUP) as consumer:
                assert await take(consumer, 5) == [0, 1, 2, 3, 4]
                await consumer.commit()
                consumer.seek(T0, 2)
                assert await take(consumer, 3) == [2, 3, 4]

    run(story())


@pytest.mark.parametrize(
    ("given", "on_the_wire"), [("all", -1), ("-1", -1), (-1, -1), ("1", 1), (1, 1), ("0", 0), (0, 0)]
)
def test_acks_by_its_old_names(given: int | str, on_the_wire: int) -> None:
    """`request.required.acks` and `required.acks` are what clients of their time call the option."""
    for name in ("acks", "request.required.acks", "required.acks"):
        config = configure(ProducerConfig, "localhost:9092", {name: given})
        assert (config.required_acks, config.enable_idempotence) == (on_the_wire, on_the_wire == -1)
    with pytest.raises(ConfigError, match="an old name of acks"):
        configure(ProducerConfig, "localhost:9092", {"acks": given, "request.required.acks": given})


def test_a_connection_that_takes_nothing_more_does_not_keep_all_else_from_its_turn(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has just ended, and its owner has yet to hear of that."""
    real, tries, heard = Connection.submit, [0], asyncio.Event()

    def ended(connection: Connection, message: Any, **options: Any) -> Any:
        if isinstance(message, produce.ProduceRequest) and not heard.is_set():
            tries[0] += 1
            assert tries[0] < 100, "others have no turn"
            asyncio.get_running_loop().call_soon(heard.set)
            raise ConnectionLost("ended")
        return real(connection, message, **options)

    monkeypatch.setattr(Connection, "submit", ended)

    async def story() -> None:
        async with Double(1) as double:
            double.topic("t")
            async with Producer(double.servers) as producer:
                assert (await producer.send("t", b"1")).offset == 0

    run(story())
    assert tries == [1]
