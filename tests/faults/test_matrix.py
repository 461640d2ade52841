"""The matrix itself: every fault has a scenario, every scenario a fault, and the page is what was kept."""

import ast
import json
from pathlib import Path

import pytest

from tests.faults import page
from tests.faults.matrix import MATRIX, chosen, fault_of
from tests.faults.table import Row, Table, read_rows

HERE = Path(__file__).parent


def scenarios() -> set[str]:
    names = (
        node.name
        for path in HERE.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef)
    )
    return {fault for name in names if (fault := fault_of(name))}


def test_every_fault_has_a_scenario_and_every_scenario_a_fault() -> None:
    assert scenarios() == set(MATRIX)


def test_faults_are_chosen_by_name_and_a_wrong_one_is_told() -> None:
    assert chosen("f8, F12") == {"F8", "F12"}
    assert chosen("") == set(MATRIX)
    with pytest.raises(ValueError, match="no fault F99"):
        chosen("F8,F99")


def test_a_scenario_that_is_run_again_takes_the_place_of_its_row(tmp_path: Path) -> None:
    kept = tmp_path / "results.json"
    Table([Row("F10", "ten"), Row("F2", "two", passed=True)]).save(kept)
    Table([Row("F10", "ten", passed=True)]).save(kept)
    assert [(row.fault, row.passed) for row in read_rows(kept)] == [("F2", True), ("F10", True)]


def test_a_file_that_is_no_table_is_refused(tmp_path: Path) -> None:
    kept = tmp_path / "results.json"
    kept.write_text(json.dumps([{"fault": "F1", "what": "", "colour": "red"}]))
    with pytest.raises(ValueError, match="no table of faults"):
        read_rows(kept)


@pytest.mark.parametrize(
    ("row", "wrong"),
    [
        (Row("F1", "", acknowledged=299), "too few"),
        (Row("F1", "", acknowledged=300, gap_s=1e6, gap_limit_s=1.0), "no acknowledgement for"),
        (Row("F4", "", acknowledged=300, gap_s=1e6, whole_s=1e6), "whole after"),
    ],
)
def test_a_row_beyond_its_limits_does_not_pass(row: Row, wrong: str) -> None:
    with pytest.raises(AssertionError, match=wrong):
        row.assert_within_limits()


def test_a_row_within_its_limits_passes() -> None:
    """What the fault itself decides has no limit."""
    Row("F4", "", acknowledged=300, gap_s=1e6, whole_s=1.0).assert_within_limits()


def test_the_page_tells_what_was_run_again() -> None:
    whole, again = "2026-11-27 19:44", "2026-11-27 21:00"
    rows = [Row("F1", "", run=whole), Row("F2", "", run=whole), Row("F3", "a", run=again)]
    told = page.render([*rows, Row("F3", "b", run=again), Row("F4", "")])
    assert f"2 of the 5 scenarios were run in one go, from {whole} (UTC) on;" in told
    assert f"F4 in an earlier run;\nF3 (2) from {again} on." in told


def test_the_page_tells_which_gaps_needed_patience() -> None:
    """Limits grow with the load of the machine; here they did not need to, but once."""
    rows = [Row("F1", "", gap_s=gap_s, gap_limit_s=1.0) for gap_s in (0.5, 1.0, 1.5)]
    told = page.render([*rows, Row("F4", "", gap_s=50.0)])
    assert "Of 3 gaps with a limit 2 were within the limit itself." in told


def test_the_page_is_what_was_kept() -> None:
    assert page.PAGE.read_text() == page.render(read_rows(page.RESULTS)), (
        "docs/reliability.md is old: run `make docs`"
    )
