"""What is told of other people's suites: the page is fresh, and reasons are read both ways."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.suites.checkout import Stated, version_of
from tests.suites.declared import Suite
from tests.suites.every import SUITES
from tests.suites.librdkafka import Part, Report, declared, read_report
from tests.suites.page import PAGE, render
from tests.suites.running import read_junit
from tests.suites.sarama import read_events
from tests.suites.suite import Reason, Reasons, Run, SuiteProblem, read_reasons, read_run

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


EVERY_RUN = [(suite, peer) for suite in SUITES.values() for peer in suite.peers]


@pytest.mark.parametrize(
    ("suite", "peer"), EVERY_RUN, ids=[f"{suite.name}-{peer}" for suite, peer in EVERY_RUN]
)
def test_what_was_kept_has_no_surprise(suite: Suite, peer: str) -> None:
    run, reasons = read_run(suite.name, peer), read_reasons(suite.name)
    assert run is not None and not list(run.surprises(reasons))
    assert run.version == reasons.version == suite.version, "outcomes and reasons are of one release"


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=any", "-c", "user.email=any@example.org")
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, timeout=30)


def test_git_tells_the_release_of_a_checkout(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "version.py").write_text('__version__ = "0.1"')
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "all")
    git(tmp_path, "tag", "v2.0.0")
    git(tmp_path, "tag", "-a", "-m", "which git would name first", "v2.0.0rc1")
    stated = Stated("version.py", '"(.+)"')
    assert version_of(tmp_path, stated) == "2.0.0"
    (tmp_path / "built.o").touch()
    assert version_of(tmp_path, stated) == "2.0.0", "what was built there is no change"
    (tmp_path / "version.py").write_text("")
    assert version_of(tmp_path, stated) == "2.0.0-dirty"
    git(tmp_path, "commit", "-q", "-a", "-m", "more")
    assert version_of(tmp_path, stated).startswith("2.0.0-1-g")


def test_sources_or_their_folder_tell_the_release_where_git_does_not(tmp_path: Path) -> None:
    folder = tmp_path / "any@v1.60.1"
    folder.mkdir()
    assert version_of(folder, Stated("version.py", '"(.+)"')) == "1.60.1"
    (folder / "version.py").write_text('__version__ = "0.1"')
    assert version_of(folder, Stated("version.py", '"(.+)"')) == "0.1"
    (tmp_path / "any").mkdir()
    with pytest.raises(SuiteProblem, match=r"neither a tag of git nor version\.py"):
        version_of(tmp_path / "any", Stated("version.py", '"(.+)"'))


def test_another_release_is_refused(tmp_path: Path) -> None:
    suite, reasons = SUITES["aiokafka"], read_reasons("aiokafka")
    (tmp_path / "aiokafka").mkdir()
    stated = tmp_path / "aiokafka" / "__init__.py"
    stated.write_text(f'__version__ = "{suite.version}"\n')
    suite.check(tmp_path, reasons)
    with pytest.raises(SuiteProblem, match=r"reasons/aiokafka\.toml is of aiokafka 0\.1"):
        suite.check(tmp_path, replace(reasons, version="0.1"))
    stated.write_text('__version__ = "99.0"\n')
    with pytest.raises(SuiteProblem, match=f"is of aiokafka 99.0, the suite is declared for {suite.version}"):
        suite.check(tmp_path, reasons)
    with pytest.raises(SuiteProblem, match="is missing"):
        suite.check(tmp_path / "none", reasons)


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


TABLE = """
struct test tests[] = {
    _TEST(0004_conf, TEST_F_LOCAL),
    _TEST(0031_get_offsets, 0),
    _TEST(0031_get_offsets_mock, TEST_F_LOCAL),
    _TEST(0066_plugins,
          TEST_F_LOCAL | TEST_F_KNOWN_ISSUE_WIN32,
          .extra = "any"),
    _TEST(0068_produce_timeout, TEST_F_SOCKEM),
    _TEST(0081_admin, 0, TEST_BRKVER(0, 10, 2, 0)),
    {NULL}};
"""
PARTS = """
static void do_test_CreateTopics(const char *what,
                                 int op_timeout) {
        SUB_TEST_QUICK("%s", what);
static void
do_test_CreateAcls(rd_kafka_t *rk, rd_kafka_queue_t *useq, int version) {
        SUB_TEST_QUICK();
static void do_test_apis(rd_kafka_type_t cltype) {
        do_test_CreateTopics("any", 0);
"""
PRINTED = """\x1b[33m[0092_mixed_msgver          /  0.001s] WARN: SKIPPING TEST: too old\x1b[0m
\x1b[33m[0092_mixed_mock            /  0.000s] WARN: SKIPPING TEST: Filtered due to negative test flags\x1b[0m
\x1b[31m### Test "0092_fails (do_it:1: acks)" failed at test.c:7:wait() at Mon Nov 23 12:00:00 2026: ###
2 of 3 arrived
\x1b[31m### Test "0092_late" failed at test.c:9:check() at Mon Nov 23 12:01:00 2026: ###
it timed out
"""


def test_a_report_of_librdkafka(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test.c").write_text(TABLE)
    (tmp_path / "tests" / "0081-admin.c").write_text(PARTS)
    admin = [Part("0081", "do_test_CreateTopics"), Part("0081", "do_test_CreateAcls")]
    assert declared(tmp_path) == [Part("0031"), Part("0068"), *admin]
    states = {
        "0092_mixed_msgver": "SKIPPED",
        "0092_mixed_mock": "SKIPPED",
        "0092_works": "PASSED",
        "0092_fails": "FAILED",
        "0092_late": "RUNNING",
        "0093_other": "PASSED",
    }
    table: dict[str, dict[str, object]] = {
        name: {"state": state, "duration": 1} for name, state in states.items()
    }
    run = Run("any", "1", "kafka")
    read_report(Part("0092"), Report(table, PRINTED), run)
    read_report(Part("0094"), Report({}, "Segmentation fault"), run)
    read_report(admin[0], Report({"0081_admin": {"state": "PASSED", "duration": 1}}, ""), run)
    assert run.tests == {
        "0092_mixed_msgver": "skipped",
        "0092_works": "passed",
        "0092_fails": "failed",
        "0092_late": "failed",
        "0094": "failed",
        "0081_admin/do_test_CreateTopics": "passed",
    }
    assert run.said["0092_fails"] == "2 of 3 arrived" and run.said["0092_mixed_msgver"] == "too old"
    assert run.said["0094"] == "Segmentation fault"
