"""`make bench-smoke`: the short suite, Strandline beside Apache Kafka 3.9, medians of several runs.

python -m bench.smoke [--runs 3] [--only W1,W3] [--without-kafka] [--json FILE]
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from .spark import w20
from .workloads import PEERS, WORKLOADS, Figures

ALL = {**WORKLOADS, "W20": w20}


def main() -> int:
    """Run the workloads in turn, the peers alternating, and print the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(ALL))
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    peers = PEERS[:1] if options.without_kafka else PEERS
    results: dict[str, dict[str, dict[str, list[float]]]] = {}
    for name in options.only.split(","):
        taken: dict[str, list[Figures]] = {kind.name: [] for kind in peers}
        for run in range(options.runs):
            for kind in peers if run % 2 == 0 else peers[::-1]:
                taken[kind.name].append(ALL[name](kind))
        results[name] = {peer: _columns(figures) for peer, figures in taken.items()}
        report(name, results[name])
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    return 0


def report(name: str, result: dict[str, dict[str, list[float]]]) -> None:
    """One workload: median, range and ratio of each figure."""
    ours = result[PEERS[0].name]
    theirs = result.get(PEERS[1].name, {})
    for figure, values in ours.items():
        row = f"{name:10} {figure:24} {_said(values)}"
        if figure in theirs:
            base = statistics.median(theirs[figure])
            ratio = statistics.median(values) / base if base else float("nan")
            row += f"   kafka {_said(theirs[figure])}   ratio {ratio:.3f}"
        sys.stdout.write(row + "\n")
    sys.stdout.flush()


def _columns(figures: list[Figures]) -> dict[str, list[float]]:
    return {name: [one[name] for one in figures] for name in figures[0]}


def _said(values: list[float]) -> str:
    return f"{statistics.median(values):12,.2f} [{min(values):,.2f} … {max(values):,.2f}]"


if __name__ == "__main__":
    sys.exit(main())
