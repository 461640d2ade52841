"""What `strandline dump` passes from its readers to its printer: rows, options, findings.

A row is a dict with a `kind`; its other fields serve programs (`--json`) as well as the printed lines.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...protocol.records import Record

Row = dict[str, Any]
Decode = Callable[[Record], tuple[str | None, str | None]]

BAD = frozenset({
    "damage", "index_mismatches", "misnamed", "missing", "not_found", "time_disorder", "time_mismatches",
    "unknown",
})  # fmt: skip
"""Rows that make the command end with 1."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The options of the command."""

    contents: bool  # keys and values
    records: bool  # a row for each record
    metadata: bool  # offset, time, sizes … of records
    sanity_only: bool
    verify_only: bool
    bytes_max: int  # of a segment
    cut: bool  # whether `bytes_max` was given
    message_bytes_max: int
    decode: Decode


@dataclass(slots=True)
class Findings:
    """Inconsistencies by file; printed after all files, as Kafka's tool does."""

    pairs: dict[str, dict[str, list[tuple[int, int]]]] = field(default_factory=dict)

    def note(self, kind: str, path: Path, first: int, second: int) -> None:
        self.pairs.setdefault(kind, {}).setdefault(str(path.absolute()), []).append((first, second))

    def rows(self) -> Iterator[Row]:
        """In the tool's order: indexes, time indexes, segments."""
        for kind in ("index_mismatches", "time_mismatches", "time_disorder", "not_found", "non_consecutive"):
            for file, pairs in self.pairs.get(kind, {}).items():
                yield {"kind": kind, "file": file, "pairs": pairs}


def base_of(path: Path) -> int:
    """The first offset of the segment that a file belongs to."""
    return int(path.name.split(".")[0])
