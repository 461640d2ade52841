"""Which release a checkout is of.

Reasons and counts hold for one release. Git's tag tells it, and whether a file was changed; where there is no
git (an archive, Go's module cache), a file of the sources tells it, or the name of the folder.
"""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.suites.suite import SuiteProblem

GIT_MAX_S = 30
RELEASES = ("--tags", "--dirty", "--exclude=*rc*", "--exclude=*RC*", "--exclude=*dev*")
NAMED = re.compile(r"[@-](v?\d+(?:\.\d+)+)$")  # of a folder: sarama@v1.60.1, sarama-1.60.1


@dataclass(frozen=True)
class Stated:
    """Where sources state their version: the first group of `pattern` in `file`."""

    file: str
    pattern: str


def version_of(checkout: Path, stated: Stated | None = None) -> str:
    """`1.60.1`; with changes `1.60.1-dirty`, between releases as git describes it."""
    found = _described(checkout) or _stated(checkout, stated) or _named(checkout)
    if found is None:
        where = stated.file if stated else "the folder's name"
        raise SuiteProblem(f"{checkout}: neither a tag of git nor {where} tells which release it is of")
    return found.removeprefix("v")


def _described(checkout: Path) -> str | None:
    if not (checkout / ".git").exists():  # git would answer for a repository around it
        return None
    line = ["git", "-C", str(checkout), "describe", *RELEASES]
    done = subprocess.run(line, capture_output=True, text=True, timeout=GIT_MAX_S, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def _stated(checkout: Path, stated: Stated | None) -> str | None:
    if stated is None or not (checkout / stated.file).exists():
        return None
    found = re.search(stated.pattern, (checkout / stated.file).read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else None


def _named(checkout: Path) -> str | None:
    found = NAMED.search(checkout.name)
    return found[1] if found else None
