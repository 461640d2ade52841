"""Running a command that must end well, in time: `docker`, or whatever stops a broker elsewhere."""

import subprocess
from collections.abc import Sequence

from .base import PlaceProblem

WITHIN_S = 120.0


def run(words: Sequence[str], within_s: float = WITHIN_S) -> str:
    """What it printed. Raises PlaceProblem with the command and what it complained of."""
    line = " ".join(words)
    try:
        done = subprocess.run(
            words, capture_output=True, text=True, errors="replace", timeout=within_s, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise PlaceProblem(f"`{line}`: there is no command {words[0]}") from None
    except subprocess.TimeoutExpired:
        raise PlaceProblem(f"`{line}` has not ended within {within_s:g} s") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip() or "it said nothing"
        raise PlaceProblem(f"`{line}` ended with status {done.returncode}: {said}")
    return done.stdout
