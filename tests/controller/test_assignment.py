"""What a request for partitions may not ask for."""

import pytest

from strandline.controller.planning.assignment import check_assignment, check_topic_name
from strandline.protocol.errors import InvalidReplicaAssignment, InvalidTopic


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
