"""The fetch loop: leaders die, move and forget, and every record still comes once."""

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.client.spark import snapshot
from strandline.client.spark.client import SparkCluster
from strandline.client.spark.fetch import SpanReader, Stalled
from strandline.client.spark.options import parse
from strandline.client.spark.plan import DataLoss, PlanError
from strandline.protocol.apis import Api
from strandline.protocol.batches import CONTROL
from strandline.protocol.columns import runs
from strandline.protocol.errors import CorruptMessage
from strandline.protocol.messages.fetch import AbortedTransaction
from tests.client.spark.fetch_harness import Patience, Story, records, span


@pytest.fixture
def story(double: Any) -> Iterator[Story]:
    found = Story(double)
    yield found
    found.cluster.close()


def test_a_quiet_cluster_is_read_once_and_whole(story: Story) -> None:
    assert story.read() == records(0, 400)
    assert story.patience.slept == []
    assert story.read(span(3, 17)) == records(3, 17), "both cuts lie inside batches"
    opened = [node for node, api in story.double.asked if api == Api.API_VERSIONS]
    assert len(opened) == len(set(opened)), "connections are kept"


def test_planning_asks_each_leader_once_per_question(story: Story) -> None:
    for partition in range(1, 20):
        log = story.double.log("t", partition, leader=1 + partition % 2)
        log.add([(1, None, b"x", [])])
    assert len(snapshot.take(story.cluster, story.options)) == 20
    apis = [api for _, api in story.double.asked]
    assert apis.count(Api.METADATA) == 1
    assert apis.count(Api.LIST_OFFSETS) == 4, "two questions, two leaders"


def test_later_records_are_not_in_the_snapshot(story: Story) -> None:
    story.log.high_watermark = 200
    reader = story.reader()
    story.log.high_watermark = None
    seen = [row.offset for run in reader for part in runs(run.records, run.start, 200) for row in part.rows()]
    assert seen == list(range(200))


def test_the_leader_dies_and_another_one_takes_over(story: Story) -> None:
    def die(count: int) -> None:
        if count == 5:
            story.double.kill(1)

    story.double.on_fetch = die
    story.patience.then = lambda seconds: (
        story.double.elect(2) if story.log.leader == 1 and seconds > 1 else None
    )
    assert story.read() == records(0, 400)
    assert story.patience.slept[:4] == [0.05, 0.1, 0.2, 0.4]
    assert max(story.patience.slept) <= 1.0


def test_what_came_just_before_the_connection_broke_is_not_lost(story: Story) -> None:
    """The request ahead fails at once, while the answer before it is still in hand."""
    reader = story.reader()
    for wires in story.cluster._idle.values():
        for wire in wires:
            sent = iter([False, True])
            real = wire.send

            def send(
                request: object, version_max: Any = None, real: Any = real, sent: Iterator[bool] = sent
            ) -> None:
                if next(sent, False):
                    raise BrokenPipeError
                real(request, version_max)

            wire.send = send  # type: ignore[method-assign]
    seen = [row.offset for run in reader for part in runs(run.records, run.start, 400) for row in part.rows()]
    assert seen == list(range(400))


@pytest.mark.parametrize("every", [2, 3, 5])
def test_leadership_moves_again_and_again(story: Story, every: int) -> None:
    def move(count: int) -> None:
        if count % every == 0 and count < 40:
            story.double.elect(3 - story.log.leader)

    story.double.on_fetch = move
    assert story.read() == records(0, 400)


def test_the_whole_cluster_is_down_for_a_while(story: Story) -> None:
    def die(node: int, api: Api) -> None:
        if api == Api.FETCH and len(story.double.brokers) == 2:
            story.double.close()

    def back(seconds: float) -> None:
        if seconds > 10 and not story.double.brokers:
            story.double.after_answer = lambda node, api: None
            story.double.revive(2)
            story.double.elect(2)

    story.double.after_answer = die
    story.patience.then = back
    assert story.read() == records(0, 400)
    assert story.patience.seconds > 10


def test_no_progress_for_the_stall_time_ends_the_task(story: Story) -> None:
    reader = story.reader()
    story.double.close()
    with pytest.raises(Stalled, match=r"t-0: no progress at offset 0 of 400 for 30 s"):
        list(reader)
    assert 30 < story.patience.seconds < 32


def test_a_new_leader_that_lags_is_waited_for(story: Story) -> None:
    reader = story.reader(span(0, 400))
    story.cluster.refresh(["t"])
    story.log.high_watermark = 200

    def catch_up(seconds: float) -> None:
        if seconds > 20:
            story.log.high_watermark = None

    story.patience.then = catch_up
    assert sum(1 for run in reader for part in runs(run.records, run.start, 400) for _ in part.rows()) == 400


