"""Each broken rule can still be broken where it stands, and docs/mutants.md tells of each what catches it."""

from pathlib import Path

import pytest

from . import run
from .mutants import MUTANTS, Mutant
from .run import LINE, NOTHING, PAGE, caught_by

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_text_stands_where_it_is_broken(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1, "mend tests/mutation/rules.txt"
    assert mutant.old != mutant.new
    assert all((ROOT / path).exists() for path in mutant.tests)


def test_nine_in_ten_are_caught_and_all_are_listed() -> None:
    told = dict(LINE.findall(PAGE.read_text()))
    assert told.keys() == {mutant.name for mutant in MUTANTS}, "run `make mutants`"
    caught = [name for name, by in told.items() if by != NOTHING]
    assert len(caught) >= 0.9 * len(MUTANTS)


def test_a_test_counts_if_it_fails_without_the_rule_and_passes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rule.py"
    path.write_text("LIMIT = 3")
    asked: list[str] = []

    def first_failure(tests: str, tree: Path) -> str | None:
        asked.append(tests)
        file = tests.removesuffix("::it")
        fails = {"test_blind.py": False, "test_broken.py": True}
        return f"{file}::it" if fails.get(file, path.read_text() != "LIMIT = 3") else None

    monkeypatch.setattr(run, "first_failure", first_failure)
    files = ("test_blind.py", "test_broken.py", "test_rule.py")
    mutant = Mutant("limit", "rule.py", "three", files, "LIMIT = 3", "LIMIT = 4")
    assert caught_by(mutant, tmp_path, noticed="test_rule.py::it") == "test_rule.py::it"
    assert asked[0] == "test_rule.py::it", "what noticed last time is asked first"
    assert caught_by(mutant, tmp_path) == "test_rule.py::it"
    assert caught_by(mutant._replace(tests=files[:2]), tmp_path) is None
    assert path.read_text() == "LIMIT = 3", "the rule stands again"
