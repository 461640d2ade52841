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
