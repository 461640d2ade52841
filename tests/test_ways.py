"""The ways through the house in docs/architecture.md: every stop exists, and follows from those before it.

A stop is a file and a function in it. It follows if a stop before it names it, itself or through functions of
its own file; or if what is said to lead to it, `(by ...)`, is named so: a message, a queue, a hook.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "architecture.md"
WAY = re.compile(r"^### (.+)$", re.MULTILINE)
STOP = re.compile(r"^\d+\. `([a-z_/]+\.py)` `([\w.]+)`(?: \(by `(\w+)`\))?:", re.MULTILINE)
STOPS_MAX = 12
Stop = tuple[str, str, str]


def ways() -> dict[str, list[Stop]]:
    _, *parts = WAY.split(PAGE.read_text())
    return {name: STOP.findall(text) for name, text in zip(parts[::2], parts[1::2], strict=True)}


@cache
def functions(path: str) -> dict[str, set[str]]:
    """Of each function in a file, by its full name: what it names."""
    found: dict[str, set[str]] = {}

    def note(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                note(child, f"{prefix}{child.name}.")
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                found[prefix + child.name] = names_in(child)

    note(ast.parse((ROOT / path).read_text()), "")
    return found


def names_in(function: ast.AST) -> set[str]:
    names = {node.id for node in ast.walk(function) if isinstance(node, ast.Name)}
    return names | {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}


def reached(path: str, function: str) -> set[str]:
    """What this function names, and those of its file that it leads to."""
    known, seen, names = functions(path), {function}, set[str]()
    waiting = [function]
    while waiting:
        names |= (mine := known[waiting.pop()])
        more = {each for each in known if each.rpartition(".")[2] in mine} - seen
        seen |= more
        waiting += more
    return names


@pytest.mark.parametrize("way", ways())
def test_a_way_goes_forward_through_the_code(way: str) -> None:
    stops = ways()[way]
    numbered = re.findall(r"^\d+\. ", PAGE.read_text(), re.MULTILINE)
    assert len(numbered) == sum(map(len, ways().values())), "every numbered line is a stop"
    assert 3 <= len(stops) <= STOPS_MAX
    before: set[str] = set()
    for path, function, by in stops:
        assert (ROOT / path).exists(), f"{path} is gone"
        assert function in functions(path), f"{path} has no {function}"
        name = by or function.rpartition(".")[2]
        assert not before or name in before, f"nothing before {path} {function} names {name}"
        before |= reached(path, function)


def test_all_four_ways_are_told() -> None:
    assert len(ways()) == 4
