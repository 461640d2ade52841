"""Plans for moves: few copies, fair shares, Kafka's file."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.base.types import TopicPartition
from strandline.cli.console import WrongUsage
from strandline.cli.reassign.plan import proposed, read, written

REPLICAS = st.integers(1, 3).flatmap(
    lambda factor: st.lists(
        st.lists(st.integers(1, 5), min_size=factor, max_size=factor, unique=True), min_size=1, max_size=12
    )
)


@given(REPLICAS, st.sets(st.integers(1, 8), min_size=3))
def test_a_plan_keeps_the_number_of_replicas_and_is_fair(current: list[list[int]], brokers: set[int]) -> None:
    before = {TopicPartition("t", number): replicas for number, replicas in enumerate(current)}
    plan = proposed(before, brokers)
    assert plan.keys() == before.keys()
    for partition, replicas in plan.items():
        assert len(set(replicas)) == len(before[partition]) and set(replicas) <= brokers
    held = Counter(replica for replicas in plan.values() for replica in replicas)
    assert max(held.values()) <= -(-sum(held.values()) // len(brokers)) + len(current[0])


def test_whoever_may_stay_stays_and_leaders_are_spread() -> None:
    before = {TopicPartition("t", number): [1, 2] for number in range(4)}
    plan = proposed(before, [1, 2])
    assert Counter(replicas[0] for replicas in plan.values()) == {1: 2, 2: 2}
    assert all(set(replicas) == {1, 2} for replicas in plan.values())
    moved = proposed(before, [1, 2, 3, 4])
    assert sum(len(set(moved[q]) - {1, 2}) for q in moved) == 4, "half of them, not more"
    with pytest.raises(WrongUsage, match="a partition with 2 replicas needs at least 2"):
        proposed(before, [3])


def test_a_broker_that_joins_gets_its_share_of_each_topic() -> None:
    """What could stay stayed on the first partitions, so that only the last ones had room for the new broker:
    it got a third of its share, and the last topic moved away from all others.
    """
    before = {
        TopicPartition(topic, number): [1 + (number + i) % 3 for i in range(3)]
        for topic, count in {"__consumer_offsets": 50, "orders": 3, "payments": 12}.items()
        for number in range(count)
    }
    plan = proposed(before, [1, 2, 3, 4])
    held = Counter(replica for replicas in plan.values() for replica in replicas)
    assert max(held.values()) - min(held.values()) <= 1
    assert sum(len(set(plan[q]) - set(before[q])) for q in plan) == held[4], "nothing else moves"
    for topic, share in {"__consumer_offsets": (37, 38), "orders": (2, 3), "payments": (9, 9)}.items():
        assert sum(4 in plan[q] for q in plan if q.topic == topic) in share


@given(REPLICAS)
def test_no_broker_has_two_more_than_another(current: list[list[int]]) -> None:
    before = {TopicPartition("t", number): replicas for number, replicas in enumerate(current)}
    plan = proposed(before, range(1, 6))
    held = Counter(replica for replicas in plan.values() for replica in replicas)
    assert max(held.values()) - min(held[broker] for broker in range(1, 6)) <= 1


@given(REPLICAS, st.dictionaries(st.integers(1, 8), st.sampled_from("abc"), min_size=3))
def test_a_plan_is_on_as_many_racks_as_can_be(current: list[list[int]], racks: dict[int, str]) -> None:
    before = {TopicPartition("t", number): replicas for number, replicas in enumerate(current)}
    for partition, replicas in proposed(before, racks, racks).items():
        assert len(set(replicas)) == len(before[partition]) and set(replicas) <= racks.keys()
        assert len({racks[r] for r in replicas}) == min(len(replicas), len(set(racks.values())))


def test_whoever_stands_well_stays() -> None:
    """Three replicas on two racks: nobody need move. Two on one rack: one must."""
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    q = TopicPartition("t", 0)
    assert set(proposed({q: [1, 2, 3]}, racks, racks)[q]) == {1, 2, 3}
    assert len(set(proposed({q: [1, 2]}, racks, racks)[q]) & {1, 2}) == 1
    assert set(proposed({q: [1, 2]}, racks, {**racks, 4: None})[q]) == {1, 2}, "not all racks are known"


def test_the_file_is_kafkas() -> None:
    plan = {TopicPartition("t", 0): (3, 1)}
    assert json.loads(written(plan)) == {
        "version": 1,
        "partitions": [{"topic": "t", "partition": 0, "replicas": [3, 1], "log_dirs": ["any", "any"]}],
    }
    assert read(written(plan), "plan.json") == plan
    with pytest.raises(WrongUsage, match="'partitions' is missing"):
        read("{}", "plan.json")
    for text in (
        "",
        "[]",
        "{}",
        '{"version":1,"partitions":[{"topic":"t"}]}',
        '{"version":1,"partitions":[]}',
    ):
        with pytest.raises(WrongUsage, match=r"plan\.json"):
            read(text, "plan.json")
    twice = json.dumps({"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}] * 2})
    with pytest.raises(WrongUsage, match="twice"):
        read(twice, "plan.json")
