"""Regular expressions over topic names: Python's engine is the oracle, except for the time it may take."""

import re
import sys
import time
import tracemalloc
from random import Random
from uuid import UUID

import pytest

from strandline.broker.groups.consumer.group import ConsumerGroup
from strandline.broker.groups.consumer.heartbeats import heartbeat
from strandline.broker.groups.consumer.regex import DEPTH_MAX, BadExpression, TopicRegex
from strandline.broker.groups.consumer.state import Beat, ConsumerLimits, TopicFacts, Topics
from strandline.broker.groups.consumer.target import expression as expression_of_a_member
from strandline.protocol.errors import ApiError

NAMES = [
    "",
    "a",
    "b",
    "aa",
    "ab",
    "abc",
    "a.b",
    "a-b",
    "a_b",
    "A",
    "orders",
    "orders-1",
    "orders.eu.2",
    "x9",
    "_",
]


@pytest.mark.parametrize(
    "expression",
    [
        "a",
        "a*",
        "a+b?",
        "a|b|",
        "(a|b)*c",
        "(?:ab){2}|a{1,2}",
        "a{2,}",
        "^a$",
        "^(a|b).*$",
        ".*",
        ".+",
        "orders[-.].*",
        r"orders\.eu\.\d",
        r"\w+",
        r"\W",
        r"[^a]+",
        r"[a-c]+",
        r"[\w.-]+",
        r"[]a]",
        r"[a\]b]+",
        "a.b",
        r"a\.b",
        "(?i)ORDERS",
        "(?P<name>a)b",
        "a*?b",
        r"x\x39",
        "()a",
        "^^a$$",
        "a^b",
        "(^a|b$)",
        "{",
    ],
)
def test_an_expression_matches_what_python_says(expression: str) -> None:
    ours = TopicRegex(expression)
    for name in NAMES:
        assert ours.matches(name) == (re.fullmatch(expression, name) is not None), name


@pytest.mark.parametrize("seed", range(200))
def test_random_expressions(seed: int) -> None:
    dice = Random(seed)

    def some(depth: int) -> str:
        match dice.randrange(9 if depth else 3):
            case 0:
                return dice.choice("abc")
            case 1:
                return "."
            case 2:
                return dice.choice(["[ab]", "[^a]", r"\w"])
            case 3:
                return f"({some(depth - 1)})"
            case 4:
                return f"(?:{some(depth - 1)}){dice.choice(['*', '+', '?', '{2}', '{0,2}', '{1,}'])}"
            case 5:
                return f"(?:{some(depth - 1)}|{some(depth - 1)})"
        return some(depth - 1) + some(depth - 1)

    expression = some(4)
    ours = TopicRegex(expression)
    for _ in range(40):
        name = "".join(dice.choice("abc.") for _ in range(dice.randrange(8)))
        assert ours.matches(name) == (re.fullmatch(expression, name) is not None), (expression, name)


def test_what_re2_has_and_python_has_not() -> None:
    assert TopicRegex(r"\Qa.b\E.").matches("a.bc") and not TopicRegex(r"\Qa.b\E").matches("axb")
    assert TopicRegex("[[:alpha:]]+").matches("abc") and not TopicRegex("[[:^alpha:]]+").matches("abc")
    assert TopicRegex(r"\Aa\z").matches("a")
    assert TopicRegex("(?i:A)b").matches("ab") and not TopicRegex("(?i:A)b").matches("aB")


@pytest.mark.parametrize(
    "expression",
    ["(", ")", "a)", "[", "[a", "*", "a|*", "+", "a\\", "(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", r"\b", "[z-a]",
     "[[:none:]]", "a{3,2}", "a{2000}", "((a{1000}){1000}){1000}", "(" * 200 + "a" + ")" * 200, "a." * 2500,
     "(?P<n", "a**", "a+{2}", "a{1}{2}", "a*??", "a" + "*" * 2000, "a" + "{1}" * 1300],
)  # fmt: skip
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(BadExpression):
        TopicRegex(expression)


