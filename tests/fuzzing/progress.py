"""What runs have sent so far, in a file: a run goes on where it was, and runs of several seeds add up.

Each seed has an entry of its own, and only its run changes that: two runs may use one file at a time.
"""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Run:
    """What was sent with one seed."""

    seed: int
    rounds: int = 0  # that have begun, each with a broker and random numbers of its own
    frames: int = 0
    seconds: float = 0.0
    whole: Counter[str] = field(default_factory=Counter)  # by API and version
    damaged: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    accepted_batches: int = 0
    held_mib_max: int = 0
    complaints: list[str] = field(default_factory=list)


class Progress:
    """The file. Without one, all is kept in memory."""

    def __init__(self, path: Path | None, seed: int) -> None:
        self.path = path
        self.runs = self._read()
        self.own = self.runs.setdefault(seed, Run(seed))

    @property
    def frames(self) -> int:
        """Of all runs."""
        return sum(run.frames for run in self.runs.values())

    def save(self) -> None:
        """Write our own run; what others have written meanwhile is kept, and counted from now on."""
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _alone(self.path):
            self.runs = self._read() | {self.own.seed: self.own}
            document = {"runs": [vars(run) for _, run in sorted(self.runs.items())]}
            new = self.path.with_name(self.path.name + ".new")
            new.write_text(json.dumps(document, indent=1) + "\n")
            os.replace(new, self.path)

    def _read(self) -> dict[int, Run]:
        if self.path is None or not self.path.exists():
            return {}
        try:
            found: list[dict[str, Any]] = json.loads(self.path.read_text())["runs"]
            runs = [Run(**each) for each in found]
        except (ValueError, KeyError, TypeError) as error:
            raise SystemExit(f"{self.path} is not a file that `make fuzz` has written: {error!r}") from None
        for run in runs:
            run.whole, run.ended = Counter(run.whole), Counter(run.ended)
        return {run.seed: run for run in runs}


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """No other run writes the file meanwhile."""
    with path.with_name(path.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
