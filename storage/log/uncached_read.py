"""ReadApart: a read that a thread makes from beginning to end, through files of its own.

For a medium of which nothing stays in memory long enough to be read from there: a file system that always
says it would have to wait, or too little memory. What holds for the log is taken on the loop when the read
is made; a thread reads and checks, and what it has found counts only as long as nothing has been cut.
Left to others: reads that are brought into memory and made again (segment/not_resident.py), who waits
(broker/replicas/cold_reads.py).
"""

from contextlib import closing

from ...protocol.primitives import Buffer, Slices
from ..disk import DiskError
from ..segment.batch_walk import CorruptBatch, WalkRules
from ..segment.segment import Segment
from .segments import Segments


class ReadApart:
    """Whole batches from the one that reaches `offset`, none that begins at `end` or later.

    At most `bytes_max`, but at least one. `warm` is for a thread, `settle` for the loop, then `holds` and
    `found`; all of this as for `Cold`. The caller has seen that `offset` is in the log, and looks again
    before it takes what was found.
    """

    __slots__ = (
        "_chain", "_data", "_end_offset", "_generation", "_rules", "_segments", "_settled", "_trouble",
        "bytes_max", "end", "error", "offset",
    )  # fmt: skip

    def __init__(
        self, chain: Segments, rules: WalkRules, offset: int, bytes_max: int, end: int, end_offset: int
    ) -> None:
        self.offset = offset
        self.end = end
        self.bytes_max = bytes_max
        self.error: DiskError | None = None
        self._chain = chain
        self._rules = rules
        self._end_offset = end_offset
        self._generation = chain.generation
        self._segments = chain.segments[chain.place_of(offset) :]
        self._data: Buffer = b""
        self._trouble: OSError | CorruptBatch | None = None
        self._settled = False

    @property
    def key(self) -> "ReadApart":
        """Nobody shares what it reads."""
        return self

    def warm(self) -> None:
        """Read. Blocking, for any thread; touches nothing of the log."""
        try:
            self._data = self._read()
        except (OSError, CorruptBatch) as error:
            self._trouble = error

    def _read(self) -> Buffer:
        following: list[Segment | None] = [*self._segments[1:], None]
        for segment, after in zip(self._segments, following, strict=True):
            if segment.base_offset >= self.end:
                break
            with closing(segment.apart()) as own:
                stop = self._end_offset if after is None else after.base_offset
                data = own.read(self.offset, self.bytes_max, self.end, stop, True, self._rules, wait=True)
            if data:
                return data  # else nothing is left from `offset` on of a compacted segment
        return b""

    def settle(self) -> None:
        """On the loop: `error` says whether the disk has failed. What went wrong with a log that has changed
        meanwhile says nothing.
        """
        self._settled = True
        if self._trouble is not None and not self._is_stale:
            try:
                with self._chain.guarded():
                    raise self._trouble
            except DiskError as error:
                self.error = error

    @property
    def _is_stale(self) -> bool:
        """Records have been taken away, or segments deleted or replaced."""
        chain, seen = self._chain, self._segments
        place = chain.place_of(seen[0].base_offset)
        return (
            chain.closed
            or chain.generation != self._generation
            or chain.segments[place : place + len(seen)] != seen
        )

    def holds(self, chain: Segments, offset: int, end: int) -> bool:
        """Whether this is the answer, or will be, for a reader of that log who asks for `offset` and may see
        what is before `end`.
        """
        mine = chain is self._chain and offset == self.offset and self.end <= end and not self._is_stale
        return mine and (not self._settled or bool(self._data) or self.end == end)

    @property
    def found(self) -> Slices | None:
        """What was read, if `holds`; None while it is under way."""
        return Slices((self._data,) if self._data else ()) if self._settled else None
