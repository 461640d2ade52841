"""The oldest PySpark that is supported runs a core of these tests too: what later ones have is not missed.

Only pyspark is another one, all else is of this environment. It is fetched once, into the user's cache.
"""

import os
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
OLDEST = re.search(r'"pyspark>=([\d.]+)', (ROOT / "pyproject.toml").read_text()).group(1)  # type: ignore[union-attr]
CORE = ("test_stream_reader.py", "test_stream.py", "test_source.py")
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
            line += ["--no-deps", "--no-compile", "--target", f"{place}/pyspark", f"pyspark=={OLDEST}.*"]
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
def test_the_oldest_pyspark_passes_the_core() -> None:
    environment = {**os.environ, "PYTHONPATH": str(fetched())}
    asked = [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]
    version = subprocess.run(
        asked, env=environment, capture_output=True, text=True, check=True
    ).stdout.strip()
    assert version.startswith(f"{OLDEST}.")
    files = [f"tests/client/spark/{name}" for name in CORE]
    line = [sys.executable, "-m", "pytest", "-q", "-ra", "--no-header", "-n", "0", *files]
    done = subprocess.run(
        line, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=WAIT_S, check=False
    )
    assert done.returncode == 0, f"with pyspark {version}: {done.stdout[-5000:]}{done.stderr[-2000:]}"
