"""ReadApart: a read that a thread does completely, through its own files.

It is for data that does not stay in memory long enough to be read from there: the file system always says
that it would have to wait, or memory is short. The loop notes the log's state when it makes the read; a
thread reads and checks. The result counts only while nothing has been truncated.
Left to others: reads that are warmed in memory and then repeated (segment/not_resident.py), who waits
(broker/replicas/cold_reads.py).
"""

from contextlib import closing

from ...protocol.primitives import Buffer, Slices
from ..disk import DiskError
from ..segment.batch_walk import CorruptBatch, WalkRules
from ..segment.segment import Segment
from .segments import Segments


class ReadApart:
    """Complete batches from the one that reaches `offset`; none begins at `end` or later.

    At most `bytes_max`, but at least one batch. `warm` is for a thread, `settle` for the loop (as with
    `Cold`), then `holds` and `found`. The caller has checked that `offset` is in the log, and checks again
    before it uses the result.
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
        """Itself: nobody shares what it reads."""
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
                return data  # else compaction has left nothing from `offset` on in this segment
        return b""

    def settle(self) -> None:
        """On the loop: set `error` if the read failed, unless the log has changed meanwhile."""
        self._settled = True
        if self._trouble is not None and not self._is_stale:
            try:
                with self._chain.guarded():
                    raise self._trouble
            except DiskError as error:
                self.error = error

    @property
    def _is_stale(self) -> bool:
        """Whether records were removed, or segments deleted or replaced."""
        chain, seen = self._chain, self._segments
        place = chain.place_of(seen[0].base_offset)
        return (
            chain.closed
            or chain.generation != self._generation
            or chain.segments[place : place + len(seen)] != seen
        )

    def holds(self, chain: Segments, offset: int, end: int) -> bool:
        """Whether this is, or will be, the answer for a reader of that log that asks for `offset` and may see
        what is before `end`.
        """
        mine = chain is self._chain and offset == self.offset and self.end <= end and not self._is_stale
        return mine and (not self._settled or bool(self._data) or self.end == end)

    @property
    def found(self) -> Slices | None:
        """What was read, valid if `holds`; None while the read is under way."""
        return Slices((self._data,) if self._data else ()) if self._settled else None
