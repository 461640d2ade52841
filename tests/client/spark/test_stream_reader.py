"""The stream reader as Spark asks it, with a clock of its own and a cluster that forgets, without Spark."""

import logging
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict

from strandline.base.types import TopicPartition
from strandline.client.spark.admission import HAS_ADMISSION_CONTROL, ReadAllAvailable, ReadMaxRows
from strandline.client.spark.client import SparkCluster
from strandline.client.spark.offsets import Place
from strandline.client.spark.option_table import Side
from strandline.client.spark.options import OptionError, parse
from strandline.client.spark.plan import DataLoss, PlanError, Span
from strandline.client.spark.source import StrandlineDataSource
from strandline.client.spark.stream import ROWS_UNLIMITED, StrandlineStreamReader, weaker
from strandline.protocol.apis import Api
from strandline.protocol.errors import ErrorCode, NotLeaderOrFollower

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
Json = dict[str, Any]


class Query:
    """What Spark does with a stream reader; `restart` is another process with the same checkpoint."""

    def __init__(self, double: Any, **given: str) -> None:
        self.double = double
        self.given = {"bootstrap.servers": double.servers, "subscribe": "t", **given}
        self.seconds = 0.0
        self.ends: list[Json] = []
        self.clusters: list[SparkCluster] = []
        self.restart()

    def restart(self) -> None:
        options = parse(self.given, Side.STREAM)
        self.clusters.append(SparkCluster(options.cluster, lambda: self.seconds, self._sleep))
        self.reader = StrandlineStreamReader(
            options, ["offset", "value"], lambda: self.seconds, self.clusters[-1]
        )

    def _sleep(self, seconds: float) -> None:
        self.seconds += seconds

    def trigger(self, once: bool = False) -> list[tuple[int, int, int]] | None:
        """The ranges of the next batch, None if there is none."""
        start = self.ends[-1] if self.ends else self.reader.initialOffset()
        limit = ReadAllAvailable() if once else self.reader.getDefaultReadLimit()
        end = self.reader.latestOffset(start, limit)
        if self.ends and end == start:
            return None
        self.ends.append(end)
        return self.ranges(start, end)

    def ranges(self, start: Json, end: Json) -> list[tuple[int, int, int]]:
        found = [Span.of_plain(part.value[0]) for part in self.reader.partitions(start, end)]
        return [(span.partition.partition, span.start, span.end) for span in found]

    def close(self) -> None:
        for cluster in self.clusters:
            cluster.close()


Queries = Callable[..., Query]


@pytest.fixture
def new_query(double: Any) -> Iterator[Queries]:
    made: list[Query] = []

    def make(**given: str) -> Query:
        made.append(Query(double, **given))
        return made[-1]

    yield make
    for query in made:
        query.close()


@pytest.fixture
def query(double: Any, new_query: Queries) -> Query:
    """A query from the beginning of a topic with ten records."""
    add(double.log("t"), 10)
    return new_query(startingOffsets="earliest")


def add(log: Any, count: int) -> None:
    for _ in range(count):
        log.add([(1000, None, b"x", [])])


def test_the_first_batch_is_empty_and_keeps_the_initial_offset(double: Any, new_query: Queries) -> None:
    """Without that, a crash before batch 0 has ended would lose what came meanwhile: Spark asks again."""
    add(double.log("t"), 10)
    query = new_query()
    query.reader.initialOffset()
    add(double.log("t"), 5)
    assert query.trigger() == []
    query.restart()  # batch 0 is run again: its start is asked for anew, its end is in the checkpoint
    assert query.ranges(query.reader.initialOffset(), query.ends[0]) == []
    assert query.trigger() == [(0, 10, 15)]
    assert query.trigger() is None


def test_a_run_that_ends_by_itself_has_its_empty_batch_too(query: Query) -> None:
    query.reader.prepareForTriggerAvailableNow()
    add(query.double.log("t"), 5)
    assert [query.trigger() for _ in range(3)] == [[], [(0, 0, 10)], None]
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert [query.trigger() for _ in range(2)] == [[(0, 10, 15)], None]


