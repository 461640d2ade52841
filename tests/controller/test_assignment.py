"""Where replicas are put, and what a request may not ask for."""

import pytest

from strandline.controller.assignment import check_assignment, check_topic_name, spread
from strandline.protocol.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopic,
)


def test_replicas_go_round_the_brokers_in_the_order_of_their_ids() -> None:
    assert spread([30, 10, 20], range(4), 2) == {0: (10, 20), 1: (20, 30), 2: (30, 10), 3: (10, 20)}
    assert spread([30, 10, 20], range(4, 5), 3) == {4: (20, 30, 10)}


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
        spread([1, 2], range(partitions), factor)


@pytest.mark.parametrize(
    "chosen", [{0: [1, 1]}, {0: []}, {1: [1]}, {0: [1], 2: [1]}, {0: [1, 2], 1: [1]}, {0: [9]}]
)
def test_an_assignment_that_cannot_be_is_refused(chosen: dict[int, list[int]]) -> None:
    with pytest.raises(InvalidReplicaAssignment):
        check_assignment([1, 2], chosen)


def test_an_assignment_may_be_chosen() -> None:
    assert check_assignment([1, 2], {0: [2, 1], 1: [1, 2]}) == {0: (2, 1), 1: (1, 2)}
    assert check_assignment([1, 2], {4: [2]}, first=4, factor=1) == {4: (2,)}


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "a\n", "ü", "x" * 250])
def test_names_that_are_no_names(name: str) -> None:
    with pytest.raises(InvalidTopic):
        check_topic_name(name)


def test_names_that_would_collide() -> None:
    check_topic_name("a.b", ["a.b", "ab", "a-b"])
    with pytest.raises(InvalidTopic):
        check_topic_name("a.b", ["a_b"])
