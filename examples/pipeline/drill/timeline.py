"""What a drill has found: samples, events, recoveries, and the checks that make its verdict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from .judge import Compared, Expected
from .plot import Event, Line, Panel


class Sample(NamedTuple):
    """The pipeline at one moment."""

    at_s: float
    sent: int
    lag: Mapping[str, int]
    windows: Mapping[str, int]


class Recovery(NamedTuple):
    """Who was killed, and how long it took until flights that were sent later were processed."""

    name: str
    took_s: float


@dataclass
class Outcome:
    """All of it."""

    days: int
    outputs: Sequence[str]
    flights: int = 0
    expected: Expected = field(default_factory=Expected)
    samples: list[Sample] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    recoveries: list[Recovery] = field(default_factory=list)
    compared: dict[str, Compared] = field(default_factory=dict)
    is_isr_full: bool = False
    unlisted_files: int = 0
    slow_starts: int = 0  # of drivers that Spark gave up, for the machine was too slow
    left_running: list[int] = field(default_factory=list)
    took_s: float = 0.0

    def checks(self) -> dict[str, bool]:
        """Each check as a sentence, and whether it held."""
        wanted = len(self.expected.windows)
        found = {f"{len(self.recoveries)} of 3 were killed and got over": len(self.recoveries) == 3}
        if "parquet" in self.compared:
            parquet = self.compared["parquet"]
            found |= {
                f"Parquet: {len(parquet.missing)} of {wanted:,} windows missing": not parquet.missing,
                f"Parquet: {len(parquet.wrong)} windows wrong": not parquet.wrong,
                f"Parquet: {parquet.repeated} rows twice": not parquet.repeated and parquet.rows == wanted,
            }
        if "topic" in self.compared:
            topic = self.compared["topic"]
            found |= {
                f"topic: {len(topic.missing)} of {wanted:,} windows missing": not topic.missing,
                f"topic: {len(topic.wrong)} windows wrong": not topic.wrong,
                f"topic: {topic.repeated} rows twice": not topic.repeated and topic.rows == wanted,
            }
        last = self.samples[-1].lag if self.samples else {}
        return found | {
            f"lag at the end: {max(last.values(), default=-1)}": all(lag == 0 for lag in last.values()),
            "the killed broker rejoined every ISR": self.is_isr_full,
            f"{len(self.left_running)} processes left running": not self.left_running,
        }

    @property
    def good(self) -> bool:
        return set(self.compared) == set(self.outputs) and all(self.checks().values())

    def panels(self) -> list[Panel]:
        """Lag, and what came out."""
        share = 100 / max(1, len(self.expected.windows))
        came: dict[str, Line] = {
            "flights sent": [(each.at_s, 100 * each.sent / max(1, self.flights)) for each in self.samples]
        }
        for name in self.outputs:
            came[f"windows: {name}"] = [(each.at_s, share * each.windows[name]) for each in self.samples]
        return [
            Panel(
                "lag of each query, records",
                {name: [(each.at_s, each.lag[name]) for each in self.samples] for name in self.outputs},
            ),
            Panel("share of all, %", came),
        ]
