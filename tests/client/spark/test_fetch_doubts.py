"""The fetch loop in doubt: brokers that lag, hang, refuse or know nothing, and rows that are taken slowly."""

import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from strandline.client.spark import snapshot
from strandline.client.spark.client import SparkCluster
from strandline.client.spark.fetch import SpanReader, Stalled
from strandline.client.spark.options import parse
from strandline.client.spark.plan import DataLoss
from strandline.protocol.apis import Api
from strandline.protocol.columns import runs
from strandline.protocol.errors import ApiError, ErrorCode
from strandline.protocol.messages.metadata import MetadataResponseTopic
from strandline.protocol.primitives import NO_UUID
from tests.client.spark.fetch_harness import Story, records, span


@pytest.fixture
def story(double: Any) -> Iterator[Story]:
    found = Story(double)
    yield found
    found.cluster.close()


def test_the_time_that_its_rows_took_is_no_stall(story: Story) -> None:
    """A slow sink holds the reader for longer than the stall time; meanwhile the leader has moved."""
    story.double.on_fetch = lambda count: story.double.elect(2) if count == 2 else None
    runs_of = iter(story.reader())
    first = next(runs_of)
    story.patience.seconds += 500
    found = [first, *runs_of]
    seen = [row.offset for run in found for part in runs(run.records, run.start, 400) for row in part.rows()]
    assert seen == list(range(400))


def test_a_worker_that_knows_nothing_yet_asks_at_once(story: Story) -> None:
    new = SparkCluster(story.options.cluster, story.patience.now, story.patience.sleep)
    assert len(list(SpanReader(new, span(0, 9), 30, True))) == 1
    assert story.patience.slept == []
    new.close()


def test_a_broker_that_hangs_is_not_asked_a_second_time(double: Any) -> None:
    """A kept connection that is dead is worth a new one; one that times out is not."""
    story = Story(double, **{"kafka.request.timeout.ms": "300"})
    for _ in range(2):
        story.cluster.refresh(["t"])
    freed, real, asked = threading.Event(), double.answer, len(double.asked)

    def hang(node: int, api: Api, request: Any) -> Any:
        if node == 1:
            double.asked.append((node, api))
            freed.wait(30)
        return real(node, api, request)

    double.answer = hang
    assert [story.cluster.refresh(["t"]) for _ in range(2)] == [{"t": [0]}] * 2
    freed.set()
    hung = [api for node, api in double.asked[asked:] if node == 1]
    assert hung == [Api.METADATA]
    story.cluster.close()


def test_a_leader_whose_epoch_was_over_at_planning_is_not_asked(double: Any) -> None:
    """It has less than was planned, and brokers may still name it: that is no loss."""
    story = Story(double, **{"fetchOffset.numRetries": "0"})
    double.elect(2)
    (planned,) = snapshot.take(story.cluster, story.options)
    real = double._metadata

    def lag(node: int, request: Any) -> Any:
        response = real(node, request)
        if story.patience.seconds < 3:
            (part,) = response.topics[0].partitions
            part.leader_id, part.leader_epoch = 1, 5
        return response

    def former(node: int, request: Any) -> Any:
        response = real_fetch(node, request)
        if node == 1:
            response.responses[0].partitions[0].error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        return response

    real_fetch, double._metadata, double._fetch = double._fetch, lag, former
    story.cluster.refresh(["t"])
    assert story.read(planned) == records(0, 400)
    assert Api.FETCH not in [api for node, api in double.asked if node == 1]
    story.cluster.close()


def test_brokers_that_start_and_know_no_topic_are_not_believed(double: Any) -> None:
    """The partition has no leader for long, and the last two looks find no such topic."""
    story = Story(double, failOnDataLoss="false")
    reader, real = story.reader(), double._metadata

    def lost(node: int, request: Any) -> Any:
        response = real(node, request)
        response.topics[0].partitions[0].leader_id = -1
        if story.patience.seconds > 28.5:
            response.topics.clear()
        return response

    double._metadata = lost
    double.elect(2)
    with pytest.raises(Stalled):
        list(reader)
    story.cluster.close()


