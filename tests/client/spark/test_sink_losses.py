"""What a task was told is written is there at its end, or the task fails; and it keeps to its bounds."""

import pickle
import threading
import time
import tracemalloc
from array import array
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_strandline import DefaultSource
from strandline.base.types import TopicPartition
from strandline.client.spark.client import SparkCluster, Wire
from strandline.client.spark.sink import produce
from strandline.client.spark.sink.options import parse
from strandline.client.spark.sink.produce import TaskProducer, Written
from strandline.client.spark.sink.topics import Topic, Topics
from strandline.client.spark.sink.trouble import NotWritten
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.produce import ProduceResponse
from strandline.protocol.primitives import NO_UUID
from strandline.protocol.records import BatchBuilder
from tests.client.spark.fetch_harness import Patience
from tests.client.spark.sink_harness import T0, arrow, wanted, write, write_batches

WAIT_S = 60


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def before(number: int, happens: Callable[[], Any]) -> Callable[[int], Any]:
    """Something happens before the request, or Arrow batch, of that number."""
    return lambda at: (happens() if at == number else None) and 0


@pytest.mark.usefixtures("small_blocks")
class TestATopicThatIsMadeAgain:
    """Its log may take the rest as if nothing had happened."""

    def test_while_a_task_writes_fails_the_task(self, double: Any) -> None:
        double.log("t")

        def make_again() -> None:
            double.make_again("t").start = 10_000

        double.before_append = before(6, make_again)
        with pytest.raises(NotWritten) as error:
            write(double)
        assert str(error.value) == (
            "task 0, topic t has had two ids while it was written, 00000000-0000-0000-0000-000000000001 and "
            "00000000-0000-0000-0000-0000000003e8: if it was deleted and created again, rows that were "
            "written before are gone. Write them again, and delete no topic meanwhile"
        )

    def test_before_anything_was_written_to_it_is_taken(self, double: Any) -> None:
        double.log("t")

        def make_again(count: int) -> int:
            if count > 1:
                return 0
            double.make_again("t")
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

        double.before_append = make_again
        write(double)
        assert double.logs[T0].values() == wanted()

    def test_is_not_told_by_brokers_without_ids(self, double: Any) -> None:
        log = double.log("t")
        double.before_append = before(6, double.ids.clear)
        write(double)
        assert log.values() == wanted()

    @pytest.mark.usefixtures("heard_anew")
    @pytest.mark.parametrize(("kind", "batch"), [("writer", ()), ("streamWriter", (7,))])
    def test_between_two_tasks_fails_their_query(
        self, double: Any, kind: str, batch: tuple[int, ...]
    ) -> None:
        """Each task alone has written all its rows. Writers and messages go from process to process."""
        double.log("t")
        source = DefaultSource({"kafka.bootstrap.servers": double.servers, "topic": "t"})
        writer = getattr(source, kind)(StructType([StructField("value", StringType())]), False)

        def task() -> Any:
            sent = pickle.loads(pickle.dumps(writer))
            return pickle.loads(pickle.dumps(sent.write(iter([arrow("value string", [("x",)])]))))

        messages = [task() for _ in range(2)]
        writer.commit([*messages, None], *batch)
        double.make_again("t")
        messages.append(task())
        with pytest.raises(NotWritten, match=r"^topic t has had two ids while it was written"):
            writer.commit(messages, *batch)
        writer.abort(messages, *batch)


@pytest.mark.usefixtures("small_blocks")
def test_a_log_that_begins_again_fails_the_task(double: Any) -> None:
    """As after an unclean election of a replica that had nothing: it takes any number as the first."""
    log = double.log("t")

    def forget() -> None:
        log.batches.clear()
        log.producers.clear()

    double.before_append = before(6, forget)
    with pytest.raises(NotWritten, match=r"to t-0: it got offset 0 after \d+: rows that this task has wr"):
        write(double)


def test_an_offset_that_was_not_told_makes_no_other_one_the_first_or_last(double: Any) -> None:
    log = double.log("t")
    double.after_append = lambda count: double.GONE if count == 1 else None
    double.before_append = lambda count: ErrorCode.DUPLICATE_SEQUENCE_NUMBER if count == 2 else 0
    written = write(double)[T0]
    assert log.values() == wanted()
    assert (written.rows, written.first_offset, written.last_offset) == (1000, -1, -1)
    total = Written()
    for more in (Written(5, 50, 10, 14), Written(3, 30, 2, 4)):
        total.merge(more)
    assert total == Written(8, 80, 2, 14)
    total.merge(Written(1, 10, -1, -1))
    assert total == Written(9, 90, -1, -1)


