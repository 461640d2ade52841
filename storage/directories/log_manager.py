"""Logs: all partitions of a broker, over one or more log directories.

Opens, creates and removes logs, keeps their shared checkpoints, and has the passes that the broker calls from
its own tasks. A method marked "blocking" may run in a thread: it works on copies and does not touch a log's
state.
Left to others: when passes run (broker/upkeep/passes.py), who is told of a failed directory
(broker/upkeep/disk_failures.py).
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from uuid import UUID

import structlog

from ...base.types import Clock, TopicPartition
from ..cleaning.checkpoint import CleanerOffsets
from ..config import StorageConfig, TopicConfig
from ..disk import Disk, DiskError, LeftBehind, ReplicaElsewhere, disk_error
from ..log.leader_epochs import EpochHistory
from ..log.log import Log
from ..log.new_log import Fresh
from ..log.pending_deletion import PendingDeletion
from ..log.producer_state import ProducerStates
from ..log.relocation import MOVED_FROM, Relocation
from ..log.retention import FOREVER, expired, with_ends
from ..recovery.failure_scope import Obstructed
from ..recovery.old_formats import OldFormat
from ..recovery.recover_log import BeforeLoss, Recovered
from ..segment.file_names import DIRECTORY_DELETED, FUTURE, STRAY
from ..segment.memory_budget import MemoryBudget
from ..segment.open_files import OpenSegments
from .close_logs import close_all
from .log_dirs import LogDirs
from .offset_checkpoints import Bounds, Lowered, OffsetCheckpoints
from .open_logs import AmbiguousDirectory, Directory, Opening, Stop, marked, parse_directory
from .workers import Crew, one_by_one

__all__ = ["STRAY", "AmbiguousDirectory", "Logs", "Obstructed", "OldFormat", "Stop", "parse_directory"]

logger = structlog.get_logger(__name__)


class Logs:
    """The logs of a broker. `recovered` says what opening each has cost."""

    _opening: Opening

    def __init__(
        self,
        dirs: Sequence[str],
        disk: Disk,
        config: StorageConfig,
        clock: Clock,
        offline: Mapping[str, str] | None = None,
    ) -> None:
        self.places = LogDirs(dirs, offline)
        self.disk = disk
        self.config = config
        self.clock = clock
        self.logs: dict[TopicPartition, Log] = {}
        self.closed: set[TopicPartition] = set()  # there, but not opened: no room to recover them
        self.spoilt: dict[TopicPartition, str] = {}  # there, but they cannot be opened: why
        self._being_opened: frozenset[TopicPartition] = frozenset()  # by a thread, unaware of removals
        self.preferred: dict[TopicPartition, str] = {}  # where logs that are not here yet shall go
        self.interrupted: dict[TopicPartition, str] = {}  # where logs were going when the last process ended
        self.left: dict[TopicPartition, str] = {}  # logs that have moved, but have left files there
        self.recovered: list[Recovered] = []
        self.condemned = PendingDeletion()
        self.starts_moved: set[str] = set()  # directories where log starts moved since the last checkpoint
        self.removed: dict[str, list[TopicPartition]] = {}  # by directory; they wait for a sync
        self._dir_of: dict[TopicPartition, str] = {}
        self._promises = OffsetCheckpoints(disk, self.places, self._dir_of)
        self.cleaned = CleanerOffsets(disk, self._dir_of.get, self._promises.is_bound)
        self._open_segments = OpenSegments(
            config.sealed_open_max,
            config.open_files_max or max(disk.open_files_max() // 2, 16),
            MemoryBudget(config.cache_bytes_max),
        )

    @classmethod
    def open(
        cls,
        dirs: Sequence[str],
        disk: Disk,
        config: StorageConfig,
        clock: Clock,
        *,
        clean: bool,
        before_loss: BeforeLoss,
        offline: Mapping[str, str] | None = None,
        same_boot: bool = True,
        doubts: Collection[str] = (),
        crew: Crew = one_by_one,
    ) -> "Logs":
        """Open every log in `dirs`, except in directories that are `offline` or turn out to be. Blocking.

        `clean`: the previous process closed them all (Incarnations.clean). `same_boot`: what it wrote is
        still there. `doubts`: the partitions in which it found damage. `before_loss` must have made its note
        durable when it returns. `crew` works on several logs at once.
        """
        logs = cls(dirs, disk, config, clock, offline)
        stop = Stop(clean, same_boot, doubts)
        opening = logs._opening = Opening(disk, config, clock, logs._open_segments, stop, before_loss, crew)
        for directory in opening.open(logs.places.usable):
            logs._take(directory)
        return logs

    def open_again(self, path: str) -> Directory:
        """Open the logs of this directory for which there was no room, for `take_again`. Blocking. Meanwhile
        no log can be created under their names: it would be mistaken for the one being recovered.
        """
        self._being_opened = frozenset(p for p in list(self.closed) if self._dir_of.get(p) == path)
        try:
            wanted = self._being_opened & self.closed
            return self._opening.open_again(path, wanted, self._promises.keep_below)
        finally:
            self._being_opened = frozenset()

    def take_again(self, directory: Directory) -> None:
        """Adopt what was opened, except logs that were removed meanwhile. Raises the directory's failure."""
        if directory.failure is not None:
            raise directory.failure
        directory.keep(self.closed)
        self.closed -= {opened.partition for opened, _, _ in directory.opened} | directory.spoilt.keys()
        self._take(directory)

    def _take(self, directory: Directory) -> None:
        """Adopt what was found in a directory. A failed one goes offline; the only one raises its failure."""
        if directory.failure is not None:
            if self.places.usable == [directory.path]:
                raise directory.failure
            self.give_up(directory.path, str(directory.failure))
        self.condemned.add(directory.condemned)
        self.interrupted.update(dict.fromkeys(directory.coming, directory.path))
        for opened, cost, known in directory.opened:
            opened.belongs_to(self._open_segments)
            partition = opened.partition
            self._adopt(opened, directory.path)
            self._promises.recovery_points[partition] = min(known.recovery_point, opened.end_offset)
            self._promises.start_offsets[partition] = min(known.start_offset or 0, opened.start_offset)
            self.recovered.append(cost)
            known_mark = min(known.high_watermark, opened.end_offset)
            self.high_watermarks[partition] = max(opened.start_offset, known_mark)
        self.closed |= directory.closed.keys()
        self.spoilt |= {partition: why for partition, (_, why) in directory.spoilt.items()}
        shut = directory.closed | {partition: known for partition, (known, _) in directory.spoilt.items()}
        for partition, known in shut.items():
            self._dir_of[partition] = directory.path
            self._promises.recovery_points[partition] = known.recovery_point
            self._promises.start_offsets[partition] = known.start_offset or 0
            self.high_watermarks[partition] = known.high_watermark
        here = {p: end for p, end in directory.cleaned.items() if self._dir_of.get(p) == directory.path}
        self.cleaned.adopt({p: end for p, end in here.items() if self.holds(p)})

    # -- one log

    def get(self, partition: TopicPartition) -> Log | None:
        return self.logs.get(partition)

    def holds(self, partition: TopicPartition) -> bool:
        """Whether a usable directory has a log of the partition, open or not."""
        return partition in self.logs or partition in self.closed or partition in self.spoilt

    def directory_of(self, partition: TopicPartition) -> str:
        """The log directory that holds the partition, even an offline one."""
        return self._dir_of[partition]

    def give_up(self, directory: str, reason: str) -> list[TopicPartition]:
        """Take a directory offline: its logs are closed as they are. Returns the partitions it held."""
        self.places.lose(directory, reason)
        gone = [partition for partition in self.logs if self._dir_of[partition] == directory]
        for partition in gone:
            self.logs.pop(partition).fail()
            self.cleaned.forget(partition)
        return gone

    def create(
        self, partition: TopicPartition, topic_id: UUID | None, config: TopicConfig, is_new: bool = True
    ) -> Log:
        """The partition's log, or a new, synced, empty one if there is none. Blocking. Raises DiskError."""
        existing = self.logs.get(partition)
        if existing is not None:
            return existing
        fresh = self.fresh(partition, topic_id, config, is_new)
        self.make([fresh], sync=True)
        return self.begin(fresh)

    def fresh(
        self, partition: TopicPartition, topic_id: UUID | None, config: TopicConfig, is_new: bool = True
    ) -> Fresh:
        """A log for `make` to create, in the directory with the fewest logs.

        A replica that is not new (`is_new`) may be in an offline directory. Then it is not created elsewhere,
        because it would be empty. Raises DiskError.
        """
        assert partition not in self.logs, f"{partition} has a log already"
        if self.places.offline and not is_new:
            raise ReplicaElsewhere(
                ", ".join(self.places.offline),
                OSError(f"a log of {partition} may be in an offline directory"),
            )
        if partition in self.closed or partition in self.spoilt or partition in self._being_opened:
            why = self.spoilt.get(partition, f"no space to recover the log of {partition}")
            raise ReplicaElsewhere(self._dir_of.get(partition, str(partition)), OSError(why))
        left = self.left.get(partition)
        if left is not None and self.places.usable == [left]:
            raise self._held_up(partition, left)
        preferred = self.preferred.pop(partition, None)
        if preferred not in self.places.usable or preferred == left:
            preferred = self.places.for_new(self._dir_of.values(), left)
        directory = self._dir_of[partition] = preferred
        return Fresh(partition, topic_id, config, directory, left)

    def make(self, wanted: Sequence[Fresh], sync: bool = False) -> None:
        """Create the files of new logs; synced if `sync`. Blocking; failures are in each `Fresh.error`.

        Checkpoint entries of older logs with the same names are removed first.
        """
        partitions = {fresh.partition for fresh in wanted}
        promised = self._promises.reset(partitions) | self.cleaned.reset(partitions)
        for fresh in wanted:
            fresh.error = promised.get(fresh.partition)
            if fresh.error is None:
                fresh.make(self.disk, self.clock.wall_ms(), sync)

    def begin(self, fresh: Fresh) -> Log:
        """The log whose files have been made. Raises DiskError if they have not."""
        fresh.check(self.places.offline)
        if fresh.error is not None:
            del self._dir_of[fresh.partition]
            raise fresh.error
        assert fresh.segment is not None, "the log was created"
        begun = Log(
            self.disk,
            fresh.path,
            fresh.partition,
            fresh.config,
            segments=[fresh.segment],
            start_offset=0,
            end_offset=0,
            epochs=EpochHistory(),
            producers=ProducerStates(self.config.producer_ids_max),
            open_segments=self._open_segments,
            topic_id=fresh.topic_id,
            tail_bytes_max=self.config.tail_cache_bytes,
        )
        self._adopt(begun, fresh.directory)
        return begun

    def _adopt(self, each: Log, directory: str) -> None:
        partition = each.partition
        self.logs[partition] = each
        self._dir_of[partition] = directory
        each.before_cut = lambda end, start: self._lower(partition, end, start)
        each.start_moved = lambda start: self.starts_moved.add(directory)
        each.gone = self.condemned.add

    def lower(self, cuts: Mapping[TopicPartition, Bounds]) -> Lowered:
        """Logs are about to be truncated: lower their checkpoint entries first. Blocking. `lift` must follow.

        From then on truncating them needs no checkpoint write.
        """
        lowered = self._promises.lower_all(cuts)
        lowered.errors.update(self.cleaned.lower_all({p: bounds.end for p, bounds in cuts.items()}))
        return lowered

    def lift(self, lowered: Lowered) -> None:
        """The logs of `lower` have been truncated, or will not be."""
        self._promises.lift(lowered)

    def _lower(self, partition: TopicPartition, end: int, start: int) -> None:
        self.cleaned.lower(partition, end)
        self._promises.lower(partition, end, start)

    def remove(
        self, partition: TopicPartition, name: UUID, suffix: str = DIRECTORY_DELETED, sync: bool = True
    ) -> str:
        """Remove a log at once by renaming its directory; the files are deleted later. Raises DiskError.

        With `suffix=STRAY` the data is kept for an operator and never served. Without `sync` the new name is
        synced by `settle_removals`. If the rename fails the log stays. The log need not be open.
        """
        gone, directory = self.logs.get(partition), self._dir_of[partition]
        path, target = f"{directory}/{partition}", marked(directory, partition, name, suffix)
        try:
            self.disk.rename(path, target)
        except OSError as error:
            raise disk_error(path, error) from error
        self.cleaned.forget(partition)
        self._forget(partition)
        if gone is not None:
            gone.abandon()  # the checkpoint files keep its entries until they are written again
        if suffix == DIRECTORY_DELETED:
            self.condemned.add([target], (gone or self).config.file_delete_delay_ms)
        self.removed.setdefault(directory, []).append(partition)
        if sync:
            self.settle_removals()
        return target

    # -- one log moves to another directory

    def relocation(self, partition: TopicPartition, directory: str, name: UUID) -> Relocation:
        """A copy of an open log, in another directory, that is to take its place. Raises LeftBehind."""
        if partition in self.left:
            raise self._held_up(partition, self.left[partition])
        return Relocation(self.logs[partition], marked(directory, partition, name, FUTURE))

    def may_take_over(self, partition: TopicPartition) -> bool:
        """Whether nobody is about to cut the log."""
        return not self._promises.is_bound(partition)

    def take_over(self, copy: Relocation, directory: str, high_watermark: int) -> str:
        """The copy takes the place of the log, and what is left of that is called by its old name until
        `left_behind`. Blocking. Raises DiskError of the new directory; the log is where it was if its
        `directory` says so.
        """
        held, partition = copy.held, copy.held.partition
        source, path = self._dir_of[partition], f"{directory}/{partition}"
        copy.complete()
        self.cleaned.forget(partition)
        self._dir_of[partition] = directory
        watermark = min(high_watermark, held.told_end)
        try:
            self._promises.arriving(directory, partition, held.recovery_point, watermark)
            try:
                self.disk.rename(copy.path, path)
            except OSError as error:
                raise disk_error(copy.path, error) from error
        except DiskError:
            self._dir_of[partition] = source
            raise
        copy.take_over(path)
        self.left[partition] = source
        self._adopt(held, directory)
        self.starts_moved.add(directory)
        try:
            self.disk.sync_dir(directory)
        except OSError as error:
            raise disk_error(directory, error) from error
        return source

    def left_behind(self, partition: TopicPartition, source: str, name: UUID) -> str:
        """Rename what a log that has moved has left in the directory `source`; the new name is to be deleted.
        Until that is done no log is made there under the old name, and the log does not move on. After a
        failure to be tried again with the same `name`. Blocking, for any thread. Raises DiskError.
        """
        assert self._dir_of.get(partition) != source, "it would be the log that is in use"
        path, target = f"{source}/{partition}", marked(source, partition, name, DIRECTORY_DELETED)
        try:
            with suppress(FileNotFoundError):  # an earlier try has
                self.disk.rename(path, target)
            self.disk.sync_dir(source)
        except OSError as error:
            raise disk_error(path, error) from error
        now = self._dir_of.get(partition)
        if now is not None and now not in self.places.offline:
            note = f"{now}/{partition}/{MOVED_FROM}"
            try:
                self.disk.unlink(note)
            except OSError as error:
                raise disk_error(note, error) from error
        self.left.pop(partition, None)
        return target

    def _held_up(self, partition: TopicPartition, directory: str) -> LeftBehind:
        path = f"{directory}/{partition}"
        why = "the log left this when it moved; it is to be removed first: log_left_behind says why it is not"
        return LeftBehind(path, OSError(why))

    def give_copy_up(self, path: str) -> str:
        """A copy is wanted no more: rename it, or the next start takes it for an interrupted move. Returns
        what is to be deleted. Blocking, for any thread.
        """
        target = path.removesuffix(FUTURE) + DIRECTORY_DELETED
        try:
            self.disk.rename(path, target)
        except OSError as error:  # it may not be there yet
            logger.info("unfinished_copy_not_renamed", path=path, reason=str(error))
            return path
        return target

    def _forget(self, partition: TopicPartition) -> None:
        del self._dir_of[partition]
        self.logs.pop(partition, None)
        self.spoilt.pop(partition, None)
        self.closed.discard(partition)

    def settle_removals(self, only: str | None = None) -> None:
        """Sync the new names of removed logs, in all directories or `only` in one. Blocking.

        Then drop their checkpoint entries, because a log that a checkpoint names and that is missing counts
        as lost. What fails is retried by the next call. Raises DiskError.
        """
        failed: list[DiskError] = []
        for directory in list(self.removed) if only is None else [only]:
            removed = self.removed.pop(directory, [])
            try:
                if removed and directory not in self.places.offline:
                    self.disk.sync_dir(directory)
                    self._promises.forget_removed(directory, removed)
            except (OSError, DiskError) as error:
                self.removed.setdefault(directory, []).extend(removed)
                failed.append(error if isinstance(error, DiskError) else disk_error(directory, error))
        if failed:
            raise failed[0]

    # -- checkpoints

    @property
    def high_watermarks(self) -> dict[TopicPartition, int]:
        """As last written to the checkpoint files."""
        return self._promises.high_watermarks

    def checkpoint_high_watermarks(
        self, high_watermarks: Callable[[], Mapping[TopicPartition, int]], only: str | None = None
    ) -> None:
        """Write the high watermarks, in all directories or `only` in one. Blocking. Raises DiskError."""

        def told() -> dict[TopicPartition, int]:
            logs = dict(self.logs)
            return {p: min(at, logs[p].told_end) for p, at in high_watermarks().items() if p in logs}

        self._promises.give_watermarks(told, only)

    def checkpoint_recovery_points(self, only: str | None = None) -> None:
        """Write up to where each log is flushed, and where it starts. Blocking."""
        self._promises.give_recovery_points(self._flushed, only)
        self.checkpoint_start_offsets(only)

    def _flushed(self) -> dict[TopicPartition, int]:
        """Recovery points; logs that are not open keep their entries for when they are opened."""
        shut = self._of_shut(self._promises.recovery_points)
        return shut | {partition: each.recovery_point for partition, each in dict(self.logs).items()}

    def _of_shut(self, written: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {p: at for p in [*self.closed, *self.spoilt] if (at := written.get(p))}

    def promise_flushed(self, each: Log, end: int) -> bool:
        """Write a recovery point of at least `end`; False if the log is not flushed that far. Blocking.

        To be called before compaction makes its first gap before `end`: the next start can then tell it from
        a hole that a power loss has left. Raises DiskError.
        """
        if each.closed or each.recovery_point < end:  # if closed, another log may have its name by now
            return False
        points, tp = self._promises.recovery_points, each.partition
        if points.get(tp, 0) < end:
            self._promises.give_recovery_point(tp, lambda: 0 if each.closed else each.recovery_point)
        return points.get(tp, 0) >= end

    def checkpoint_start_offsets(self, only: str | None = None) -> None:
        """Write the start offsets of logs that start inside their first segment. Blocking."""
        for directory in self.places.configured if only is None else [only]:
            self.starts_moved.discard(directory)  # first: a start that moves meanwhile may miss this write
        self._promises.give_starts(self._starts, only)

    def _starts(self) -> dict[TopicPartition, int]:
        starts = self._of_shut(self._promises.start_offsets)
        return starts | {p: start for p, each in dict(self.logs).items() if (start := each.begins_within)}

    # -- passes

    def retire(self, each: Log, high_watermark: int, count_max: int) -> int:
        """Remove up to `count_max` expired segments of a log; returns how many. Raises DiskError."""
        config, now_ms = each.config, self.clock.wall_ms()
        segments = with_ends(each.segments, each.end_offset)
        log_bytes = each.size if config.retention_bytes != FOREVER else 0
        count = expired(segments, log_bytes, config, now_ms, each.start_offset, high_watermark, count_max)
        if count:
            self.condemned.add(each.retire(count, now_ms), config.file_delete_delay_ms)
        return count

    def configure(self, config: StorageConfig) -> None:
        """Take a new configuration. What topics inherit from it is passed to each log separately."""
        self.config = config
        for each in self.logs.values():
            each.producers.producers_max = config.producer_ids_max

    def expire_producers(self, each: Log) -> int:
        """Forget producers of a log that have been silent for producer.id.expiration.ms."""
        return each.producers.expire(self.clock.wall_ms(), self.config.producer_id_expiration_ms)

    def close(self, clean: bool = True, crew: Crew = one_by_one) -> bool:
        """Close all logs; True if every one is completely synced, so that a clean marker may be written.

        A log in which damage was found counts as closed: the doubt is already recorded. With `clean=False`
        nothing is written. `crew` waits for several syncs at once. Blocking.
        """
        if not clean:
            for each in self.logs.values():
                each.abandon()
            return False
        good = close_all(list(self.logs.values()), crew) and not (self.closed or self.spoilt)
        try:
            self.checkpoint_recovery_points()
        except DiskError as error:  # costs a longer recovery
            logger.error("recovery_points_not_written", reason=str(error))
            good = False
        return good