@pytest.mark.parametrize("lenient", [False, True])
def test_records_that_are_gone_are_loss(double: Any, lenient: bool) -> None:
    story = Story(double, failOnDataLoss=str(not lenient))
    story.cluster.refresh(["t"])

    def retain(count: int) -> None:
        if count == 3:
            story.log.start = 250
            story.log.batches = story.log.batches[25:]

    double.on_fetch = retain
    if lenient:
        seen = story.read(span(0, 400))
        assert seen == records(0, seen[-151][0] + 1) + records(250, 400)
        assert len(seen) < 400
    else:
        with pytest.raises(DataLoss, match=r"records \[\d+, 250\) are gone, the log has \[250, 400\)"):
            story.read(span(0, 400))
    story.cluster.close()


@pytest.mark.parametrize("lenient", [False, True])
def test_a_log_that_was_cut_is_believed_only_after_some_time(double: Any, lenient: bool) -> None:
    story = Story(double, failOnDataLoss=str(not lenient))
    story.cluster.refresh(["t"])
    del story.log.batches[20:]
    reader = story.reader(span(300, 500))
    if lenient:
        assert list(reader) == []
    else:
        with pytest.raises(DataLoss, match=r"records \[300, 500\) are gone"):
            list(reader)
    assert len(story.patience.slept) >= story.options.cluster.retries
    story.cluster.close()


def test_a_nearer_replica_is_read_until_it_fails(double: Any) -> None:
    story = Story(double, **{"kafka.client.rack": "zone-2"})
    story.log.follower = 2

    def die(count: int) -> None:
        if count == 10:
            double.kill(2)

    double.on_fetch = die
    assert story.read() == records(0, 400)
    asked = [node for node, api in double.asked if api == Api.FETCH]
    assert asked[0] == 1 and set(asked[1:9]) == {2}, "the leader names the replica, which is then asked"
    assert set(asked[10:]) == {1}
    story.cluster.close()


def test_a_nearer_replica_that_lags_is_left(double: Any) -> None:
    story = Story(double, **{"kafka.client.rack": "zone-2"})
    story.log.follower = 2
    real = double._fetch

    def lag(node: int, request: Any) -> Any:
        response = real(node, request)
        data = response.responses[0].partitions[0]
        if node == 2 and request.topics[0].partitions[0].fetch_offset >= 200:
            data.records = b""
        return response

    double._fetch = lag
    assert story.read() == records(0, 400)
    assert story.patience.slept == []
    story.cluster.close()


@pytest.mark.parametrize("lenient", [False, True])
def test_a_log_that_was_cut_and_has_nothing_new_is_loss(double: Any, lenient: bool) -> None:
    """An empty answer at the end of the log: not a leader that lags, for the planned epoch ends there."""
    story = Story(double, failOnDataLoss=str(not lenient))
    reader = story.reader()

    def cut(count: int) -> None:
        if count == 3:
            del story.log.batches[20:]
            double.elect(2)

    double.on_fetch = cut
    if lenient:
        rows = [row for run in reader for part in runs(run.records, run.start) for row in part.rows()]
        assert [row.offset for row in rows] == list(range(200))
    else:
        lost = r"t-0: records \[200, 400\) are gone, the log was truncated at 200"
        with pytest.raises(DataLoss, match=lost):
            list(reader)
    assert story.patience.seconds < story.options.stall_seconds
    story.cluster.close()


LOSS = ("false", "true")  # failOnDataLoss
REMEDY = r"\. A batch: load\(\) it again\. A stream: .* set failOnDataLoss=false$"


@pytest.mark.parametrize("strict", LOSS)
@pytest.mark.parametrize("epoch", [5, 0])
@pytest.mark.parametrize("when", [1, 3])
def test_a_topic_made_again_is_not_read_for_the_planned_one(
    double: Any, strict: str, epoch: int, when: int
) -> None:
    """Before the first fetch or between two, and also if its leader's epoch is the same."""
    story = Story(double, failOnDataLoss=strict)

    def again(count: int) -> None:
        if count == when:
            log = double.make_again("t")
            log.epoch = epoch
            log.add([(1, None, b"other", [])] * 400)

    double.on_fetch = again
    with pytest.raises(DataLoss, match="topic t was deleted and created again after the read .*" + REMEDY):
        story.read()
    story.cluster.close()


def test_a_worker_that_knew_the_topic_before_it_was_made_again_reads_the_new_one(story: Story) -> None:
    """Workers outlive reads: what one has heard may be older than the plan."""
    story.cluster.refresh(["t"])
    story.double.make_again("t").add([(1, None, b"other", [])] * 10)
    new = SparkCluster(story.options.cluster)
    (planned,) = snapshot.take(new, story.options)
    new.close()
    assert story.read(planned) == [(offset, b"other") for offset in range(10)]


@pytest.mark.parametrize("strict", LOSS)
def test_a_log_cut_and_filled_anew_is_not_read_for_the_planned_one(double: Any, strict: str) -> None:
    story = Story(double, failOnDataLoss=strict)

    def cut(count: int) -> None:
        if count == 3:
            del story.log.batches[10:]
            double.elect(2)  # without most of it: an unclean election
            for _ in range(30):
                story.log.add([(1, None, b"other", [])] * 10)

    double.on_fetch = cut
    with pytest.raises(DataLoss, match=r"t-0: offset 1\d\d has leader epoch 6, .* in epoch 5: .*" + REMEDY):
        story.read()
    story.cluster.close()


