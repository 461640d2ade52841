"""Moves of partitions: the arithmetic of assignments, and whatever may happen to a move."""

from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from strandline.controller.assignment_nodes import assignment_of, with_assignments
from strandline.controller.planning.assignment import Assignment
from strandline.controller.planning.reassignment import wanted
from strandline.protocol.errors import InvalidReplicaAssignment, NoReassignmentInProgress
from strandline.zookeeper import documents
from tests.controller.moving_harness import World

REPLICAS = st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True).map(tuple)


@given(REPLICAS, st.lists(REPLICAS, max_size=4))
def test_nobody_leaves_an_assignment_by_being_asked_to(
    origin: tuple[int, ...], asks: list[tuple[int, ...]]
) -> None:
    assignment = Assignment(origin)
    for target in asks:
        before, assignment = assignment, assignment.towards(target)
        assert assignment.target == target
        assert set(assignment.replicas) == set(before.replicas) | set(target)
        assert len(set(assignment.replicas)) == len(assignment.replicas)
        assert assignment.before == (origin if assignment.is_moving else target)
        if not assignment.is_moving:
            origin = target
    if assignment.is_moving:
        assert assignment.towards(assignment.origin).without(
            assignment.towards(assignment.origin).abandoned
        ) == (Assignment(origin))


@given(REPLICAS, st.lists(REPLICAS, min_size=1, max_size=3))
def test_an_assignment_is_read_as_it_was_written(
    origin: tuple[int, ...], asks: list[tuple[int, ...]]
) -> None:
    document = documents.TopicDocument(partitions={0: list(origin), 1: [1]})
    assignment = Assignment(origin)
    for target in asks:
        assignment = assignment.towards(target)
        document = documents.parse(
            documents.TopicDocument, with_assignments(document, {0: assignment}).data()
        )
        assert assignment_of(document, 0) == assignment
        assert assignment_of(document, 1) == Assignment((1,))


def test_what_kafka_has_written_is_understood() -> None:
    """It does not say in which order the replicas stood before."""
    document = documents.TopicDocument(
        partitions={0: [4, 2, 1, 3]}, adding_replicas={0: [4]}, removing_replicas={0: [1, 3]}
    )
    assert assignment_of(document, 0) == Assignment((4, 2, 1, 3), (4,), (1, 3), (2, 1, 3))
    odd = document.model_copy(update={"adding_replicas": {0: [4, 9]}, "origin_replicas": {0: [4, 1]}})
    assert assignment_of(odd, 0) == Assignment((4, 2, 1, 3), (4,), (1, 3), (2, 1, 3))


def test_what_is_asked_for_must_make_sense() -> None:
    known = Assignment((1, 2))
    for target in ([], [1, 1], [1, -2], [1, 7]):
        with pytest.raises(InvalidReplicaAssignment):
            wanted(known, target, {1, 2, 3})
    with pytest.raises(NoReassignmentInProgress):
        wanted(known, None, {1, 2, 3})
    assert wanted(known, [1, 3], {3}).adding == (3,), "whoever holds it already may be dead"
    assert wanted(known.towards([3]), None, {}).target == (1, 2), "and so may be the old ones"
    assert wanted(known.towards([3]), [1, 2], {}) == wanted(known.towards([3]), None, {})


@settings(max_examples=100, deadline=None, phases=(Phase.explicit, Phase.generate))
@given(st.randoms(use_true_random=False), st.integers(0, 150), st.sampled_from((1, 2)))
def test_every_move_ends_and_no_replica_in_the_isr_is_ever_deleted(
    chance: Random, length: int, min_isr: int
) -> None:
    play(World(min_isr=min_isr), chance, length)


def test_so_it_is_in_long_stories() -> None:
    for seed in range(300):
        play(World(min_isr=1 + seed % 2), Random(seed), 200)


def play(world: World, chance: Random, length: int) -> None:
    for _ in range(length):
        steps = world.progress() if chance.random() < 0.75 else []
        chance.choice(steps or world.trouble())()
    world.heal()
    assert world.assignment == Assignment(world.expected)
    assert sorted(world.state.isr) == sorted(world.expected)
    holders = {broker for broker, server in world.servers.items() if server.replica is not None}
    assert holders == set(world.expected), "old replicas are gone, new ones are there"
