"""What docs/drills.md says to type in each drill: the lines of its blocks that are marked as ```sh."""

import re
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).resolve().parents[2] / "docs" / "drills.md"
PICTURES = PAGE.parent / "drills"
SECTION = re.compile(r"^## (\d+)\. (.*?)\n(.*?)(?=^## )", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)


class Section(NamedTuple):
    """One drill of the page."""

    number: int
    title: str
    commands: list[str]
    text: str


def sections() -> list[Section]:
    """The drills, in the order of the page."""
    return [
        Section(int(number), title, _lines(text), text)
        for number, title, text in SECTION.findall(PAGE.read_text())
    ]


def _lines(text: str) -> list[str]:
    """Without the remarks behind commands."""
    lines = (line.split("  #")[0].strip() for block in BLOCK.findall(text) for line in block.splitlines())
    return [line for line in lines if line]
