"""A stream's offsets: their JSON, and how one follows from another whatever became of the logs."""

import json
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.base.types import TopicPartition
from strandline.client.spark.offsets import (
    Found,
    Place,
    StreamOffset,
    advanced,
    begins,
    begun_at,
    by_topic,
    cut_at,
    doubts,
    shares_of,
    spans,
    without_stale,
)
from strandline.client.spark.plan import DataLoss, Span

T0, T1, T10 = (TopicPartition("t", number) for number in (0, 1, 10))
ID, OTHER = UUID(int=1), UUID(int=2)


def offset(*places: Place, topic_id: UUID = ID) -> StreamOffset:
    return StreamOffset(
        {TopicPartition("t", number): place for number, place in enumerate(places)}, {"t": topic_id}
    )


def test_the_json_is_that_of_sparks_own_source() -> None:
    """Sorted by topic and number; without ids and epochs nothing else is in it."""
    plain = StreamOffset({T10: Place(5), T0: Place(123), TopicPartition("a", 2): Place(7)})
    assert json.dumps(plain.json(), separators=(",", ":")) == '{"a":{"2":7},"t":{"0":123,"10":5}}'
    assert StreamOffset.of_json({"t": {"0": 123}}) == StreamOffset({T0: Place(123)})


def test_what_sparks_own_source_cannot_say_is_a_topic_without_partitions_to_it() -> None:
    known = offset(Place(123, 5), Place(42, 6, 12))
    assert known.json() == {f"#t {ID} 0:5 1:6@12": {}, "t": {"0": 123, "1": 42}}
    read_by_spark = {(topic, number) for topic, found in known.json().items() for number in found}
    assert read_by_spark == {("t", "0"), ("t", "1")}


places = st.builds(Place, st.integers(0, 2**62), st.integers(-1, 2**31 - 1), st.integers(-1, 2**62))
topics = st.text("abcXYZ019._-", min_size=1, max_size=9)


@given(st.dictionaries(st.builds(TopicPartition, topics, st.integers(0, 99)), places, max_size=9), st.data())
def test_an_offset_survives_its_json(found: dict[TopicPartition, Place], data: st.DataObject) -> None:
    names = sorted({tp.topic for tp in found})
    ids = data.draw(st.dictionaries(st.sampled_from(names), st.uuids(), max_size=3)) if names else {}
    known = StreamOffset(found, {name: each for name, each in ids.items() if each.int})
    written = json.dumps(known.json())
    assert StreamOffset.of_json(json.loads(written)) == known
    assert json.dumps(StreamOffset.of_json(json.loads(written)).json()) == written


def test_a_batch_goes_from_one_offset_to_the_next() -> None:
    start = offset(Place(10, 5), Place(20, 5))
    found = {T0: Found(15, 6, epoch_end=10), T1: Found(20, 6, epoch_end=20)}
    end = advanced(start, begins(start, found, {"t": ID}, True), found, {"t": ID}, None)
    assert end == offset(Place(15, 6), Place(20, 5)), "the place changes with the offset, and only then"
    assert spans(start, end, True) == [Span(T0, 10, 15, 6, ID)]
    assert spans(end, end, True) == []


def test_a_new_partition_begins_at_its_beginning() -> None:
    start = offset(Place(10, 5))
    found = {T0: Found(10, 5, epoch_end=10), T1: Found(7, 5, earliest=0)}
    end = advanced(start, begins(start, found, {"t": ID}, True), found, {"t": ID}, None)
    assert spans(start, end, True) == [Span(T1, 0, 7, 5, ID)]
    late = {**found, T1: Found(7, 5, earliest=3)}
    with pytest.raises(DataLoss, match=r"t-1 is new, and its records \[0, 3\) are gone already"):
        begins(start, late, {"t": ID}, True)
    end = advanced(start, begins(start, late, {"t": ID}, False), late, {"t": ID}, None)
    assert spans(start, end, False) == [Span(T1, 3, 7, 5, ID)]
    assert StreamOffset.of_json(end.json()) == end, "a batch that is run again begins there too"


def test_a_log_that_was_cut_goes_on_at_the_cut() -> None:
    start = offset(Place(100, 5))
    found = {T0: Found(130, 6, epoch_end=40)}
    with pytest.raises(DataLoss, match=r"t-0: records \[40, 100\) are gone, the log was truncated at 40"):
        begins(start, found, {"t": ID}, True)
    end = advanced(start, begins(start, found, {"t": ID}, False), found, {"t": ID}, 50)
    assert end == offset(Place(90, 6, 40))
    assert spans(start, end, False) == [Span(T0, 40, 90, 6, ID)]
    later = {T0: Found(130, 6, epoch_end=130)}
    after = advanced(end, begins(end, later, {"t": ID}, False), later, {"t": ID}, None)
    assert spans(end, after, False) == [Span(T0, 90, 130, 6, ID)], "and only once"


def test_a_log_that_was_cut_and_not_filled_is_read_when_it_is() -> None:
    start = offset(Place(100, 5))
    found = {T0: Found(40, 6, epoch_end=40)}
    end = advanced(start, begins(start, found, {"t": ID}, False), found, {"t": ID}, None)
    assert spans(start, end, False) == []
    later = {T0: Found(60, 6, epoch_end=60)}
    after = advanced(end, begins(end, later, {"t": ID}, False), later, {"t": ID}, None)
    assert spans(end, after, False) == [Span(T0, 40, 60, 6, ID)]


