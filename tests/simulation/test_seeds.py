"""Seeds: the whole cluster in virtual time, under drawn faults; and how much happens in them."""

import hashlib
import re
import subprocess
import sys

import pytest

from strandline.simulation.families import FAMILIES, Family
from strandline.simulation.many import Figures, command, run_many
from strandline.simulation.world import Outcome, World, run_seed

EVERY_RUN = {
    "plain": 8, "failover": 4, "flushed": 4, "disks": 4, "dark": 8, "moving": 3, "topics": 4,
    "groups": 3, "transactions": 2, "assigned": 4, "threads": 4, "unordered": 4, "parted": 3,
    "rolling": 2,
}  # fmt: skip
"""As few as show that everything happens; `make simulate-long` looks for what is rare."""
LONG_RUN = dict.fromkeys(EVERY_RUN, 100)
PROCESSES = 2
ACKNOWLEDGED_MIN = 20
"""A world in which nobody gets through shows nothing."""

LEAST = {
    "rolls": 20.0, "snapshots": 20.0, "snapshots read": 2.0, "recovery points": 20.0, "retirements": 0.5,
    "log starts advanced": 0.5, "cuts": 5.0, "log restarts": 0.02, "cold reads": 1.0, "cleanings": 1.0,
    "swaps": 1.0, "controlled stops": 0.1, "clean markers": 0.1, "group commits": 8.0,
}  # fmt: skip
"""So much of each happens in a seed on average: what never happens is never wrong."""
IN_EACH_FAMILY = {"rolls": 8.0, "snapshots": 8.0, "recovery points": 8.0, "cuts": 1.0, "group commits": 1.0}
WITH_MEMBERS = {"heartbeats of members": 50.0, "group commits": 30.0}
"""Where the broker assigns."""
WITH_COPIERS = {"offsets in transactions": 10.0, "markers": 20.0, "group commits": 0.0}
"""Where there are copiers in place of groups."""
RARE = {"cold reads": 0.1, "cleanings": 0.05, "snapshots read": 0.1, "controlled stops": 0.01}
"""In each family too, but a few of its seeds may show none."""


def test_nothing_acknowledged_is_lost() -> None:
    """All seeds of every run, side by side in two processes."""
    run(EVERY_RUN, IN_EACH_FAMILY)


@pytest.mark.long
def test_nothing_acknowledged_is_lost_in_a_hundred_seeds_of_each_family() -> None:
    run(LONG_RUN, {**IN_EACH_FAMILY, **RARE})


def run(seeds: dict[str, int], in_each_family: dict[str, float]) -> None:
    """So many seeds of each family: all are good, and everything happens in them."""
    jobs = [(family, seed) for family, count in seeds.items() for seed in range(count)]
    figures, idle = Figures(), list[Outcome]()
    of_family = {name: Figures() for name in seeds}
    for outcome in run_many(jobs, PROCESSES):
        figures.add(outcome)
        of_family[outcome.family].add(outcome)
        if outcome.acknowledged < ACKNOWLEDGED_MIN:
            idle.append(outcome)
    assert not figures.bad, "\n".join(f"{command(o.family, o.seed)}: {o.violation}" for o in figures.bad)
    assert not idle, [(o.family, o.seed, o.acknowledged) for o in idle]
    assert set(figures.faults) >= {kind for name in seeds for kind in FAMILIES[name].kinds}, "all kinds"
    assert not too_little(figures, LEAST)
    lacking = {
        name: too_little(share, in_each_family | _besides(FAMILIES[name]))
        for name, share in of_family.items()
    }
    assert not any(lacking.values()), lacking


def _besides(family: Family) -> dict[str, float]:
    return WITH_COPIERS if family.copies else WITH_MEMBERS if family.assigns else {}


def too_little(figures: Figures, least: dict[str, float]) -> dict[str, float]:
    """Which deeds were too rare, and how many there were in a seed."""
    a_seed = {deed: figures.deeds[deed] / figures.seeds for deed in least}
    return {deed: count for deed, count in a_seed.items() if count < least[deed]}


@pytest.mark.parametrize("talks", [False, True])
def test_the_same_seed_is_the_same_story_in_every_process(talks: bool) -> None:
    here = run_seed(3, talks=talks)
    script = (
        f"from strandline.simulation.world import run_seed; print(run_seed(3, talks={talks}).fingerprint)"
    )
    there = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert there.stdout.strip() == here.fingerprint
    assert here.fingerprint == hashlib.sha256("\n".join(here.trace).encode()).hexdigest()[:16]


def test_to_listen_changes_nothing() -> None:
    quiet, told = run_seed(5), run_seed(5, talks=True)
    assert [line for line in told.trace if line in set(quiet.trace)] == quiet.trace
    assert (told.virtual_s, told.turns, told.faults) == (quiet.virtual_s, quiet.turns, quiet.faults)


def test_a_trace_tells_who_said_what_to_whom() -> None:
    told = "\n".join(run_seed(3, talks=True).trace)
    for sentence in (
        ": LeaderAndIsr numbers-0: leader ",
        "Fetch numbers-0 from ",
        r" to b\d: Produce numbers-",
        "OffsetForLeaderEpoch numbers-",
        ", high watermark ",
        "ZooKeeper accepts from b",
        "if /controller_epoch has version ",
    ):
        assert re.search(sentence, told), sentence


@pytest.mark.parametrize("name", ["plain", "flushed"])
def test_each_seed_draws_kinds_of_its_own(name: str) -> None:
    drawn = {frozenset(run_seed(seed, name).faults) for seed in range(3)}
    assert len(drawn) == 3


def test_every_family_draws_faults_that_exist() -> None:
    world = World(0)
    world.loop.close()
    for family in FAMILIES.values():
        for kind in (*family.kinds, *family.always):
            assert world.faults.fault(kind).__doc__, (family.name, kind)
