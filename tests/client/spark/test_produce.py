"""The send loop against brokers that die, refuse, forget, or lose answers: each row once, or a reason."""

import threading
import time
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from strandline.base.types import TopicPartition
from strandline.client.producer.partitioner import partition_for_key
from strandline.client.spark.sink import task
from strandline.client.spark.sink.produce import TaskProducer, WorkTime, Written
from strandline.client.spark.sink.trouble import NotWritten
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import BatchBuilder, iterate
from tests.client.spark.sink_harness import NUMBERS, T0, wanted, write


def at_request(number: int, harm: Callable[[], Any]) -> Callable[[int], Any]:
    return lambda count: harm() if count == number else None


def test_rows_are_written_in_their_order(double: Any) -> None:
    log = double.log("t")
    written = write(double)
    assert log.values() == wanted()
    assert written == {T0: Written(1000, written[T0].nbytes, 0, 999)}
    assert written[T0].nbytes > sum(map(len, wanted()))
    assert double.acks == {-1} and list(log.producers) == [1001]


def test_nothing_to_write_asks_nothing(double: Any) -> None:
    assert write(double, 0) == {}
    assert double.asked == []


def test_tasks_of_a_process_share_a_producer_and_its_connections(double: Any) -> None:
    log = double.log("t")
    for _ in range(3):
        write(double, 100)
    assert log.values() == wanted(100) * 3 and list(log.producers) == [1001]
    assert sum(api == Api.INIT_PRODUCER_ID for _, api in double.asked) == 1
    assert sum(api == Api.API_VERSIONS for _, api in double.asked) == 2, "one to ask, one to write"


@pytest.mark.parametrize("first", [1, 2, 5])
def test_a_leader_that_dies_before_it_appends_costs_nothing(double: Any, first: int) -> None:
    log = double.log("t", leader=1)

    def die() -> int:
        double.kill(1)
        double.elect(2)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    double.before_append = lambda count: die() if count == first else 0
    write(double)
    assert log.values() == wanted()


@pytest.mark.parametrize("first", [1, 2, 5])
def test_an_answer_that_is_lost_with_its_leader_makes_nothing_twice(double: Any, first: int) -> None:
    """The batch is sent again to the next leader, under its old number, and is known there."""
    log = double.log("t", leader=1)

    def die() -> Any:
        double.elect(2)
        double.kill(1)

    double.after_append = at_request(first, die)
    write(double)
    assert log.values() == wanted()


def test_a_connection_that_ends_makes_nothing_twice(double: Any) -> None:
    log = double.log("t")
    double.after_append = lambda count: double.GONE if count % 3 == 0 else None
    write(double)
    assert log.values() == wanted()


def test_a_broker_that_does_not_answer_is_asked_again(double: Any) -> None:
    """On a new connection: nothing comes on the old one any more."""
    log, done = double.log("t"), threading.Event()
    double.after_append = at_request(3, lambda: done.wait(60) and None)
    write(double, kafka_request_timeout_ms=200)
    done.set()
    assert log.values() == wanted()


def test_a_graceful_move_costs_nothing(double: Any) -> None:
    log = double.log("t", leader=1)
    moves = iter([2, 1, 2])
    double.before_append = lambda count: double.elect(next(moves)) or 0 if count in (4, 9, 11) else 0
    write(double)
    assert log.values() == wanted()
    assert {node for node, api in double.asked if api == Api.PRODUCE} == {1, 2}


