"""Finding: one thing that is wrong, why, and what to do about it. Pure.

Left to others: what is wrong (the files checks_*.py), how it is shown (command.py).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

NAMED_MAX = 5  # of many of one kind; the others are counted


class Severity(StrEnum):
    """How bad it is. A note is no problem by itself: the exit status stays 0."""

    CRITICAL = "critical"  # something does not work now, or acknowledged records can be lost
    WARNING = "warning"  # it works, and will not after one more failure
    NOTE = "note"


ORDER = tuple(Severity)


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong in one sentence, what it follows from, and a remedy in one line.

    `check` names the kind for programs, `subject` what it is about.
    """

    severity: Severity
    check: str
    subject: str
    problem: str
    remedy: str
    because: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The finding for --json."""
        return {
            "severity": self.severity.value,
            "check": self.check,
            "subject": self.subject,
            "problem": self.problem,
            "because": list(self.because),
            "remedy": self.remedy,
            "values": dict(self.values),
        }


@dataclass(frozen=True, slots=True)
class Fine:
    """What was looked at and is as it should be, in one sentence."""

    check: str
    text: str


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """The worst first; else as they came."""
    return sorted(findings, key=lambda each: ORDER.index(each.severity))


def named(items: Iterable[object]) -> str:
    """The first few by name, the others by number."""
    texts = [str(item) for item in items]
    shown = ", ".join(texts[:NAMED_MAX])
    more = len(texts) - NAMED_MAX
    return f"{shown} and {more:,} more" if more > 0 else shown


def plural(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def size(bytes_: int) -> str:
    """A number of bytes for people."""
    value = float(bytes_)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
