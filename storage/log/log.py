"""Log: one partition's records on disk; segments in order, with epochs, producers and a tail in memory.

Everything that changes a log is one breath: no await, no thread, and the end offset moves only after the
system call has returned in full. Only what `begin_flush` hands out runs in a thread.
Left to others: who may append and what is committed (broker/replicas/partition.py), opening after a stop
(recovery/recover_log.py), directories and background work (directories/log_manager.py).
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import structlog

from ...protocol.batches import LENGTH_END, BatchHeader, stamp, stamp_append_time
from ...protocol.errors import ErrorCode, error_for
from ...protocol.primitives import Buffer, Slices
from ..disk import DiskError, DiskFailed, DiskFull, NoDescriptor
from ..segment.batch_walk import ANY_EPOCH, WalkRules
from ..segment.index import RELATIVE_MAX
from ..segment.replicated_run import NotNext, Placed, checked_run
from ..segment.roll import stretch_end
from ..segment.segment import CorruptBatch, Segment
from . import producer_snapshots
from .leader_epochs import EpochHistory
from .log_files import UNSAVED, LogState
from .producer_state import ProducerStates
from .restart import NewBeginning
from .time_lookup import Found, TimeLookup
from .truncation import Leaving
from .uncached_read import ReadApart

logger = structlog.get_logger(__name__)

__all__ = ["CorruptBatch", "DiskError", "DiskFailed", "DiskFull", "Log", "NotNext"]


class AsOf(NamedTuple):
    """What was known of producers when the log ended at `end`."""

    end: int
    producers: ProducerStates


class Log(LogState):
    """A partition's log. Offsets in [start_offset, end_offset) are here."""

    # -- appending

    def append(self, batch: Buffer, header: BatchHeader, epoch: int, now_ms: int) -> int:
        """As leader: give one checked batch its place and write it. Returns its base offset.

        `batch` is stamped where it lies. DiskFull and DiskFailed leave the log as it was.
        """
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        size = header.batch_length + LENGTH_END
        max_time = header.max_timestamp
        assert not isinstance(batch, bytes), "a batch is stamped in place"
        if self._append_time:
            stamp_append_time(batch, 0, now_ms)
            max_time = now_ms
        if epoch != self._epoch_saved:
            self._open_epoch(epoch, base_offset)
        segment = self._chain.to_append()
        if segment.must_roll(size, last_offset, max_time, now_ms, self._limits):
            segment = self._roll(base_offset, now_ms)
        stamp(batch, 0, base_offset, epoch)
        self._chain.write(segment, batch if len(batch) == size else memoryview(batch)[:size])
        segment.placed(last_offset, size, max_time, self._interval)
        self.end_offset = last_offset + 1
        if header.producer_id >= 0:
            self.producers.update(header, base_offset, max_time)
        if self.keep_tail:
            self._tail.add(base_offset, last_offset + 1, batch, 0, size)
        return base_offset

    def append_replicated(self, records: Buffer, epoch_max: int | None = None, now_ms: int = 0) -> int:
        """As follower: write a run of batches that carry their offsets; returns the bytes appended.

        A torn batch at the end is ignored, as is what follows good batches and is not. A run that begins
        so is refused with CorruptBatch or NotNext.
        """
        expected, epoch = self.end_offset, self.epochs.latest
        run, has_gaps = checked_run(records, expected, epoch, epoch_max)
        if has_gaps and not self.gaps_allowed:
            self.allow_gaps()
        done = 0
        while done < len(run):
            done = self._append_stretch(records, run, done, now_ms)
        return sum(header.size for _, header in run)

    def _append_stretch(self, records: Buffer, run: list[Placed], first: int, now_ms: int) -> int:
        """Write the batches from `first` on that fit one segment, in one call; returns what comes next."""
        position, header = run[first]
        segment = self._chain.to_append()
        if segment.must_roll(header.size, header.last_offset, header.max_timestamp, now_ms, self._limits):
            segment = self._roll_for(header, now_ms)
        last = stretch_end(run, first, segment, self._limits)
        end = run[last - 1][0] + run[last - 1][1].size
        try:
            for _, batch in run[first:last]:
                if batch.leader_epoch != self._epoch_saved:
                    self._open_epoch(batch.leader_epoch, batch.base_offset)
            self._chain.write(segment, memoryview(records)[position:end])
        except DiskError:
            self._forget_epochs_to_come()
            raise
        for at, batch in run[first:last]:
            if batch.base_offset != self.end_offset:
                self._tail.clear()  # it has no room for gaps
            segment.placed(batch.last_offset, batch.size, batch.max_timestamp, self._interval)
            self.end_offset = batch.next_offset
            self.producers.update(batch, batch.base_offset)
            if self.keep_tail:
                self._tail.add(batch.base_offset, batch.next_offset, records, at, batch.size)
        return last

    def _roll_for(self, header: BatchHeader, now_ms: int) -> Segment:
        """A new segment begins where the log ends, also if the next batch stands behind a gap: so what lies
        between two segments after a power loss is lost, and was not compacted away by the leader.

        Where the gap is wider than a segment can be, the log ends behind it, as its next start would say.
        """
        base_offset = max(self.end_offset, header.last_offset - RELATIVE_MAX)
        segment = self._roll(base_offset, now_ms)
        if base_offset > self.end_offset:
            self._tail.clear()
            self.end_offset = base_offset
        return segment

    def _forget_epochs_to_come(self) -> None:
        """Their batches were not written: they will come again, and one of an earlier epoch first."""
        if self.epochs.truncate_from_end(self.end_offset + 1):
            self._epoch_saved = UNSAVED

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        """Close the active segment and open one that begins at `base_offset`."""
        with self._chain.guarded():
            producer_snapshots.take(self.disk, self.directory, self.producers, base_offset)
        return self._chain.roll(base_offset, now_ms)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        if self._chain.active.size:
            self._roll(self.end_offset, now_ms)

    # -- reading

    def read(
        self, offset: int, bytes_max: int, end: int, at_least_one: bool = True, wait: bool = True
    ) -> Slices:
        """Whole batches from the one that holds `offset`, none that begins at `end` or later.

        At most `bytes_max`, unless the first batch alone is larger and `at_least_one` is set. What is
        returned is never written to again. Without `wait`, Cold is raised if the medium is needed.
        """
        if not self.start_offset <= offset <= self.end_offset:
            raise error_for(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition}: {offset} is not in {self.start_offset}..{self.end_offset}",
            )
        end = min(end, self.end_offset)
        if offset >= end:
            return Slices()
        if 0 <= self._tail.first_offset <= offset:
            return Slices(self._tail.read(offset, bytes_max, end, at_least_one))
        rules = self._rules(offset)
        with self._chain.guarded():
            data = self._chain.read(offset, bytes_max, end, self.end_offset, at_least_one, rules, wait)
        return Slices((data,) if data else ())

    def _rules(self, offset: int) -> WalkRules:
        epochs = self.epochs
        latest = epochs.latest if epochs.latest >= 0 else ANY_EPOCH
        return WalkRules(self.gaps_allowed, epochs.epoch_at(offset), latest)

    def apart(self, offset: int, bytes_max: int, end: int, earlier: ReadApart | None = None) -> ReadApart:
        """`read`, after it has raised Cold, for a thread; `earlier` if that is still the answer."""
        end = min(end, self.end_offset)
        if earlier is not None and earlier.holds(self._chain, offset, end):
            return earlier
        return ReadApart(self._chain, self._rules(offset), offset, bytes_max, end, self.end_offset)

    def lookup(self, end: int, ms: int | None = None) -> TimeLookup:
        """The first record below `end` that is as late as `ms`, or the one with the largest timestamp: a
        question whose `run` is for a thread.
        """
        end = min(end, self.end_offset)
        return TimeLookup(self._chain, self.epochs, self.gaps_allowed, self.start_offset, end, ms)

    def find_timestamp(self, ms: int, end: int) -> Found | None:
        """(timestamp, offset, epoch) of the first record below `end` that is as late as `ms`. Blocking."""
        return self.lookup(end, ms).now()

    def latest_timestamp(self, end: int) -> Found | None:
        """(timestamp, offset, epoch) of the record below `end` with the largest timestamp. Blocking."""
        return self.lookup(end).now()

    # -- taking away

    def leaving(self, offset: int) -> Leaving | None:
        """What `truncate_to(offset)` would take away; None if that is nothing."""
        offset = max(offset, self.start_offset)
        if offset >= self.end_offset:
            return None
        with self._chain.guarded():
            end = self._chain.boundary_before(offset)
            files = self._chain.leaving(end)
        epochs = EpochHistory(self.epochs.entries)
        epochs.truncate_from_start(end)
        return Leaving(end, self.end_offset, tuple(epochs.entries), tuple(files))

    def producers_as_of(self, end: int) -> AsOf:
        """The producers once the log is cut at `end`, a batch boundary. Blocking, for any thread.

        Nobody may append or cut meanwhile: whoever cuts then must know that it is still the same log.
        Raises OSError or CorruptBatch.
        """
        found = ProducerStates(self.producers.producers_max)
        if len(self.producers):  # else none has written lately: nothing has to be known of any
            producer_snapshots.rebuild(self.disk, self.directory, found, list(self.segments), end, apart=True)
        return AsOf(end, found)

    def truncate_to(self, offset: int, known: AsOf | None = None) -> int:
        """Take away `offset` and everything after it, epochs and producers too; returns the new end.

        A batch that holds `offset` goes as a whole. Never cuts below the start offset. Without `known`,
        which counts if it is of the new end, producers are found out here: up to a segment is read.
        A DiskError leaves the records, the epochs and the producers as they were, or the log is closed for
        appends for good (DiskFailed, LogDamaged): a history that says one thing of a log that holds another
        would mislead the leader that is asked next.
        """
        offset = max(offset, self.start_offset)
        if offset < self.end_offset:
            with self._chain.guarded():
                offset = self._chain.boundary_before(offset)
            if offset < self.start_offset:  # the log begins inside the batch that goes: nothing is left
                self.restart_at(self.start_offset)
                return self.end_offset
            self._cut(offset, known)
        else:
            self._chain.generation += 1
        if self.epochs.truncate_from_end(offset):  # also when no record goes (KAFKA-10706)
            self.save_epochs_if_room(sync=False)  # what it says too much is cut when the log is opened
        if self.gaps_allowed:
            self._tell_end()
        return self.end_offset

    def _tell_end(self) -> None:
        """The name of an empty segment tells it, where the batch before it was compacted away.

        For want of room or of a descriptor the cut stands all the same, for it has been made: then less is
        promised, so that a start before the next append, which tells the end, takes nothing for lost.
        """
        try:
            if not self._chain.tells_end(self.end_offset):
                self._roll(self.end_offset, 0)
        except (DiskFull, NoDescriptor) as error:
            logger.warning("log_end_not_told", partition=str(self.partition), reason=str(error))
            with suppress(DiskFull, NoDescriptor):  # then a start is cautious
                self.before_cut(self._chain.active.base_offset, self.start_offset)

    def _cut(self, end: int, known: AsOf | None) -> None:
        """First all that may fail and can be tried again, then what must not stop halfway."""
        chain = self._chain
        self._lasting.cut(end)
        self.before_cut(end, self.start_offset)
        with chain.guarded():
            producer_snapshots.drop(self.disk, self.directory, high=end)
            if known is None or known.end != end:
                known = self.producers_as_of(end)
        with chain.ready_to_cut(end) as cut:
            chain.generation += 1
            with chain.all_or_closed():
                gone = cut()
        self._tail.clear()
        self.gone(gone)
        self.end_offset, self.producers = end, known.producers
        chain.count_opened()

    def restart_at(self, offset: int, now_ms: int = 0, sync: bool = True) -> None:
        """Take everything away and begin anew at `offset`: the leader no longer has what comes before.

        Without `sync` the directory is to be brought to the medium before anybody is told of the new start.
        A DiskError leaves the log as `truncate_to` does.
        """
        chain, start = self._chain, self.start_offset
        with chain.guarded():
            fresh = NewBeginning(self.disk, self.directory, offset, now_ms)
        try:
            self._lasting.cut(0)
            self.before_cut(0, offset)  # as in `_cut`
            with chain.guarded():
                producer_snapshots.drop(self.disk, self.directory, high=-1)
            self._save_no_epochs(sync)  # first: a log that begins behind its epochs has lost some
        except DiskError:
            fresh.give_up()
            raise
        chain.generation += 1
        self.start_offset = offset  # before its segment: see begins_within
        with chain.all_or_closed():
            gone = chain.restart(start, fresh)
            self._lasting.restart(offset, sync)
        self._tail.clear()
        self.gone(gone)
        self.end_offset = offset
        self.epochs.clear()
        self.producers.clear()

    def move_start(self, offset: int) -> bool:
        """Records before `offset` are no longer part of the log; their segments go in a retention pass."""
        if not self.start_offset < offset <= self.end_offset:
            return False
        self.start_offset = offset
        self.start_moved(offset)
        if self.epochs.truncate_from_start(offset):
            self.save_epochs_if_room(sync=False)  # retention is what makes room
        return True

    def replace(self, bases: Sequence[int]) -> list[str]:
        """Closed segments have been cleaned into one: swap it in. Returns their renamed files."""
        return self._chain.replace(bases)

    def retire(self, count: int, now_ms: int) -> list[str]:
        """Take the oldest `count` segments out of the log; returns their files, renamed for deletion.

        If that is all of them, a new one is begun first.
        """
        if count >= len(self.segments):
            with suppress(DiskFull):  # then the last one stays until what goes now has made room
                self.roll(now_ms)
            count = min(count, len(self.segments) - 1)
        if count:
            self.move_start(self.segments[count].base_offset)
        return self._chain.retire(count)
