"""Brokers of an earlier version and of this one in one cluster: a rolling upgrade, and back.

All clients of `strandline verify` go on meanwhile: acks=all, transactions, groups of both protocols. Nothing
acknowledged may be lost, and nothing may be seen that must not be; in the end all replicas are alike.
"""

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from strandline.testing.verify import load, verify
from strandline.testing.verify.outcome import Outcome
from tests.upgrade.rolling import Roller, TwoVersions
from tests.upgrade.versions import has, sources_of

SCENARIO = Path(__file__).parent / "rolling.toml"
EARLIER = ("0a4932a", "4be9a03")
"""About a hundred and two hundred commits before there was this test. The oldest that may stand beside it."""


def rolled(folder: Path, laps: Sequence[str | None], load_s: float, seed: int) -> tuple[Outcome, Roller]:
    """A run that begins with the first version; then the brokers get each of the others, in its turn."""
    scenario = load(SCENARIO)
    places = {commit: sources_of(commit, folder) for commit in {*laps} if commit is not None}
    versions = [None if commit is None else places[commit] for commit in laps]
    place = TwoVersions(folder, scenario, versions[0])
    roller = Roller(place, list(scenario.topics), [*versions[1:], versions[0]], seed)
    outcome = verify(scenario, folder / "run", seed=seed, load_s=load_s, place=place, screen=roller)
    return outcome, roller


def assert_held(outcome: Outcome, roller: Roller) -> None:
    told = "\n".join([*roller.steps, *outcome.explanation()])
    assert roller.trouble is None, f"{roller.trouble!r}\n{told}"
    assert outcome.good, told


@pytest.mark.slow
def test_a_rolling_upgrade_and_the_way_back_lose_nothing(tmp_path: Path) -> None:
    outcome, roller = rolled(tmp_path, [EARLIER[-1], None], load_s=5, seed=1)
    assert_held(outcome, roller)
    assert len(roller.steps) == 6, "three brokers, there and back"


@pytest.mark.long
def test_versions_change_for_long(tmp_path: Path) -> None:
    """`make upgrades MINUTES=60 SEED=1`. What was done is written to `upgrades.log` of the directory."""
    minutes, seed = int(os.environ.get("UPGRADE_MINUTES", "10")), int(os.environ.get("UPGRADE_SEED", "1"))
    there = [commit for commit in EARLIER if has(commit)]
    if not there:
        sources_of(EARLIER[0], tmp_path)  # skips, and says why
    laps = [each for commit in random.Random(seed).sample(there, len(there)) for each in (commit, None)]
    outcome, roller = rolled(tmp_path, laps, load_s=minutes * 60, seed=seed)
    told = [*roller.steps, *outcome.figures(), *outcome.explanation(), outcome.state.value]
    Path("upgrades.log").write_text("\n".join(told) + "\n")
    assert_held(outcome, roller)
