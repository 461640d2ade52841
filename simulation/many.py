"""Runs many seeds in parallel processes, and sums up their results.

Left to others: one seed (`world.py`), printing the results (`cli/simulate.py`, the tests).
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from .world import Outcome, run_seed

GARBAGE = (100_000, 20, 20)
"""gc thresholds: a world is short-lived and freed as a whole; collecting in it costs a tenth of its time."""
Job = tuple[str, int]


def command(family: str, seed: int) -> str:
    """The command that runs one seed again."""
    return f"strandline simulate --family {family} --seed {seed} --trace"


@dataclass
class Figures:
    """The results of many seeds, summed up."""

    seeds: int = 0
    acknowledged: int = 0
    virtual_s: float = 0.0
    faults: Counter[str] = field(default_factory=Counter)
    deeds: Counter[str] = field(default_factory=Counter)
    bad: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Add the result of one seed."""
        self.seeds += 1
        self.acknowledged += outcome.acknowledged
        self.virtual_s += outcome.virtual_s
        self.faults.update(outcome.faults)
        self.deeds.update(outcome.deeds)
        if outcome.violation is not None:
            self.bad.append(outcome)

    def told(self, took_s: float) -> str:
        """The summary in one paragraph."""
        faults, deeds = (
            ", ".join(f"{kind} {count:,}" for kind, count in sorted(told.items()))
            for told in (self.faults, self.deeds)
        )
        return (
            f"{self.seeds:,} seeds, {len(self.bad)} failed; {self.acknowledged:,} records "
            f"acknowledged in {self.virtual_s / 3600:.2f} simulated hours ({self.virtual_s / took_s:.0f} "
            f"times real time); {self.faults.total():,} faults: {faults}; events: {deeds}"
        )


def spare_garbage() -> None:
    """Collect garbage rarely: for a process that runs worlds and little else."""
    gc.freeze()
    gc.set_threshold(*GARBAGE)


def run_job(job: Job) -> Outcome:
    """Run one seed; the trace of a good one is not sent back."""
    family, seed = job
    outcome = run_seed(seed, family)
    if outcome.violation is None:
        outcome.trace = []
    return outcome


def run_many(jobs: Iterable[Job], processes: int | None = None) -> Iterator[Outcome]:
    """Run all jobs; results come in their order."""
    fresh = multiprocessing.get_context("spawn")  # a fork would copy locks that threads hold
    with ProcessPoolExecutor(processes or os.cpu_count(), fresh, spare_garbage) as pool:
        yield from pool.map(run_job, jobs, chunksize=1)
