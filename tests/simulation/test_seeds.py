"""Seeds: the whole cluster in virtual time, under drawn faults. Those that ever failed are kept, with stories."""

import pytest

from strandline.simulation.world import run_seed

EVERY_RUN = range(20)

KEPT: dict[int, str] = {}
"""Seeds that once failed, each with what it found."""


@pytest.mark.parametrize("seed", [*EVERY_RUN, *KEPT])
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    outcome = run_seed(seed)
    assert outcome.violation is None, f"strandline simulate --seed {seed} --trace: {outcome.violation}"
    assert outcome.acknowledged > 100, "a world in which nobody gets through shows nothing"


def test_the_same_seed_is_the_same_story() -> None:
    first, second = run_seed(3), run_seed(3)
    assert first.trace == second.trace
    assert first.fingerprint == second.fingerprint
