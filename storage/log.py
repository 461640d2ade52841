"""Log: one partition's records on disk; segments in order, with epochs, producers and a tail in memory.

Everything that changes a log is one breath: no await, no thread, and the end offset moves only after the
system call has returned in full. `flush` alone may run in a thread.
Left to others: who may append and what is committed (broker/partition.py), opening after a stop
(storage/recovery.py), directories and background work (storage/logs.py).
"""

from collections.abc import Callable, Sequence
from uuid import UUID

from ..protocol.batches import LENGTH_END, BatchHeader, stamp, stamp_append_time
from ..protocol.errors import ErrorCode, error_for
from ..protocol.kinds import TopicPartition
from ..protocol.primitives import Buffer, Slices
from . import checkpoints, lookup, snapshots
from .chain import Chain
from .config import TopicConfig
from .disk import Disk, DiskError, DiskFailed, DiskFull
from .epochs import EpochHistory
from .index import RELATIVE_MAX
from .producers import ProducerStates
from .runs import OffsetGap, Placed, checked_run
from .segment import CorruptBatch, OpenSegments, RollLimits, Segment
from .tail import Tail

__all__ = ["CorruptBatch", "DiskError", "DiskFailed", "DiskFull", "Log", "OffsetGap"]


class Log:
    """A partition's log. Offsets in [start_offset, end_offset) are here.

    `generation` rises whenever records are taken away, so that whoever waited can tell.
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
        self.disk = disk
        self.directory = directory
        self.partition = partition
        self.topic_id = topic_id
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.epochs = epochs
        self.producers = producers
        self.generation = 0
        self._chain = Chain(disk, directory, segments, open_segments, limits_of(config))
        self.before_cut: Callable[[int], None] = _nothing  # told the new end before records go
        self._tail = Tail(tail_bytes_max)
        self.keep_tail = False
        self._flushed = (0, flushed_offset)  # (generation, offset): a thread may set it
        self._flushed_floor = flushed_offset
        self.gaps_allowed = gaps_allowed  # once compacted, a log keeps its gaps
        self._adopt(config)

    def configure(self, config: TopicConfig) -> None:
        """Take a topic's new settings, and keep them for the next start."""
        if config != self.config:
            self._adopt(config)
            self.save_config()

    def save_config(self) -> None:
        """Write the settings beside the segments: recovery comes before the controller can tell them."""
        path = f"{self.directory}/{checkpoints.TOPIC_CONFIG}"
        with self._chain.guarded():
            checkpoints.write_topic_config(self.disk, path, self.config, self.gaps_allowed)

    def adopt_topic_id(self, topic_id: UUID) -> None:
        """Take and keep the id of a log whose partition.metadata was missing or damaged."""
        self.topic_id = topic_id
        path = f"{self.directory}/{checkpoints.PARTITION_METADATA}"
        with self._chain.guarded():
            checkpoints.write_partition_metadata(self.disk, path, topic_id)

    def _adopt(self, config: TopicConfig) -> None:
        self.config = config
        self.gaps_allowed = self.gaps_allowed or config.compacted
        self._chain.limits = self._limits = limits_of(config)
        self._append_time = config.append_time
        self._interval = config.index_interval_bytes

    @property
    def segments(self) -> list[Segment]:
        return self._chain.segments

    @property
    def failed(self) -> bool:
        """A disk error that does not heal closed this log for appends."""
        return self._chain.failed

    @property
    def closed(self) -> bool:
        return self._chain.closed

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
        if epoch != self.epochs.latest:
            self._open_epoch(epoch, base_offset)
        segment = self._chain.active
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

        A torn batch at the end is ignored. CorruptBatch and OffsetGap refuse the whole run before
        anything is written.
        """
        expected, epoch = self.end_offset, self.epochs.latest
        run = checked_run(records, expected, epoch, epoch_max, self.gaps_allowed)
        done = 0
        while done < len(run):
            done = self._append_stretch(records, run, done, now_ms)
        return sum(header.size for _, header in run)

    def _append_stretch(self, records: Buffer, run: list[Placed], first: int, now_ms: int) -> int:
        """Write the batches from `first` on that fit one segment, in one call; returns what comes next."""
        position, header = run[first]
        segment = self._chain.active
        if segment.must_roll(header.size, header.last_offset, header.max_timestamp, now_ms, self._limits):
            segment = self._roll(header.base_offset, now_ms)
        last = first + 1
        room = self._limits.segment_bytes - segment.size - header.size
        while last < len(run) and self._fits(segment, run[last][1], room, header.max_timestamp):
            room -= run[last][1].size
            last += 1
        for _, batch in run[first:last]:
            if batch.leader_epoch != self.epochs.latest:
                self._open_epoch(batch.leader_epoch, batch.base_offset)
        end = run[last - 1][0] + run[last - 1][1].size
        self._chain.write(segment, memoryview(records)[position:end])
        for at, batch in run[first:last]:
            if batch.base_offset != self.end_offset:
                self._tail.clear()  # it has no room for gaps
            segment.placed(batch.last_offset, batch.size, batch.max_timestamp, self._interval)
            self.end_offset = batch.next_offset
            self.producers.update(batch, batch.base_offset)
            if self.keep_tail:
                self._tail.add(batch.base_offset, batch.next_offset, records, at, batch.size)
        return last

    def _fits(self, segment: Segment, header: BatchHeader, room: int, first_time: int) -> bool:
        """Whether a further batch may go the same way; if not, `must_roll` decides about the next stretch."""
        started = first_time if segment.first_time is None else segment.first_time
        return (
            header.size <= room
            and header.last_offset - segment.base_offset <= RELATIVE_MAX
            and header.max_timestamp - started <= self._limits.segment_ms
        )

    def _roll(self, base_offset: int, now_ms: int) -> Segment:
        """Close the active segment and open one that begins at `base_offset`."""
        with self._chain.guarded():
            snapshots.take(self.disk, self.directory, self.producers, base_offset)
        return self._chain.roll(base_offset, now_ms)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment, unless the active one is empty."""
        if self._chain.active.size:
            self._roll(self.end_offset, now_ms)

    # -- epochs

    def assign_epoch(self, epoch: int) -> bool:
        """As new leader: this epoch begins at the end of the log. In memory; `save_epochs` makes it last."""
        return self.epochs.assign(epoch, self.end_offset)

    def save_epochs(self, sync: bool = True) -> None:
        """Write the epoch file. May run in a thread; then nobody else may call it meanwhile."""
        path = f"{self.directory}/{checkpoints.EPOCHS}"
        with self._chain.guarded():
            checkpoints.write_epochs(self.disk, path, list(self.epochs.entries), sync)

    def _open_epoch(self, epoch: int, base_offset: int) -> None:
        """Note an epoch before its first batch is written. `flush` syncs the file before it counts."""
        if epoch < self.epochs.latest:
            raise CorruptBatch(f"{self.partition}: epoch {epoch} after {self.epochs.latest}")
        if self.epochs.assign(epoch, base_offset):
            self.save_epochs(sync=False)

    def end_offset_for(self, epoch: int) -> tuple[int, int]:
        """Where `epoch`, or the last one before it, ends in this log; (-1, -1) if unknown."""
        return self.epochs.end_offset_for(epoch, self.end_offset)

    # -- reading

    def read(self, offset: int, bytes_max: int, end: int, at_least_one: bool = True) -> Slices:
        """Whole batches from the one that holds `offset`, none that begins at `end` or later.

        At most `bytes_max`, unless the first batch alone is larger and `at_least_one` is set. What is
        returned is never written to again.
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
        with self._chain.guarded():
            data = self._chain.read(offset, bytes_max, end, self.end_offset, at_least_one)
        return Slices((data,) if data else ())

    def find_timestamp(self, ms: int, end: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, epoch) of the first record below `end` that is as late as `ms`."""
        with self._chain.guarded():
            found = lookup.first_at(self.segments, ms, self.start_offset, min(end, self.end_offset))
        self._chain.count_opened()
        return found

    def latest_timestamp(self, end: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, epoch) of the record below `end` with the largest timestamp."""
        with self._chain.guarded():
            found = lookup.newest(self.segments, self.start_offset, min(end, self.end_offset))
        self._chain.count_opened()
        return found

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    # -- taking away

    def truncate_to(self, offset: int) -> int:
        """Take away `offset` and everything after it, epochs and producers too; returns the new end.

        A batch that holds `offset` goes as a whole. Never cuts below the start offset.
        """
        offset = max(offset, self.start_offset)
        self.generation += 1
        forgotten = self.epochs.truncate_from_end(offset)  # also when no record goes (KAFKA-10706)
        if offset < self.end_offset:
            with self._chain.guarded():
                end = self._chain.boundary_before(offset)
                snapshots.drop(self.disk, self.directory, high=end)
                snapshots.rebuild(self.disk, self.directory, self.producers, self.segments, end)
            self._cut(end)
            self._chain.count_opened()
            forgotten = self.epochs.truncate_from_end(end) or forgotten
        if forgotten:
            self.save_epochs()
        return self.end_offset

    def _cut(self, end: int) -> None:
        self._tail.clear()
        self._flushed_floor = min(self.flushed_offset, end)
        self._flushed = (self.generation, self._flushed_floor)
        self.before_cut(end)
        self._chain.cut(end)
        self.end_offset = end

    def restart_at(self, offset: int, now_ms: int = 0) -> None:
        """Take everything away and begin anew at `offset`: the leader no longer has what comes before."""
        self.generation += 1
        self.epochs.clear()
        self.save_epochs()
        self.producers.clear()
        snapshots.drop(self.disk, self.directory, high=-1)
        self._tail.clear()
        self.before_cut(0)
        self._chain.restart(offset, now_ms)
        self.start_offset = self.end_offset = offset
        self._flushed_floor = offset
        self._flushed = (self.generation, offset)

    def move_start(self, offset: int) -> bool:
        """Records before `offset` are no longer part of the log; their segments go in a retention pass."""
        if not self.start_offset < offset <= self.end_offset:
            return False
        self.start_offset = offset
        if self.epochs.truncate_from_start(offset):
            self.save_epochs(sync=False)
        return True

    def retire(self, count: int, now_ms: int) -> list[str]:
        """Take the oldest `count` segments out of the log; returns their files, renamed `.deleted`.

        If that is all of them, a new one is begun first.
        """
        if count >= len(self.segments):
            self.roll(now_ms)
            count = min(count, len(self.segments) - 1)
        if count:
            self.move_start(self.segments[count].base_offset)
            snapshots.drop(self.disk, self.directory, low=self.segments[count].base_offset)
        return self._chain.retire(count)

    # -- lasting

    @property
    def flushed_offset(self) -> int:
        """Everything before it is on the medium."""
        generation, offset = self._flushed
        return offset if generation == self.generation else self._flushed_floor

    def flush(self) -> None:
        """Bring everything up to the present end to the medium. Blocking: run it in a thread.

        The result is one tuple with the generation it is about, so a truncation meanwhile voids it.
        """
        generation, end, start = self.generation, self.end_offset, self.flushed_offset
        segments = list(self.segments)
        try:
            self._sync(segments, start)
        except OSError as error:
            changed = self.closed or generation != self.generation or self.segments[0] is not segments[0]
            if changed and isinstance(error, FileNotFoundError):
                return  # cut, retired or deleted meanwhile: nothing is claimed
            raise self._chain.fail(error) from error
        self._flushed = (generation, end)

    def _sync(self, segments: list[Segment], start: int) -> None:
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            if following is None or following.base_offset > start:
                segment.sync()
        self._sync_epochs()
        self.disk.sync_dir(self.directory)

    def _sync_epochs(self) -> None:
        path = f"{self.directory}/{checkpoints.EPOCHS}"
        if self.disk.exists(path):
            file = self.disk.open(path)
            try:
                file.sync()
            finally:
                file.close()

    def close(self) -> None:
        """Write what makes the next start fast, bring all to the medium, close the files."""
        if self.closed:
            return
        try:
            if not self.failed:
                with self._chain.guarded():
                    self._chain.active.write_indexes()
                    snapshots.take(self.disk, self.directory, self.producers, self.end_offset)
                self.flush()
        finally:
            self.abandon()

    def abandon(self) -> None:
        """Close the files and write nothing: the log is being deleted, or its disk is gone."""
        self._tail.clear()
        self._chain.close()


def _nothing(_end: int) -> None:
    """Nobody keeps checkpoints for this log."""


def limits_of(config: TopicConfig) -> RollLimits:
    """When a segment of such a topic is full."""
    return RollLimits(config.segment_bytes, config.segment_ms, config.index_bytes_max)
