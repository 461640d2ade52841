"""Walks clients through their cells, on one cluster of broker processes: `make compatibility`.

    python -m tests.conformance.matrix.walk                 # every client; writes results.json and the page
    python -m tests.conformance.matrix.walk --client kcat   # this one anew, the others stay as they are
    python -m tests.conformance.matrix.walk --client kcat --feature transactions --event "leader killed"
    python -m tests.conformance.matrix.walk --again --client kcat --feature transactions

With a choice of features or events nothing is written, but each outcome is told. With `--again` what failed
in the walk is run again, alone, and what comes of it is written beside why it failed then. What clients write
to their standard error goes to that of the walk. Left to others: what is tried (features.py), what is
declared (declared.py), the page (page.py).
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.conformance.matrix import page, results
from tests.conformance.matrix.declared import CLIENTS, EVENTS, FAULTS, LIMITS, Cell, cells
from tests.conformance.matrix.drivers import DRIVERS, driving
from tests.conformance.matrix.results import FAILS, FAULT, NOT_OFFERED, PASSES, Outcome, Walked

sys.path.append(str(Path(__file__).parents[1]))

from drive_strandline import Strandline

from strandline.testing import LocalCluster
from tests.conformance.matrix.features import TRIED
from tests.conformance.matrix.scene import SETTINGS, Scene


def trial(cluster: LocalCluster, driver: Any, ours: Any, cell: Cell) -> Outcome:
    """Try one cell, and have the cluster whole again."""
    if (cell.client, cell.feature) in LIMITS:
        return Outcome(*cell, NOT_OFFERED, LIMITS[cell.client, cell.feature])
    if cell in FAULTS:
        return Outcome(*cell, FAULT, FAULTS[cell])
    scene, began = Scene(cluster, driver, ours, cell.event), time.monotonic()
    try:
        TRIED[cell.feature](scene)
        outcome, reason = PASSES, ""
    except Exception as error:  # whatever a client raises is what came of it
        outcome, reason = FAILS, f"{type(error).__name__}: {error}"
    took_s = time.monotonic() - began
    if scene.kills:
        scene.heal()
    gap_s = None if scene.gap_s is None else round(scene.gap_s, 2)
    return Outcome(*cell, outcome, reason, gap_s, round(took_s, 1))


def walk(
    cluster: LocalCluster, client: str, wanted: Iterable[Cell], tell: Callable[[Outcome], None]
) -> list[Outcome]:
    """One client through these of its cells."""
    ours = Strandline(cluster.bootstrap)
    found = []
    with ExitStack() as programs:
        driver = programs.enter_context(driving(client, cluster.bootstrap))
        for cell in wanted:
            found.append(trial(cluster, driver, ours, cell))
            tell(found[-1])
            if found[-1].outcome == FAILS:  # the next one gets a program in which nothing hangs
                programs.close()
                driver = programs.enter_context(driving(client, cluster.bootstrap))
    return found


def _tell(outcome: Outcome) -> None:
    gap = "" if outcome.gap_s is None else f" gap {outcome.gap_s:.2f} s"
    where = f"{outcome.client:18}{outcome.feature:22}{outcome.event:20}"
    print(f"{where}{outcome.outcome}{gap} {outcome.took_s} s {outcome.reason}", flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--client", nargs="+", choices=[one.name for one in CLIENTS], default=[*DRIVERS])
    parser.add_argument("--feature", nargs="+", choices=[*TRIED], default=[*TRIED])
    parser.add_argument("--event", nargs="+", choices=EVENTS, default=EVENTS)
    parser.add_argument("--again", action="store_true", help="of these, what failed in the walk")
    return parser.parse_args()


def main() -> None:
    """All of them, or those that are chosen."""
    given = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the cluster is ended, too
    whole = set(given.feature) == set(TRIED) and set(given.event) == set(EVENTS)
    walk_of = time.strftime("%Y-%m-%d %H:%M", time.gmtime())
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="matrix-") as folder:
        cluster = LocalCluster(Path(folder), 3, settings=SETTINGS)
        cluster.start()
        try:
            for client in given.client:
                began, wanted = time.monotonic(), _wanted(given, client)
                outcomes += (found := walk(cluster, client, wanted, _tell) if wanted else [])
                if given.again:
                    _repeated(client, found)
                elif whole:
                    _walked(client, found, walk_of, time.monotonic() - began)
        finally:
            cluster.kill()
    sys.exit(any(one.outcome == FAILS for one in outcomes))


def _wanted(given: argparse.Namespace, client: str) -> list[Cell]:
    chosen = [one for one in cells(client) if one.feature in given.feature and one.event in given.event]
    if not given.again:
        return chosen
    failed = {
        Cell(client, one.feature, one.event)
        for one in results.load()[client].outcomes
        if one.outcome == FAILS
    }
    return [one for one in chosen if one in failed]


def _walked(client: str, found: list[Outcome], walk_of: str, took_s: float) -> None:
    """Let the results and the page have this client's outcomes."""
    version, load = DRIVERS[client].version(), round(os.getloadavg()[2], 1)
    walked = Walked(version, walk_of, round(took_s), os.cpu_count() or 0, load, found)
    walks = (results.load() if results.FILE.exists() else {}) | {client: walked}
    _keep({one.name: walks[one.name] for one in CLIENTS if one.name in walks})


def _repeated(client: str, found: list[Outcome]) -> None:
    """Let them have what came of the cells that were run again."""
    walks = results.load()
    walks[client] = again(walks[client], found)
    _keep(walks)


def again(walked: Walked, found: list[Outcome]) -> Walked:
    """The walk with the later outcomes of some cells, each beside why it failed at first."""
    later = {(one.feature, one.event): one for one in found}

    def told(first: Outcome) -> Outcome:
        second = later.get((first.feature, first.event), first)
        tried = second is not first and second.outcome != FAULT
        return replace(second, again=first.again or first.reason) if tried else second

    return replace(walked, outcomes=[told(one) for one in walked.outcomes])


def _keep(walks: dict[str, Walked]) -> None:
    results.save(walks)
    page.PAGE.write_text(page.render(), encoding="utf-8")


if __name__ == "__main__":
    main()
