"""Regular expressions over topic names: Python's engine is the oracle, except for the time it may take."""

import re
import time
from random import Random

import pytest

from strandline.broker.groups.consumer.regex import BadExpression, TopicRegex

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
     "[[:none:]]", "a{3,2}", "a{2000}", "((a{1000}){1000}){1000}", "(" * 200 + "a" + ")" * 200, "a" * 5000,
     "(?P<n"],
)  # fmt: skip
def test_what_is_no_expression_is_refused(expression: str) -> None:
    with pytest.raises(BadExpression):
        TopicRegex(expression)


def test_no_expression_takes_long() -> None:
    began = time.monotonic()
    assert not TopicRegex("(a+)+(a+)+(a|aa)+b").matches("a" * 249)
    assert TopicRegex("(.*)(.*)(.*)(.*)x").matches("a" * 248 + "x")
    assert time.monotonic() - began < 1
