"""`strandline simulate`: the whole cluster in virtual time, one seed or many."""

import os
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Annotated

import typer
from rich.progress import track

from ..simulation.world import Outcome, run_seed
from .console import Failure, clear_errors, err, out


def simulate(
    seed: Annotated[int | None, typer.Option(help="run this seed alone")] = None,
    seeds: Annotated[int, typer.Option(help="run so many seeds")] = 20,
    first: Annotated[int, typer.Option(help="the first of them")] = 0,
    trace: Annotated[bool, typer.Option("--trace", help="print what happened, event by event")] = False,
) -> None:
    """Run the cluster in virtual time under drawn faults, and judge it."""
    with clear_errors():
        began = time.perf_counter()
        if seed is not None:
            outcome = run_seed(seed)
            if trace:
                out.print("\n".join(outcome.trace), markup=False, soft_wrap=True)
            _report([outcome], time.perf_counter() - began)
            return
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            jobs = pool.map(run_seed, range(first, first + seeds), chunksize=1)
            outcomes = list(track(jobs, "simulating", total=seeds, console=err, transient=True))
        _report(outcomes, time.perf_counter() - began)


def _report(outcomes: list[Outcome], took_s: float) -> None:
    bad = [outcome for outcome in outcomes if outcome.violation]
    virtual_s = sum(outcome.virtual_s for outcome in outcomes)
    faults: dict[str, int] = {}
    for outcome in outcomes:
        for kind, count in outcome.faults.items():
            faults[kind] = faults.get(kind, 0) + count
    out.print(
        f"{len(outcomes)} seeds, {len(bad)} bad; {sum(o.acknowledged for o in outcomes):,} acknowledged, "
        f"{virtual_s / 3600:.2f} simulated hours ({virtual_s / took_s:.0f} times real time); "
        + ", ".join(f"{kind} {count}" for kind, count in sorted(faults.items()))
    )
    for outcome in bad:
        out.print(f"seed {outcome.seed}: {outcome.violation}", markup=False, soft_wrap=True)
    if bad:
        raise Failure(
            f"seeds that failed: {', '.join(str(o.seed) for o in bad)}; see one with --seed N --trace"
        )