def test_batch_0_run_again_reads_nothing_though_a_broker_knows_fewer_partitions(
    double: Any, new_query: Queries
) -> None:
    """What is found the second time is not what the first batch began with."""
    add(double.log("t"), 10)
    late = double.log("t", 1)
    add(late, 10)
    query = new_query()
    assert query.trigger() == []
    query.restart()
    del double.logs[T1]
    initial = query.reader.initialOffset()
    double.logs[T1] = late
    assert query.ranges(initial, query.ends[0]) == []
    add(late, 2)
    assert query.trigger() == [(1, 10, 12)]


def test_a_run_that_ends_by_itself_reads_what_is_there_after_batch_0_was_run_again(query: Query) -> None:
    query.reader.prepareForTriggerAvailableNow()
    assert query.trigger() == []
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert query.ranges(query.reader.initialOffset(), query.ends[0]) == []
    assert [query.trigger(), query.trigger()] == [[(0, 0, 10)], None]


def test_the_batch_of_once_run_again_reads_the_same(double: Any, new_query: Queries) -> None:
    """From `latest` on: what came between the two questions would be lost."""
    log = double.log("t")
    add(log, 10)
    query = new_query()
    start = query.reader.initialOffset()
    add(log, 3)
    end = query.reader.latestOffset(start, ReadAllAvailable())
    assert query.ranges(start, end) == [(0, 10, 13)]
    query.restart()
    add(log, 2)
    assert query.ranges(query.reader.initialOffset(), end) == [(0, 10, 13)]
    query.ends = [end]
    assert query.trigger() == [(0, 13, 15)]


def test_what_a_run_began_with_is_not_taken_for_the_end_of_the_log(double: Any, new_query: Queries) -> None:
    """Records came before the stream began, and brokers tell no leader epochs."""
    log = double.log("t", epoch=-1)
    add(log, 10)
    query = new_query()
    query.reader.prepareForTriggerAvailableNow()
    add(log, 5)
    assert [query.trigger(), query.trigger()] == [[], None]


def test_a_run_that_did_not_see_a_topic_when_it_began_ends_too(query: Query) -> None:
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10)]]
    query.restart()
    logs, query.double.logs = query.double.logs, {}
    query.reader.prepareForTriggerAvailableNow()
    query.double.logs = logs
    add(logs[T0], 5)
    assert query.trigger() == [(0, 10, 15)]
    add(logs[T0], 5)
    assert query.trigger() is None


def test_once_reads_everything_in_its_one_batch(query: Query) -> None:
    query.given["maxOffsetsPerTrigger"] = "3"
    query.restart()
    assert query.trigger(once=True) == [(0, 0, 10)]


def test_a_trigger_reads_at_most_so_many_offsets(double: Any, new_query: Queries) -> None:
    add(double.log("t"), 90)
    add(double.log("t", 1, leader=2), 10)
    query = new_query(startingOffsets="earliest", maxOffsetsPerTrigger="50")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(50)
    batches = [query.trigger() for _ in range(4)]
    assert batches == [[], [(0, 0, 45), (1, 0, 5)], [(0, 45, 90), (1, 5, 10)], None]
    assert new_query().reader.getDefaultReadLimit() == ReadMaxRows(ROWS_UNLIMITED)


def test_a_trigger_waits_for_enough_offsets_but_not_for_ever(query: Query) -> None:
    query.given |= {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "60s"}
    query.restart()
    log = query.double.log("t")
    assert [query.trigger() for _ in range(2)] == [[], [(0, 0, 10)]], "the first one does not wait"
    add(log, 4)
    assert query.trigger() is None
    add(log, 1)
    assert query.trigger() == [(0, 10, 15)]
    add(log, 1)
    query.seconds += 59
    assert query.trigger() is None
    query.seconds += 2
    assert query.trigger() == [(0, 15, 16)]