def test_nothing_goes_to_a_new_leader_while_the_old_one_has_batches(double: Any) -> None:
    """A new leader that has not heard of the producer takes any batch as its first: the one before it would
    never be taken."""
    logs = [double.log("t", partition, leader=1 + partition) for partition in range(2)]
    answer, released, seen = double.answer, threading.Event(), []

    def told(node: int, api: Api, request: Any) -> Any:
        parts = (
            [part.index for topic in request.topic_data for part in topic.partition_data] if api == 0 else []
        )
        if node == 1 and 0 in parts:
            seen.append("batch")
            if seen.count("batch") == 3:
                logs[0].leader, logs[0].epoch = 2, 6
                logs[0].producers.clear()
                double.before_append = lambda count: ErrorCode.NOT_LEADER_OR_FOLLOWER
                assert released.wait(60)
        elif node == 2 and 1 in parts and logs[0].leader == 2:
            seen.append("refused" if "refused" not in seen else "asked" if "looked" in seen else "again")
            if seen[-1] != "refused":
                double.before_append = lambda count: 0
        elif api == Api.METADATA and "refused" in seen:
            seen.append("looked")
        found = answer(node, api, request)
        if seen and seen[-1] == "asked":
            released.set()
        return found

    double.answer = told
    rows = [(b"%d" % at, at % 2) for at in range(4000)]
    write(double, rows, NUMBERS)
    assert [log.values() for log in logs] == [
        [value for value, at in rows if at == part] for part in range(2)
    ]
    assert "asked" in seen


