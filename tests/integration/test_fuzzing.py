"""A hundred thousand random frames to one broker: it answers them, its log has only what it accepted."""

from pathlib import Path

from strandline.local.cluster import LocalCluster
from tests.integration.fuzzing import SETTINGS, Fuzz

FRAMES = 100_000


def test_a_hundred_thousand_random_frames(tmp_path: Path) -> None:
    with LocalCluster(tmp_path, 1, settings=SETTINGS) as local:
        fuzz = Fuzz(local, seed=1)
        told = fuzz.run(FRAMES)
    assert told.complaints == []
    assert told.answered > FRAMES / 2 and fuzz.accepted_bytes > 100_000, "most of it is whole, and comes far"
    assert all(told.after_damage[each] > 100 for each in ("closed", "answered"))
    assert len(told.errors) > 20, "requests go wrong in many ways"