def test_a_run_that_ends_by_itself_does_not_wait(query: Query) -> None:
    query.given |= {"minOffsetsPerTrigger": "500", "maxOffsetsPerTrigger": "500"}
    query.restart()
    query.reader.prepareForTriggerAvailableNow()
    assert [query.trigger() for _ in range(3)] == [[], [(0, 0, 10)], None]


def test_new_partitions_begin_at_their_beginning_and_a_run_leaves_them_to_the_next(query: Query) -> None:
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10)]]
    add(query.double.log("t", 1), 3)
    query.restart()
    assert query.trigger() == [(1, 0, 3)]
    query.reader.prepareForTriggerAvailableNow()
    add(query.double.log("t", 2), 3)
    assert query.trigger() is None


@pytest.mark.parametrize("refilled", [0, 12])
def test_a_cut_log_is_found_by_its_epoch_though_its_end_is_further(query: Query, refilled: int) -> None:
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10)]]
    log = query.double.log("t")
    del log.batches[4:]
    query.double.elect(2)
    add(log, refilled)
    with pytest.raises(DataLoss, match=r"t-0: records \[4, 10\) are gone, the log was truncated at 4"):
        query.trigger()
    query.given["failOnDataLoss"] = "false"
    query.restart()
    assert query.trigger() == ([(0, 4, 16)] if refilled else [])
    replayed = query.ranges(query.ends[-2], query.ends[-1])
    assert replayed == ([(0, 4, 16)] if refilled else []), "the same, from the two offsets alone"
    assert query.trigger() is None
    add(log, 1)
    assert query.trigger() == ([(0, 16, 17)] if refilled else [(0, 4, 5)])


def test_epochs_are_asked_for_once_for_each_leader(query: Query) -> None:
    for _ in range(5):
        query.trigger()
    asked = [api for _, api in query.double.asked].count(Api.OFFSET_FOR_LEADER_EPOCH)
    assert asked <= 2
    query.double.elect(2)
    for _ in range(5):
        assert query.trigger() is None
    assert [api for _, api in query.double.asked].count(Api.OFFSET_FOR_LEADER_EPOCH) == asked + 1


def test_a_new_leader_that_lags_is_no_loss(query: Query) -> None:
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10)]]
    query.double.elect(2)
    query.double.log("t").high_watermark = 6
    assert query.trigger() is None
    query.double.log("t").high_watermark = None
    add(query.double.log("t"), 1)
    assert query.trigger() == [(0, 10, 11)]


def test_a_topic_made_again_is_loss_or_read_from_its_beginning(query: Query) -> None:
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10)]]
    add(query.double.make_again("t"), 30)
    with pytest.raises(DataLoss, match="topic t was deleted and created again; 10 was next"):
        query.trigger()
    query.given["failOnDataLoss"] = "false"
    query.restart()
    assert query.trigger() == [(0, 0, 30)]
    assert query.trigger() is None


def test_a_broker_that_has_not_heard_of_it_yet_is_not_believed(query: Query) -> None:
    """Topic ids and offsets of a broker that lags: it is asked again before that is loss."""
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10)]]
    before, log = query.double.ids["t"], query.double.log("t")
    query.double.ids["t"] = type(before)(int=999)
    asked = len(query.double.asked)

    def recover(node: int, api: Api) -> None:
        if len(query.double.asked) > asked + 2:
            query.double.ids["t"] = before

    query.double.after_answer = recover
    add(log, 1)
    assert query.trigger() == [(0, 10, 11)]


def test_a_topic_that_is_gone_is_loss_or_waited_for(query: Query) -> None:
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10)]]
    query.double.logs.clear()
    with pytest.raises(DataLoss, match="t-0 does not exist any more; 10 was next"):
        query.trigger()
    query.given["failOnDataLoss"] = "false"
    query.restart()
    assert query.trigger() is None
    add(query.double.make_again("t"), 3)
    assert query.trigger() == [(0, 0, 3)]


