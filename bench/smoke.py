"""`make bench-smoke`: the short suite, Strandline beside both Apache Kafkas, medians of several rounds.

    python -m bench.smoke [--rounds 3] [--minutes 30] [--only W1,W3] [--systems strandline,kafka-4.3]
                          [--json bench/figures.json]

A round is every workload with every system, one after the other, in turned order from round to round; Spark
is only in the first. No round begins after `--minutes`. The table at the end is that of tables.py, which can
print it again.
"""

import argparse
import datetime
import json
import os
import sys
import time
from pathlib import Path

from .clients import w21
from .spark import w20
from .system import TICKS_PER_S, System
from .systems import MEASURED, SYSTEMS
from .tables import Results, full
from .workloads import WORKLOADS, Figures

ALL = {**WORKLOADS, "W20": w20, "W21": w21}
ROUNDS_MAX = {"W20": 1, "W21": 1}  # the one warms itself up, the other has rounds of its own: clients.py


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--only", default=",".join(ALL))
    parser.add_argument("--systems", default=",".join(kind.name for kind in MEASURED))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    systems = [SYSTEMS[name] for name in options.systems.split(",")]
    results = beginning(systems)
    ends = time.monotonic() + 60 * options.minutes
    for number in range(options.rounds):
        if number and time.monotonic() > ends:
            break
        turned = systems[number % len(systems) :] + systems[: number % len(systems)]
        for name in options.only.split(","):
            for kind in turned if number < ROUNDS_MAX.get(name, options.rounds) else ():
                run(results, name, kind)
                keep(results, options.json)
        results["rounds"] = number + 1
    keep(results, options.json)
    sys.stdout.write(full(results))
    return 0


def beginning(systems: list[type[System]]) -> Results:
    """What is known of a sitting before it begins."""
    return {
        "date": datetime.date.today().isoformat(),
        "cores": os.cpu_count() or 1,
        "systems": [kind.name for kind in systems],
        "rounds": 0,
        "others_cores": {},
        "seconds": 0.0,
        "figures": {},
    }


def keep(results: Results, path: Path | None) -> None:
    """Write down what is known so far, for `tables.py`, if there is a place for it."""
    if path is not None:
        path.write_text(json.dumps(results, indent=1) + "\n")


def run(results: Results, workload: str, kind: type[System]) -> None:
    """One run of a workload: its figures, and what others used meanwhile, are added to earlier rounds."""
    began, busy, own = time.monotonic(), _busy_s(), _own_s()
    figures: Figures = ALL[workload](kind)
    seconds = time.monotonic() - began
    others = max(_busy_s() - busy - (_own_s() - own), 0.0) / seconds
    results["seconds"] += seconds
    results["others_cores"].setdefault(workload, {}).setdefault(kind.name, []).append(round(others, 2))
    for name, value in figures.items():
        of_all = results["figures"].setdefault(workload, {}).setdefault(kind.name, {})
        of_all.setdefault(name, []).append(value)
    said = "  ".join(f"{name} {value:,.2f}" for name, value in figures.items())
    sys.stderr.write(f"{workload:10} {kind.name:11} {seconds:4.0f} s  others {others:.2f} cores  {said}\n")


def _busy_s() -> float:
    """CPU seconds that all processes of this machine have used, and that its host has kept from it."""
    user, nice, system, _idle, _wait, irq, soft_irq, steal = map(
        int, Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
    )
    return (user + nice + system + irq + soft_irq + steal) / TICKS_PER_S


def _own_s() -> float:
    """CPU seconds of this process and of all children that have ended: each is waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


if __name__ == "__main__":
    sys.exit(main())
