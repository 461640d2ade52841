"""Who gets which partition, and what the members of a group tell each other about it."""

from random import Random
from struct import pack
from typing import Any

import pytest

from strandline.base.types import TopicPartition
from strandline.client.consumer.assignors import (
    ASSIGNORS,
    SubscribedMember,
    assign_cooperative_sticky,
    assign_range,
    assign_round_robin,
    assign_sticky,
)
from strandline.client.consumer.group_protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    seen_by,
    user_data_of,
)
from strandline.protocol.primitives import Malformed

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


def members(count: int, **more: Any) -> list[SubscribedMember]:
    return [SubscribedMember(f"m{n}", ("t", "u"), **more) for n in range(count)]


def test_range_and_round_robin() -> None:
    given = assign_range(members(2), {"t": 3, "u": 3})
    assert [len(one) for one in given.values()] == [4, 2]
    given = assign_round_robin(members(2), {"t": 3, "u": 3})
    assert [len(one) for one in given.values()] == [3, 3]
    assert given["m0"][:2] == [T0, TopicPartition("t", 2)]


def test_cooperative_sticky_moves_little_and_in_two_steps() -> None:
    first = assign_cooperative_sticky(members(1), {"t": 4})["m0"]
    assert len(first) == 4
    old = SubscribedMember("m0", ("t",), owned=tuple(first), generation=1)
    step = assign_cooperative_sticky([old, SubscribedMember("m1", ("t",))], {"t": 4})
    assert len(step["m0"]) == 2 and step["m1"] == []
    old = SubscribedMember("m0", ("t",), owned=tuple(step["m0"]), generation=2)
    last = assign_cooperative_sticky([old, SubscribedMember("m1", ("t",), generation=2)], {"t": 4})
    assert last["m0"] == step["m0"] and len(last["m1"]) == 2
    again = SubscribedMember("m1", ("t",), owned=(*last["m1"], last["m0"][0]), generation=1)
    claim = assign_cooperative_sticky(
        [SubscribedMember("m0", ("t",), None, tuple(last["m0"]), 3), again], {"t": 4}
    )
    assert claim["m0"] == last["m0"]


@pytest.mark.parametrize("seed", range(30))
def test_assignments_are_whole_and_even(seed: int) -> None:
    random = Random(seed)
    topics = {name: random.randint(1, 9) for name in "tuv"}
    group = [
        SubscribedMember(f"m{n}", tuple(sorted(random.sample("tuv", random.randint(1, 3)))))
        for n in range(random.randint(1, 6))
    ]
    wanted = {name for one in group for name in one.topics}
    everything = {TopicPartition(name, index) for name in wanted for index in range(topics[name])}
    for assignor in ASSIGNORS.values():
        given = assignor(group, topics)
        flat = [one for mine in given.values() for one in mine]
        assert set(flat) == everything and len(flat) == len(everything)
        for member in group:
            assert all(one.topic in member.topics for one in given[member.member_id])


def test_members_understand_each_other() -> None:
    said = encode_subscription(["u", "t"], [T0], 4)
    assert decode_subscription("m", None, said) == SubscribedMember("m", ("t", "u"), None, (T0,), 4)
    assert decode_assignment(encode_assignment([T0, TopicPartition("u", 2)])) == [T0, TopicPartition("u", 2)]
    assert decode_assignment(b"") == []
    for cut in range(2, len(said)):
        with pytest.raises(Malformed):
            decode_subscription("m", None, said[:cut])


def test_sticky_moves_only_what_balance_needs() -> None:
    had = {"m0": (0, 1, 2), "m1": (3, 4, 5)}
    old = [
        SubscribedMember(name, ("t",), None, tuple(TopicPartition("t", n) for n in mine), 4)
        for name, mine in had.items()
    ]
    given = assign_sticky([*old, SubscribedMember("m2", ("t",))], {"t": 6})
    assert [len(mine) for mine in given.values()] == [2, 2, 2]
    for name in had:
        assert set(given[name]) < set(old[int(name[1])].owned), "who stays gains nothing that another had"


def test_a_member_that_missed_a_generation_claims_nothing_that_another_was_given_since() -> None:
    stale = SubscribedMember("m0", ("t",), None, (T0, T1), 4)
    newer = SubscribedMember("m1", ("t",), None, (T0,), 5)
    assert assign_sticky([stale, newer], {"t": 2}) == {"m0": [T1], "m1": [T0]}


def test_an_eager_member_tells_the_sticky_assignor_what_it_had() -> None:
    """As Kafka's StickyAssignor has it: partitions by topic, then their generation."""
    told = user_data_of("sticky", [T0, T1], 7)
    assert told == pack(">ih1siiii", 1, 1, b"t", 2, 0, 1, 7)
    said = decode_subscription("m", None, encode_subscription(["t"], [], -1, told))
    assert said.owned == ()
    seen = seen_by("sticky", said)
    assert (seen.owned, seen.generation) == ((T0, T1), 7)
    assert user_data_of("sticky", [], -1) == b"", "it never had anything"


def test_the_version_that_kafka_python_puts_before_its_user_data_is_skipped() -> None:
    told = user_data_of("sticky", [T0, T1], 7)
    seen = seen_by("sticky", SubscribedMember("m", ("t",), user_data=pack(">h", 1) + told))
    assert (seen.owned, seen.generation) == ((T0, T1), 7)


@pytest.mark.parametrize("damage", [b"", b"?", pack(">i", 9), pack(">ih1sii", 1, 1, b"t", 1, 0)])
def test_user_data_that_cannot_be_read_or_have_no_generation_prove_little(damage: bytes) -> None:
    seen = seen_by("sticky", SubscribedMember("m", ("t",), user_data=damage))
    assert seen.generation == -1 and seen.owned in ((), (T0,))


def test_a_cooperative_member_of_an_older_client_has_its_generation_in_its_user_data() -> None:
    """Until version 1 the subscription has owned partitions and no generation."""
    assert user_data_of("cooperative-sticky", [T0], 7) == pack(">i", 7)
    for told in (pack(">i", 7), user_data_of("sticky", [T0], 7)):  # as Java and as librdkafka tell it
        old = pack(">hih1si", 1, 1, 1, b"t", len(told)) + told + pack(">ih1sii", 1, 1, b"t", 1, 0)
        member = decode_subscription("m", None, old)
        assert (member.owned, member.generation) == ((T0,), -1)
        assert seen_by("cooperative-sticky", member).generation == 7
        assert seen_by("range", member) == member