def test_what_is_gone_is_looked_at_again_once_and_not_by_every_trigger(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    query.given |= {"subscribe": "t,u", "failOnDataLoss": "false"}
    add(query.double.log("u"), 3)
    query.restart()
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10), (0, 0, 3)]]
    gone = query.double.logs.pop(TopicPartition("u", 0))
    with caplog.at_level(logging.WARNING):
        assert query.trigger() is None
        assert query.seconds == 3, "fetchOffset.numRetries times fetchOffset.retryIntervalMs"
        for _ in range(5):
            add(query.double.log("t"), 1)
            assert query.trigger() is not None
    assert query.seconds == 3
    told = [text for text in caplog.messages if text.startswith("stream_")]  # 4.1 has notes besides
    assert told == [
        "stream_in_doubt doubt=topic u does not exist",
        "stream_in_doubt doubt=u-0 does not exist",
    ]
    query.double.logs[TopicPartition("u", 0)] = gone
    add(gone, 1)
    assert query.trigger() == [(0, 3, 4)]


def test_a_leader_whose_epoch_is_over_takes_nothing_back(query: Query) -> None:
    """It still answers, has less, and does not know the epoch in which the stream has read."""
    query.given["failOnDataLoss"] = "false"
    query.restart()
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10)]]
    log = query.double.log("t")
    log.epoch, log.high_watermark = 4, 6
    assert query.trigger() is None
    log.epoch, log.high_watermark = 5, None
    add(log, 1)
    assert query.trigger() == [(0, 10, 11)]


def test_a_leader_that_goes_between_two_questions_is_waited_for(query: Query) -> None:
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10)]]
    query.clusters[-1].view.leaders.clear()
    assert query.reader._epoch_ends({T0: Place(10, 5)}) == {T0: 10}


@pytest.mark.parametrize("asked", ["initialOffset", "prepareForTriggerAvailableNow", "latestOffset"])
def test_a_leader_that_is_elected_late_is_waited_for(query: Query, asked: str) -> None:
    log, real = query.double.log("t"), query._sleep
    log.leader = -1

    def elect(seconds: float) -> None:
        real(seconds)
        if query.seconds > 20 and log.leader < 0:
            query.double.elect(1)

    query.clusters[-1].sleep = elect
    getattr(query.reader, asked)()
    assert 20 < query.seconds < 30


def test_a_leader_that_never_comes_is_told_with_the_broker_that_is_missed(query: Query) -> None:
    """As of a topic with one replica: nobody else can lead it."""
    query.double.log("t").leader = 2
    query.double.kill(2)
    told = "t-0 has no leader: its replicas are on brokers 1, 2, of which 2 cannot be seen (asked for 60 s)"
    with pytest.raises(NotLeaderOrFollower, match=re.escape(told)):
        query.reader.prepareForTriggerAvailableNow()
    assert 60 < query.seconds < 65


def test_all_brokers_are_away_for_a_while(query: Query) -> None:
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10)]]
    add(query.double.log("t"), 1)
    query.double.close()
    real, clock = query._sleep, query.clusters[-1]

    def back(seconds: float) -> None:
        real(seconds)
        if query.seconds > 20 and not query.double.brokers:
            query.double.revive(1)

    clock.sleep = back
    assert query.trigger() == [(0, 10, 11)]
    assert query.seconds > 20


def test_a_checkpoint_of_sparks_own_source_is_gone_on_with(query: Query) -> None:
    query.ends = [{"t": {"0": 7}}]
    assert query.trigger() == [(0, 7, 10)]
    assert query.trigger() is None


