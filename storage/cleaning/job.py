"""The jobs and reports of a cleaner, as plain data that goes through a pipe.

Left to others: the work (clean.py), the pipe (process.py, broker/upkeep/cleaner_processes.py).
"""

import json
from dataclasses import asdict, field

from ...base.values import dataclass


class DamagedSegment(Exception):
    """A segment's content is not what was written; the log cannot be cleaned."""


@dataclass(frozen=True, slots=True)
class Job:
    """One log to be cleaned, up to `upper` or to an earlier transaction without an end.

    All limits are in bytes or milliseconds.
    """

    directory: str
    sources: list[tuple[int, int]]  # base offset and size of each closed segment below `upper`
    later: list[
        tuple[int, int]
    ]  # of the segments from `upper` on: read for the ends of transactions, not cleaned
    first_dirty: int
    upper: int
    committed: int  # the high watermark: a marker from here on may be truncated
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    index_bytes_max: int
    index_interval_bytes: int
    map_bytes: int
    load_factor: float
    bytes_per_second: float
    producers: list[tuple[int, int, int]]  # producer id, last offset of its last batch or -1, its epoch
    secret: str  # sixteen bytes in hexadecimal
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)  # the index entries of `sources`


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The segments with these base offsets were rewritten into one, in `.cleaned` files, synced."""

    bases: list[int]
    size: int


@dataclass(frozen=True, slots=True)
class Done:
    """Everything before `end_offset` is clean now. An open transaction may have stopped it there."""

    end_offset: int
    keys: int
    bytes_read: int
    bytes_written: int
    undecided_from: int = -1  # the first offset of that transaction, -1 if there is none
    undecided_producer: int = -1


@dataclass(frozen=True, slots=True)
class Failed:
    """The job failed. `damaged`: trying again will not help."""

    reason: str
    damaged: bool


Report = Cleaned | Done | Failed
KINDS: dict[str, type[Cleaned] | type[Done] | type[Failed]] = {
    "cleaned": Cleaned,
    "done": Done,
    "failed": Failed,
}


def dump_job(job: Job) -> bytes:
    """One line."""
    return json.dumps(asdict(job)).encode() + b"\n"


def load_job(line: bytes) -> Job:
    """The inverse of `dump_job`."""
    told = json.loads(line)
    for name in ("sources", "later", "producers", "aborted"):
        told[name] = [tuple(entry) for entry in told[name]]
    return Job(**told)


def is_last(report: Report) -> bool:
    """Whether it is the last report of a job."""
    return not isinstance(report, Cleaned)


def dump_report(report: Report) -> bytes:
    """One line."""
    return json.dumps({"kind": type(report).__name__.lower(), **asdict(report)}).encode() + b"\n"


def load_report(line: bytes) -> Report:
    """The inverse of `dump_report`."""
    told = json.loads(line)
    return KINDS[told.pop("kind")](**told)
