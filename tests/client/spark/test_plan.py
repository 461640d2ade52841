"""From bounds to spans: whatever the bounds are, nothing is read twice and nothing is left out."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.base.types import TopicPartition
from strandline.client.spark.option_values import Topics
from strandline.client.spark.options import SourceOptions, parse
from strandline.client.spark.plan import (
    DataLoss,
    PartitionBounds,
    PlanError,
    Span,
    resolve,
    select,
    split,
    times,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
LOGS = {T0: PartitionBounds(10, 50, 3), T1: PartitionBounds(0, 0, 4)}


def options(**given: str) -> SourceOptions:
    return parse({"bootstrap.servers": "h:1", "subscribe": "t", **given})


def bounds(**given: str) -> list[tuple[int, int, int]]:
    return [(span.partition.partition, span.start, span.end) for span in resolve(options(**given), LOGS)]


def test_topics_are_selected_by_name_pattern_and_partition() -> None:
    there = {"t": [0, 1], "tt": [0], "u": [0]}
    assert select(Topics(names=("u", "t")), there) == [T0, T1, TopicPartition("u", 0)]
    assert select(Topics(pattern=re.compile("t")), there) == [T0, T1, TopicPartition("tt", 0)]
    assert select(Topics(pattern=re.compile("^u")), there) == [TopicPartition("u", 0)]
    assert select(Topics(pattern=re.compile("t$")), there, internal={"t"}) == [TopicPartition("tt", 0)]
    assert select(Topics(pattern=re.compile("x")), there) == []
    assert select(Topics(partitions=(T1,)), there) == [T1]
    for topics in (Topics(names=("t", "gone")), Topics(partitions=(T0, TopicPartition("gone", 7)))):
        with pytest.raises(PlanError, match="gone"):
            select(topics, there)


def test_all_is_read_unless_told_otherwise() -> None:
    assert bounds() == [(0, 10, 50)]
    assert resolve(options(), LOGS) == [Span(T0, 10, 50, 3)]


def test_offsets_by_partition() -> None:
    assert bounds(startingOffsets='{"t": {"0": 20, "1": -2}}') == [(0, 20, 50)]
    assert bounds(endingOffsets='{"t": {"0": 20, "1": -1}}') == [(0, 10, 20)]
    both = {"startingOffsets": '{"t": {"0": 20, "1": 0}}', "endingOffsets": '{"t": {"0": 20, "1": 0}}'}
    assert bounds(**both) == []


@pytest.mark.parametrize("named", ['{"t": {"0": 20}}', '{"t": {"0": 20, "1": 0, "2": 0}}', '{"u": {"0": 1}}'])
def test_offsets_name_exactly_the_partitions_that_are_read(named: str) -> None:
    with pytest.raises(PlanError, match="exactly the partitions"):
        bounds(startingOffsets=named)
    with pytest.raises(PlanError, match="exactly the partitions"):
        bounds(endingOffsets=named)


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"startingOffsets": '{"t": {"0": 9, "1": -2}}'}, [(0, 10, 50)]),
        ({"startingOffsets": '{"t": {"0": 51, "1": -2}}'}, []),
        ({"endingOffsets": '{"t": {"0": 51, "1": -1}}'}, [(0, 10, 50)]),
        ({"endingOffsets": '{"t": {"0": 5, "1": -1}}'}, []),
    ],
)
def test_offsets_outside_of_the_log_are_loss(given: dict[str, str], left: list[tuple[int, int, int]]) -> None:
    with pytest.raises(DataLoss, match=r"t-0.*\[10, 50\)"):
        bounds(**given)
    assert bounds(failOnDataLoss="false", **given) == left


def test_where_committed_records_end_is_not_called_the_end_of_the_log() -> None:
    committed = {"kafka.isolation.level": "read_committed"}
    for beyond in (
        {"endingOffsets": '{"t": {"0": 51, "1": -1}}'},
        {"startingOffsets": '{"t": {"0": 51, "1": 0}}'},
    ):
        with pytest.raises(
            DataLoss, match="read_committed ends at 50, and behind it a transaction may be open"
        ):
            bounds(**committed, **beyond)
    with pytest.raises(DataLoss, match=r"the log has \[10, 50\)"):
        bounds(**committed, startingOffsets='{"t": {"0": 9, "1": -2}}')


def test_times_are_looked_up_and_what_is_not_found_is_an_error_or_the_end() -> None:
    timed = options(startingTimestamp="1000", endingTimestamp="2000")
    assert times(timed.start, LOGS) == {T0: 1000, T1: 1000}
    assert times(options().start, LOGS) == {}
    found = {T0: PartitionBounds(10, 50, 3, start_by_time=20, end_by_time=30)}
    assert resolve(timed, found) == [Span(T0, 20, 30, 3)]
    assert resolve(timed, {T0: PartitionBounds(10, 50, 3, 20, -1)}) == [Span(T0, 20, 50, 3)]
    with pytest.raises(PlanError, match="t-0: the starting offset 30 is after the ending offset 20"):
        resolve(timed, {T0: PartitionBounds(10, 50, 3, 30, 20)})
    assert resolve(options(startingTimestamp="1"), {T0: PartitionBounds(10, 50, 3, 51)}) == [], (
        "it came later"
    )
    with pytest.raises(PlanError, match="startingOffsetsByTimestampStrategy"):
        resolve(timed, LOGS)
    lenient = options(startingTimestamp="1000", startingOffsetsByTimestampStrategy="latest")
    assert resolve(lenient, LOGS) == []
    named = options(startingOffsetsByTimestamp='{"t": {"0": 7, "1": 8}}')
    assert times(named.start, [T0, T1]) == {T0: 7, T1: 8}


def sizes(spans: list[Span]) -> list[int]:
    return [span.size for span in spans]


def test_an_end_by_time_is_no_later_than_the_snapshot() -> None:
    """Records came between the two questions."""
    logs = {T0: PartitionBounds(10, 50, 3, end_by_time=57)}
    assert resolve(options(endingTimestamp="5"), logs) == [Span(T0, 10, 50, 3)]


def test_more_parts_than_offsets_are_one_for_each_offset() -> None:
    """At once, however many are asked for."""
    assert [part.size for part in split([Span(T0, 10, 20)], 10**15)] == [1] * 10
    assert len(split([Span(T0, 10, 20)], None, split_bytes=1, density={T0: 1e12})) == 10


def test_splitting_follows_sparks_own_source() -> None:
    assert sizes(split([Span(T0, 0, 10)], 4)) == [2, 2, 3, 3]
    assert sizes(split([Span(T0, 0, 3), Span(T1, 0, 100)], 5)) == [3, 25, 25, 25, 25]
    assert sizes(split([Span(T0, 0, 10), Span(T1, 0, 10)], 2)) == [10, 10]
    assert sizes(split([Span(T0, 0, 2)], 64)) == [1, 1]
    assert sizes(split([Span(T0, 5, 5), Span(T1, 0, 7)], None)) == [7]
    assert sizes(split([Span(T0, 0, 25)], None, 10)) == [8, 8, 9]
    assert split([], 4) == []


spans_of_any_size = st.lists(st.tuples(st.integers(0, 10**9), st.integers(0, 10**6)), max_size=6)


@given(spans_of_any_size, st.none() | st.integers(1, 64), st.none() | st.integers(10**4, 10**6))
def test_parts_are_the_whole(
    found: list[tuple[int, int]], partitions_min: int | None, records_max: int | None
) -> None:
    spans = [Span(TopicPartition("t", index), at, at + size, 1) for index, (at, size) in enumerate(found)]
    parts = split(spans, partitions_min, records_max)
    assert all(part.size for part in parts)
    assert records_max is None or all(part.size <= records_max for part in parts)
    for span in spans:
        mine = [part for part in parts if part.partition == span.partition]
        edges = [span.start, *(part.end for part in mine)]
        assert [part.start for part in mine] == edges[:-1]
        assert edges[-1] == span.end or not span.size