@pytest.mark.parametrize(
    ("given", "begin"),
    [
        ({}, 10),
        ({"startingOffsets": "earliest"}, 2),
        ({"startingOffsets": '{"t": {"0": 5}}'}, 5),
        ({"startingOffsets": '{"t": {"0": -1}}'}, 10),
        ({"startingOffsets": '{"t": {"0": -2}}'}, 2),
        ({"startingTimestamp": "1000"}, 2),
        ({"startingTimestamp": "5000", "startingOffsetsByTimestampStrategy": "latest"}, 10),
    ],
)
def test_where_a_stream_begins(double: Any, new_query: Queries, given: dict[str, str], begin: int) -> None:
    log = double.log("t")
    add(log, 10)
    log.start, log.batches = 2, log.batches[2:]
    query = new_query(**given)
    assert query.reader.initialOffset()["t"] == {"0": begin}


def test_bounds_of_a_stream_are_checked(double: Any, new_query: Queries) -> None:
    add(double.log("t"), 10)
    with pytest.raises(PlanError, match="must name exactly the partitions"):
        new_query(startingOffsets='{"t": {"3": 5}}').reader.initialOffset()
    with pytest.raises(DataLoss, match="the starting offset 50 is out of range"):
        new_query(startingOffsets='{"t": {"0": 50}}').reader.initialOffset()


def test_the_lag_is_the_latest_offset_as_last_heard(query: Query) -> None:
    assert query.reader.reportLatestOffset() is None
    query.given["maxOffsetsPerTrigger"] = "4"
    query.restart()
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 4)]]
    asked = len(query.double.asked)
    assert query.reader.reportLatestOffset() == {"t": {"0": 10}}
    assert len(query.double.asked) == asked


def test_batches_are_split_as_in_a_batch_read(query: Query) -> None:
    query.given["minPartitions"] = "3"
    query.restart()
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 3), (0, 3, 6), (0, 6, 10)]]


def test_a_group_hears_of_batches_that_are_done(query: Query) -> None:
    query.given["commitOffsetsToGroup"] = "seen"
    query.restart()
    query.trigger()
    query.trigger()
    query.reader.commit(query.ends[-1])
    assert query.double.committed == {("seen", T0): 10}


def test_a_commit_waits_for_no_topic_that_is_gone_and_tells_it_once(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    query.given |= {"subscribe": "t,u", "failOnDataLoss": "false", "commitOffsetsToGroup": "seen"}
    add(query.double.log("u"), 3)
    query.restart()
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10), (0, 0, 3)]]
    gone = query.double.logs.pop(TopicPartition("u", 0))
    seconds = query.seconds
    for _ in range(4):
        query.reader.commit(query.ends[-1])
    assert query.seconds == seconds and len(query.double.commits) == 4
    assert query.double.committed == {("seen", T0): 10}
    told = [text for text in caplog.messages if text.startswith("offsets_not_committed")]
    assert len(told) == 1 and "group=seen partitions=u-0 reason=" in told[0]
    query.double.logs[TopicPartition("u", 0)] = gone
    query.reader.commit(query.ends[-1])
    assert query.double.committed["seen", TopicPartition("u", 0)] == 3


