"""Each broken rule can still be broken where it stands, and docs/mutants.md tells of each what catches it."""

from pathlib import Path

import pytest

from .mutants import MUTANTS, Mutant
from .run import LINE, NOTHING, PAGE

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_its_text_stands_where_it_is_broken(mutant: Mutant) -> None:
    assert (ROOT / mutant.file).read_text().count(mutant.old) == 1, "mend tests/mutation/mutants.py"
    assert mutant.old != mutant.new
    assert all((ROOT / path).exists() for path in mutant.tests)


def test_nine_in_ten_are_caught_and_all_are_listed() -> None:
    told = dict(LINE.findall(PAGE.read_text()))
    assert told.keys() == {mutant.name for mutant in MUTANTS}, "run `make mutants`"
    caught = [name for name, by in told.items() if by != NOTHING]
    assert len(caught) >= 0.9 * len(MUTANTS)
