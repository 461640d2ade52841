"""Kafka's jars are fetched when a test first wants them, whatever that test does with its output."""

import os
import stat
from pathlib import Path

import pytest

MVN = """#!/bin/sh
for each; do case "$each" in -DoutputDirectory=*) folder="${each#*=}";; esac; done
mkdir -p "$folder"; touch "$folder/some.jar"
echo "$0 $HOME" >> "$HOME/runs"
exit $(cat "$HOME/status")
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new user's home, and a Maven that fetches one jar and ends with the status that is written there."""
    mvn = tmp_path / "bin" / "mvn"
    mvn.parent.mkdir()
    mvn.write_text(MVN)
    mvn.chmod(mvn.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{mvn.parent}:{os.environ['PATH']}")
    return tmp_path


def test_a_fetch_that_breaks_off_leaves_nothing_that_passes_for_whole(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from bench.jars import JarsMissing, fetched

    pom, cache = home / "pom.xml", home / ".cache" / "strandline"
    pom.write_text("<project/>")
    (home / "status").write_text("1")
    with pytest.raises(JarsMissing, match="status 1"):
        fetched(pom, "peer")
    assert list(cache.iterdir()) == []
    (home / "status").write_text("0")
    folder = fetched(pom, "peer")
    assert [path.name for path in folder.iterdir()] == ["some.jar"]
    assert fetched(pom, "peer") == folder and len((home / "runs").read_text().splitlines()) == 2
    pom.write_text("<project><version>2</version></project>")
    assert fetched(pom, "peer") != folder, "other jars are wanted"
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []


def test_without_maven_its_package_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.jars import JarsMissing, fetched

    monkeypatch.setenv("PATH", str(home))
    (home / "pom.xml").write_text("<project/>")
    with pytest.raises(JarsMissing, match="apt-get install maven"):
        fetched(home / "pom.xml", "peer")
