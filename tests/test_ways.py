"""The ways through the house in docs/architecture.md: every stop exists, and follows from those before it.

A stop is a file and a function in it. It follows if a stop before it calls it, itself or through functions of
its own class or file: a method by a name that says its class (`leader.fetched` for `Leader.fetched`). What is
reached otherwise, by a message, a queue or a hook, says so, `(by ...)`, and that is named before. Two stops
that follow from the same one stand in the order of its calls.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
WAY = re.compile(r"^### (.+)$", re.MULTILINE)
STOP = re.compile(r"^\d+\. `([a-z_/]+\.py)` `([\w.]+)`(?:\s+\(by `(\w+)`\))?:", re.MULTILINE)
STOPS_MAX = 12


class Stop(NamedTuple):
    """`owner` is the class of a method; `by` leads to it, where no call does."""

    path: str
    owner: str
    name: str
    by: str

    def is_named_by(self, mention: "Mention") -> bool:
        if self.by:
            return self.by in mention
        said = mention.receiver.strip("_").removesuffix("s").lower()
        return mention.name == self.name and (
            not self.owner or (said != "" and said.replace("_", "") in self.owner.lower())
        )


class Mention(NamedTuple):
    """`receiver.name`, or a bare name."""

    receiver: str
    name: str


def ways() -> dict[str, list[Stop]]:
    _, *parts = WAY.split(PAGE.read_text())
    return {
        name: [Stop(path, *function.rpartition(".")[::2], by) for path, function, by in STOP.findall(text)]
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


@cache
def functions(path: str) -> dict[tuple[str, str], list[Mention]]:
    """Of each function of a file, by class and name: what it names, in the order of its text."""
    found: dict[tuple[str, str], list[Mention]] = {}

    def note(node: ast.AST, owner: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                note(child, child.name)
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found[owner, child.name] = list(mentions(child))

    note(ast.parse((ROOT / path).read_text()), "")
    return found


def mentions(function: ast.AST) -> Iterator[Mention]:
    for node in sorted(
        (n for n in ast.walk(function) if isinstance(n, ast.Name | ast.Attribute)),
        key=lambda n: (n.end_lineno or 0, n.end_col_offset or 0),
    ):
        if isinstance(node, ast.Name):
            yield Mention("", node.id)
        else:
            held = node.value
            receiver = held.attr if isinstance(held, ast.Attribute) else getattr(held, "id", "")
            yield Mention(receiver, node.attr)


def reached(path: str, owner: str, name: str) -> list[Mention]:
    """What this function names, with what those of its class and its file name that it calls."""
    known, seen = functions(path), set[tuple[str, str]]()

    def walk(key: tuple[str, str]) -> Iterator[Mention]:
        seen.add(key)
        for mention in known[key]:
            yield mention
            inner = (key[0] if mention.receiver == "self" else "", mention.name)
            if mention.receiver in ("self", "") and inner in known and inner not in seen:
                yield from walk(inner)

    return list(walk((owner, name)))


def follows(stops: list[Stop]) -> str:
    """What is wrong with a way; nothing, if each stop follows."""
    before: list[list[Mention]] = []
    last = (-1, -1)
    for stop in stops:
        if (stop.owner, stop.name) not in functions(stop.path):
            return f"{stop.path} has no {stop.owner} {stop.name}"
        places = [
            (caller, at)
            for caller in reversed(range(len(before)))
            for at, mention in enumerate(before[caller])
            if stop.is_named_by(mention)
        ]
        later = [place for place in places if place[0] != last[0] or place[1] > last[1]]
        if before and not later:
            return f"nothing before {stop.path} {stop.owner} {stop.name} leads to it, or only earlier calls"
        last = later[0] if later else last
        before.append(reached(stop.path, stop.owner, stop.name))
    return ""


@pytest.mark.parametrize("way", ways())
def test_a_way_goes_forward_through_the_code(way: str) -> None:
    stops = ways()[way]
    numbered = re.findall(r"^\d+\. ", PAGE.read_text(), re.MULTILINE)
    assert len(numbered) == sum(map(len, ways().values())), "every numbered line is a stop"
    assert 3 <= len(stops) <= STOPS_MAX
    assert not (wrong := follows(stops)), wrong


def test_all_five_ways_are_told() -> None:
    assert len(ways()) == 5