def test_only_the_partitions_of_a_commit_that_failed_are_sent_again(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    query.given["commitOffsetsToGroup"] = "seen"
    add(query.double.log("t", 1), 3)
    query.restart()
    assert [query.trigger(), query.trigger()] == [[], [(0, 0, 10), (1, 0, 3)]]
    refused = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 2
    query.double.refuse_commit = lambda tp: refused.pop() if tp == T1 and refused else 0
    query.reader.commit(query.ends[-1])
    assert query.double.commits == [[T0, T1], [T1], [T1]] and query.seconds == 2
    assert query.double.committed == {("seen", T0): 10, ("seen", T1): 3}
    assert not [text for text in caplog.messages if text.startswith("offsets_not_committed")]


def test_before_admission_control_a_stream_is_asked_without_a_start(query: Query) -> None:
    """PySpark 4.1: `latestOffset()`. The batch after a restart reads everything, others keep to the limit.

    It plans the last batch as an empty one first: that tells the start, so loss is found.
    """
    query.given["maxOffsetsPerTrigger"] = "4"
    query.restart()
    initial = query.reader.initialOffset()
    ends = [query.reader.latestOffset() for _ in range(3)]
    assert [end["t"]["0"] for end in ends] == [0, 4, 8]
    query.restart()
    assert query.ranges(ends[-1], ends[-1]) == []
    last = query.reader.latestOffset()
    assert query.ranges(ends[-1], last) == [(0, 8, 10)]
    add(query.double.log("t"), 9)
    assert query.ranges(last, query.reader.latestOffset()) == [(0, 10, 14)]
    assert query.ranges(initial, ends[0]) == []
    del query.double.log("t").batches[5:]
    query.double.elect(2)
    query.restart()
    query.reader.partitions(last, last)
    with pytest.raises(DataLoss, match="the log was truncated at 5"):
        query.reader.latestOffset()


def test_what_is_weaker_before_admission_control_is_told_once(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    capped = parse({**query.given, "maxOffsetsPerTrigger": "4"}, Side.STREAM)
    assert len(weaker(capped, False)) == 2 and len(weaker(parse(query.given, Side.STREAM), False)) == 1
    assert weaker(capped, True) == set()
    query.given |= {"snapshot": "load", "groupIdPrefix": "etl"}
    query.restart()
    with caplog.at_level(logging.WARNING):
        query.trigger()
        query.trigger()
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 2 + len(weaker(parse(query.given, Side.STREAM)))
    assert any("snapshot has no effect" in note for note in told)


def test_a_stream_that_named_its_bounds_is_loaded_again_though_its_topic_has_grown(double: Any) -> None:
    """Its checkpoint says where it goes on. Spark asks for the schema without saying whether there is one."""
    add(double.log("t"), 10)
    add(double.log("t", 1), 10)
    given = {"bootstrap.servers": double.servers, "subscribe": "t"}

    def source(bounds: str) -> StrandlineDataSource:
        return StrandlineDataSource(CaseInsensitiveDict({**given, "startingOffsets": bounds}))

    grown = source('{"t": {"0": 5}}')
    reader = grown.streamReader(grown.schema())
    (part,) = reader.partitions({"t": {"0": 7, "1": 0}}, {"t": {"0": 9, "1": 0}})
    assert Span.of_plain(part.value[0]) == Span(T0, 7, 9)
    with pytest.raises(PlanError, match="must name exactly the partitions that are read; see t-1"):
        reader.initialOffset()
    with pytest.raises(PlanError, match="see t-7"):
        source('{"t": {"0": 5, "1": 5, "7": 5}}').schema()
    reader.stop()


def test_a_stream_with_a_wrong_option_refuses_whatever_it_is_asked(double: Any) -> None:
    add(double.log("t"), 1)
    given = {"bootstrap.servers": double.servers, "subscribe": "t", "endingOffsets": "latest"}
    source = StrandlineDataSource(CaseInsensitiveDict(given))
    reader = source.streamReader(source.schema())
    end = {"t": {"0": 1}}
    questions: list[Callable[[], Any]] = [
        reader.initialOffset,
        lambda: reader.latestOffset(end, ReadAllAvailable()),
        lambda: reader.partitions(end, end),
        reader.prepareForTriggerAvailableNow,
    ]
    for ask in questions:
        with pytest.raises(OptionError, match="endingOffsets is not supported: a stream has no end"):
            ask()
    reader.commit(end)
    reader.stop()
    if HAS_ADMISSION_CONTROL:
        assert reader.reportLatestOffset() is None


def test_the_source_offers_a_stream(double: Any) -> None:
    add(double.log("t"), 1)
    given = CaseInsensitiveDict({"bootstrap.servers": double.servers, "subscribe": "t"})
    source = StrandlineDataSource(CaseInsensitiveDict({**given, "startingOffsets": "latest"}))
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StrandlineStreamReader)
    reader.stop()
