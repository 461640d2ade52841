"""LogState: the parts of a log and what of them is durable: settings, epochs, flushes, closing.

Left to others: appending, reading and removing records (log.py).
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from uuid import UUID

from ...base.types import TopicPartition
from ..config import TopicConfig
from ..disk import Disk, DiskError, DiskFull, NoDescriptor
from ..segment.batch_walk import CorruptBatch
from ..segment.open_files import OpenSegments
from ..segment.roll import limits_of
from ..segment.segment import Segment
from ..segment.tail_cache import Tail
from . import checkpoints, metadata_files, producer_snapshots
from .flush import Flush, FlushState
from .leader_epochs import NONE, EpochHistory
from .producer_state import ProducerStates
from .segments import Segments

UNSAVED = -2  # no epoch


class LogState:
    """The state of a log. It holds the offsets in [start_offset, end_offset)."""

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
        self.disk = disk
        self.directory = directory
        self.partition = partition
        self.topic_id = topic_id
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.epochs = epochs
        self.producers = producers
        self._chain = Segments(disk, directory, segments, open_segments, limits_of(config))
        self.before_cut: Callable[[int, int], None] = _nothing  # told end and start before records go
        self.start_moved: Callable[[int], None] = _nothing  # told the new start
        self.gone: Callable[[list[str]], None] = self._delete  # told which files may be deleted
        self._tail = Tail(tail_bytes_max, open_segments.memory)
        self.keep_tail = False
        self._lasting = FlushState(self._chain, flushed_offset)
        self.gaps_allowed = gaps_allowed  # once there may be gaps, that stays so
        self._epoch_saved = epochs.latest  # of the file, while the file says what `epochs` says; else UNSAVED
        self._config_saved = True
        self._adopt(config)

    def configure(self, config: TopicConfig) -> None:
        """Take a topic's new settings, and keep them for the next start."""
        if config != self.config:
            self._adopt(config)
            self.save_config()

    def save_config(self, sync: bool = False) -> None:
        """Write the settings beside the segments."""
        self._config_saved = False
        metadata_files.save_config(self._chain, self.config, self.gaps_allowed, sync)
        self._config_saved = True
        if not sync:
            self._lasting.written(checkpoints.TOPIC_CONFIG)

    def allow_gaps(self) -> None:
        """From now on gaps are not damage: the leader's log was compacted once, whatever the topic says now.

        Saved before the first batch after a gap; otherwise the next start would take the gap for a loss.
        Raises DiskError; then nothing has changed.
        """
        self.gaps_allowed = True
        try:
            self.save_config()
        except DiskError:
            self.gaps_allowed = False
            raise

    def save_what_waits(self) -> None:
        """Write what could not be written on a full disk. Raises DiskError."""
        if not self._config_saved:
            self.save_config()
        if self._epoch_saved != self.epochs.latest:
            self.save_epochs(sync=False)

    def adopt_topic_id(self, topic_id: UUID) -> None:
        """Take and keep the id of a log whose partition.metadata was missing or damaged."""
        self.topic_id = topic_id
        metadata_files.save_topic_id(self._chain, topic_id)

    def _adopt(self, config: TopicConfig) -> None:
        self.config = config
        self.gaps_allowed = self.gaps_allowed or config.compacted
        self._chain.limits = self._limits = limits_of(config)
        self._append_time = config.append_time
        self._interval = config.index_interval_bytes

    def belongs_to(self, opened: OpenSegments) -> None:
        """From now on `opened` bounds its open files and what it keeps in memory. Before the first append."""
        self._chain.belongs_to(opened)
        self._tail = Tail(self._tail.bytes_max, opened.memory)

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
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    # -- epochs

    def assign_epoch(self, epoch: int) -> bool:
        """New leader: this epoch begins at the log end. In memory only, until `save_epochs`."""
        changed = self.epochs.assign(epoch, self.end_offset)
        if changed:
            self._epoch_saved = UNSAVED
        return changed

    def save_epochs(self, sync: bool = True) -> None:
        """Write the epoch file. May run in a thread, if nobody else calls it meanwhile."""
        self._epoch_saved = UNSAVED
        metadata_files.save_epochs(self._chain, self.epochs.entries, sync)
        self._epoch_saved = self.epochs.latest
        if not sync:
            self._lasting.written(checkpoints.EPOCHS)

    def _open_epoch(self, epoch: int, base_offset: int) -> None:
        """Save an epoch before its first batch is written. `flush` syncs the file."""
        self._chain.insist_on_open()
        if epoch < self.epochs.latest:
            raise CorruptBatch(f"{self.partition}: epoch {epoch} after {self.epochs.latest}")
        self.epochs.assign(epoch, base_offset)
        self.save_epochs(sync=False)

    def save_epochs_if_room(self, sync: bool = True) -> None:
        """Without room or a descriptor the file is written later, before the next append."""
        with suppress(DiskFull, NoDescriptor):
            self.save_epochs(sync)

    def _save_no_epochs(self, sync: bool) -> None:
        """Write an empty history, if there is room; the one in memory stays until the records are gone."""
        self._epoch_saved = UNSAVED
        with suppress(DiskFull):
            metadata_files.save_epochs(self._chain, (), sync)
            self._epoch_saved = NONE  # the latest epoch once the history is cleared

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Where `epoch`, or the last one before it, ends in this log; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # -- durability

    @property
    def flushed_offset(self) -> int:
        """Everything before it is synced to disk."""
        return self._lasting.offset

    @property
    def sealed_is_flushed(self) -> bool:
        """Whether all closed segments are synced, as they should be soon after they are closed."""
        return self._lasting.sealed_is_flushed

    def begin_flush(self, sealed_only: bool = False) -> Flush:
        """Collect what must be synced now; its `run` may run in a thread. Raises DiskError."""
        with self._chain.guarded():
            return self._lasting.begin(self.end_offset, sealed_only)

    def end_flush(self, flush: Flush) -> None:
        """Advance the flushed offset after a flush. Raises DiskFailed if a sync has failed."""
        self._lasting.finish(flush)

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
            producer_snapshots.take(self.disk, self.directory, self.producers, self.end_offset)
        return self.begin_flush()

    def forget_tail(self) -> None:
        """Nobody reads the end of the log any more: stop keeping new batches in memory."""
        self.keep_tail = False
        self._tail.clear()

    def fail(self) -> None:
        """The disk is gone: append and sync nothing any more."""
        self._chain.failed = True
        with suppress(OSError):
            self.abandon()

    def abandon(self) -> None:
        """Close the files and write nothing: the log is being deleted, or its disk is gone."""
        self._tail.clear()
        self._chain.close()

    def _delete(self, paths: Sequence[str]) -> None:
        """Delete at once, where nobody else does. On a broker a thread deletes them, a little at a time."""
        for path in paths:
            with suppress(OSError):  # the next start does
                self.disk.unlink(path)


def _nothing(*_offsets: int) -> None:
    """Nobody keeps checkpoints for this log."""
