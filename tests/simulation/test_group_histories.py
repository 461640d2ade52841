"""Random histories of a consumer group (group_histories.py), a few of each kind: `python -m
tests.simulation.group_histories --seed 100 --seeds 1000` tries more."""

import pytest

from tests.simulation.group_histories import GroupWorld


@pytest.mark.parametrize("seed", range(1, 13))
def test_nothing_is_skipped_and_nothing_undone_is_committed(seed: int) -> None:
    assert GroupWorld(seed).run() == []
