"""Jars from Maven Central, fetched once into the user's cache.

What is to be fetched stands in a POM of this folder; Maven finds what that needs in turn.
"""

import hashlib
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType

FETCH_MAX_S = 300


class JarsMissing(OSError):
    """Jars that could not be fetched, with Maven's own reason."""


def fetched(pom: Path, name: str, properties: Mapping[str, str] = MappingProxyType({})) -> Path:
    """The folder with the jars that a POM names, fetched with Maven when it is not there yet.

    It has its name only when it is whole, and belongs to this text of the POM and these values of its
    properties. Raises JarsMissing.
    """
    given = [f"-D{key}={value}" for key, value in sorted(properties.items())]
    version = hashlib.sha256(pom.read_bytes() + "".join(given).encode()).hexdigest()[:8]
    folder = Path.home() / ".cache" / "strandline" / f"{name}-{version}"
    if not folder.exists():
        sys.stderr.write(f"fetching {name} with Maven\n")
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{name}-") as place:
            _fetch(pom, Path(place) / "jars", given)
            with suppress(OSError):  # someone else was faster
                (Path(place) / "jars").rename(folder)
    return folder


def _fetch(pom: Path, folder: Path, given: Sequence[str]) -> None:
    line = ["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    try:
        done = subprocess.run(
            [*line, *given], capture_output=True, text=True, timeout=FETCH_MAX_S, check=False
        )
    except FileNotFoundError:
        raise JarsMissing("Maven is not installed: apt-get install maven") from None
    except subprocess.TimeoutExpired:
        raise JarsMissing(f"Maven did not end within {FETCH_MAX_S} s; is Maven Central reachable?") from None
    if done.returncode or not list(folder.glob("*.jar")):
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[:3])
        raise JarsMissing(f"Maven ended with status {done.returncode}: {said or 'it said nothing'}")