@pytest.mark.parametrize("lenient", [False, True])
def test_a_topic_that_is_gone_is_loss_when_the_stall_time_is_over(double: Any, lenient: bool) -> None:
    """Not before: brokers that start know no topic for a while."""
    story = Story(double, failOnDataLoss=str(not lenient))
    reader = story.reader()

    def delete(count: int) -> None:
        if count == 3:
            double.logs.clear()
            double.ids.clear()

    double.on_fetch = delete
    if lenient:
        seen = [row for run in reader for part in runs(run.records, run.start) for row in part.rows()]
        assert 0 < len(seen) < 400
    else:
        with pytest.raises(
            DataLoss, match=r"t-0: records \[\d+, 400\) are gone, no broker knows the partition"
        ):
            list(reader)
    assert story.patience.seconds > story.options.stall_seconds
    story.cluster.close()


def test_a_nearer_replica_that_metadata_does_not_have_is_not_waited_for(double: Any) -> None:
    story = Story(double, **{"kafka.client.rack": "zone-2"})
    story.log.follower = 9
    assert story.read() == records(0, 400)
    assert story.patience.slept == []
    story.cluster.close()


def test_looks_at_a_broker_that_lags_count_only_in_a_row(double: Any) -> None:
    """Every second broker has the old topic id, while the leader is not found: that is not another topic."""
    story = Story(double, **{"fetchOffset.numRetries": "2"})
    (planned,) = snapshot.take(story.cluster, story.options)
    real, real_fetch, looks = double._metadata, double._fetch, iter(range(100))

    def lag(node: int, request: Any) -> Any:
        response = real(node, request)
        if next(looks) % 2:
            response.topics[0].topic_id = UUID(int=77)
        return response

    def refuse(node: int, request: Any) -> Any:
        response = real_fetch(node, request)
        if sum(api == Api.FETCH for _, api in double.asked) < 8:
            response.responses[0].partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return response

    double._metadata, double._fetch = lag, refuse
    assert story.read(planned) == records(0, 400)
    story.cluster.close()


@pytest.mark.parametrize(
    ("code", "passes"),
    [(ErrorCode.UNKNOWN_SERVER_ERROR, True), (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)],
)
def test_errors_of_a_fetch_pass_or_name_the_partition(story: Story, code: ErrorCode, passes: bool) -> None:
    real = story.double._fetch

    def refuse(node: int, request: Any) -> Any:
        response = real(node, request)
        if sum(api == Api.FETCH for _, api in story.double.asked) in (2, 3):
            response.responses[0].partitions[0].error_code = code
        return response

    story.double._fetch = refuse
    if passes:
        assert story.read() == records(0, 400)
    else:
        with pytest.raises(ApiError, match=f"{code.name}: t-0: "):
            story.read()


def test_a_topic_that_brokers_refuse_is_not_left_out(story: Story) -> None:
    """Of all that match a pattern: what is not allowed is not what is not there."""
    real = story.double._metadata

    def refuse(node: int, request: Any) -> Any:
        response = real(node, request)
        response.topics.append(
            MetadataResponseTopic(
                name="t2", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic_id=NO_UUID, partitions=[]
            )
        )
        return response

    story.double._metadata = refuse
    options = parse({"bootstrap.servers": story.double.servers, "subscribePattern": "t.*"})
    with pytest.raises(ApiError, match="TOPIC_AUTHORIZATION_FAILED: topic t2: "):
        snapshot.take(story.cluster, options)


def test_sizes_that_nobody_tells_split_nothing(double: Any) -> None:
    story = Story(double, splitBytes="1000")
    spans = snapshot.bounds(story.cluster, story.options)
    double.logs.clear()
    assert snapshot.cut(story.cluster, story.options, spans) == spans
    story.cluster.close()
