"""The drill on a fifth of its flights: `make pipeline-test`, for it takes more than a minute."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 1800


@pytest.mark.long
@pytest.mark.spark
def test_the_pipeline_gets_over_whoever_is_killed(tmp_path: Path) -> None:
    picture = tmp_path / "run.svg"
    command = [sys.executable, "-m", "examples.pipeline.drill", "--days", "70", "--days-per-second", "2.5"]
    ended = subprocess.run(
        [*command, "--dir", str(tmp_path / "data"), "--plot", str(picture)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert ended.returncode == 0 and "all checks passed" in ended.stdout, ended.stdout + ended.stderr
    assert "driver killed" in picture.read_text()
