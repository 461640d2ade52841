"""The short form of `make anomalies`: all clients, three faults and the whole verdict, in less than a minute.

It needs root, ip and nft (docs/anomalies.md). Elsewhere it is skipped and says what is missing; in CI it may
not be skipped.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.testing.anomalies.checker import NAMES

ROOT = Path(__file__).resolve().parent.parent.parent
FAULTS = ("kill_leader", "cut_from_everybody", "zombie_client")
NO_NETWORK = 2  # the exit status without namespaces
WITHIN_S = 540


def test_a_short_run_holds_and_has_tested_something() -> None:
    words = ("--minutes", "0.2", "--pace", "0.4", "--few", "--seed", "7", "--faults", *FAULTS)
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.anomalies.run", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=WITHIN_S, check=False,
    )  # fmt: skip
    if ran.returncode == NO_NETWORK and "namespace" in ran.stderr:
        assert not os.environ.get("CI"), f"in CI this test must run: {ran.stderr}"
        pytest.skip(ran.stderr.strip())
    said = ran.stdout
    assert ran.returncode == 0 and said.rstrip().endswith("HELD"), said[-20_000:] + ran.stderr[-5_000:]
    assert re.findall(r"^([^\s:]+) +(\d+)$", said, re.MULTILINE) == [(name, "0") for name in NAMES], said
    for counted in (r"(\d+) committed", r"(\d+) aborted", r"(\d+) acknowledged for good", r"(\d+) polls"):
        assert int(re.search(counted, said)[1]) > 0, said
    assert int(re.search(r"^faults: (\d+)$", said, re.MULTILINE)[1]) >= len(FAULTS), said
