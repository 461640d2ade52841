"""Seeds: the whole cluster in virtual time, under drawn faults. Those that ever failed are kept."""

import hashlib
import subprocess
import sys

import pytest

from strandline.simulation.families import FAMILIES
from strandline.simulation.faults import Faults
from strandline.simulation.many import Figures, command, run_many
from strandline.simulation.world import Outcome, run_seed

EVERY_RUN = {
    "plain": 110, "failover": 40, "flushed": 40, "disks": 40, "dark": 30, "moving": 30, "second": 20,
}  # fmt: skip
PROCESSES = 2
ACKNOWLEDGED_MIN = 20
"""A world in which nobody gets through shows nothing."""

KEPT_OF = {
    "dark": {
        11157: "what power had taken from the reader and a medium had kept was promised "
        "by the second try: the reader waited to meet it again (the world's fault)",
    },
    "plain": {
        66: "an old leader answered a reader long after the new one had, from where the reader had been then",
        267: "a machine that was back did not reset what it did not know (the world's fault)",
        2443: "the same",
    },
    "first": {
        10776: "a broker that could not start was not started again (the world's fault)",
        2: "two brokers that could not reach each other took the controller's seat six times",
        28: "ZooKeeper was lost while a broker started: it ended with a traceback, not a sentence",
        30: "a new controller let a leader that was killed and started again lead on in the same epoch",
        49: "a collected task of a dead process ended itself in a live one's name (the world's fault)",
        72: "a leader that had started again was told to lead its old epoch before the new one was written",
    },
    "second": {
        4: "as 66 of plain",
        42: "an ISR of one, whose member had lost power, which nobody had noticed (the world's fault)",
        47: "the same, by a registration that outlived its process",
        70: "a start without ZooKeeper for 30 s ended in the wrong error (the world's fault)",
        317: "as 42, by a controller that took the seat while the dead member's session still stood",
    },
    "flushed": {
        764: "a flush ended in the breath in which its process was killed: that failed (the world's fault)",
        43: "a leader that had lost all power knew nothing of a producer whose first batch was under way to "
        "the old one: it took the second for the first, and the first was refused for good",
    },
    "disks": {
        10767: "an append asked how old its segment was; that the disk failed was no DiskError",
        2: "a follower's disk was full when batches of two epochs came: it kept the later epoch, and refused "
        "the first batch for ever",
        6: "a broker started on a full disk, which had no room to keep aside a torn tail: the directory was "
        "given up, and nobody started the broker again (the world's fault)",
        34: "a leader read what stands in ZooKeeper, was deposed meanwhile, and wrote its ISR all the same",
        29: "the only member of an ISR started again beside a broken directory (the world's fault)",
        54: "both directories of a broker broke: it ended, and nobody started it (the world's fault)",
    },
}
"""Seeds that once failed, each with what it found. Their stories change when timing does."""


def test_nothing_acknowledged_is_lost() -> None:
    """All seeds of every run and all that were kept, side by side in two processes."""
    jobs = [(family, seed) for family, count in EVERY_RUN.items() for seed in range(count)]
    kept = [(family, seed) for family, seeds in KEPT_OF.items() for seed in seeds]
    jobs += [job for job in kept if job not in jobs]
    assert len(jobs) >= 300
    figures, idle = Figures(), list[Outcome]()
    for outcome in run_many(jobs, PROCESSES):
        figures.add(outcome)
        if outcome.acknowledged < ACKNOWLEDGED_MIN:
            idle.append(outcome)
    assert not figures.bad, "\n".join(f"{command(o.family, o.seed)}: {o.violation}" for o in figures.bad)
    assert not idle, [(o.family, o.seed, o.acknowledged) for o in idle]
    assert set(figures.faults) >= {kind for name in EVERY_RUN for kind in FAMILIES[name].kinds}, "all kinds"


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
        " to b1: Produce numbers-",
        "OffsetForLeaderEpoch numbers-",
        ", watermark ",
        "ZooKeeper does for b",
        "if /controller_epoch has version ",
    ):
        assert sentence in told, sentence


@pytest.mark.parametrize("name", ["plain", "flushed"])
def test_each_seed_draws_kinds_of_its_own(name: str) -> None:
    drawn = {frozenset(run_seed(seed, name).faults) for seed in range(3)}
    assert len(drawn) == 3


def test_every_family_draws_faults_that_exist() -> None:
    for family in FAMILIES.values():
        for kind in (*family.kinds, *family.always):
            assert hasattr(Faults, kind), (family.name, kind)
