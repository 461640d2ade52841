"""`python -m tests.suites NAME --checkout PATH [--against kafka]`: run a suite, tell what it came to.

`--save` keeps a complete run for docs/suites.md, which `--page` writes. `--all FOLDER` does both for every
suite on every peer, from the checkouts in that folder. Exit status 1 when a test fails without a reason, or
passes in spite of one.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.suites.declared import Asked, Suite
from tests.suites.every import SUITES
from tests.suites.page import PAGE, render
from tests.suites.shape import KINDS, end_with_us
from tests.suites.suite import SuiteProblem, read_reasons


def parser() -> argparse.ArgumentParser:
    told = argparse.ArgumentParser(prog="python -m tests.suites", description=__doc__)
    told.add_argument("suite", nargs="?", choices=[*SUITES], help="which suite")
    told.add_argument("--checkout", type=Path, help="the folder of its sources, outside the repository")
    told.add_argument("--against", choices=[*KINDS], default="strandline", help="whose cluster it meets")
    told.add_argument("--only", default="", help="only tests whose names fit (pytest -k, go test -run)")
    told.add_argument("--first", action="store_true", help="stop at the first failure")
    told.add_argument("--save", action="store_true", help="keep the outcome for docs/suites.md")
    told.add_argument("--keep", type=Path, help="keep logs and reports in this folder")
    told.add_argument("--all", type=Path, metavar="FOLDER", help="every suite, on every peer, and the page")
    told.add_argument("--page", action="store_true", help="write docs/suites.md from what was kept, and end")
    return told


def main() -> int:
    told = parser()
    given = told.parse_args()
    if given.page:
        write_page()
        return 0
    end_with_us()
    if given.all is not None:
        if given.suite or given.checkout or given.only or given.first:
            told.error("--all runs every suite whole; it goes with --keep only")
        return play_all(given.all, given.keep)
    if given.suite is None or given.checkout is None:
        told.error("a suite and its --checkout are needed")
    if given.save and (given.only or given.first):
        told.error("--save keeps whole runs, --only and --first make a part of one")
    suite, reasons = SUITES[given.suite], read_reasons(given.suite)
    if given.against not in suite.peers:
        told.error(f"{suite.title} is run on {' and '.join(suite.peers)}")
    asked = Asked(given.against, reasons, given.only, given.first)
    return play(suite, given.checkout, asked, given.keep, given.save)


def write_page() -> None:
    PAGE.write_text(render([*SUITES.values()]), encoding="utf-8")


def play_all(checkouts: Path, keep: Path | None) -> int:
    """One after the other; a suite that cannot be run does not keep the others from it."""
    bad = 0
    for suite in SUITES.values():
        for peer in suite.peers:
            asked = Asked(peer, read_reasons(suite.name))
            folder = keep / f"{suite.name}-{peer}" if keep else None
            bad |= play(suite, checkouts / suite.checkout, asked, folder, save=True)
    write_page()
    return bad


def play(suite: Suite, checkout: Path, asked: Asked, keep: Path | None, save: bool) -> int:
    """The exit status. Logs and reports go with the run, unless they are kept."""
    with tempfile.TemporaryDirectory(prefix="suite-") as scratch:
        try:
            suite.check(checkout.resolve(), asked.reasons)
            return play_in(suite, checkout.resolve(), asked, keep or Path(scratch), save)
        except SuiteProblem as problem:
            print(f"error: {problem}", file=sys.stderr)
            return 1


def play_in(suite: Suite, checkout: Path, asked: Asked, folder: Path, save: bool) -> int:
    with KINDS[asked.peer](folder / "cluster", suite.shape) as cluster:
        run = suite.play(checkout, cluster, folder, asked)
    counts = {outcome: run.count(outcome, asked.reasons) for outcome in ("passed", "failed", "skipped")}
    print(f"{suite.title} {suite.version} on {cluster.title}: {counts}, {run.seconds:.0f} s in tests")
    surprises = [] if asked.only or asked.first else list(run.surprises(asked.reasons))
    for line in surprises:
        print(line)
    if save:
        run.save()
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
