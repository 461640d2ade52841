"""Where replicas are put: Kafka's examples (AdminUtils.java), racks, and leaders that are spread."""

from collections import Counter
from itertools import product
from random import Random

import pytest

from strandline.controller.planning.placement import (
    PlacementStart,
    alternating,
    anywhere,
    spread,
    where_it_stopped,
)
from strandline.protocol.errors import InvalidPartitions, InvalidReplicationFactor

SIX = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def nowhere(count: int) -> dict[int, str | None]:
    return dict.fromkeys(range(count))


def test_without_racks_as_in_kafkas_table() -> None:
    placed = spread(nowhere(5), range(10), 3)
    held = [
        [[q for q, replicas in placed.items() if replicas[place] == broker] for broker in range(5)]
        for place in range(3)
    ]
    assert held == [
        [[0, 5], [1, 6], [2, 7], [3, 8], [4, 9]],
        [[4, 8], [0, 9], [1, 5], [2, 6], [3, 7]],
        [[3, 7], [4, 8], [0, 9], [1, 5], [2, 6]],
    ]


def test_with_racks_as_in_kafkas_example() -> None:
    assert alternating(SIX) == [0, 3, 1, 5, 4, 2]
    assert alternating({0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}) == [0, 3, 5, 1, 4, 2]
    assert spread(SIX, range(7), 3) == {
        0: (0, 3, 1),
        1: (3, 1, 5),
        2: (1, 5, 4),
        3: (5, 4, 2),
        4: (4, 2, 0),
        5: (2, 0, 3),
        6: (0, 4, 2),
    }


@pytest.mark.parametrize("factor", [1, 2, 3, 4, 6])
def test_replicas_are_on_as_many_racks_as_can_be(factor: int) -> None:
    """Whatever the start, with racks of unequal size."""
    racks = {0: "a", 1: "a", 2: "a", 3: "b", 4: "b", 5: "c"}
    for first, shift in product(range(6), repeat=2):
        for replicas in spread(racks, range(20), factor, PlacementStart(first, shift)).values():
            assert len(set(replicas)) == factor
            assert len({racks[broker] for broker in replicas}) == min(factor, 3)


def test_equal_racks_are_loaded_evenly() -> None:
    racks = {broker: f"r{broker % 3}" for broker in range(9)}
    placed = spread(racks, range(81), 3, PlacementStart(4, 2))
    assert set(Counter(broker for replicas in placed.values() for broker in replicas).values()) == {27}
    assert set(Counter(replicas[0] for replicas in placed.values()).values()) == {9}


def test_a_broker_that_does_not_say_its_rack_makes_all_racks_void() -> None:
    assert spread({**SIX, 6: None}, range(9), 3) == spread(nowhere(7), range(9), 3)


def test_many_topics_of_one_partition_are_led_by_all_brokers() -> None:
    dice = Random(1)
    leaders: Counter[int] = Counter()
    followers: Counter[int] = Counter()
    for _ in range(300):
        placed = spread({1: None, 2: None, 3: None}, range(1), 2, anywhere(3, dice.randbytes))
        leaders[placed[0][0]] += 1
        followers[placed[0][1]] += 1
    assert all(70 < leaders[broker] < 130 for broker in (1, 2, 3)), leaders
    assert all(70 < followers[broker] < 130 for broker in (1, 2, 3)), followers


def test_growth_begins_where_kafka_says() -> None:
    """At the first replica of partition 0, or behind it if that broker is gone; with that shift, too."""
    brokers = {10: None, 20: None, 30: None}
    assert where_it_stopped(brokers, 20) == PlacementStart(1, 1)
    assert where_it_stopped(brokers, 15) == PlacementStart(1, 1)
    assert where_it_stopped(brokers, 40) == PlacementStart(0, 0)
    assert spread(brokers, range(2, 4), 2, where_it_stopped(brokers, 20)) == {2: (10, 30), 3: (20, 30)}


@pytest.mark.parametrize(
    ("partitions", "factor", "error"),
    [
        (0, 1, InvalidPartitions),
        (-5, 1, InvalidPartitions),
        (10**9, 1, InvalidPartitions),
        (1, 0, InvalidReplicationFactor),
        (1, 3, InvalidReplicationFactor),
    ],
)
def test_counts_out_of_range_are_refused(partitions: int, factor: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        spread({1: None, 2: None}, range(partitions), factor)