def outage(double: Any, at_request: int) -> threading.Thread:
    """All brokers go, in a thread, before they answer that request."""

    def go() -> None:
        for node in (1, 2):
            double.kill(node)

    going = threading.Thread(target=go)

    def gone(request: int) -> Any:
        if request == at_request:
            going.start()
        return double.GONE if request >= at_request else None

    double.after_append = gone
    return going


def test_rows_are_there_once_after_all_brokers_were_away(
    double: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, looks = double.log("t"), count(1)
    look, going = TaskProducer._look, outage(double, 3)

    def looked(self: TaskProducer) -> None:
        if going.ident is not None and next(looks) == 10:
            going.join()
            double.after_append = lambda request: None
            for node in (1, 2):
                double.revive(node)
        look(self)

    monkeypatch.setattr(TaskProducer, "_look", looked)
    assert write(double)[T0].rows == 1000
    assert log.values() == wanted()


def test_a_cluster_that_stays_away_is_told_in_time(double: Any) -> None:
    double.log("t")
    going = outage(double, 1)
    began = time.monotonic()
    with pytest.raises(NotWritten, match=r"not acknowledged within kafka.delivery.timeout.ms=500, the last"):
        write(double, kafka_delivery_timeout_ms=500)
    assert time.monotonic() - began < WAIT_S
    going.join()


@pytest.mark.usefixtures("small_blocks")
def test_without_acks_nothing_is_sent_on_a_connection_that_has_ended(double: Any) -> None:
    """The leader closes it when it has lost its role, and takes no rows any more."""
    log = double.log("t")

    def move() -> None:
        until(lambda: len(log.values()) == 500)
        double.elect(2)
        double.kill(1)
        double.revive(1)

    write(double, before=before(5, move), kafka_acks=0)
    until(lambda: len(log.values()) == 1000)
    assert log.values() == wanted()


def test_a_connection_that_ended_while_it_was_kept_is_not_used(double: Any) -> None:
    log = double.log("t", leader=2)
    write(double, 10, kafka_acks=0)
    until(lambda: len(log.values()) == 10)
    for node in (1, 2):
        double.kill(node)
        double.revive(node)
    write(double, 10, kafka_acks=0)
    until(lambda: len(log.values()) == 20)


def test_answers_that_came_in_time_are_not_late(double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long another broker has kept the task busy. Else acks=1 would have rows twice."""
    away, answers = 0.0, 0
    look, hear = TaskProducer._look, TaskProducer._hear

    def now() -> float:
        return time.monotonic() + away

    def answered(node: int, api: Api) -> None:
        nonlocal answers
        answers += api is Api.PRODUCE

    def looked(self: TaskProducer) -> None:
        nonlocal away
        sent = sum(len(channel.sent) for channel in self._channels.values())
        if not away and sent == 5:
            until(lambda: answers == 5)
            away = 100.0
        look(self)

    def heard(self: TaskProducer, seconds: float) -> None:
        if away:
            hear(self, seconds)

    double.after_answer = answered
    monkeypatch.setattr(TaskProducer, "_look", looked)
    monkeypatch.setattr(TaskProducer, "_hear", heard)
    log = double.log("t")
    cluster = SparkCluster(parse({"kafka.bootstrap.servers": double.servers, "topic": "t"}).cluster, now)
    monkeypatch.setattr(produce, "cluster_for", lambda options: cluster)
    write(double, kafka_acks=1)
    cluster.close()
    assert away and log.values() == wanted()


@pytest.mark.usefixtures("small_blocks")
def test_a_key_keeps_its_place_while_a_task_runs(double: Any) -> None:
    """Though a partition is added, and a row names it. The next task counts it."""
    first = double.log("t")
    rows = [(b"%d" % at, b"%d" % at, None if at != 300 else 1) for at in range(1000)]
    schema = "key binary, value binary, partition int"
    write(double, rows, schema, before=before(2, lambda: double.log("t", 1)))
    assert double.logs[TopicPartition("t", 1)].values() == [b"300"]
    assert first.values() == [value for value in wanted() if value != b"300"]
    write(double, [(b"%d" % at, b"", None) for at in range(100)], schema)
    assert len(double.logs[TopicPartition("t", 1)].values()) > 10


def test_looks_for_a_leader_come_at_growing_intervals_whatever_succeeds_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Patience()
    options = parse({"kafka.bootstrap.servers": "h:1", "topic": "t", "kafka.acks": "1"})
    producer = TaskProducer(SparkCluster(options.cluster, clock.now, clock.sleep), options)
    looks: list[float] = []
    monkeypatch.setattr(producer._topics, "look", lambda *_: looks.append(clock.seconds))
    producer._topics.known["t"] = Topic(NO_UUID, 1, 1)
    producer._time.resume()

    def pass_time(ticks: int, doubt: str | None) -> None:
        for _ in range(ticks):
            clock.seconds += 0.01
            builder = BatchBuilder()
            builder.append(1, None, b"")
            producer.put(T0, builder, array("q", [1]))
            producer._succeeded(producer._lanes[T0].take(), -1, NO_UUID)
            producer._doubted |= {doubt} if doubt else set()
            producer._look()

    pass_time(1000, "t")
    assert 10 <= len(looks) <= 15
    pass_time(300, None)
    looks.clear()
    pass_time(8, "t")
    assert len(looks) == 2, "trouble that is new is looked into soon"


def test_a_broker_whose_quota_is_exceeded_is_left_alone_and_its_answers_are_late_later() -> None:
    """It reads nothing from the connection for as long as it has told."""

    class Throttled:
        def receive(self) -> ProduceResponse:
            return ProduceResponse(responses=[], throttle_time_ms=400)

    clock = Patience()
    options = parse({"kafka.bootstrap.servers": "h:1", "topic": "t"})
    producer = TaskProducer(SparkCluster(options.cluster, clock.now, clock.sleep), options)
    producer._time.resume()
    address = ("h", 1)
    sent = [produce.Sent([], 0.0, {}) for _ in range(3)]
    channel = produce.Channel(cast(Wire, Throttled()), deque(sent))
    producer._channels[address] = channel
    producer._answer(address)
    assert [one.at for one in channel.sent] == [0.4, 0.4]
    assert not producer._has_slot(address) and producer._pause() == 0.4
    clock.seconds = 0.4
    assert producer._has_slot(address) and producer._pause() > 0.4


class TestMemory:
    """What a task takes is bounded by kafka.buffer.memory, whatever its rows look like."""

    BUFFER = 16 << 20

    @pytest.mark.parametrize(
        ("schema", "row"),
        [
            ("value binary", (None,)),
            ("value binary", (b"",)),
            ("value binary, partition int", (b"", 0)),
            ("value binary", (bytes(100),)),
            ("key binary, value binary", (bytes(20), bytes(80))),
            ("key binary, value binary, headers headers", (b"k", b"", [{"key": "h", "value": b""}] * 10)),
            ("value binary", (bytes(5_000),)),
        ],
    )
    def test_of_a_task_is_at_most_twice_the_buffer(
        self, monkeypatch: pytest.MonkeyPatch, schema: str, row: tuple[Any, ...]
    ) -> None:
        """Beside the Arrow batch that Spark has handed over, and a request that is being sent."""

        def settle(producer: TaskProducer, held_max: int) -> None:
            """Brokers take what must leave, and no more."""
            while producer.held > held_max:
                lane = next(iter(producer._busy.values()))
                producer._succeeded(lane.take(), -1, NO_UUID)

        def topic(producer: TaskProducer, name: str, at_least: int = 0) -> Topic:
            return producer._topics.known.setdefault(name, Topic(NO_UUID, 1, 1))

        monkeypatch.setattr(TaskProducer, "settle", settle)
        monkeypatch.setattr(TaskProducer, "topic", topic)
        monkeypatch.setattr(TaskProducer, "led", lambda *_: [0])
        monkeypatch.setattr(Topics, "check", lambda *_: None)
        given = arrow(schema, [row] * 10_000)
        options = {"kafka_acks": 1, "kafka_buffer_memory": self.BUFFER, "kafka_batch_size": 1 << 18}
        batches = max(4, 4 * self.BUFFER // (given.nbytes + 10_000 * 128))
        _, peak = self._measured(lambda: write_batches("h:1", schema, iter([given] * batches), **options))
        assert self.BUFFER / 4 < peak < 2 * self.BUFFER

    def test_of_what_waits_is_counted(self) -> None:
        options = parse({"kafka.bootstrap.servers": "h:1", "topic": "t"})
        producer = TaskProducer(SparkCluster(options.cluster), options)
        producer._topics.known["t"] = Topic(NO_UUID, 1, 1)

        def put(rows: int) -> None:
            for at in range(20_000 // rows):
                builder = BatchBuilder()
                builder.extend(bytes(30 * rows), rows, 1, 1)
                producer.put(T0, builder, array("q", range(at, at + rows)))

        for rows in (1, 10, 1000):
            held = producer.held
            taken, _ = self._measured(partial(put, rows))
            assert taken < 1.1 * (producer.held - held)

    @staticmethod
    def _measured(what: Callable[[], Any]) -> tuple[int, int]:
        """Bytes that are in use afterwards, and at most in between: Python's and numpy's, and Arrow's."""
        before = pa.default_memory_pool()
        pool = pa.proxy_memory_pool(before)
        pa.set_memory_pool(pool)
        tracemalloc.start()
        try:
            what()
            now, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            pa.set_memory_pool(before)
        return now + pool.bytes_allocated(), peak + pool.max_memory()
