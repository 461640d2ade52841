"""Log: one partition's records on disk: ordered segments, epochs, producer state, and the tail in memory.

Every change to a log happens without an await and without a thread. The end offset moves only after the
system call has returned in full. Only what `begin_flush` returns runs in a thread.
Left to others: who may append and what is committed (broker/replicas/partition.py), opening after a stop
(recovery/recover_log.py), directories and background work (directories/log_manager.py).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from uuid import UUID

import structlog

from ...base.types import NO_OFFSET, TopicPartition
from ...protocol.batches import CONTROL, LENGTH_END, BatchHeader, stamp, stamp_append_time
from ...protocol.errors import ErrorCode, error_for
from ...protocol.primitives import Buffer, Slices
from ..config import TopicConfig
from ..disk import Disk, DiskError, DiskFailed, DiskFull, NoDescriptor
from ..segment.batch_walk import ANY_EPOCH, Placed, WalkRules, marker_in
from ..segment.index import RELATIVE_MAX
from ..segment.open_files import OpenSegments
from ..segment.replicated_run import NotNext, checked_run
from ..segment.roll import stretch_end
from ..segment.segment import CorruptBatch, Segment
from ..segment.tail_cache import Tail
from . import checkpoints, producer_snapshots
from .aborts import Aborts
from .epoch_file import EpochFile
from .flush import Flush, FlushState
from .leader_epochs import EpochHistory
from .log_settings import LogSettings
from .pending_deletion import delete_now
from .producer_cuts import AsOf, as_of
from .producer_state import ProducerStates
from .restart import NewBeginning
from .segments import Segments
from .time_lookup import Found, TimeLookup
from .truncation import Leaving, leaving
from .uncached_read import ReadApart

logger = structlog.get_logger(__name__)

__all__ = ["AsOf", "CorruptBatch", "DiskError", "DiskFailed", "DiskFull", "Log", "NotNext"]


class Log:
    """A partition's log. It holds the offsets in [start_offset, end_offset).

    Its parts: the segments, what of them is synced, the epochs with their file, the settings with theirs, the
    producers, the aborted transactions, and the newest batches in memory.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        partition: TopicPartition,
        config: TopicConfig,
        *,
        segments: Sequence[Segment],
        start_offset: int,
        end_offset: int,
        epochs: EpochHistory,
        producers: ProducerStates,
        open_segments: OpenSegments,
        topic_id: UUID | None = None,
        flushed_offset: int = 0,
        gaps_allowed: bool = False,
        tail_bytes_max: int = 1 << 20,
    ) -> None:
        assert start_offset <= end_offset and flushed_offset <= end_offset, "nothing is beyond the end"
        self.disk = disk
        self.directory = directory
        self.partition = partition
        self.topic_id = topic_id
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.epochs = epochs
        self.producers = producers
        self.keep_tail = False
        self.verifies = False  # readers get what matches its checksum, or LogDamaged
        self.before_cut: Callable[[int, int], None] = _nothing  # told end and start before records go
        self.start_moved: Callable[[int], None] = _nothing  # told the new start
        self.gone: Callable[[list[str]], None] = partial(delete_now, disk)  # told which files may be deleted
        self._chain = Segments(disk, directory, segments, open_segments)
        self._flush_state = FlushState(self._chain, flushed_offset)
        self.aborts = Aborts(self._chain, self._flush_state)
        self._epoch_file = EpochFile(self._chain, self._flush_state, epochs)
        self._settings = LogSettings(self._chain, self._flush_state, config, gaps_allowed)
        self._tail = Tail(tail_bytes_max, open_segments.memory)
        self._untold_end: int = NO_OFFSET  # an end offset that the next start would not find

    @property
    def config(self) -> TopicConfig:
        """The topic's settings."""
        return self._settings.config

    @property
    def gaps_allowed(self) -> bool:
        """Whether offsets may be missing between batches: the log is compacted, or was once."""
        return self._settings.gaps_allowed

    @property
    def begins_within(self) -> int | None:
        """The log start offset, if it lies inside the first segment; else None. A thread may ask."""
        first, start = self.segments[:1], self.start_offset
        return start if first and first[0].base_offset < start else None

    @property
    def generation(self) -> int:
        """Rises whenever records are removed, so that anyone who waited can tell."""
        return self._chain.generation

    @property
    def segments(self) -> list[Segment]:
        return self._chain.segments

    @property
    def damaged(self) -> bool:
        """Closed for appends by its content, not by its disk. The next start will check it."""
        return self._chain.damaged

    @property
    def failed(self) -> bool:
        """Closed for appends by a permanent disk error."""
        return self._chain.failed

    @property
    def closed(self) -> bool:
        return self._chain.closed

    @property
    def told_end(self) -> int:
        """Where the next start would find the log end, or later. Any thread may ask."""
        return self._chain.active.base_offset if self.end_offset == self._untold_end else self.end_offset

    @property
    def recovery_point(self) -> int:
        """What the next start may believe of this log: all before it is synced. Any thread may ask."""
        return min(self.flushed_offset, self.told_end)

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    # -- appending

    def append(self, batch: Buffer, header: BatchHeader, epoch: int, now_ms: int) -> int:
        """Leader append: assign offsets to one checked batch and write it. Returns its base offset.

        `batch` is stamped in place. After DiskFull or DiskFailed the log is as it was.
        """
        base_offset = self.end_offset
        last_offset = base_offset + header.last_offset_delta
        size, max_time = header.batch_length + LENGTH_END, header.max_timestamp
        assert not isinstance(batch, bytes), "a batch is stamped in place"
        assert last_offset >= base_offset, "a batch has at least one offset: the end never goes back"
        settings = self._settings
        if settings.append_time:
            stamp_append_time(batch, 0, now_ms)
            max_time = now_ms
        if epoch != self._epoch_file.saved:
            self._epoch_file.open(epoch, base_offset)
        segment = self._chain.to_append()
        if segment.must_roll(size, last_offset, max_time, now_ms, settings.limits):
            segment = self._roll(base_offset, now_ms)
        stamp(batch, 0, base_offset, epoch)
        self._chain.write(segment, batch if len(batch) == size else memoryview(batch)[:size])
        segment.placed(last_offset, size, max_time, settings.index_interval)
        self.end_offset = last_offset + 1
        if header.producer_id >= 0:
            marker = marker_in(batch, 0, header) if header.attributes & CONTROL else None
            ended = self.producers.update(header, base_offset, max_time, marker)
            if ended is not None:
                self.aborts.note(ended)
        if self.keep_tail:
            self._tail.add(base_offset, last_offset + 1, batch, 0, size)
        return base_offset

    def append_replicated(self, records: Buffer, epoch_max: int | None = None, now_ms: int = 0) -> int:
        """Follower append: write a run of batches that have their offsets; returns the bytes appended.

        A torn batch at the end is ignored, and so is anything bad after good batches. A run that begins with
        a bad batch raises CorruptBatch or NotNext.
        """
        run, has_gaps = checked_run(records, self.end_offset, self.epochs.latest, epoch_max)
        if has_gaps and not self.gaps_allowed:
            self.allow_gaps()
        done = 0
        while done < len(run):
            done = self._append_stretch(records, run, done, now_ms)
        return run[-1][0] + run[-1][1].size if run else 0

    def _append_stretch(self, records: Buffer, run: list[Placed], first: int, now_ms: int) -> int:
        """Write the batches from `first` on that fit one segment, in one call; returns the next place."""
        settings = self._settings
        position, header = run[first]
        segment = self._chain.to_append()
        if segment.must_roll(header.size, header.last_offset, header.max_timestamp, now_ms, settings.limits):
            segment = self._roll_for(header, now_ms)
        last = stretch_end(run, first, segment, settings.limits)
        end = run[last - 1][0] + run[last - 1][1].size
        try:
            for _, batch in run[first:last]:
                if batch.leader_epoch != self._epoch_file.saved:
                    self._epoch_file.open(batch.leader_epoch, batch.base_offset)
            self._chain.write(segment, memoryview(records)[position:end])
        except DiskError:
            self._forget_epochs_to_come()
            raise
        for at, batch in run[first:last]:
            base_offset, last_offset, size = batch.base_offset, batch.last_offset, batch.size
            assert base_offset >= self.end_offset, "the end never goes back"
            if base_offset != self.end_offset:
                assert settings.gaps_allowed, "the next start would take a gap for a loss"
                self._tail.clear()  # it cannot hold gaps
            segment.placed(last_offset, size, batch.max_timestamp, settings.index_interval)
            self.end_offset = last_offset + 1
            if batch.producer_id >= 0:
                marker = marker_in(records, at, batch) if batch.attributes & CONTROL else None
                ended = self.producers.update(batch, base_offset, marker=marker)
                if ended is not None:
                    self.aborts.note(ended)
            if self.keep_tail:
                self._tail.add(base_offset, last_offset + 1, records, at, size)
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
            self._epoch_file.changed()

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        """Close the active segment and open one that begins at `base_offset`."""
        assert base_offset >= self.end_offset, "what a segment holds is before the next one"
        self.aborts.take_snapshot(self.producers, base_offset)
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
                f"{self.partition}: offset {offset} is out of range {self.start_offset}..{self.end_offset}",
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
        latest = self.epochs.latest if self.epochs.latest >= 0 else ANY_EPOCH
        return WalkRules(self.gaps_allowed, self.epochs.epoch_at(offset), latest, self.verifies)

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

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where every transaction is decided and its marker committed: there readers of committed
        records end. To be told every high watermark, in order.
        """
        unstable = self.producers.unstable
        return unstable.last_stable(high_watermark, self.start_offset) if unstable else high_watermark

    def aborted(self, start: int, end: int) -> list[tuple[int, int]]:
        """(producer id, first offset) of the aborted transactions with records in [start, end)."""
        return self.aborts.overlapping(start, end)

    def upper_bound(self, offset: int, nbytes: int) -> int:
        """An `end` for `aborted`: not before the end of the batches of a read of `nbytes` from `offset`."""
        if 0 <= self._tail.first_offset <= offset:
            return self.end_offset
        return self.aborts.upper_bound(offset, nbytes, self.end_offset)

    # -- taking away

    def leaving(self, offset: int) -> Leaving | None:
        """What `truncate_to(offset)` would remove; None if nothing."""
        offset = max(offset, self.start_offset)
        if offset >= self.end_offset:
            return None
        return leaving(self._chain, self.epochs, offset, self.end_offset)

    def producers_as_of(self, end: int) -> AsOf:
        """The producer state if the log is truncated to `end`, a batch boundary. Blocking, for any thread.

        Nobody may append or truncate meanwhile: the caller must check that the log is still the same before
        it truncates. Raises OSError or CorruptBatch.
        """
        place = self._chain.place_of(end)
        return as_of(self.disk, self.directory, list(self.segments), place, self.producers, end)

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
            self._epoch_file.save_if_room(sync=False)  # opening the log removes what is too much
        if self.gaps_allowed:
            self._tell_end()
        return self.end_offset

    def _tell_end(self) -> None:
        """Keep the log end known if the batch before it was compacted away: an empty segment's name says it.

        Without room or a descriptor the truncation stands all the same, for it is done. The checkpoints are
        then lowered instead, and stay so (`told_end`) until the end is told or moves: a start before takes
        nothing for lost. What is flushed stays flushed: there are no records to be synced again.
        """
        self._untold_end = NO_OFFSET
        try:
            if not self._chain.tells_end(self.end_offset):
                self._roll(self.end_offset, 0)
        except (DiskFull, NoDescriptor) as error:
            logger.warning("log_end_not_marked", partition=str(self.partition), reason=str(error))
            self._untold_end = self.end_offset
            with suppress(DiskFull, NoDescriptor):  # then the next start may assume a loss
                self.before_cut(self.told_end, self.start_offset)

    def _cut(self, end: int, known: AsOf | None) -> None:
        """First everything that may fail and can be retried, then what must not stop halfway."""
        assert self.start_offset <= end < self.end_offset, "a cut removes records, and none before the start"
        chain = self._chain
        self._flush_state.cut(end)
        self.before_cut(end, self.start_offset)
        with chain.guarded():
            producer_snapshots.drop(self.disk, self.directory, high=end)
            if known is None or known.end != end:
                known = self.producers_as_of(end)
            self.aborts.mend(chain.segments[chain.place_of(end)])
        with chain.ready_to_cut(end) as cut:
            chain.generation += 1
            with chain.all_or_closed():
                gone = cut()
        self._tail.clear()
        self.gone(gone)
        self._flush_state.written(chain.active.transactions.name)  # it may have been cut
        self.end_offset, self.producers = end, known.instead_of(self.producers)
        assert known.end == end and self.flushed_offset <= end, "nothing is known of what is gone"
        chain.count_opened()

    def restart_at(self, offset: int, now_ms: int = 0, sync: bool = True) -> None:
        """Remove everything and start again, empty, at `offset`: the leader no longer has what comes before.

        Without `sync` the caller must sync the directory before anyone is told of the new start.
        A DiskError leaves the log as in `truncate_to`.
        """
        assert offset >= 0, f"{self.partition}: no log begins at {offset}"
        chain, start = self._chain, self.start_offset
        with chain.guarded():
            fresh = NewBeginning(self.disk, self.directory, offset, now_ms)
        try:
            self._flush_state.cut(0)
            self.before_cut(0, offset)  # as in `_cut`
            with chain.guarded():
                producer_snapshots.drop(self.disk, self.directory, high=-1)
            self._epoch_file.save_empty(sync)  # first: a log that starts after its first epoch seems a loss
        except DiskError:
            fresh.give_up()
            raise
        chain.generation += 1
        self.start_offset = offset  # before its segment: see begins_within
        with chain.all_or_closed():
            gone = chain.restart(start, fresh)
            self._flush_state.restart(offset, sync)
        self._tail.clear()
        self.gone(gone)
        self.end_offset = offset
        self.epochs.clear()
        self.producers.clear()
        assert self.size == 0 and self._chain.active.base_offset == offset, "nothing is left of it"

    def move_start(self, offset: int) -> bool:
        """Raise the log start offset to `offset`; segments before it go in a retention pass."""
        if not self.start_offset < offset <= self.end_offset:
            return False
        self.start_offset = offset
        self.start_moved(offset)
        if self.epochs.truncate_from_start(offset):
            self._epoch_file.save_if_room(sync=False)  # retention is what makes room
        return True

    def replace(self, bases: Sequence[int]) -> list[str]:
        """Swap in the one segment that closed segments were cleaned into. Returns their renamed files."""
        return self._chain.replace(bases)

    def retire(self, count: int, now_ms: int) -> list[str]:
        """Remove the oldest `count` segments; returns their files, renamed for deletion.

        If that is all of them, a new segment is made first.
        """
        assert count >= 0, "segments go from the oldest on"
        if count >= len(self.segments):
            with suppress(DiskFull):  # then the last one stays until the others have made room
                self.roll(now_ms)
            count = min(count, len(self.segments) - 1)
        if count:
            self.move_start(self.segments[count].base_offset)
            assert self.start_offset >= self.segments[count].base_offset, "the start goes first"
        return self._chain.retire(count)

    # -- epochs

    def assign_epoch(self, epoch: int) -> bool:
        """New leader: this epoch begins at the log end. In memory only, until `save_epochs`."""
        assert epoch >= self.epochs.latest, f"{self.partition}: leads in {epoch} after {self.epochs.latest}"
        changed = self.epochs.assign(epoch, self.end_offset)
        if changed:
            self._epoch_file.changed()
        return changed

    def save_epochs(self, sync: bool = True) -> None:
        """Write the epoch file. May run in a thread, if nobody else calls it meanwhile. Raises DiskError."""
        self._epoch_file.save(sync)

    def save_epochs_if_room(self) -> None:
        """As `save_epochs`; without room the file is written before the next append."""
        self._epoch_file.save_if_room()

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Where `epoch`, or the last one before it, ends in this log; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # -- settings

    def configure(self, config: TopicConfig) -> None:
        """Take a topic's new settings, and keep them for the next start. Raises DiskError; they apply then,
        too.
        """
        self._settings.change(config)

    def save_config(self, sync: bool = False) -> None:
        """Write the settings beside the segments. Raises DiskError."""
        self._settings.save(sync)

    def allow_gaps(self) -> None:
        """From now on gaps between offsets are not damage. Raises DiskError; then nothing has changed."""
        self._settings.allow_gaps()

    def adopt_topic_id(self, topic_id: UUID) -> None:
        """Take and write the id of a log whose partition.metadata was missing or damaged. Not synced: what is
        lost is told again. Raises DiskError; then it is taken all the same.
        """
        self.topic_id = topic_id
        path = f"{self.directory}/{checkpoints.PARTITION_METADATA}"
        with self._chain.guarded():
            checkpoints.write_partition_metadata(self.disk, path, topic_id, sync=False)

    def belongs_to(self, opened: OpenSegments) -> None:
        """From now on `opened` bounds its open files and what it keeps in memory. Before the first append."""
        self._chain.belongs_to(opened)
        self._tail = Tail(self._tail.bytes_max, opened.memory)

    def forget_tail(self) -> None:
        """Nobody reads the end of the log any more: stop keeping new batches in memory."""
        self.keep_tail = False
        self._tail.clear()

    def save_what_waits(self) -> None:
        """Write what could not be written on a full disk. Raises DiskError."""
        if self._settings.waits:
            self._settings.save()
        if self._epoch_file.waits:
            self._epoch_file.save(sync=False)
        if self.end_offset == self._untold_end:
            self._tell_end()

    # -- durability

    @property
    def flushed_offset(self) -> int:
        """Everything before it is synced to disk."""
        return self._flush_state.offset

    @property
    def sealed_is_flushed(self) -> bool:
        """Whether all closed segments are synced, as they should be soon after they are closed."""
        return self._flush_state.sealed_is_flushed

    def begin_flush(self, sealed_only: bool = False) -> Flush:
        """Collect what must be synced now; its `run` may run in a thread. Raises DiskError."""
        with self._chain.guarded():
            return self._flush_state.begin(self.end_offset, sealed_only)

    def end_flush(self, flush: Flush) -> None:
        """Advance the flushed offset after a flush. Raises DiskFailed if a sync has failed."""
        self._flush_state.finish(flush)
        assert self.flushed_offset <= self.end_offset, "nothing is flushed that is not there"

    def flush(self) -> None:
        """Sync everything up to the current log end. Blocking."""
        flush = self.begin_flush()
        flush.run()
        self.end_flush(flush)

    def close(self) -> None:
        """Write what makes the next start fast, sync everything, close the files. Blocking."""
        try:
            flush = self.begin_close()
            if flush is not None:
                flush.run()
                self.end_flush(flush)
        finally:
            self.abandon()

    def begin_close(self) -> Flush | None:
        """Write what makes the next start fast; returns the flush that must run before `abandon`.

        None if the log is already closed or has failed. Raises DiskError.
        """
        if self.closed or self.failed:
            return None
        with self._chain.guarded():
            self._chain.active.write_indexes()
        self.aborts.take_snapshot(self.producers, self.end_offset)
        return self.begin_flush()

    def fail(self) -> None:
        """The disk is gone: append and sync nothing any more."""
        self._chain.failed = True
        with suppress(OSError):
            self.abandon()

    def abandon(self) -> None:
        """Close the files and write nothing: the log is being deleted, or its disk is gone."""
        self._tail.clear()
        self._chain.close()


def _nothing(*_offsets: int) -> None:
    """Nobody keeps checkpoints for this log."""