def test_a_stream_may_skip_what_was_replaced(double: Any) -> None:
    """What is left of the planned records is read: those before the cut."""
    story = Story(double)
    (planned,) = snapshot.take(story.cluster, story.options)

    def cut(count: int) -> None:
        if count == 3:
            del story.log.batches[10:]
            double.elect(2)
            for _ in range(30):
                story.log.add([(1, None, b"other", [])] * 10)

    double.on_fetch = cut
    reader = SpanReader(story.cluster, planned, 30, False, skip_replaced=True)
    seen = [(row.offset, row.value) for run in reader for part in runs(run.records, 0) for row in part.rows()]
    assert seen == records(0, seen[-1][0] + 1)
    assert len(seen) >= 100
    story.cluster.close()


def test_brokers_without_topic_ids_are_read_by_name(story: Story) -> None:
    story.double.ids.clear()
    assert story.read() == records(0, 400)


def test_gaps_and_control_batches_move_the_position(double: Any) -> None:
    log = double.log("t")
    log.add([(1, None, b"0", [])])
    log.add([(1, None, b"10", [])], gap=9)
    log.add([(1, b"\0\0\0\1", b"marker", [])], control=True)
    log.add([(1, None, b"12", [])])
    log.add([(1, b"\0\0\0\1", b"marker", [])], control=True)
    story = Story.__new__(Story)
    story.double, story.patience = double, Patience()
    story.options = parse({"bootstrap.servers": double.servers, "subscribe": "t"})
    story.cluster = SparkCluster(story.options.cluster)
    (whole,) = snapshot.take(story.cluster, story.options)
    assert (whole.start, whole.end) == (0, 14)
    assert story.read(whole) == [(0, b"0"), (10, b"10"), (12, b"12")]
    story.cluster.close()


def test_committed_readers_see_no_aborted_records(double: Any) -> None:
    log = double.log("t")
    state = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.add([(1, None, b"aborted", [])], producer_id=7, **state)
    log.add([(1, None, b"kept", [])], producer_id=8, **state)
    log.add([(1, None, b"plain", [])])
    log.add([(1, struct.pack(">hh", 0, 0), b"", [])], producer_id=7, control=True, transactional=True)
    log.add([(1, None, b"after", [])], producer_id=7, **state)
    log.aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    for level, want in (
        ("read_committed", [b"kept", b"plain", b"after"]),
        ("read_uncommitted", [b"aborted", b"kept", b"plain", b"after"]),
    ):
        options = parse(
            {"bootstrap.servers": double.servers, "subscribe": "t", "kafka.isolation.level": level}
        )
        cluster = SparkCluster(options.cluster)
        (whole,) = snapshot.take(cluster, options)
        reader = SpanReader(cluster, whole, 5, True)
        rows = [row.value for run in reader for part in runs(run.records, 0) for row in part.rows()]
        assert rows == want
        cluster.close()


def test_records_that_damage_calls_markers_are_not_left_out(double: Any) -> None:
    """Where something was aborted markers are left out before the decoder looks at checksums."""
    log = double.log("t")
    state = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    log.add([(1, None, b"aborted", [])], producer_id=7, **state)
    log.add([(1, struct.pack(">hh", 0, 0), b"", [])], producer_id=7, control=True, transactional=True)
    log.add([(1, None, b"kept", [])])
    whole = log.batches[2]
    log.batches[2] = whole[:22] + bytes([whole[22] | CONTROL]) + whole[23:]
    log.aborted = [AbortedTransaction(producer_id=7, first_offset=0)]
    options = parse(
        {"bootstrap.servers": double.servers, "subscribe": "t", "kafka.isolation.level": "read_committed"}
    )
    cluster = SparkCluster(options.cluster)
    (span,) = snapshot.take(cluster, options)
    with pytest.raises(CorruptMessage, match="offset 2 fails its CRC"):
        for run in SpanReader(cluster, span, 5, True):
            list(runs(run.records, 0))
    cluster.close()


def test_a_reader_given_up_halfway_leaves_no_answer_behind(story: Story) -> None:
    halfway = iter(story.reader())
    next(halfway)
    halfway.close()  # type: ignore[attr-defined]
    assert story.read() == records(0, 400)


def test_a_topic_that_is_not_there_is_named(story: Story) -> None:
    options = parse({"bootstrap.servers": story.double.servers, "subscribe": "t,nowhere"})
    with pytest.raises(PlanError, match="nowhere"):
        snapshot.take(story.cluster, options)
    assert story.patience.slept == [1.0] * 3


def test_brokers_that_were_restarted_are_asked_on_new_connections(story: Story) -> None:
    """What was kept is dead, and that is no reason to say that nobody can be reached."""
    for _ in range(2):
        story.cluster.refresh(["t"])
    story.double.close()
    for node in (1, 2):
        story.double.revive(node)
    assert story.cluster.refresh(["t"]) == {"t": [0]}


def test_no_broker_at_all_is_told(story: Story) -> None:
    story.double.close()
    with pytest.raises(ConnectionError, match="no broker can be reached"):
        snapshot.take(story.cluster, story.options)
