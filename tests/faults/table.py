"""What a run of the matrix has shown: a row for each scenario, kept in a file as it grows.

A later run of a scenario takes the place of an earlier one, so that a matrix can be run in parts. Left to
others: the limits (matrix.py), the page (page.py).
"""

import datetime
import json
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from strandline.local.processes import machine_is_slower
from strandline.testing.history import Anomaly, Report
from tests.faults.matrix import MATRIX

BEGAN = f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d %H:%M}"  # this run
LOSSES = (Anomaly.LOST_WRITE, Anomaly.UNSEEN, Anomaly.HW_LEAK)
NOISE = 2.0, 5.0  # limits are for a machine of its own; on one that is shared they grow, within these
HEAD = ("fault", "what", "verdict", "acks", "lost", "dup", "other", "diverged", "gap s", "whole s", "")


@dataclass
class Row:
    """A line of the table."""

    fault: str
    what: str
    passed: bool = False
    acknowledged: int = 0
    lost: int = 0
    duplicated: int = 0
    other: int = 0  # anomalies of any other name
    diverged: str = "?"
    gap_s: float = 0.0
    gap_limit_s: float | None = None  # None: the fault's length decides
    whole_s: float = 0.0  # from healing until every ISR was full
    slower: float = 1.0  # by which the limits were multiplied
    day: str = ""
    run: str = ""  # when the run began that this is of: what has the same was run in one go
    remark: str = ""

    @property
    def verdict(self) -> str:
        return "held" if self.passed else "BROKEN"

    def note(self, report: Report) -> None:
        """Add what a checker has found."""
        self.acknowledged += report.acknowledged
        self.lost += sum(len(found) for kind, found in report.anomalies.items() if kind in LOSSES)
        self.duplicated += len(report.anomalies.get(Anomaly.DUPLICATE, []))
        self.other += sum(
            len(found)
            for kind, found in report.anomalies.items()
            if kind not in LOSSES and kind is not Anomaly.DUPLICATE
        )

    def assert_within_limits(self) -> None:
        """Enough acknowledgements, no gap and no recovery beyond what the matrix allows of this fault."""
        limit = MATRIX[self.fault]
        self.slower = round(min(max(machine_is_slower(), NOISE[0]), NOISE[1]), 1)
        assert self.acknowledged >= limit.acks_min, (
            f"{self.acknowledged} acknowledged: too few to judge by, {limit.acks_min} at least"
        )
        if self.gap_limit_s is not None:
            assert self.gap_s <= self.gap_limit_s * self.slower, (
                f"a partition had no acknowledgement for {self.gap_s:.2f} s; at most {self.gap_limit_s:g} s, "
                f"here times {self.slower:g}"
            )
        assert self.whole_s <= limit.whole_s * self.slower, (
            f"whole after {self.whole_s:.2f} s; at most {limit.whole_s:g} s, here times {self.slower:g}"
        )


@dataclass
class Table:
    """What the run has shown."""

    rows: list[Row] = field(default_factory=list)

    def text(self) -> str:
        lines = [
            (
                row.fault, row.what, row.verdict, str(row.acknowledged), str(row.lost), str(row.duplicated),
                str(row.other), row.diverged, f"{row.gap_s:.2f}", f"{row.whole_s:.2f}", row.remark,
            )
            for row in self.rows
        ]  # fmt: skip
        widths = [max(len(line[i]) for line in [HEAD, *lines]) for i in range(len(HEAD))]
        return "\n".join(
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in [HEAD, *lines]
        )

    def save(self, path: Path) -> None:
        """Write all rows, and those in the file that are about other scenarios."""
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        for row in self.rows:
            row.day, row.run = row.day or today, row.run or BEGAN
        fresh = {(row.fault, row.what) for row in self.rows}
        kept = [row for row in read_rows(path) if (row.fault, row.what) not in fresh]
        rows = sorted([*kept, *self.rows], key=lambda row: int(row.fault[1:]))
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.tmp")
        temporary.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        temporary.replace(path)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file that `Table.save` wrote; none if there is none. ValueError if it is another file."""
    if not path.exists():
        return []
    known = {each.name for each in fields(Row)}
    rows = json.loads(path.read_text())
    if not isinstance(rows, list) or not all(isinstance(row, dict) and set(row) <= known for row in rows):
        raise ValueError(f"{path} is no table of faults: a list of rows with {', '.join(sorted(known))}")
    return [Row(**row) for row in rows]
