"""The oldest PySpark that is supported runs a core of these tests too: what later ones have is not missed.

Only pyspark is another one, all else is of this environment. It is fetched once, into the user's cache; CI
fetches it while it checks (tests/fetch.py). `make spark-long` runs whole files with it.
"""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OLDEST = re.search(r'"pyspark>=([\d.]+)', (ROOT / "pyproject.toml").read_text()).group(1)  # type: ignore[union-attr]
CORE = (
    "test_stream_reader.py",
    "test_stream.py::test_a_run_that_ends_by_itself_keeps_to_the_limit",
    "test_source.py::test_rows_are_the_records",
)
WHOLE = ("test_stream_reader.py", "test_stream.py", "test_source.py", "test_write.py")
FETCH_S_MAX = 900
WAIT_S = 900


def fetched() -> Path:
    """The folder with that pyspark. Without a package index the test is skipped, but never in CI."""
    python = ".".join(map(str, sys.version_info[:2]))
    folder = Path.home() / ".cache" / "strandline" / f"pyspark-{OLDEST}-py{python}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".pyspark-") as place:
            line = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
            line += ["--no-deps", "--target", f"{place}/pyspark", f"pyspark=={OLDEST}.*"]
            done = subprocess.run(line, capture_output=True, text=True, timeout=FETCH_S_MAX, check=False)
            if done.returncode:
                said = "\n".join(done.stderr.strip().splitlines()[-3:])
                assert not os.environ.get("CI"), f"pyspark {OLDEST} could not be fetched: {said}"
                pytest.skip(f"pyspark {OLDEST} could not be fetched: {said}")
            with suppress(OSError):  # someone else was faster
                Path(place, "pyspark").rename(folder)
    return folder


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("files", [CORE, pytest.param(WHOLE, marks=pytest.mark.long)], ids=["core", "whole"])
def test_the_oldest_pyspark_passes(files: Sequence[str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(fetched())}
    asked = [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]
    version = subprocess.run(
        asked, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert version.startswith(f"{OLDEST}.")
    named = [f"tests/client/spark/{name}" for name in files]
    line = [sys.executable, "-m", "pytest", "-q", "-ra", "--no-header", "-n", "0", *named]
    done = subprocess.run(
        line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, f"with pyspark {version}: {done.stdout[-5000:]}{done.stderr[-2000:]}"
