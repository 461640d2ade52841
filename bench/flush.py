"""What a sync before each acknowledgement costs: the same broker with and without `log.flush.before.ack`.

python -m bench.flush [--runs 5] [--seconds 4] [--brokers 1,3] [--dir .]

64 requests in flight on one connection, one record of 100 bytes each, one partition; runs in pairs, in turns
first. The logs lie under `--dir`, which must be on a real file system (it is named in the output).
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from .drivers import batch_of, cannon, create_topic, leader_of
from .systems import Strandline
from .workloads import warm_memory

WINDOW = 64
MODES = {"false": "unflushed", "true": "flushed"}
WARM_UP_S = 1.5
WARM_BYTES = 1 << 30


def main() -> int:
    """Run the pairs and print each figure's median and the ratio of the pairs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--brokers", default="1,3")
    parser.add_argument("--dir", type=Path, default=Path.cwd())
    options = parser.parse_args()
    sys.stdout.write(f"{file_system(options.dir)}; a sync of 4 KiB takes {sync_us(options.dir):,.0f} µs\n")
    for brokers in map(int, options.brokers.split(",")):
        for acks in (-1, 1) if brokers == 1 else (-1,):
            taken: dict[str, list[float]] = {mode: [] for mode in MODES}
            for run in range(options.runs):
                for mode in MODES if run % 2 == 0 else reversed(MODES):
                    taken[mode].append(one(options.dir, brokers, acks, mode, options.seconds))
            report(brokers, acks, taken)
    return 0


def one(directory: Path, brokers: int, acks: int, mode: str, seconds: float) -> float:
    """Requests per second of one fresh system."""
    more = {"log.flush.before.ack": mode, "log.segment.bytes": str(1 << 30)}
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=directory) as place:
        warm_memory(Path(place), WARM_BYTES)
        with Strandline(Path(place), brokers, more) as system:
            create_topic(system.bootstrap, "flush", 1, brokers)
            address = ("127.0.0.1", system.ports[leader_of(system.bootstrap, "flush", 0)][0])
            batch = batch_of(1, 100)
            cannon(address, "flush", batch=batch, acks=acks, window=WINDOW, seconds=WARM_UP_S)
            return cannon(address, "flush", batch=batch, acks=acks, window=WINDOW, seconds=seconds).rate


def report(brokers: int, acks: int, taken: dict[str, list[float]]) -> None:
    """One line of medians, and of the ratios of the pairs."""
    row = f"RF {brokers} acks {'all' if acks < 0 else acks}:"
    for mode, name in MODES.items():
        rates = taken[mode]
        row += f" {name} {statistics.median(rates):,.0f}/s [{min(rates):,.0f} … {max(rates):,.0f}]"
    ratios = [on / off for off, on in zip(taken["false"], taken["true"], strict=True)]
    row += f"  ratio {statistics.median(ratios):.2f} [{min(ratios):.2f} … {max(ratios):.2f}]"
    sys.stdout.write(row + "\n")
    sys.stdout.flush()


def file_system(directory: Path) -> str:
    """Device and type of the file system that holds `directory`."""
    best = ("", "")
    for line in Path("/proc/mounts").read_text().splitlines():
        device, where, kind = line.split()[:3]
        if directory.resolve().is_relative_to(where) and len(where) >= len(best[0]):
            best = (where, f"{device} ({kind})")
    return best[1]


def sync_us(directory: Path, times: int = 200) -> float:
    """The median time of an append of 4 KiB and its fdatasync."""
    taken = []
    with tempfile.TemporaryFile(dir=directory, buffering=0) as file:
        for _ in range(times):
            began = time.perf_counter()
            file.write(b"s" * 4096)
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - began)
    return statistics.median(taken) * 1e6


if __name__ == "__main__":
    sys.exit(main())
