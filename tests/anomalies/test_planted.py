"""The planted bugs: each changes something, leaves nothing behind, and names faults that there are."""

import pytest

from strandline.simulation.patches import Patches
from strandline.testing.verify.nemesis import Nemesis
from tests.anomalies.planted import PLANTED


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_can_be_taken_out(name: str) -> None:
    patches = Patches()
    PLANTED[name].apply(patches)
    put = [(owner, attribute, before) for owner, attribute, before in patches._before]
    try:
        assert put and all(getattr(owner, attribute) is not before for owner, attribute, before in put)
    finally:
        patches.undo()
    assert all(getattr(owner, attribute) is before for owner, attribute, before in put)


@pytest.mark.parametrize("name", PLANTED)
def test_its_faults_are_known(name: str) -> None:
    assert all(callable(getattr(Nemesis, fault.replace("-", "_"))) for fault in PLANTED[name].faults)