def test_passing_trouble_is_waited_out(double: Any) -> None:
    log = double.log("t")
    troubles = (
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
    luck = Random(3)
    double.before_append = lambda count: luck.choice(troubles) if luck.random() < 0.4 else 0
    write(double, 300)
    assert log.values() == wanted(300)


def test_a_partition_without_a_leader_is_waited_for(double: Any) -> None:
    log = double.log("t", leader=-1)

    def elect(node: int, api: Api) -> None:
        if sum(each == Api.METADATA for _, each in double.asked) == 4:
            log.leader = 2

    double.after_answer = elect
    write(double, 10)
    assert log.values() == wanted(10)


def test_a_log_that_has_forgotten_the_producer_takes_another_one(
    double: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log = double.log("t")
    write(double, 10)
    assert not caplog.records
    log.producers = {1001: [(0, 5, 0)]}
    write(double, 10)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("earlier_rows_missing partition=t-0 reason=OUT_OF_ORDER")
    assert log.values() == wanted(10) * 2 and list(log.producers) == [1001, 1002]


def test_a_log_that_has_lost_what_this_task_wrote_fails_the_task(double: Any, small_blocks: None) -> None:
    """As after an unclean election: the task is run again, and its rows are there once more."""
    log, answers = double.log("t"), count(1)

    def truncate(node: int, api: Api) -> None:
        if api is Api.PRODUCE and next(answers) == 3:
            [(producer, _)] = log.producers.items()
            log.producers[producer] = log.producers[producer][:1]
            del log.batches[1:]

    double.after_answer = truncate
    with pytest.raises(NotWritten, match=r"OUT_OF_ORDER.*: rows that this task has written there"):
        write(double, 1000, kafka_max_in_flight_requests_per_connection=1)


def test_a_log_that_forgot_the_producer_before_this_task_takes_all_of_its_batches(double: Any) -> None:
    """Several are under way when the first is refused; none of them is a loss of what this task wrote."""
    log = double.log("t")
    write(double, 10)
    log.producers = {1001: [(0, 5, 0)]}
    write(double)
    assert log.values() == wanted(10) + wanted()


def test_batches_behind_one_that_is_split_are_no_loss(double: Any, small_blocks: None) -> None:
    log = double.log("t", message_bytes_max=700)
    rows = [(b"x" * (3 if at < 300 else 60), 0) for at in range(900)]
    assert write(double, rows, NUMBERS)[T0].rows == 900
    assert log.values() == [value for value, _ in rows] and len(log.producers) == 1


def test_a_batch_that_waits_keeps_no_others_in_memory(double: Any) -> None:
    """Partition 1 has no leader; what was encoded with its rows is not kept for it."""
    builders: list[BatchBuilder] = []
    put = TaskProducer.put

    def noted(self: TaskProducer, partition: TopicPartition, builder: BatchBuilder, rows: list[int]) -> None:
        builders.append(builder)
        put(self, partition, builder, rows)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskProducer, "put", noted)
        double.log("t")
        double.log("t", 1)
        write(double, [(bytes(50), at % 2) for at in range(100)])
    assert len(builders) > 2
    for builder in builders:
        assert all(isinstance(part, bytes | bytearray) for part in builder._parts), (
            "no view of a larger buffer"
        )


def test_a_batch_that_is_too_large_for_its_topic_is_split(double: Any) -> None:
    log = double.log("t", message_bytes_max=300)
    written = write(double)
    assert log.values() == wanted() and written[T0].rows == 1000
    assert all(len(batch) <= 300 for batch in log.batches)


def test_a_batch_is_split_though_an_attempt_before_was_uncertain(double: Any) -> None:
    """As at the old leader of an election."""
    log = double.log("t", message_bytes_max=300)

    def elect(count: int) -> int:
        if count > 1:
            return 0
        double.elect(2)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    double.before_append = elect
    assert write(double)[T0].rows == 1000
    assert log.values() == wanted()


def test_halves_of_a_batch_that_was_written_after_all_fail_and_are_not_written_again(double: Any) -> None:
    """Its answer was lost, and the limit was lowered meanwhile."""
    log = double.log("t")

    def lower(count: int) -> Any:
        log.message_bytes_max = 300
        return double.GONE if count == 1 else None

    double.after_append = lower
    with pytest.raises(NotWritten, match="OUT_OF_ORDER"):
        write(double, 50)
    assert log.values() == wanted(50)[: len(log.values())] and len(log.batches) == 1


def test_a_record_that_is_too_large_for_its_topic_is_named(double: Any, small_blocks: None) -> None:
    double.log("t", message_bytes_max=300)
    rows = [(b"x" * (400 if at == 142 else 10), 0) for at in range(200)]
    with pytest.raises(NotWritten, match=r"^task 0, row 142: not written to t-0: MESSAGE_TOO_LARGE"):
        write(double, rows, NUMBERS)


def test_what_is_not_taken_in_time_is_given_up_with_the_last_trouble(double: Any) -> None:
    double.log("t")
    double.before_append = lambda count: ErrorCode.NOT_ENOUGH_REPLICAS
    with pytest.raises(NotWritten) as error:
        write(double, 10, kafka_delivery_timeout_ms=300)
    assert str(error.value).startswith(
        "task 0, 10 rows from row 0 to 9: not written to t-0: not acknowledged within "
        "kafka.delivery.timeout.ms=300, the last trouble: NOT_ENOUGH_REPLICAS"
    )


def test_a_refusal_for_good_is_told_at_once(double: Any) -> None:
    double.log("t")
    double.before_append = lambda count: ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(NotWritten, match=r"not written to t-0: TOPIC_AUTHORIZATION_FAILED"):
        write(double, 10)


def test_records_that_the_broker_blames_are_named(double: Any) -> None:
    double.log("t")
    double.before_append = lambda count: ErrorCode.INVALID_RECORD
    double.bad_records = [3]
    with pytest.raises(NotWritten, match=r"^task 0, row 3: not written to t-0: INVALID_RECORD"):
        write(double, 10)


def test_after_a_failure_the_next_task_has_a_producer_of_its_own(double: Any) -> None:
    log = double.log("t")
    double.before_append = lambda count: ErrorCode.TOPIC_AUTHORIZATION_FAILED if count == 1 else 0
    with pytest.raises(NotWritten):
        write(double, 10)
    write(double, 10)
    assert log.values() == wanted(10) and list(log.producers) == [1002]


def test_without_acks_nobody_is_waited_for(double: Any) -> None:
    log = double.log("t")
    written = write(double, kafka_acks=0)
    assert written == {T0: Written(1000, written[T0].nbytes, -1, -1)}
    deadline = time.monotonic() + 30
    while log.values() != wanted() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert log.values() == wanted() and double.acks == {0} and log.producers == {}


def test_what_is_held_is_bounded(double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    most: list[int] = []
    settle = TaskProducer.settle

    def settled(self: TaskProducer, held_max: int) -> None:
        settle(self, held_max)
        most.append(self.held)

    monkeypatch.setattr(TaskProducer, "settle", settled)
    log = double.log("t")
    write(double, kafka_buffer_memory=20_000)
    assert log.values() == wanted()
    assert max(most) <= 20_000 and len(most) >= 20


def test_no_deadline_comes_nearer_while_spark_computes() -> None:
    now = 100.0
    work = WorkTime(lambda: now)
    now = 103.0
    assert work() == 100.0
    work.resume()
    now = 105.0
    assert work() == 102.0
    work.pause()
    now = 500.0
    assert work() == 102.0
    work.resume()
    assert work() == 102.0


@pytest.mark.parametrize(
    ("schema", "rows", "reason"),
    [
        ("value binary, topic string", [(b"", "t"), (b"", None)], "row 1: its topic is null; name one in"),
        ("value binary, topic string", [(b"", "t"), (b"", "a b")], "row 1: no topic can have the name 'a b'"),
        ("value binary, partition int", [(b"", None), (b"", 0), (b"", 2)], "row 2: its partition is 2, and "),
        (
            "value binary, partition int",
            [(b"", -1)],
            "row 0: its partition is -1, and topic t has partitions 0 to 0",
        ),
        (
            "value binary",
            [(bytes(20),)] * 250 + [(bytes(5000),)],
            "row 250: its record takes 5025 bytes",
        ),
    ],
)
def test_a_row_that_cannot_be_a_record_is_named(
    double: Any, small_blocks: None, schema: str, rows: Any, reason: str
) -> None:
    """Counted from the task's first row, whatever block it is in."""
    double.log("t")
    with pytest.raises(NotWritten) as error:
        write(double, rows, schema, kafka_max_request_size=2000)
    assert str(error.value).startswith(f"task 0, {reason}")


def test_a_row_that_names_no_partition_goes_where_its_key_does(double: Any) -> None:
    logs = [double.log("t", partition) for partition in range(5)]
    rows = [(b"%d" % at, b"%d" % at, 3 if at % 2 else None) for at in range(100)]
    write(double, rows, "key binary, value binary, partition int")
    wanted_in = [3 if at % 2 else partition_for_key(b"%d" % at, 5) for at in range(100)]
    for partition, log in enumerate(logs):
        assert log.values() == [b"%d" % at for at in range(100) if wanted_in[at] == partition]


def test_times_are_in_ms_and_not_before_1970(double: Any, small_blocks: None) -> None:
    log = double.log("t")
    write(double, [(b"x", 1_999), (b"y", 0)], "value binary, timestamp timestamp")
    assert [one.timestamp for one in iterate(b"".join(log.batches))] == [1, 0]
    write(double, [(b"z", -1_000)], "value binary, timestamp timestamp")
    assert next(iter(iterate(log.batches[-1]))).timestamp == -1, "as it was read: the record has none"
    rows = [(bytes(20), 0)] * 250 + [(b"x", -1_001)]
    with pytest.raises(NotWritten, match=r"^task 0, row 250: its timestamp is before 1970"):
        write(double, rows, "value binary, timestamp timestamp")


def test_a_huge_arrow_batch_is_cut(double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log, blocks = double.log("t"), []

    def counted(self: Any, producer: Any, block: pa.RecordBatch) -> None:
        blocks.append(block.num_rows)
        put(self, producer, block)

    put = task._Task._put
    monkeypatch.setattr(task._Task, "_put", counted)
    write(double, kafka_buffer_memory=25_000)
    assert log.values() == wanted() and min(blocks) < 100


def test_a_null_value_is_a_tombstone(double: Any) -> None:
    log = double.log("t")
    write(double, [("gone", None), (None, b"")], "key string, value binary")
    assert log.values() == [None, b""]


def test_a_topic_that_does_not_exist_is_told_after_a_while(double: Any) -> None:
    with pytest.raises(
        NotWritten, match=r"topic t: not to be had within kafka.max.block.ms=200: UNKNOWN_TOP"
    ):
        write(double, 1, kafka_max_block_ms=200)


def test_a_partition_that_was_added_meanwhile_is_found(double: Any) -> None:
    double.log("t", 0)
    write(double, 10)
    later = double.log("t", 1)
    write(double, [(b"x", 1)], NUMBERS)
    assert later.values() == [b"x"]


def test_a_builder_takes_records_once() -> None:
    builder = BatchBuilder()
    builder.append(1, None, b"x")
    with pytest.raises(AssertionError):
        builder.extend(b"", 1, 0, 0)
