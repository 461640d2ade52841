"""Assignors of the broker: every partition has one taker, shares are equal, and what need not move stays."""

from random import Random
from uuid import UUID

import pytest

from strandline.broker.groups.consumer.assignors import (
    ASSIGNORS,
    Assigned,
    assign_range,
    assign_uniform,
)
from strandline.broker.groups.consumer.state import Partitions

A, B, C = (UUID(int=number) for number in (1, 2, 3))


def members(*names: str, topics: tuple[UUID, ...] = (A,)) -> dict[str, Assigned]:
    return {name: Assigned(frozenset(topics)) for name in names}


def again(before: dict[str, Partitions], *names: str, topics: tuple[UUID, ...] = (A,)) -> dict[str, Assigned]:
    return {name: Assigned(frozenset(topics), now=before.get(name, frozenset())) for name in names}


def numbers(partitions: Partitions, topic: UUID = A) -> list[int]:
    return sorted(number for each, number in partitions if each == topic)


@pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)
@pytest.mark.parametrize("seed", range(60))
def test_every_partition_has_one_taker_that_subscribes(assignor: object, seed: int) -> None:
    dice = Random(seed)
    counts = {topic: dice.randint(0, 9) for topic in (A, B, C)}
    crowd: dict[str, Assigned] = {}
    given: dict[str, Partitions] = {}
    for _ in range(4):  # members come and go, and change their minds
        names = dice.sample("abcdefg", dice.randint(1, 6))
        crowd = {
            name: Assigned(
                frozenset(dice.sample((A, B, C), dice.randint(0, 3))), now=given.get(name, frozenset())
            )
            for name in names
        }
        given = assignor(crowd, counts)  # type: ignore[operator]
        assert given.keys() == crowd.keys()
        taken = [one for mine in given.values() for one in mine]
        assert len(taken) == len(set(taken)), "one taker each"
        assert all(topic in crowd[name].topics for name, mine in given.items() for topic, _ in mine)
        wanted = {topic for topic in counts if any(topic in each.topics for each in crowd.values())}
        assert set(taken) == {(topic, number) for topic in wanted for number in range(counts[topic])}


def test_uniform_gives_equal_shares_and_moves_as_little_as_it_can() -> None:
    alone = assign_uniform(members("a"), {A: 7})
    both = assign_uniform(again(alone, "a", "b"), {A: 7})
    assert (len(both["a"]), len(both["b"])) == (4, 3)
    assert both["a"] <= alone["a"]
    three = assign_uniform(again(both, "a", "b", "c"), {A: 7})
    assert sorted(map(len, three.values())) == [2, 2, 3]
    assert len(three["a"] & both["a"]) + len(three["b"] & both["b"]) == 5, "only the newcomer's share moved"
    grown = assign_uniform(again(three, "a", "b", "c"), {A: 9})
    assert all(three[name] <= grown[name] for name in three)
    assert assign_uniform(again(grown, "a", "b", "c"), {A: 9}) == grown


def test_uniform_forgets_partitions_that_are_gone() -> None:
    before = assign_uniform(members("a", "b"), {A: 4})
    assert assign_uniform(again(before, "a", "b"), {A: 1}).keys() == {"a", "b"}
    after = assign_uniform(again(before, "a", "b", topics=(B,)), {B: 2})
    assert [numbers(after[name], B) for name in "ab"] == [[0], [1]]


@pytest.mark.parametrize("seed", range(40))
def test_uniform_is_as_fair_as_subscriptions_allow(seed: int) -> None:
    """No single partition could move to a member that subscribes to its topic and has two fewer."""
    dice = Random(seed)
    counts = {topic: dice.randint(1, 8) for topic in (A, B, C)}
    crowd = {name: Assigned(frozenset(dice.sample((A, B, C), dice.randint(1, 3)))) for name in "abcde"}
    given = assign_uniform(crowd, counts)
    for name, mine in given.items():
        for topic, _ in mine:
            for other, member in crowd.items():
                if topic in member.topics:
                    assert len(mine) - len(given[other]) < 2, (name, other, given)


def test_range_gives_neighbours_and_keeps_topics_together() -> None:
    given = assign_range(members("b", "a", topics=(A, B)), {A: 5, B: 5})
    assert numbers(given["a"]) == numbers(given["a"], B) == [0, 1, 2]
    assert numbers(given["b"]) == numbers(given["b"], B) == [3, 4]


def test_range_goes_by_instance_ids_which_outlive_members() -> None:
    crowd = {"z": Assigned(frozenset({A}), "first"), "a": Assigned(frozenset({A}), "second")}
    assert numbers(assign_range(crowd, {A: 4})["z"]) == [0, 1]


def test_many_members_and_partitions_take_little_time() -> None:
    crowd = members(*(f"m{number:04}" for number in range(500)), topics=(A, B))
    given = assign_uniform(crowd, {A: 5_000, B: 2_500})
    assert set(map(len, given.values())) == {15}


def test_members_are_ordered_once_and_not_each_time_that_one_has_its_share() -> None:
    compared = 0

    class Name(str):
        """Counts how often it is compared."""

        def __lt__(self, other: str) -> bool:
            nonlocal compared
            compared += 1
            return str.__lt__(self, other)

    crowd = {Name(f"m{number:04}"): Assigned(frozenset({A})) for number in range(500)}
    given = assign_uniform(crowd, {A: 1_000})
    assert set(map(len, given.values())) == {2}
    assert compared < 20_000
