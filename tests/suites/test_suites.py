"""What is told of other people's suites: the page is fresh, and reasons are read both ways."""

import json
from pathlib import Path

import pytest

from tests.suites.every import SUITES
from tests.suites.page import PAGE, render
from tests.suites.running import read_junit
from tests.suites.sarama import read_events
from tests.suites.suite import EVERYWHERE, Reason, Reasons, Run, read_reasons, read_run

REASONS = Reasons(
    left_out=(Reason(("test_sasl.py::*",), "no SASL"),),
    fails=(
        Reason(("*::test_acl",), "no ACLs"),
        Reason(("*::test_new",), "not yet", ("strandline",)),
        Reason(("*::test_race[[]*",), "a race", sometimes=True),
    ),
)


def test_the_page_is_fresh() -> None:
    assert PAGE.read_text() == render([*SUITES.values()]), "run `python -m tests.suites --page`"


@pytest.mark.parametrize("name", SUITES)
@pytest.mark.parametrize("peer", EVERYWHERE)
def test_what_was_kept_has_no_surprise(name: str, peer: str) -> None:
    run = read_run(name, peer)
    assert run is None or not list(run.surprises(read_reasons(name)))


def test_reasons_are_read_both_ways() -> None:
    run = Run("any", "1", "strandline")
    run.tests = {
        "test_sasl.py::test_login": "failed",
        "test_it.py::test_acl": "failed",
        "test_it.py::test_new": "passed",
        "test_it.py::test_other": "failed",
        "test_it.py::test_race[1]": "passed",
    }
    assert list(run.surprises(REASONS)) == [
        "passed, though a reason is given why it fails: test_it.py::test_new",
        "FAILED, and no reason is known: test_it.py::test_other",
    ]
    assert run.count("failed", REASONS) == 2, "what was left out does not count"
    del run.tests["test_it.py::test_acl"]
    assert "a reason for tests that were not run: *::test_acl" in list(run.surprises(REASONS))


def test_a_report_of_pytest(tmp_path: Path) -> None:
    whole = "<testsuites><testsuite>"
    for name, seconds, inner in (
        ('classname="tests.test_it.TestA" name="test_a"', 1.5, ""),
        ('classname="tests.test_it" name="test_b[x]"', 0.5, '<failure message="no"/>'),
        ('classname="tests.test_it" name="test_c"', 0, '<skipped message="old"/>'),
    ):
        whole += f'<testcase file="tests/test_it.py" {name} time="{seconds}">{inner}</testcase>'
    (tmp_path / "junit.xml").write_text(whole + "</testsuite></testsuites>")
    run = read_junit(tmp_path / "junit.xml", Run("any", "1", "kafka"))
    assert run.tests == {
        "tests/test_it.py::TestA::test_a": "passed",
        "tests/test_it.py::test_b[x]": "failed",
        "tests/test_it.py::test_c": "skipped",
    }
    assert run.seconds == 2 and run.said["tests/test_it.py::test_c"] == "old"


def test_events_of_go(tmp_path: Path) -> None:
    told = [("run", "TestA"), ("pass", "TestA"), ("run", "TestB"), ("run", "TestB/v1"), ("pass", "TestB/v1")]
    told += [("run", "TestB/v2"), ("fail", "TestB/v2"), ("fail", "TestB"), ("run", "TestC")]
    lines = [json.dumps({"Action": what, "Test": test, "Elapsed": 1}) for what, test in told]
    (tmp_path / "events").write_text("\n".join([*lines, "go: downloading something"]))
    run = read_events(tmp_path / "events", Run("any", "1", "kafka"))
    assert run.tests == {"TestA": "passed", "TestB/v1": "passed", "TestB/v2": "failed", "TestC": "failed"}
