"""The documentation cannot fall behind: generated pages are what would be generated, links lead to files."""

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from strandline.cli.docs.command import PAGES
from tests.conformance.differential import page as differences

ROOT = Path(__file__).resolve().parent.parent
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_fresh(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), f"docs/{name} is old: run `make docs`"


def test_the_page_of_differences_is_fresh() -> None:
    assert differences.PAGE.read_text() == differences.render(), "docs/differences.md is old: run `make docs`"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files(path: Path) -> None:
    for target in LINK.findall(re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)):
        if "://" not in target and not target.startswith(("#", "mailto:")):
            assert (path.parent / target.split("#")[0]).exists(), f"{target} does not exist"


NAMED = re.compile(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`")
FOLDERS = (
    ROOT,
    ROOT / "tests",
    ROOT / "simulation",
    ROOT / "tests" / "simulation",
    ROOT / "tests" / "conformance",
    ROOT / "tests" / "conformance" / "matrix",
)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_files_that_are_named_exist(path: Path) -> None:
    """From the root, or from the folder that a page is about."""
    for name in NAMED.findall(path.read_text()):
        assert any((folder / name).exists() for folder in FOLDERS), f"{name} does not exist"


DECISIONS = ROOT / "docs" / "decisions"


@pytest.mark.parametrize("path", sorted(DECISIONS.glob("0*.md")), ids=lambda path: path.name[:4])
def test_a_decision_is_listed_and_named_where_it_is_carried_out(path: Path) -> None:
    number, title = path.read_text().splitlines()[0].removeprefix("# ").split(". ", 1)
    listed = re.search(rf"^- {number}\. \[(.*)\]\({path.name}\)(.*)$", INDEX, re.MULTILINE)
    assert int(number) == int(path.name[:4]) and listed is not None and listed[1] == title
    if not listed[2].startswith(" (superseded"):
        assert any(path.name in text for text in CODE), f"no file names {path.name}"


INDEX = (DECISIONS / "README.md").read_text()
FOLDERS_OF_CODE = [each for each in ROOT.iterdir() if each.is_dir() and not each.name.startswith(".")]
CODE = [path.read_text() for folder in FOLDERS_OF_CODE for path in folder.rglob("*.py")]
CODE.append((ROOT / "deploy" / "Dockerfile").read_text())
BUGS = (ROOT / "docs" / "known-bugs.md").read_text()
SHOWN_BY = re.compile(r"`(scenarios/[\w/]+\.txt|[\w/]+\.py::\w+)`")


def assert_exists(name: str) -> None:
    """A transcript, or a test in a file: `scenarios/leader/shrink.txt`, `client/test_pure.py::test_x`."""
    file, _, test = name.partition("::")
    path = ROOT / "tests" / file
    assert path.exists(), f"tests/{file} does not exist"
    if not test:
        return
    tree = ast.parse(path.read_text())
    named = {
        node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert test in named, f"tests/{file} has no {test}"
    assert _may_fail(named[test], named), f"tests/{file}::{test} cannot fail"


def _may_fail(test: ast.AST, helpers: Mapping[str, ast.AST]) -> bool:
    """It asserts, or calls what does: `pytest.raises`, `until`, `wait_alike`, a helper of its file, …"""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            return True
        called = node.func if isinstance(node, ast.Call) else None
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name.startswith(("assert", "raises", "until", "wait")):
            return True
        if name in helpers and _may_fail(helpers[name], {k: v for k, v in helpers.items() if k != name}):
            return True
    return False


@pytest.mark.parametrize("row", [row for row in BUGS.splitlines() if re.match(r"\| [(K]\S", row)][1:])
def test_every_known_bug_has_a_test_that_exists(row: str) -> None:
    named = SHOWN_BY.findall(row)
    assert named, f"nothing is named: {row}"
    for name in named:
        assert_exists(name)


@pytest.mark.parametrize("page", ["quorums.md", "delivery.md"])
def test_every_statement_names_what_shows_it(page: str) -> None:
    """Statements about us bear the name of a test or a transcript; each that is named exists."""
    text = (ROOT / "docs" / page).read_text()
    named = SHOWN_BY.findall(text)
    assert len(named) >= 15, f"{page} names {named}"
    for name in named:
        assert_exists(name)


def test_tests_of_pages_are_named_in_full() -> None:
    """What looks like a test's file is followed by the test."""
    for page in ("quorums.md", "delivery.md"):
        text = (ROOT / "docs" / page).read_text()
        assert not re.findall(r"`[\w/]+\.py`", text), page
