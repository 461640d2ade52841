"""`strandline simulate`: run a cluster in virtual time, for one seed or many, or with one rule broken."""

import os
import time
from typing import Annotated

import typer
from rich.progress import track

from ..simulation.families import FAMILIES
from ..simulation.many import Figures, command, run_many
from ..simulation.mutants import MUTANTS, Search, search_many
from ..simulation.world import Outcome, run_seed
from .console import Failure, WrongUsage, clear_errors, err, out

NO_SEEDS_SHOWN = 20


def simulate(
    seed: Annotated[int | None, typer.Option(help="run only this seed")] = None,
    seeds: Annotated[int, typer.Option(help="number of seeds to run")] = 20,
    first: Annotated[int, typer.Option(help="first seed")] = 0,
    family: Annotated[
        str, typer.Option(help=f"family of seeds: {', '.join(FAMILIES)}, or `all` in turn")
    ] = "plain",
    flushed: Annotated[
        bool,
        typer.Option("--flushed", help="set log.flush.before.ack and cut the power of all brokers at once"),
    ] = False,
    disks: Annotated[
        bool, typer.Option("--disks", help="give each broker two log directories, which fill up and fail")
    ] = False,
    trace: Annotated[
        bool, typer.Option("--trace", help="print every message and event, one per line")
    ] = False,
    mutants: Annotated[
        bool,
        typer.Option("--mutants", help="remove each rule in turn and count the seeds until a check fails"),
    ] = False,
) -> None:
    """Run a cluster in virtual time with random faults and check its guarantees."""
    with clear_errors():
        family = "flushed" if flushed else "disks" if disks else family
        if family not in (*FAMILIES, "all"):
            raise WrongUsage(f"--family {family}: expected one of {', '.join(FAMILIES)}, all")
        began = time.perf_counter()
        if mutants:
            _search(seeds, first)
            return
        figures = Figures()
        if seed is not None:
            outcome = run_seed(seed, "plain" if family == "all" else family, talks=trace)
            if trace:
                out.print("\n".join(outcome.trace), markup=False, soft_wrap=True)
            figures.add(outcome)
            if outcome.violation is not None:
                _tell(outcome)
        else:
            names = list(FAMILIES) if family == "all" else [family]
            jobs = [(names[number % len(names)], number) for number in range(first, first + seeds)]
            for outcome in track(run_many(jobs), "simulating", total=seeds, console=err, transient=True):
                figures.add(outcome)
                if outcome.violation is not None:
                    _tell(outcome)
        _report(figures, time.perf_counter() - began)


def _tell(outcome: Outcome) -> None:
    """Print a violation at once: a run may take hours."""
    out.print(f"{command(outcome.family, outcome.seed)}: {outcome.violation}", markup=False, soft_wrap=True)


def _report(figures: Figures, took_s: float) -> None:
    out.print(figures.told(took_s), markup=False, soft_wrap=True)
    if figures.bad:
        bad = ", ".join(f"{outcome.family} {outcome.seed}" for outcome in figures.bad)
        raise Failure(f"failed seeds: {bad}")


def _search(seeds_max: int, first: int) -> None:
    """For each mutant: the median number of seeds until one catches it."""
    jobs = [(name, first, seeds_max) for name, mutant in MUTANTS.items() if mutant.families]
    found: list[Search] = list(
        track(
            search_many(jobs, os.cpu_count()), "removing rules", total=len(jobs), console=err, transient=True
        )
    )
    out.print(f"{'rule taken away':24} {'median':>7} {'found':>7}  seeds that show it")
    for search in found:
        median = "-" if search.median is None else f"{search.median:g}"
        shown = ", ".join(f"{family} {seed}" for family, seed in search.seeds[:NO_SEEDS_SHOWN])
        out.print(
            f"{search.mutant:24} {median:>7} {len(search.seeds):>3}/{search.tried:<3}  {shown}",
            markup=False, soft_wrap=True,
        )  # fmt: skip
    unseen = [search.mutant for search in found if not search.seeds and not MUTANTS[search.mutant].survives]
    if unseen:
        raise Failure(f"not detected by any of {seeds_max} seeds: {', '.join(unseen)}")
