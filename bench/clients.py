"""The bundled client beside aiokafka and confluent-kafka, on the same three brokers.

    python -m bench.clients [--rounds 5] [--seconds 4] [--sizes 100,1024] [--only bundled] [--json FILE]

Each way to produce or to consume (client_drivers.py) runs in a process of its own, one after the other, in
turned order from round to round. Consumers read what librdkafka has written: six partitions with three
replicas, batches of up to 1 MB. The tables at the end have medians with the least and the largest round, and
the ratio to the best of each other client for the same kind of work.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from strandline.local.owned import mark

from .client_drivers import CONSUME, PRODUCE
from .drivers import create_topic, produce_at_least
from .system import System
from .systems import SYSTEMS, Strandline
from .tables import number
from .workloads import BIG, running

PARTITIONS = 6
READ_BYTES = 300_000_000  # what there is to read of each size of records
RUN_MAX_S = 180
SIZES = (100, 1024)
CLIENTS = ("bundled", "aiokafka", "confluent-kafka")
MEASURED = ("records/s", "client CPU µs/record")

Figures = dict[tuple[str, str], list[float]]  # way, what was measured: one value a round


def prepared(system: System, size: int) -> int:
    """A topic to write to and one to read from; how many records are in that."""
    create_topic(system.bootstrap, f"written-{size}", PARTITIONS, 3)
    create_topic(system.bootstrap, f"read-{size}", PARTITIONS, 3)
    return produce_at_least(
        system.bootstrap, f"read-{size}", value=b"v" * size, records=READ_BYTES // size, seconds=1, **BIG
    )


def run(system: System, way: str, size: int, seconds: float, there: int) -> tuple[float, float]:
    """Records a second, and CPU µs of the client for each."""
    topic = f"written-{size}" if way in PRODUCE else f"read-{size}"
    asked = {
        "way": way, "bootstrap": system.bootstrap, "topic": topic, "partitions": PARTITIONS,
        "size": size, "seconds": seconds,
    }  # fmt: skip
    if way in CONSUME:
        asked["most"] = there * 9 // 10  # what the first answers brought came before the clock
    done = subprocess.run(
        [sys.executable, "-m", "bench.client_drivers", json.dumps(asked)],
        cwd=Path(__file__).resolve().parents[1],
        env={**os.environ, **mark()},
        capture_output=True,
        text=True,
        timeout=RUN_MAX_S,
    )
    assert done.returncode == 0, f"{way}: {done.stderr[-2000:]}"
    told = json.loads(done.stdout.splitlines()[-1])
    return told["records"] / told["seconds"], told["cpu"] / told["records"] * 1e6


def w21(kind: type[System], seconds: float = 2) -> dict[str, float]:
    """Each client producing and consuming values of 100 and 1,024 bytes, acks=all: once each."""
    figures: dict[str, float] = {}
    with running(kind, 3) as system:
        for size in SIZES:
            there = prepared(system, size)
            for way in (*PRODUCE, *CONSUME):
                for name, value in zip(MEASURED, run(system, way, size, seconds, there), strict=True):
                    figures[f"{size} B, {way}, {name}"] = value
    return figures


def table(figures: Figures, ways: list[str]) -> str:
    """Of one size: each way, and beside it the best of the other clients."""
    lines = [
        "| | records/s | client CPU µs/record | to aiokafka | to confluent-kafka |",
        "|---|---|---|---|---|",
    ]
    best = {
        other: max(
            (statistics.median(figures[way, MEASURED[0]]) for way in ways if way.startswith(other)), default=0
        )
        for other in CLIENTS[1:]
    }
    for way in ways:
        rates, costs = (figures[way, name] for name in MEASURED)
        rate = statistics.median(rates)
        ratios = [number(rate / most) if way.startswith("bundled") and most else "" for most in best.values()]
        cells = [way, ranged(rates), ranged(costs), *ratios]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def ranged(values: list[float]) -> str:
    """Median, least and largest."""
    middle, low, high = map(number, (statistics.median(values), min(values), max(values)))
    return f"{middle} [{low} … {high}]" if len(values) > 1 else middle


def main() -> int:
    """Measure, and print what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--only", default="", help="ways whose name has one of these words, with commas")
    parser.add_argument("--system", default=Strandline.name)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    words = options.only.split(",")
    ways = [way for way in (*PRODUCE, *CONSUME) if any(word in way for word in words)]
    found: dict[int, Figures] = {}
    with running(SYSTEMS[options.system], 3) as system:
        for size in map(int, options.sizes.split(",")):
            there = prepared(system, size)
            figures: Figures = found.setdefault(size, {})
            for number_of in range(options.rounds):
                turn = number_of * 3 % len(ways)
                for way in ways[turn:] + ways[:turn]:
                    values = run(system, way, size, options.seconds, there)
                    for name, value in zip(MEASURED, values, strict=True):
                        figures.setdefault((way, name), []).append(value)
                    sys.stderr.write(f"{size:5} B  {way:42} {values[0]:12,.0f}/s {values[1]:7.2f} µs\n")
    for size, figures in found.items():
        for kind in (PRODUCE, CONSUME):
            if wanted := [way for way in ways if way in kind]:
                sys.stdout.write(f"\n{size} B\n\n{table(figures, wanted)}")
    if options.json is not None:
        told = {
            str(size): {" | ".join(key): value for key, value in of.items()} for size, of in found.items()
        }
        options.json.write_text(json.dumps(told, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
