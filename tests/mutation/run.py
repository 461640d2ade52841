"""`make mutants`: break each rule in a copy of the tree, run the tests that are to notice, tell which did.

`python tests/mutation/run.py [NAME…]`. Without names all are run; docs/mutants.md is written. The test that
noticed last time goes first, and after it the files named with the rule. A test counts if it fails without
the rule and passes with it: one that fails in any case catches nothing.
Left to others: the rules (`mutants.py`), and that the page names them all (`test_mutation.py`).
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.mutation.mutants import MUTANTS, Mutant  # noqa: E402

PAGE = ROOT / "docs" / "mutants.md"
LEFT_OUT = (".venv", ".git", ".mypy_cache", ".ruff_cache", ".hypothesis", "__pycache__", ".src")
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?: [^-].*?)?)(?: - .*)?$", re.MULTILINE)
HANGS = " (hangs)"
NO_TESTS = (4, 5)  # what pytest ends with: no such test, nothing collected
WITHIN_S = 600
HEAD = """# Mutants

Rules that were taken out of the source text, one at a time, and the first test that failed without them and
passed with them. This page is written by `make mutants` (`tests/mutation/`), which runs the test that noticed
last time twice, and others only if it does not; what the simulator finds by itself stands in
[simulation](simulation.md#mutants-the-tester-is-tested). `make check` holds that each text still stands where
it is to be broken, and that no fewer than nine in ten are caught.

"""
LINE = re.compile(r"\| `(\w+)` \| `[^`]+` \| [^|]+ \| (.+) \|")
NOTHING = "nothing"
COLUMNS = ("| mutant | where | the rule that it takes away | caught by |", "|---|---|---|---|")


def caught_by(mutant: Mutant, tree: Path, noticed: str | None = None) -> str | None:
    """The first test that fails without the rule, and only without; None if all that were run pass."""
    path = tree / mutant.file
    whole = path.read_text()
    assert whole.count(mutant.old) == 1, f"{mutant.name}: its text is not in {mutant.file}, or not once"
    broken = whole.replace(mutant.old, mutant.new)
    try:
        for tests in (noticed, *mutant.tests) if noticed else mutant.tests:
            path.write_text(broken)
            failed = first_failure(tests, tree)
            path.write_text(whole)
            if failed and first_failure(failed.removesuffix(HANGS), tree) is None:
                return failed
    finally:
        path.write_text(whole)
    return None


def first_failure(tests: str, tree: Path) -> str | None:
    """The first of these tests that fails there; none does where there are none (any more)."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:randomly", tests]
    environment = {**os.environ, "PYTHONPATH": str(tree / ".src"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, timeout=WITHIN_S
        )
    except subprocess.TimeoutExpired:
        return f"{tests}{HANGS}"
    if done.returncode in (0, *NO_TESTS):
        return None
    found = FAILED.search(done.stdout)
    return found[1] if found else tests


def last_time(told: str) -> str | None:
    """The test that the page names, if it names one."""
    return None if told == NOTHING else f"tests/{told.strip('`').removesuffix(HANGS)}"


def copy_of_the_tree(into: Path) -> Path:
    """Without what is built; imported in place of the installed one."""
    tree = into / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (tree / ".src").mkdir()
    (tree / ".src" / "strandline").symlink_to(tree)
    return tree


def page(told: Mapping[str, str]) -> str:
    """The list with what catches each."""
    caught = sum(by != NOTHING for by in told.values())
    lines = [f"{caught} of {len(told)} are caught.", "", *COLUMNS]
    for mutant in MUTANTS:
        if mutant.name in told:
            lines.append(f"| `{mutant.name}` | `{mutant.file}` | {mutant.rule} | {told[mutant.name]} |")
    return HEAD + "\n".join(lines) + "\n"


def main(names: Sequence[str]) -> int:
    """Run them all, or those that are named; of the others the page says what it said."""
    before = dict(LINE.findall(PAGE.read_text())) if PAGE.exists() else {}
    told = before if names else {}
    survivors = []
    with tempfile.TemporaryDirectory(prefix="strandline-mutants-") as into:
        tree = copy_of_the_tree(Path(into))
        for mutant in MUTANTS:
            if names and mutant.name not in names:
                continue
            by = caught_by(mutant, tree, last_time(before.get(mutant.name, NOTHING)))
            survivors += [] if by else [mutant.name]
            told[mutant.name] = f"`{by.removeprefix('tests/')}`" if by else NOTHING
            print(f"{mutant.name:28} {by or 'NOT CAUGHT'}", flush=True)
    PAGE.write_text(page({mutant.name: told[mutant.name] for mutant in MUTANTS if mutant.name in told}))
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
