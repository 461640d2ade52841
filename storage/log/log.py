"""Log: one partition's records on disk: ordered segments, epochs, producer state, and the tail in memory.

Every change to a log happens without an await and without a thread. The end offset moves only after the
system call has returned in full. Only what `begin_flush` returns runs in a thread.
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
    """The producer state as of log end offset `end`."""

    end: int
    producers: ProducerStates


class Log(LogState):
    """A partition's log. It holds the offsets in [start_offset, end_offset)."""

    # -- appending

    def append(self, batch: Buffer, header: BatchHeader, epoch: int, now_ms: int) -> int:
        """Leader append: assign offsets to one checked batch and write it. Returns its base offset.

        `batch` is stamped in place. After DiskFull or DiskFailed the log is as it was.
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
        """Follower append: write a run of batches that have their offsets; returns the bytes appended.

        A torn batch at the end is ignored, and so is anything bad after good batches. A run that begins with
        a bad batch raises CorruptBatch or NotNext.
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
        """Write the batches from `first` on that fit one segment, in one call; returns the next place."""
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
                self._tail.clear()  # it cannot hold gaps
            segment.placed(batch.last_offset, batch.size, batch.max_timestamp, self._interval)
            self.end_offset = batch.next_offset
            self.producers.update(batch, batch.base_offset)
            if self.keep_tail:
                self._tail.add(batch.base_offset, batch.next_offset, records, at, batch.size)
        return last

    def _roll_for(self, header: BatchHeader, now_ms: int) -> Segment:
        """Begin a new segment at the log end, even if the next batch comes after a gap. So a hole between two
        segments after a power loss means lost records, never the leader's compaction.

        If the gap is wider than a segment can be, the log end moves past it, as the next start would find.
        """
        base_offset = max(self.end_offset, header.last_offset - RELATIVE_MAX)
        segment = self._roll(base_offset, now_ms)
        if base_offset > self.end_offset:
            self._tail.clear()
            self.end_offset = base_offset
        return segment

    def _forget_epochs_to_come(self) -> None:
        """Drop epochs whose batches were not written. They come again, after one of an earlier epoch."""
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
        """Complete batches from the one that holds `offset`; none begins at `end` or later.

        At most `bytes_max`, unless the first batch alone is larger and `at_least_one` is set. The returned
        bytes never change. Without `wait`, raises Cold if it would have to wait for the disk.
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
        """The same read for a thread, after `read` raised Cold; `earlier` if that still answers it."""
        end = min(end, self.end_offset)
        if earlier is not None and earlier.holds(self._chain, offset, end):
            return earlier
        return ReadApart(self._chain, self._rules(offset), offset, bytes_max, end, self.end_offset)

    def lookup(self, end: int, ms: int | None = None) -> TimeLookup:
        """Look for the first record below `end` with a timestamp of at least `ms`, or (None) for the one with
        the largest timestamp. The result's `run` is for a thread.
        """
        end = min(end, self.end_offset)
        return TimeLookup(self._chain, self.epochs, self.gaps_allowed, self.start_offset, end, ms)

    def find_timestamp(self, ms: int, end: int) -> Found | None:
        """(timestamp, offset, epoch) of the first record below `end` stamped `ms` or later. Blocking."""
        return self.lookup(end, ms).now()

    def latest_timestamp(self, end: int) -> Found | None:
        """(timestamp, offset, epoch) of the record below `end` with the largest timestamp. Blocking."""
        return self.lookup(end).now()

    # -- taking away

    def leaving(self, offset: int) -> Leaving | None:
        """What `truncate_to(offset)` would remove; None if nothing."""
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
        """The producer state if the log is truncated to `end`, a batch boundary. Blocking, for any thread.

        Nobody may append or truncate meanwhile: the caller must check that the log is still the same before
        it truncates. Raises OSError or CorruptBatch.
        """
        found = ProducerStates(self.producers.producers_max)
        if len(self.producers):  # else none has written lately, and there is nothing to rebuild
            producer_snapshots.rebuild(self.disk, self.directory, found, list(self.segments), end, apart=True)
        return AsOf(end, found)

    def truncate_to(self, offset: int, known: AsOf | None = None) -> int:
        """Remove `offset` and everything after it, from epochs and producers too; returns the new end.

        A batch that holds `offset` goes completely. Never truncates below the start offset. Producer state
        is rebuilt here, which reads up to a segment, unless `known` is of the new end.
        After a DiskError records, epochs and producers are as they were, or the log is closed for appends for
        good (DiskFailed, LogDamaged). An epoch history that disagrees with its log would mislead the next
        replica that asks for it.
        """
        offset = max(offset, self.start_offset)
        if offset < self.end_offset:
            with self._chain.guarded():
                offset = self._chain.boundary_before(offset)
            if offset < self.start_offset:  # the log starts inside the batch that goes: nothing is left
                self.restart_at(self.start_offset)
                return self.end_offset
            self._cut(offset, known)
        else:
            self._chain.generation += 1
        if self.epochs.truncate_from_end(offset):  # also when no record goes (KAFKA-10706)
            self.save_epochs_if_room(sync=False)  # opening the log removes what a stale file has too much
        if self.gaps_allowed:
            self._tell_end()
        return self.end_offset

    def _tell_end(self) -> None:
        """Keep the log end known if the batch before it was compacted away: an empty segment's name says it.

        Without room or a descriptor the truncation stands all the same, for it is done. The checkpoints are
        then lowered instead, so that a start before the next append takes nothing for lost.
        """
        try:
            if not self._chain.tells_end(self.end_offset):
                self._roll(self.end_offset, 0)
        except (DiskFull, NoDescriptor) as error:
            logger.warning("log_end_not_told", partition=str(self.partition), reason=str(error))
            with suppress(DiskFull, NoDescriptor):  # then the next start may assume a loss
                self.before_cut(self._chain.active.base_offset, self.start_offset)

    def _cut(self, end: int, known: AsOf | None) -> None:
        """First everything that may fail and can be retried, then what must not stop halfway."""
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
        """Remove everything and start again, empty, at `offset`: the leader no longer has what comes before.

        Without `sync` the caller must sync the directory before anyone is told of the new start.
        A DiskError leaves the log as in `truncate_to`.
        """
        chain, start = self._chain, self.start_offset
        with chain.guarded():
            fresh = NewBeginning(self.disk, self.directory, offset, now_ms)
        try:
            self._lasting.cut(0)
            self.before_cut(0, offset)  # as in `_cut`
            with chain.guarded():
                producer_snapshots.drop(self.disk, self.directory, high=-1)
            self._save_no_epochs(sync)  # first: a log that starts after its first epoch looks like a loss
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
        """Raise the log start offset to `offset`; segments before it go in a retention pass."""
        if not self.start_offset < offset <= self.end_offset:
            return False
        self.start_offset = offset
        self.start_moved(offset)
        if self.epochs.truncate_from_start(offset):
            self.save_epochs_if_room(sync=False)  # retention is what makes room
        return True

    def replace(self, bases: Sequence[int]) -> list[str]:
        """Swap in the one segment that closed segments were cleaned into. Returns their renamed files."""
        return self._chain.replace(bases)

    def retire(self, count: int, now_ms: int) -> list[str]:
        """Remove the oldest `count` segments; returns their files, renamed for deletion.

        If that is all of them, a new segment is made first.
        """
        if count >= len(self.segments):
            with suppress(DiskFull):  # then the last one stays until the others have made room
                self.roll(now_ms)
            count = min(count, len(self.segments) - 1)
        if count:
            self.move_start(self.segments[count].base_offset)
        return self._chain.retire(count)
