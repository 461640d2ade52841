"""No circle of files but those that docs/architecture.md defends by name.

Files that import each other, one way or the other, can only be read, tested and moved together. Every import
counts: also those inside functions, and those that only a type checker sees.
"""

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "strandline"
PAGE = ROOT / "docs" / "architecture.md"
SECTION = re.compile(r"^## Circles that are left\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^- (.+?)(?=^- |\Z)", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w/]+\.py)`")

Graph = Mapping[str, set[str]]


class Defended(NamedTuple):
    """An entry of the page: files that may import each other, and why."""

    files: frozenset[str]
    why: str


def module_of(file: str) -> str:
    """The name by which a file is imported."""
    parts = file.removesuffix(".py").removesuffix("/__init__").split("/")
    return ".".join((PACKAGE, *parts))


def imported(file: str, text: str, modules: Mapping[str, str]) -> Iterator[str]:
    """The files that a file imports, wherever in it."""
    package = module_of(file).split(".")
    if not file.endswith("/__init__.py"):
        package.pop()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (modules[alias.name] for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                found = modules.get(f"{base}.{alias.name}", modules.get(base))
                if found is not None:
                    yield found


@functools.cache
def graph(root: Path) -> Graph:
    """Each file of the product, and the files that it imports."""
    floors = sorted(init.parent for init in root.glob("*/__init__.py"))
    paths = [path for floor in floors for path in sorted(floor.rglob("*.py"))]
    texts = {path.relative_to(root).as_posix(): path.read_text() for path in paths}
    modules = {module_of(file): file for file in texts}
    return {file: set(imported(file, text, modules)) for file, text in texts.items()}


def reached(files: Graph, start: str) -> set[str]:
    """All that a file imports, through others too; itself only if it is in a circle."""
    found: set[str] = set()
    left = [start]
    while left:
        new = files[left.pop()] - found
        found |= new
        left += new
    return found


def circles(files: Graph) -> list[set[str]]:
    """Sets of files, each of which imports all others of its set, through others too."""
    reach = {file: reached(files, file) for file in files}
    found: dict[str, set[str]] = {}
    for file, others in reach.items():
        if file in others and file not in found:
            circle = {other for other in others if file in reach[other]}
            found |= dict.fromkeys(circle, circle)
    return [circle for file, circle in found.items() if file == min(circle)]


def defended() -> list[Defended]:
    """The circles that the page names."""
    section = SECTION.search(PAGE.read_text())
    assert section is not None, f"{PAGE.name} says which circles are left"
    entries: list[Defended] = []
    for entry in ENTRY.findall(section[1]):
        files, _, why = entry.partition(": ")
        entries.append(Defended(frozenset(FILE.findall(files)), why.strip()))
    return entries


def test_a_circle_is_found_through_others() -> None:
    files = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set[str](), "f": {"g"}, "g": {"f"}}
    assert sorted(map(sorted, circles(files))) == [["a", "b", "c"], ["f", "g"]]


@pytest.mark.parametrize(
    "text",
    [
        "from .room import wall",
        "from .room.wall import brick",
        "def build() -> None:\n    from .room import wall",
        "if TYPE_CHECKING:\n    from .room.wall import Brick",
        "from strandline.house.room import wall",
        "import strandline.house.room.wall",
    ],
)
def test_every_kind_of_import_counts(text: str, tmp_path: Path) -> None:
    (tmp_path / "house" / "room").mkdir(parents=True)
    for name, content in {
        "__init__": "", "door": text, "room/__init__": "", "room/wall": "from .. import door",
    }.items():  # fmt: skip
        (tmp_path / "house" / f"{name}.py").write_text(content)
    assert circles(graph(tmp_path)) == [{"house/door.py", "house/room/wall.py"}]


def test_each_circle_is_named_with_its_reason() -> None:
    known = defended()
    assert all(entry.why for entry in known)
    for circle in circles(graph(ROOT)):
        assert any(circle <= entry.files for entry in known), (
            f"these files import each other, and {PAGE.name} does not say why: {', '.join(sorted(circle))}"
        )


def test_no_file_is_named_that_has_left_its_circle() -> None:
    """So the list shrinks with the circles."""
    there = set[str]().union(*circles(graph(ROOT)))
    for entry in defended():
        assert entry.files <= there, (
            f"{PAGE.name} names {', '.join(sorted(entry.files - there))}: in no circle"
        )
