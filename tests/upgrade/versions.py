"""Earlier versions of Strandline, from the history of this repository: what a rolling upgrade begins with.

A version is its sources in a directory, which Python finds before the ones that are installed; the
interpreter and the libraries are the same. Left to others: what brokers of it do (rolling.py,
test_upgrade_page.py).
"""

import compileall
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GIT_S = 60


def has(commit: str) -> bool:
    """Whether this clone has the commit. A copy without a history has none, a shallow clone the last few."""
    try:
        asked = ["git", "-C", str(ROOT), "cat-file", "-e", f"{commit}^{{commit}}"]
        return subprocess.run(asked, capture_output=True, timeout=GIT_S, check=False).returncode == 0
    except FileNotFoundError:
        return False


def sources_of(commit: str, folder: Path) -> Path:
    """The directory, below `folder`, for PYTHONPATH. Skips the test if the clone has no such commit."""
    if not has(commit):
        pytest.skip(
            f"this copy of the repository does not have the commit {commit}, which is the earlier version: "
            "it is no clone, or a shallow one (`git fetch --unshallow`)"
        )
    folder.mkdir(parents=True, exist_ok=True)
    place, archive = folder / commit, folder / f"{commit}.tar"
    subprocess.run(
        ["git", "-C", str(ROOT), "archive", "--output", str(archive), commit], timeout=GIT_S, check=True
    )
    (place / "strandline").mkdir(parents=True)
    with tarfile.open(archive) as packed:
        packed.extractall(place / "strandline", filter="tar")
    archive.unlink()
    compileall.compile_dir(place, quiet=2)  # as an installed version is; else each broker compiles it anew
    told = subprocess.run(
        [sys.executable, "-c", "import strandline; print(strandline.__file__)"],
        env=environment_of(place), capture_output=True, text=True, timeout=GIT_S, check=True,
    ).stdout  # fmt: skip
    assert told.startswith(str(place)), f"Python finds {told} before {place}"
    return place


def environment_of(place: Path) -> dict[str, str]:
    """The environment of a process of that version."""
    return {**os.environ, "PYTHONPATH": str(place)}


def command_of(place: Path | None, folder: Path) -> Path:
    """The command `strandline` of a version in `folder`, as a virtual environment has it; None: ours."""
    line = f"exec {sys.executable} -m strandline.cli.main"
    folder.mkdir(parents=True)
    command = folder / "strandline"
    command.write_text(f'#!/bin/sh\n{"" if place is None else f"PYTHONPATH={place} "}{line} "$@"\n')
    command.chmod(0o755)
    return command
