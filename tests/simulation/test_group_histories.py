"""Random histories of a consumer group, a few: `python -m tests.simulation.group_runs --seeds 1000`, with
`--copies`, tries more."""

import pytest

from tests.simulation.group_copies import CopyingWorld
from tests.simulation.group_histories import GroupWorld


@pytest.mark.parametrize("seed", range(1, 13))
def test_nothing_is_skipped_and_nothing_undone_is_committed(seed: int) -> None:
    assert GroupWorld(seed).run() == []


@pytest.mark.parametrize("seed", range(1, 7))
def test_what_members_copy_in_transactions_is_copied_once(seed: int) -> None:
    assert CopyingWorld(seed).run() == []
