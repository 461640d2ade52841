"""A batch that is run again with exactlyOnce: what is said where a task has got other rows than before."""

from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from strandline.client.spark.sink import task
from strandline.client.spark.sink.columns import columns_of
from strandline.client.spark.sink.options import SinkOptions, parse
from strandline.client.spark.sink.task import TaskDone, write_rows
from strandline.client.spark.sink.transactions import Amount, Work
from strandline.client.spark.sink.trouble import NotWritten
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages.group_offsets import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)
from strandline.protocol.messages.groups import FindCoordinatorRequest, FindCoordinatorResponse
from strandline.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from tests.client.spark.sink_harness import arrow

VALUE = StructType([StructField("value", StringType())])
WORK = Work("strandline-query-0", 7)


def options() -> SinkOptions:
    return parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t", "exactlyOnce": "true"})


class Coordinators:
    """A cluster that has noted something of a task, and keeps what it is asked."""

    def __init__(self, *answers: OffsetFetchResponse) -> None:
        self.asked: list[type] = []
        self._answers = list(answers)

    def now(self) -> float:
        return 0.0

    def ask_any(self, request: Any) -> Any:
        assert isinstance(request, FindCoordinatorRequest)
        return FindCoordinatorResponse(node_id=1, host="h", port=1)

    def ask(self, address: Any, request: Any) -> Any:
        self.asked.append(type(request))
        if isinstance(request, InitProducerIdRequest):
            return InitProducerIdResponse(producer_id=1, producer_epoch=1)
        return self._answers.pop(0)


def noted(after: int, note: str = "", code: int = 0) -> OffsetFetchResponse:
    one = OffsetFetchResponsePartition(
        partition_index=0, committed_offset=after, metadata=note, error_code=code
    )
    return OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="t", partitions=[one])])


NOTHING = OffsetFetchResponse(topics=[])
UNDECIDED = noted(-1, code=ErrorCode.UNSTABLE_OFFSET_COMMIT)
THREE = noted(8, Amount(3, 3).noted(7))


class Runs:
    """Runs the task again, where the coordinators answer so."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._patch = patch
        self._cluster = Coordinators()

    def __call__(self, values: str, *answers: OffsetFetchResponse, work: Work = WORK) -> TaskDone:
        self._cluster = Coordinators(*answers)
        self._patch.setattr(task, "cluster_for", lambda _: self._cluster)
        self._patch.setattr(Work, "of_task", lambda _: work)
        rows = iter([arrow("value string", [(value,) for value in values])] if values else [])
        return write_rows(options(), columns_of(VALUE, options()), rows)

    @property
    def asked(self) -> list[type]:
        return self._cluster.asked


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> Runs:
    return Runs(monkeypatch)


def test_the_same_rows_write_nothing(again: Runs) -> None:
    assert again("cab", THREE) == TaskDone({})
    assert again.asked == [InitProducerIdRequest, OffsetFetchRequest]


def test_other_rows_are_told_with_every_reason_and_its_remedy(again: Runs) -> None:
    with pytest.raises(NotWritten, match="had 3 rows of 3 bytes, which count; now it has got 2 of 2") as told:
        again("ab", THREE)
    for word in ("minPartitions", "draws at random", "rand", "uuid", "xxhash64", "exactlyOnce=false"):
        assert word in str(told.value)


def test_a_task_that_has_none_of_its_rows_any_more_says_so(again: Runs) -> None:
    """Else another task writes them, and they are there twice."""
    with pytest.raises(NotWritten, match="had 3 rows of 3 bytes, which count; now it has got 0 of 0"):
        again("", THREE)


@pytest.mark.parametrize("before", [NOTHING, noted(7, Amount(3, 3).noted(6))], ids=["nothing", "earlier"])
def test_a_task_that_never_had_rows_asks_once_and_opens_nothing(again: Runs, before: Any) -> None:
    assert again("", before) == TaskDone({})
    assert again.asked == [OffsetFetchRequest]


def test_a_task_without_rows_ends_what_was_left_open(again: Runs) -> None:
    """Whether rows of an earlier attempt count is decided then."""
    assert again("", UNDECIDED, NOTHING) == TaskDone({})
    assert again.asked == [OffsetFetchRequest, InitProducerIdRequest, OffsetFetchRequest]
    with pytest.raises(NotWritten, match="now it has got 0 of 0"):
        again("", UNDECIDED, THREE)


def test_a_batch_write_is_not_run_again_and_asks_nothing(again: Runs) -> None:
    assert again("", work=Work("strandline-write-0", None)) == TaskDone({})
    assert again.asked == []
