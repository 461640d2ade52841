"""The figures of a sitting as Markdown: all of them for docs/benchmarks.md, a few for README.

    python -m bench.tables bench/figures.json [--write]     # print them, or put them into both pages

A cell is the median of the rounds, with the least and the largest in brackets; a ratio is that of medians.
"""

import argparse
import json
import re
import statistics
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

from .systems import SYSTEMS, Strandline

ROOT = Path(__file__).resolve().parents[1]
OURS = Strandline.name
FIRST_PAGE = (  # what it is called there, the workload, its figure, whether more is better
    ("produce, records/s", "W1", "records/s", True),
    ("produce, CPU-s of all brokers per GB", "W1", "broker CPU-s/GB", False),
    ("consume, records/s", "W6", "records/s", True),
    ("consume, CPU-s of all brokers per GB", "W6", "broker CPU-s/GB", False),
    ("one record a request, requests/s", "W3", "requests/s", True),
    ("`kill -9` of a leader: longest gap between acknowledgements, s", "W10", "longest gap s", False),
    ("from exec to the first acknowledgement, s", "W13", "start s", False),
    ("resident memory of an idle broker, MB", "W14", "idle RssAnon MB", False),
)


class Results(TypedDict):
    """A sitting: when and on how many cores, what else ran, and the figures.

    `figures` is workload → system → figure → one value a round; `others_cores` is what others used meanwhile.
    """

    date: str
    cores: int
    systems: list[str]
    rounds: int
    others_cores: dict[str, dict[str, list[float]]]
    seconds: float
    figures: dict[str, dict[str, dict[str, list[float]]]]


def full(results: Results) -> str:
    """Every figure, and its ratio to that of each peer."""
    names = results["systems"]
    peers = [name for name in names if name != OURS] if OURS in names else []
    rows = [["workload", *(SYSTEMS[name].title for name in names), *(f"to {name}" for name in peers)]]
    for workload, by_system in results["figures"].items():
        for figure in next(iter(by_system.values())):
            values = {name: found[figure] for name, found in by_system.items()}
            ratios = [_ratio(values[OURS], values[peer]) for peer in peers]
            rows.append([f"{workload}, {figure}", *(_cell(values[name]) for name in names), *ratios])
    return _markdown(rows)


def first_page(results: Results) -> str:
    """The few figures of README, each beside the better of the peers."""
    names = results["systems"]
    rows = [["", *(SYSTEMS[name].title for name in names), "beside the better Kafka"]]
    for label, workload, figure, more in FIRST_PAGE:
        medians = {name: statistics.median(results["figures"][workload][name][figure]) for name in names}
        theirs = [value for name, value in medians.items() if name != OURS]
        ratio = medians[OURS] / (max(theirs) if more else min(theirs))
        rows.append([label, *map(number, medians.values()), f"{number(ratio)} ×"])
    return _markdown(rows)


def note(results: Results) -> str:
    """Under which circumstances the figures were taken."""
    others = [value for by in results["others_cores"].values() for each in by.values() for value in each]
    return textwrap.fill(
        f"Medians of {results['rounds']} rounds on {results['date']}, on {results['cores']} cores that "
        f"client, ZooKeeper and brokers share; other work used "
        f"{number(statistics.median(others))} cores meanwhile (the median; "
        f"at most {number(max(others))}). ZooKeeper is not counted.",
        110,
    )


def number(value: float) -> str:
    """Three digits count; of what is below ten, two behind the point, and three of what is below a tenth."""
    if value >= 1000:
        return f"{float(f'{value:.3g}'):,.0f}"
    if value >= 10:
        return f"{value:.0f}" if value >= 100 else f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}" if value else "0"


def _cell(values: list[float]) -> str:
    middle, low, high = map(number, (statistics.median(values), min(values), max(values)))
    return middle if low == high else f"{middle} [{low} … {high}]"


def _ratio(ours: list[float], theirs: list[float]) -> str:
    base = statistics.median(theirs)
    return number(statistics.median(ours) / base) if base else ""


def _markdown(rows: list[list[str]]) -> str:
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


PAGES: dict[str, Callable[[Results], str]] = {"README.md": first_page, "docs/benchmarks.md": full}
PLACE = re.compile(r"(<!-- bench\.tables -->\n).*?(\n<!-- end -->)", re.DOTALL)


def told(render: Callable[[Results], str], results: Results) -> str:
    """A table, and what is said of its circumstances."""
    return f"{render(results)}\n{note(results)}\n"


def with_figures(page: str, figures: str) -> str:
    """The text of a page with these figures in their place."""
    assert len(PLACE.findall(page)) == 1, "a page has one place for figures"
    return PLACE.sub(lambda place: f"{place[1]}\n{figures}{place[2]}", page)


def main() -> int:
    """Print or write the tables of a file that smoke.py has made."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("figures", type=Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    results: Results = json.loads(options.figures.read_text())
    for name, render in PAGES.items():
        if options.write:
            page = ROOT / name
            page.write_text(with_figures(page.read_text(), told(render, results)))
        else:
            sys.stdout.write(told(render, results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
