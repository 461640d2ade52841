"""The trace of a world: a line for each thing that happens, and what was violated.

A seed must always tell the same story; the fingerprint shows whether it does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable


class Violation(Exception):
    """An invariant is broken."""


class Trace:
    """What has happened so far, in order."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: the virtual time, which begins each line."""
        self._now = now
        self.lines: list[str] = []
        self.violations: list[str] = []

    def note(self, what: str) -> None:
        """Something has happened."""
        self.lines.append(f"{self._now():9.4f} {what}")

    def fail(self, violation: Violation) -> None:
        """Note a violation; the run ends with the first one."""
        if not self.violations:
            self.note(str(violation))
        self.violations.append(str(violation))

    def fingerprint(self) -> str:
        """Equal if, and only if, all lines are."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]
