"""The topics of a task: which one has its rows, when they are made again, grow, or are told differently."""

import time
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from strandline.base.types import TopicPartition
from strandline.client.spark.sink.produce import TaskProducer, Written
from strandline.client.spark.sink.trouble import NotWritten
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode
from strandline.protocol.primitives import NO_UUID
from tests.client.spark.conftest import Double
from tests.client.spark.sink_harness import NUMBERS, T0, wanted, write

pytestmark = pytest.mark.usefixtures("small_blocks")

T1 = TopicPartition("t", 1)
WAIT_S = 60
OLD = UUID(int=77)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def metadata(double: Any, change: Callable[[int, Any], Any]) -> None:
    """What a broker tells of topics is changed."""
    tell = double._metadata

    def told(node: int, request: Any) -> Any:
        response = tell(node, request)
        for topic in response.topics:
            change(node, topic)
        return response

    double._metadata = told


def leader_is_sought(double: Any, looks: int, after: int = 0) -> None:
    """Requests after so many are refused until there were that many looks."""

    def refuse(count: int) -> int:
        sought = sum(api is Api.METADATA for _, api in double.asked)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if count > after and sought < looks else 0

    double.before_append = refuse


def looks_begin_at(monkeypatch: pytest.MonkeyPatch, turn: int) -> None:
    """With that of the brokers."""
    monkeypatch.setattr("strandline.client.spark.client.random.randrange", lambda stop: turn)


def test_an_answer_of_the_old_topic_is_not_one_of_the_new(double: Any) -> None:
    """It lay unread in the socket while Spark computed, and the next look told the new id."""
    log, answered = double.log("t"), []
    double.after_answer = lambda node, api: answered.append(api) if api is Api.PRODUCE else None

    def make_again(batch: int) -> None:
        if batch == 1:
            until(lambda: bool(answered))
            assert log.values() == [b"x"] * 100
            double.make_again("t")
            double.log("t", 1)

    rows = [(b"x", 0)] * 100 + [(b"y", 1)] * 100
    with pytest.raises(NotWritten, match=r"^task 0, topic t has had two ids while it was written"):
        write(double, rows, NUMBERS, before=make_again, kafka_batch_size=10_000)


def test_an_answer_names_the_topic_that_its_request_was_sent_to(double: Any) -> None:
    log = double.log("t")
    hear = TaskProducer._hear

    def heard(self: TaskProducer, seconds: float) -> None:
        if any(channel.sent for channel in self._channels.values()):
            self._topics.known["t"].id = OLD  # as if taken over before the answer was read
        hear(self, seconds)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskProducer, "_hear", heard)
        with pytest.raises(NotWritten, match=r"topic t has had two ids while it was written, .*01 and .*4d:"):
            write(double, 100)
    assert log.values()


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("lags", [1, 2])
def test_one_broker_that_tells_an_old_id_fails_nothing(
    double: Any, monkeypatch: pytest.MonkeyPatch, first: int, lags: int
) -> None:
    """At the first look or at a later one."""
    looks_begin_at(monkeypatch, first)
    log = double.log("t")

    def tell(node: int, topic: Any) -> None:
        topic.topic_id = OLD if node == lags else topic.topic_id

    metadata(double, tell)
    leader_is_sought(double, 4, after=1)
    write(double, 200)
    assert log.values() == wanted(200)


def test_a_topic_that_was_made_again_is_told_though_one_broker_of_three_lags(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks_begin_at(monkeypatch, 1)
    double = Double(3)
    double.log("t")
    was = double.ids["t"]

    def tell(node: int, topic: Any) -> None:
        topic.topic_id = was if node == 2 else topic.topic_id

    metadata(double, tell)

    def make_again(count: int) -> int:
        if count == 4:
            double.make_again("t").start = 10_000
        looks = sum(api is Api.METADATA for _, api in double.asked)
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if count >= 4 and looks < 4 else 0

    double.before_append = make_again
    try:
        with pytest.raises(NotWritten, match="topic t has had two ids while it was written"):
            write(double, 200)
    finally:
        double.close()


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1)])
def test_rows_that_wait_have_no_places_in_a_topic_with_more_or_fewer_partitions(
    double: Any, before: int, after: int
) -> None:
    for partition in range(before):
        double.log("t", partition)

    def make_again(count: int) -> int:
        if count > 1:
            return 0
        double.make_again("t")
        for partition in range(after):
            double.log("t", partition)
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    double.before_append = make_again
    rows = [(b"%d" % at, b"") for at in range(100)]
    with pytest.raises(NotWritten, match="topic t has had two ids while it was written"):
        write(double, rows, "key binary, value binary", kafka_delivery_timeout_ms=60_000)


