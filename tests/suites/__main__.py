"""`python -m tests.suites NAME --checkout PATH [--against kafka]`: run a suite, tell what it came to.

Exit status 1 when a test fails without a reason, or passes in spite of one. `--save` keeps a complete run for
docs/suites.md, which `--page` writes.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.suites.every import SUITES
from tests.suites.page import PAGE, render
from tests.suites.running import Asked, SuiteProblem
from tests.suites.shape import KINDS, end_with_us
from tests.suites.suite import read_reasons


def parser() -> argparse.ArgumentParser:
    told = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    told.add_argument("suite", nargs="?", choices=[*SUITES], help="which suite")
    told.add_argument("--checkout", type=Path, help="the folder of its sources, outside the repository")
    told.add_argument("--against", choices=[*KINDS], default="strandline", help="whose cluster it meets")
    told.add_argument("--only", default="", help="only tests whose names fit (pytest -k, go test -run)")
    told.add_argument("--first", action="store_true", help="stop at the first failure")
    told.add_argument("--save", action="store_true", help="keep the outcome for docs/suites.md")
    told.add_argument("--keep", type=Path, help="keep logs and reports in this folder")
    told.add_argument("--page", action="store_true", help="write docs/suites.md from what was kept, and end")
    return told


def main() -> int:
    told = parser()
    given = told.parse_args()
    if given.page:
        PAGE.write_text(render([*SUITES.values()]), encoding="utf-8")
        return 0
    if given.suite is None or given.checkout is None:
        told.error("a suite and its --checkout are needed")
    if given.save and (given.only or given.first):
        told.error("--save keeps whole runs, --only and --first make a part of one")
    end_with_us()
    with tempfile.TemporaryDirectory(prefix="suite-") as scratch:
        try:
            return play(given, given.keep or Path(scratch))
        except SuiteProblem as problem:
            print(f"error: {problem}", file=sys.stderr)
            return 1


def play(given: argparse.Namespace, folder: Path) -> int:
    suite, reasons = SUITES[given.suite], read_reasons(given.suite)
    asked = Asked(given.against, reasons, given.only, given.first)
    with KINDS[given.against](folder / "cluster", suite.shape) as cluster:
        run = suite.play(given.checkout.resolve(), cluster, folder, asked)
    counts = {outcome: run.count(outcome, reasons) for outcome in ("passed", "failed", "skipped")}
    print(f"{suite.title} {suite.version} on {cluster.title}: {counts}, {run.seconds:.0f} s in tests")
    surprises = [] if given.only or given.first else list(run.surprises(reasons))
    for line in surprises:
        print(line)
    if given.save:
        run.save()
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