@pytest.mark.parametrize(
    ("place", "found", "cut"),
    [
        (Place(100, 5), Found(90, 6, epoch_end=100), None),  # the high watermark of a new leader lags
        (Place(100, 5), Found(200, 5, epoch_end=200), None),
        (Place(100, 5), Found(200, 6, epoch_end=0), 0),
        (Place(100, 5), Found(90, 6, epoch_end=-1), 90),  # nobody knows the epoch any more
        (Place(100), Found(90, 6), 90),  # written by Spark's own source
        (Place(100), Found(100, 6), None),
    ],
)
def test_a_cut_is_told_from_a_lag(place: Place, found: Found, cut: int | None) -> None:
    assert cut_at(place, found) == cut


def test_a_topic_made_again_is_read_from_its_beginning_or_is_loss() -> None:
    start = offset(Place(100, 5), Place(7, 5))
    found = {T0: Found(120, 0, earliest=0)}
    with pytest.raises(DataLoss, match="topic t was deleted and created again; 100 was next"):
        begins(start, found, {"t": OTHER}, True)
    end = advanced(start, begins(start, found, {"t": OTHER}, False), found, {"t": OTHER}, None)
    assert end == StreamOffset({T0: Place(120, 0, 0)}, {"t": OTHER}), "partitions it does not have are left"
    assert spans(start, end, False) == [Span(T0, 0, 120, 0, OTHER)]


def test_a_topic_that_is_gone_is_loss_or_waited_for() -> None:
    start = offset(Place(100, 5))
    with pytest.raises(DataLoss, match="t-0 does not exist any more; 100 was next"):
        begins(start, {}, {}, True)
    assert advanced(start, begins(start, {}, {}, False), {}, {}, None) == start


def test_a_start_found_anew_after_a_crash_reads_nothing_backwards() -> None:
    assert spans(offset(Place(20, 5)), offset(Place(10, 5)), True) == []


def test_a_first_batch_says_where_it_begins() -> None:
    """The start that is found when it is run again may be another one, or lack a partition."""
    start = offset(Place(10, 5), Place(20, 5))
    end = begun_at(start, offset(Place(15, 6), Place(20, 5)))
    for again in (start, offset(Place(14, 6)), StreamOffset({})):
        assert spans(again, StreamOffset.of_json(end.json()), True) == [Span(T0, 10, 15, 6, ID)]
    found = {T0: Found(16, 6, epoch_end=16), T1: Found(21, 6, epoch_end=21)}
    after = advanced(end, begins(end, found, {"t": ID}, True), found, {"t": ID}, None)
    assert spans(end, after, True) == [Span(T0, 15, 16, 6, ID), Span(T1, 20, 21, 6, ID)]


def test_a_leader_of_an_epoch_that_is_over_knows_nothing_new() -> None:
    """Of the same topic. Without topic ids its epochs tell nothing: it may have been made again."""
    start = offset(Place(100, 6))
    former = {T0: Found(90, 5, epoch_end=-1)}
    assert doubts(start, former, {"t": ID}) == {"t-0: the leader is of epoch 5, before 6"}
    there = without_stale(start, former, {"t": ID})
    assert advanced(start, begins(start, there, {"t": ID}, False), there, {"t": ID}, None) == start
    unknown = StreamOffset(start.places)
    assert without_stale(unknown, former, {}) == former
    assert doubts(unknown, former, {}) == {"t-0: records [90, 100) are gone"}
    assert doubts(start, {}, {}) == {"t-0 does not exist"}
    assert doubts(start, {T0: Found(200, 6, epoch_end=200)}, {"t": ID}) == frozenset()


def test_shares_are_by_size_and_nobody_starves() -> None:
    """As `rateLimit` of Spark's own source."""
    assert shares_of({T0: 90, T1: 10, T10: 0}, 10) == {T0: 9, T1: 1}
    assert shares_of({T0: 999, T1: 1}, 10) == {T0: 9, T1: 1}
    assert shares_of({T0: 3, T1: 3}, 100) == {T0: 3, T1: 3}
    assert shares_of({T0: -5, T1: 4}, 2) == {T1: 2}
    assert shares_of({}, 2) == {}


@given(
    st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), min_size=1, max_size=5), st.integers(1, 99)
)
def test_batches_read_everything_once(logs: list[tuple[int, int]], most: int) -> None:
    """Whatever the limit, from any start: the spans of all batches are the whole."""
    at = offset(*(Place(start, 3) for start, _ in logs))
    found = {
        TopicPartition("t", number): Found(start + size, 4, epoch_end=start + size)
        for number, (start, size) in enumerate(logs)
    }
    read: dict[TopicPartition, list[int]] = {tp: [] for tp in found}
    while True:
        end = advanced(at, begins(at, found, {"t": ID}, True), found, {"t": ID}, most)
        batch = spans(at, end, True)
        if not batch:
            break
        assert sum(span.size for span in batch) <= most + len(logs)
        for span in batch:
            read[span.partition] += range(span.start, span.end)
        at = StreamOffset.of_json(json.loads(json.dumps(end.json())))
    assert list(read.values()) == [list(range(start, start + size)) for start, size in logs]


def test_offsets_by_topic() -> None:
    assert by_topic({T10: 1, T0: 2}.items()) == {"t": {"0": 2, "10": 1}}