def test_keys_have_the_places_of_the_topic_that_was_made_before_the_first_row(double: Any) -> None:
    """It is looked at again for a partition that a row names, before any row has one."""
    double.log("t")
    grown = []

    def grow(node: int, api: Api) -> None:
        if api is Api.METADATA and not grown:
            grown.append(double.make_again("t"))
            for partition in (1, 2, 3):
                double.log("t", partition)

    double.after_answer = grow
    rows = [(b"%d" % at, b"", 3 if at == 0 else None) for at in range(100)]
    write(double, rows, "key binary, value binary, partition int")
    assert sum(len(log.values()) for log in double.logs.values()) == 100
    assert all(len(log.values()) > 5 for log in double.logs.values())


def test_an_id_is_learned_when_the_first_look_was_at_a_broker_without_any(
    double: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while brokers are upgraded one by one; the answer of one that is not yet changes nothing."""
    looks_begin_at(monkeypatch, 0)
    double.log("t")
    id = double.ids["t"]

    def tell(node: int, topic: Any) -> None:
        topic.topic_id = NO_UUID if node == 2 else topic.topic_id

    metadata(double, tell)
    leader_is_sought(double, 4, after=1)
    written = write(double, 200)
    assert (double.asked[1], written[T0].topic_id) == ((2, Api.METADATA), id)
    total = Written(1, 1, 0, 0, id)
    total.merge(Written(1, 1, 1, 1))
    assert total.topic_id == id


def test_a_partition_that_brokers_do_not_know_yet_is_looked_for(double: Any) -> None:
    double.log("t")
    looks = []

    def grow(node: int, api: Api) -> None:
        looks.append(api)
        if looks.count(Api.METADATA) == 4:
            double.log("t", 1)

    double.after_answer = grow
    write(double, [(b"x", 1)], NUMBERS)
    assert double.logs[T1].values() == [b"x"]


def test_a_topic_that_is_created_while_too_few_brokers_are_up_is_waited_for(double: Any) -> None:
    log = double.log("t")
    looks: list[int] = []

    def tell(node: int, topic: Any) -> None:
        looks.append(node)
        topic.error_code = ErrorCode.INVALID_REPLICATION_FACTOR if len(looks) < 3 else 0

    metadata(double, tell)
    write(double, 100)
    assert log.values() == wanted(100)
    looks.clear()
    double.make_again("u")
    with pytest.raises(NotWritten, match=r"max.block.ms=0: UNKNOWN.*: INVALID_REPLICATION_FACTOR"):
        write(double, [(b"", "u")], "value binary, topic string", kafka_max_block_ms=0)


def test_a_partition_that_was_told_once_stays_known(double: Any) -> None:
    """Though the broker that is asked later has not heard of it."""
    logs = [double.log("t", partition) for partition in range(2)]
    asked: list[int] = []
    answered: list[Api] = []

    def tell(node: int, topic: Any) -> None:
        asked.append(node)
        if len(asked) > 1:
            topic.partitions = topic.partitions[:1]

    def wait(batch: int) -> None:
        if batch == 1:
            until(lambda: Api.PRODUCE in answered)

    metadata(double, tell)
    leader_is_sought(double, 2)
    double.after_answer = lambda node, api: answered.append(api)
    write(double, [(b"x", at % 2) for at in range(400)], NUMBERS, before=wait)
    assert [len(log.values()) for log in logs] == [200, 200] and len(asked) > 1


def test_a_written_topic_that_is_gone_at_the_end_fails_the_task(
    double: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    double.log("t")
    end = TaskProducer.end

    def delete(self: TaskProducer) -> None:
        double.logs.clear()
        end(self)

    monkeypatch.setattr(TaskProducer, "end", delete)
    with pytest.raises(NotWritten, match=r"^task 0, topic t was written, and brokers know it no more: if it"):
        write(double, 100)


def test_one_broker_that_does_not_know_the_topic_at_the_end_fails_nothing(double: Any) -> None:
    log = double.log("t")
    lags: list[int] = []

    def tell(node: int, topic: Any) -> None:
        if log.batches and node in (lags or [node]):
            lags[:] = [node]
            topic.error_code, topic.partitions = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, []

    metadata(double, tell)
    write(double, 100)
    assert log.values() == wanted(100) and lags
