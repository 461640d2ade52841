"""The planted bugs: each changes something, leaves nothing behind, and names faults that there are."""

import os
import re
import subprocess
import sys
from pathlib import Path

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


NO_NETWORK = 2  # the exit status without namespaces
SHOWN_BY = {"no-aborted": "G1a", "aborted-offsets": "not-copied", "one-marker": "G1a"}


@pytest.mark.long
@pytest.mark.parametrize("name", SHOWN_BY)
def test_a_planted_bug_is_found_and_told(name: str) -> None:
    words = ("--plant", name, "--few", "--minutes", "0.3")
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.anomalies.run", *words],
        cwd=Path(__file__).resolve().parents[2], capture_output=True, text=True, timeout=540, check=False,
    )  # fmt: skip
    if ran.returncode == NO_NETWORK and "namespace" in ran.stderr:
        assert not os.environ.get("CI"), f"in CI this test must run: {ran.stderr}"
        pytest.skip(ran.stderr.strip())
    said = ran.stdout[-20_000:] + ran.stderr[-5_000:]
    assert ran.returncode == 1 and "BROKEN" in ran.stdout, said
    assert re.search(rf"'{SHOWN_BY[name]}': \d+", ran.stdout), said
    assert "the shortest of" in ran.stdout, said
