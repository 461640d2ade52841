"""What `strandline simulate` tells: figures of many seeds, a failing one by the command that shows it."""

from collections import Counter

import pytest
from typer.testing import CliRunner

from strandline.cli import simulate
from strandline.cli.app import build
from strandline.simulation import many
from strandline.simulation.mutants import MUTANTS, Search
from strandline.simulation.world import Outcome


def outcome(seed: int, violation: str | None) -> Outcome:
    return Outcome(
        seed, "disks", violation, 36.0, 1000, 200, {"crash": 2, "fill": 1}, Counter(rolls=200), "", []
    )


def test_figures_add_up() -> None:
    figures = many.Figures()
    for seed in range(10):
        figures.add(outcome(seed, "Violation: I7: …" if seed == 3 else None))
    assert figures.told(9.0) == (
        "10 seeds, 1 failed; 2,000 records acknowledged in 0.10 simulated hours (40 times real time); "
        "30 faults: crash 20, fill 10; events: rolls 2,000"
    )
    assert many.command("disks", 3) == "strandline simulate --family disks --seed 3 --trace"


def test_a_failing_seed_is_named_by_the_command_that_shows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = [
        outcome(7, None),
        outcome(8, "Violation: I2: the log of numbers-0 on b1 ends at 3, below the committed offset 4"),
    ]
    monkeypatch.setattr(simulate, "run_many", lambda jobs: iter(bad))
    told = CliRunner().invoke(build(["simulate"]), ["simulate", "--seeds", "2", "--family", "disks"])
    assert told.exit_code == 1
    assert "strandline simulate --family disks --seed 8 --trace: Violation: I2" in told.output


def test_a_family_that_does_not_exist_is_refused_with_those_that_do() -> None:
    told = CliRunner().invoke(build(["simulate"]), ["simulate", "--family", "nonsense"])
    assert told.exit_code == 2 and "failover" in told.output


def test_the_search_for_mutants_tells_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Search("trunc_hw", 20, [("failover", 0), ("plain", 5)], [1, 5]), Search("no_inc", 20, [], [])]
    monkeypatch.setattr(simulate, "search_many", lambda jobs, processes: iter(found))
    told = CliRunner().invoke(build(["simulate"]), ["simulate", "--mutants", "--seeds", "20"])
    assert told.exit_code == 0, "nobody expects a seed that shows no_inc"
    assert "failover 0, plain 5" in told.output and " 3 " in told.output
    assert MUTANTS["no_inc"].survives
