"""exactlyOnce on three real brokers: whoever dies, readers of committed records see each row once."""

import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

from strandline.base.types import TopicPartition
from strandline.client.spark.client import cluster_for
from strandline.client.spark.sink.columns import columns_of
from strandline.client.spark.sink.options import SinkOptions, parse
from strandline.client.spark.sink.task import TaskDone, write_rows
from strandline.client.spark.sink.transactions import Work, abort_all, commit_all
from strandline.client.spark.sink.trouble import NotWritten
from strandline.client.sync import Admin, Consumer
from strandline.testing.waiting import until
from tests.client.spark.sink_harness import arrow
from tests.patience import HANG_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WAIT_S = 300
HELD_UP_S = 30  # far less than the transaction's own time limit
PARTITIONS = 3
VALUE = StructType([StructField("value", StringType())])


@pytest.fixture
def topic(strandline_cluster: Any, request: pytest.FixtureRequest) -> str:
    name = "once-" + re.sub(r"\W", "-", request.node.name.removeprefix("test_"))[-60:]
    return create(strandline_cluster, name)


def create(cluster: Any, name: str) -> str:
    """A topic that outlives any broker: one that is made by writing to it has a single replica."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (made,) = admin.create_topics([NewTopic(name, PARTITIONS, 3)]).values()
    made.result(60)
    return name


@pytest.fixture
def options(strandline_cluster: Any, topic: str) -> SinkOptions:
    return parse(
        {"kafka.bootstrap.servers": strandline_cluster.bootstrap, "topic": topic, "exactlyOnce": "true"}
    )


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch, topic: str) -> dict[str, int]:
    """Which task of which batch runs here, as Spark would tell it."""
    told = {"task": 0, "batch": 7}
    monkeypatch.setattr(Work, "of_task", lambda _: Work(f"{topic}-{told['task']}", told["batch"]))
    return told


def task(options: SinkOptions, *values: str) -> TaskDone:
    return task_of(options, values)


def task_of(options: SinkOptions, *batches: Sequence[str]) -> TaskDone:
    """A task whose rows come in these Arrow batches."""
    rows: Iterator[pa.RecordBatch] = (arrow("value string", [(v,) for v in batch]) for batch in batches)
    return write_rows(options, columns_of(VALUE, options), rows)


def commit(options: SinkOptions, *done: TaskDone) -> None:
    commit_all(cluster_for(options.cluster), options, [one.opened for one in done if one.opened is not None])


def committed(cluster: Any, topic: str) -> list[str]:
    """What a reader of committed records gets, up to the end that it is told."""
    there = [TopicPartition(topic, at) for at in range(PARTITIONS)]
    found: list[str] = []
    with Consumer(
        cluster.bootstrap, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        consumer.assign(there)
        ends = consumer.end_offsets(there)
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            found += [record.value.decode() for record in consumer.poll(1000)]
    return sorted(found)


def end_of(cluster: Any, topic: str, isolation_level: str) -> int:
    """The end of all partitions together, as such a reader is told it."""
    there = [TopicPartition(topic, at) for at in range(PARTITIONS)]
    with Consumer(cluster.bootstrap, isolation_level=isolation_level) as consumer:
        return sum(consumer.end_offsets(there).values())


def test_rows_count_when_the_driver_commits(
    strandline_cluster: Any, topic: str, options: SinkOptions, work: dict[str, int]
) -> None:
    first = task(options, "a", "b")
    work["task"] = 1
    second = task(options, "c")
    assert committed(strandline_cluster, topic) == []
    commit(options, first, second)
    assert committed(strandline_cluster, topic) == ["a", "b", "c"]


def test_a_driver_that_dies_between_two_commits_repeats_only_what_does_not_count(
    strandline_cluster: Any, topic: str, options: SinkOptions, work: dict[str, int]
) -> None:
    first = task(options, "a", "b")
    work["task"] = 1
    task(options, "c")
    commit(options, first)  # and then it dies
    again = []
    for work["task"], values in ((0, "ab"), (1, "c")):
        again.append(task(options, *values))
    assert again[0] == TaskDone({}), "the first task's rows count already"
    commit(options, *again)
    assert committed(strandline_cluster, topic) == ["a", "b", "c"]
    work.update(task=0, batch=8)
    commit(options, task(options, "d"))
    assert committed(strandline_cluster, topic) == ["a", "b", "c", "d"]


def test_a_task_that_is_run_again_with_other_rows_says_so(
    strandline_cluster: Any, topic: str, options: SinkOptions, work: dict[str, int]
) -> None:
    """Its batch was split in another way, say: what counts already is more or less than it has got now."""
    commit(options, task(options, "a", "b", "c"))  # and then the driver dies, before the next task's commit
    assert task(options, "c", "a", "b") == TaskDone({}), "in another order they are the same"
    for values in ("ab", "abcd"):
        with pytest.raises(NotWritten, match="had 3 rows of 3 bytes, which count; now it has got"):
            task(options, *values)
    assert committed(strandline_cluster, topic) == ["a", "b", "c"]
    work.update(batch=8)
    commit(options, task(options, "d"))
    assert committed(strandline_cluster, topic) == ["a", "b", "c", "d"]


def test_a_task_without_rows_asks_whether_some_of_an_earlier_run_count(
    strandline_cluster: Any, topic: str, options: SinkOptions, work: dict[str, int]
) -> None:
    assert task_of(options) == TaskDone({}), "nobody has heard of it"
    commit(options, task(options, "a", "b"))
    with Admin(strandline_cluster.bootstrap) as admin:  # a commit under way is not seen: docs/spark.md
        until(lambda: admin.list_group_offsets(f"{topic}-0"), HANG_S, "the batch is noted")
    with pytest.raises(NotWritten, match="had 2 rows of 2 bytes, which count; now it has got 0 of 0"):
        task_of(options)
    work.update(batch=8)
    assert task_of(options) == TaskDone({}), "those were of the batch before"
    commit(options, task(options, "c"))
    assert committed(strandline_cluster, topic) == ["a", "b", "c"]


def test_an_attempt_that_was_replaced_cannot_be_committed(
    strandline_cluster: Any, topic: str, options: SinkOptions, work: dict[str, int]
) -> None:
    before, after = task(options, "a"), task(options, "a")
    with pytest.raises(
        NotWritten, match="its transaction is not its own any more: another attempt of the task"
    ):
        commit(options, before)
    commit(options, after)
    assert committed(strandline_cluster, topic) == ["a"]


def test_a_task_that_fails_holds_up_no_reader(
    strandline_cluster: Any, topic: str, options: SinkOptions, work: dict[str, int]
) -> None:
    with pytest.raises(NotWritten, match="its record takes"):
        task_of(options, ["a" * 1000] * 2000, ["b" * (2 << 20)])
    deadline = time.monotonic() + HELD_UP_S
    while (ends := end_of(strandline_cluster, topic, "read_committed")) != (
        whole := end_of(strandline_cluster, topic, "read_uncommitted")
    ):
        assert time.monotonic() < deadline, (
            f"readers of committed records wait at {ends}, the log ends at {whole}"
        )
    assert ends > 0, "something was written before the task failed"
    assert committed(strandline_cluster, topic) == []


def test_what_is_aborted_never_counts(
    strandline_cluster: Any, topic: str, options: SinkOptions, work: dict[str, int]
) -> None:
    done = task(options, "a")
    assert done.opened is not None
    abort_all(cluster_for(options.cluster), [done.opened])
    work["task"] = 1
    commit(options, task(options, "b"))
    assert committed(strandline_cluster, topic) == ["b"]


def test_a_stream_writes_every_row_once_though_batches_are_run_again(
    spark: SparkSession, strandline_cluster: Any, topic: str, tmp_path: Path
) -> None:
    """Each last commit is taken from the checkpoint, as if Spark had died before it. A leader dies, too,
    of what is read and of some of what is written.
    """
    source, servers = (
        create(strandline_cluster, f"{topic}-source"),
        {"bootstrap.servers": strandline_cluster.bootstrap},
    )
    broker = strandline_cluster.brokers[strandline_cluster.leader(source, 0)]
    came: list[int] = []
    for turn in range(3):
        numbers = range(1000 * turn, 1000 * (turn + 1))
        frame = spark.createDataFrame([(str(number),) for number in numbers], "value string")
        frame.write.format("strandline").options(**servers, topic=source).mode("append").save()
        came += numbers
        if turn == 1:
            threading.Thread(target=broker.kill, daemon=True).start()
        copies = spark.readStream.format("strandline").options(
            **servers, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=700
        )
        writer = copies.load().select("value").writeStream.format("strandline")
        writer = writer.options(**servers, topic=topic, exactlyOnce="true")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        try:
            assert writer.trigger(availableNow=True).start().awaitTermination(WAIT_S)
        finally:
            if turn == 1:
                broker.start()
                strandline_cluster.wait_ready(3)
        last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink()
    assert committed(strandline_cluster, topic) == sorted(map(str, came))
