"""README counts what there is: no number of it is larger than what it counts, and its page stays one page."""

import re
from pathlib import Path

from strandline.simulation.families import FAMILIES
from tests.simulation.test_seeds import EVERY_RUN, LONG_RUN

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
LINES_MAX = 110


def counted(before: str, after: str) -> int:
    """The number that stands between these words, wherever lines are broken."""
    found = re.search(rf"{before} ([\d,]+) {after}", " ".join(README.split()))
    assert found, f"README says nothing of {before} … {after}"
    return int(found[1].replace(",", ""))


def test_seeds_and_invariants() -> None:
    assert counted("`make test` runs", "seeds of") <= sum(EVERY_RUN.values())
    assert counted("seeds of", "families") <= len(EVERY_RUN) <= len(FAMILIES)
    assert counted("`make simulate-long`", "in all") <= sum(LONG_RUN.values())
    numbers = re.findall(r"^\| I(\d+) \|", (DOCS / "simulation.md").read_text(), re.MULTILINE)
    assert counted("and", "numbered") <= len(set(numbers))


def test_mutants_known_bugs_and_transcripts() -> None:
    caught = re.search(r"^(\d+) of (\d+) are caught", (DOCS / "mutants.md").read_text(), re.MULTILINE)
    assert caught and counted(r"\*\*Mutants\*\*:", "rules") <= int(caught[1])
    rows = re.findall(r"^\| KAFKA-([\d, ]+)", (DOCS / "known-bugs.md").read_text(), re.MULTILINE)
    bugs = {number.strip() for row in rows for number in row.split(",") if number.strip()}
    assert counted(r"\*\*Known bugs\*\*:", "of Kafka's own") <= len(bugs)
    assert counted("", "transcripts") <= len(list((ROOT / "tests" / "scenarios").rglob("*.txt")))


def test_it_is_one_page() -> None:
    assert README.count("\n") <= LINES_MAX
