"""Seeds: the whole cluster in virtual time, under drawn faults. Those that ever failed are kept."""

import pytest

from strandline.simulation.world import FIRST_KINDS, Outcome, run_seed

EVERY_RUN = range(20)

KEPT_OF_FIRST_KINDS = {
    2: "two brokers that could not reach each other took the controller's seat from each other six times",
    28: "ZooKeeper was lost while a broker started: the broker ended with a traceback instead of a sentence",
    30: "a new controller let a leader that had been killed and started again lead on in the same epoch",
    49: "a collected task of a dead process ended itself in the name of a live one (the world's own fault)",
    72: "a leader that had started again was told to lead its old epoch until the new one was written",
}
"""Seeds that once failed, each with what it found, from the time before there were more kinds of faults."""

KEPT = {
    42: "an ISR of one, whose member had just lost power, which nobody had noticed (the world's own fault)",
    47: "the same, by a registration that outlived its process",
    70: "a start without ZooKeeper for 30 s ended in the wrong error (the world's own fault)",
    317: "the same as 42, by a controller that took the seat while the dead member's session still stood",
}
"""Seeds that failed since."""


@pytest.mark.parametrize("seed", [*EVERY_RUN, *KEPT])
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    judge(seed, run_seed(seed))


@pytest.mark.parametrize("seed", KEPT_OF_FIRST_KINDS)
def test_what_failed_once_does_not_fail_again(seed: int) -> None:
    judge(seed, run_seed(seed, FIRST_KINDS))


def judge(seed: int, outcome: Outcome) -> None:
    assert outcome.violation is None, f"strandline simulate --seed {seed} --trace: {outcome.violation}"
    assert outcome.acknowledged > 100, "a world in which nobody gets through shows nothing"


def test_the_same_seed_is_the_same_story() -> None:
    first, second = run_seed(3), run_seed(3)
    assert first.trace == second.trace
    assert first.fingerprint == second.fingerprint
