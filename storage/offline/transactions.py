"""How the transactions of a range ended, by their markers. `.txnindex` says less: only Kafka writes it.

The next marker of its producer decides about a transactional batch. A transaction without a marker is
undecided: readers of committed transactions end before the first one, at the last stable offset.
"""

from collections.abc import Iterable
from typing import NamedTuple

from ...protocol.batches import headers
from ..cleaning.reading import ABORT, COMMIT, control_type
from .replica_log import Run


class Aborted(NamedTuple):
    """A transaction that was aborted, and where its batches are."""

    producer_id: int
    first_offset: int
    last_offset: int  # of the marker


class Outcomes(NamedTuple):
    """What the markers before `end` say."""

    last_stable: int
    aborted: tuple[Aborted, ...]


def outcomes(runs: Iterable[Run], end: int) -> Outcomes:
    """The transactions of runs that end at `end`."""
    undecided: dict[int, int] = {}
    aborted: list[Aborted] = []
    for run in runs:
        for at, header in headers(run.records):
            producer = header.producer_id
            if not header.is_control:
                if header.is_transactional:
                    undecided.setdefault(producer, header.base_offset)
                continue
            kind = control_type(run.records, at, header)
            if kind in (ABORT, COMMIT):
                first = undecided.pop(producer, None)
                if kind == ABORT and first is not None:
                    aborted.append(Aborted(producer, first, header.last_offset))
    return Outcomes(min(undecided.values(), default=end), tuple(aborted))