def test_a_list_of_names_may_be_long() -> None:
    names = [f"orders-of-customer-{number}" for number in range(1000)]
    for pattern in ("{}", "^{}$", "({})", "^(?:{})$"):
        ours = TopicRegex(pattern.format("|".join(names)))
        assert all(map(ours.matches, names))
        assert not any(
            map(ours.matches, ("", "orders-of-customer-", "orders-of-customer-1000", "x" + names[0]))
        )
    assert TopicRegex(r"a\.b|c\-d_e").matches("a.b") and TopicRegex(r"a\.b|c\-d_e").matches("c-d_e")
    assert not TopicRegex(r"a\.b|c").matches("axb") and TopicRegex("a.b|c").matches("axb")
    assert TopicRegex("a||b").matches("") and TopicRegex("(a)|(b)").matches("b")
    with pytest.raises(BadExpression, match="longer"):
        TopicRegex("|".join(names * 3))


def test_no_expression_takes_long() -> None:
    began = time.process_time()
    assert not TopicRegex("(a+)+(a+)+(a|aa)+b").matches("a" * 249)
    assert TopicRegex("(.*)(.*)(.*)(.*)x").matches("a" * 248 + "x")
    assert time.process_time() - began < 1


@pytest.mark.parametrize("nothing", ["", "(?i)", r"\Q\E", "a{0}", "()()", "|"])
def test_nothing_repeated_all_too_often_is_refused_at_once(nothing: str) -> None:
    began = time.process_time()
    with pytest.raises(BadExpression, match="more than"):
        TopicRegex(f"((({nothing}){{100}}){{100}}){{100}}")  # a million times
    assert time.process_time() - began < 1


def test_what_is_remembered_is_bounded_in_bytes() -> None:
    dice = Random(1)
    ours = TopicRegex("(.*[ab].{9}){9}(.?.?.?){60}")
    names = ["".join(dice.choice("abc") for _ in range(100)) for _ in range(20)]
    tracemalloc.start()
    try:
        for name in names:
            ours.matches(name)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_parentheses_as_deep_as_they_may_be() -> None:
    deep = TopicRegex("(" * DEPTH_MAX + "a" + ")*" * DEPTH_MAX)
    assert deep.matches("aaa") and not deep.matches("b")


def test_an_expression_too_deep_for_the_stack_is_the_members_fault() -> None:
    frame, depth = sys._getframe(), 1
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 100)
    try:
        with pytest.raises(ApiError, match="not a valid expression"):
            expression_of_a_member("(" * 50 + "a" + ")" * 50)
    finally:
        sys.setrecursionlimit(limit)


def test_a_long_bad_expression_is_not_repeated_whole() -> None:
    with pytest.raises(ApiError) as caught:
        expression_of_a_member("\x00" * 30_000)
    assert len(str(caught.value)) < 2_000


def test_members_of_one_group_with_the_same_expression_meet_each_topic_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With a hundred members in a cluster of 5,000 topics, a join took more than a second of the broker."""
    known = {f"orders-{number}": TopicFacts(UUID(int=number + 1), 2) for number in range(30)}
    topics = Topics(known.get, known, True)
    limits = ConsumerLimits(45_000, 5_000, 100, ("uniform", "range"), may_upgrade=True, may_downgrade=True)
    group, met = ConsumerGroup("g", limits, 0.0), list[str]()
    matches = TopicRegex.matches
    monkeypatch.setattr(TopicRegex, "matches", lambda self, name: [met.append(name), matches(self, name)][1])

    def join(member_id: str, regex: str | None, *names: str) -> None:
        beat = Beat(
            member_id=member_id, epoch=0, instance_id=None, rack_id=None, rebalance_timeout_ms=1_000,
            topics=frozenset(names), regex=regex, assignor=None, owned=frozenset(),
            client_id="", client_host="",
        )  # fmt: skip
        heartbeat(group, beat, topics, 0.0)

    for number in range(20):
        join(f"m{number:02}", "orders-1.*")
    assert all(len(mine) in (1, 2) for mine in group.targets.values()), "of 11 topics: 1 and 10 to 19"
    met.clear()
    join("m20", "orders-1.*")
    assert len(met) <= 2 * len(known)
    join("n0", "orders-2.*", "orders-3")
    join("n1", None, "orders-4")
    assert {topic for topic, _ in group.target_of("n1")} == {known["orders-4"].id}
    assert {known["orders-3"].id, known["orders-29"].id} <= {topic for topic, _ in group.target_of("n0")}
    assert set(group.topics) == {n for n in known if n[7] in "12"} | {"orders-3", "orders-4"}
