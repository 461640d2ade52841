"""Reads transcripts: `>` is an event, the `<` lines below it are what the rules answer, `#` explains.

`REWRITE=1 pytest tests/replication` writes the answers of today into the files; the diff is then to be
judged.
"""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

SCENARIOS = Path(__file__).parent.parent / "scenarios"

Perform = Callable[[str], list[str]]


def _play(path: Path, perform: Perform) -> tuple[list[str], list[str]]:
    written = path.read_text().splitlines()
    played: list[str] = []
    for line in written:
        if line.startswith("<"):
            continue
        played.append(line)
        if line.startswith("> "):
            played.extend(f"< {answer}" for answer in perform(line[2:]) or ["nothing"])
    return written, played


@pytest.fixture
def replay() -> Callable[[str, Perform], None]:
    """Play one transcript against a rule machine and compare it line by line."""

    def play(name: str, perform: Perform) -> None:
        path = SCENARIOS / name
        written, played = _play(path, perform)
        if os.environ.get("REWRITE"):
            path.write_text("\n".join(played) + "\n")
            return
        assert played == written

    return play
