"""Reads a range of a partition from several replicas' closed logs: each goes on where the one before fails.

The next offset is the only state. Which replica may serve what is given (proof.py), so whoever serves, the
records are the same. What a replica cannot give, because it is damaged, torn, gone or not to be seen from
here, is told and taken from another one. What none can give is lost. A directory that is not as it was when
all that was found out, or that a broker works in, is Changed (identity.py): then no replica may serve, for
the bounds hold no longer.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..log.leader_epochs import Entry
from ..segment_files import Damaged
from .identity import Stamp, check, see
from .replica_log import ReplicaLog, Run


class Source(NamedTuple):
    """A replica, and which offsets it may serve."""

    broker: int
    directory: str
    start: int
    limit: int  # exclusive
    epochs: tuple[Entry, ...]  # empty: batches are not held against them
    high_watermark: int  # as its checkpoint has it; -1: not at all
    gaps: bool
    stamp: Stamp  # what the planner saw of its directory

    def plain(self) -> tuple[Any, ...]:
        """Built-in values only."""
        return (*self[:-1], tuple(self.stamp))

    @classmethod
    def of_plain(cls, found: Sequence[Any]) -> "Source":
        """What `plain` made."""
        *facts, planned = found
        return cls._make((*facts, Stamp._make(planned)))

    def log(self) -> ReplicaLog:
        """Its files, as they are listed now; raises NotSeen."""
        see(Path(self.directory))
        return ReplicaLog(self.directory, self.epochs, self.gaps)


class Piece(NamedTuple):
    """A run of good batches. Only records of [start, end) count."""

    run: Run
    source: Source
    start: int
    end: int


class NoReplica(LookupError):
    """No replica has the next record; `troubles` says what each one has instead."""

    def __init__(self, position: int, troubles: Sequence[Exception]) -> None:
        super().__init__(f"no replica has offset {position}")
        self.position = position
        self.troubles = list(troubles)


class RangeReader:
    """The records of [start, end) in order, once: `for piece in reader`.

    Where no replica can serve it raises NoReplica, and another pass of the same object tries again from
    there; `skip_to` goes on behind.
    """

    def __init__(
        self, sources: Sequence[Source], start: int, end: int, tell: Callable[[Source, Exception], None]
    ) -> None:
        self.sources = sources
        self.position = start
        self.end = end
        self._tell = tell
        self._logs: dict[Source, ReplicaLog] = {}

    def __iter__(self) -> Iterator[Piece]:
        while self.position < self.end:
            before, troubles = self.position, list[Exception]()
            for source in self.sources:
                if source.start <= self.position < min(source.limit, self.end):
                    try:
                        yield from self._of(source)
                    except (Damaged, OSError) as trouble:
                        self._tell(source, trouble)
                        troubles.append(trouble)
            if self.position == before:
                raise NoReplica(before, troubles)

    def skip_to(self, offset: int) -> None:
        """Go on from a later offset."""
        assert offset > self.position, "what was read is not read again"
        self.position = min(offset, self.end)

    def next_good(self) -> int:
        """From where on a replica can serve again."""
        found = self.end
        for source in self.sources:
            end = min(found, source.limit)
            if source.start > self.position:
                found = min(found, source.start)
            elif self.position < end:
                try:
                    good = self._log(source).next_good(self.position, end)
                except OSError:
                    continue
                found = good if good < end else found
        return found

    def _of(self, source: Source) -> Iterator[Piece]:
        """What a source has from the position on. Raises Damaged if its log ends before it should, and
        Changed if it was not, or did not stay, as it was planned on.
        """
        end = min(source.limit, self.end)
        folder = Path(source.directory)
        check(folder, source.stamp)
        try:
            for run in self._log(source).runs(self.position, end):
                start, self.position = self.position, max(self.position, min(run.next_offset, end))
                if run.records:
                    yield Piece(run, source, start, end)
        except (Damaged, OSError):
            check(folder, source.stamp)  # perhaps a broker is at work
            raise
        check(folder, source.stamp)
        if self.position < min(source.high_watermark, end):
            raise Damaged(
                source.directory,
                0,
                f"the log ends at offset {self.position}, below its high watermark {source.high_watermark}",
            )

    def _log(self, source: Source) -> ReplicaLog:
        if source not in self._logs:
            self._logs[source] = source.log()
        return self._logs[source]


def first_at(
    sources: Sequence[Source], ms: int, start: int, end: int, tell: Callable[[Source, Exception], None]
) -> int | None:
    """The offset of the first record of [start, end) with this time or a later one; None if there is none.

    Raises NoReplica where none can be looked through.
    """
    while start < end:
        before, troubles = start, list[Exception]()
        for source in sources:
            if source.start <= start < min(source.limit, end):
                try:
                    found, reached, trouble = source.log().first_at(ms, start, min(source.limit, end))
                except OSError as unseen:
                    found, reached, trouble = None, start, unseen
                if found is not None:
                    return found
                start = max(start, reached)
                if trouble is not None:
                    tell(source, trouble)
                    troubles.append(trouble)
        if start == before:
            raise NoReplica(start, troubles)
    return None
