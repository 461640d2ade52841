"""The documentation cannot fall behind: generated pages are what would be generated, links lead to files."""

import re
from pathlib import Path

import pytest

from strandline.cli.docs import PAGES

ROOT = Path(__file__).resolve().parent.parent
TEXTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.mark.parametrize("name", PAGES)
def test_generated_pages_are_fresh(name: str) -> None:
    assert (ROOT / "docs" / name).read_text() == PAGES[name](), f"docs/{name} is old: run `make docs`"


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_to_files(path: Path) -> None:
    for target in LINK.findall(re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)):
        if "://" not in target and not target.startswith(("#", "mailto:")):
            assert (path.parent / target.split("#")[0]).exists(), f"{target} does not exist"


BUGS = (ROOT / "docs" / "known-bugs.md").read_text()
SHOWN_BY = re.compile(r"`(scenarios/[\w/]+\.txt|[\w/]+\.py::\w+)`")


@pytest.mark.parametrize("row", [row for row in BUGS.splitlines() if re.match(r"\| [(K]\S", row)][1:])
def test_every_known_bug_has_a_test_that_exists(row: str) -> None:
    named = SHOWN_BY.findall(row)
    assert named, f"nothing is named: {row}"
    for name in named:
        file, _, test = name.partition("::")
        path = ROOT / "tests" / file
        assert path.exists(), f"tests/{file} does not exist"
        assert not test or f"def {test}(" in path.read_text(), f"tests/{file} has no {test}"
