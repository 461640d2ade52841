"""The offset checkpoints of all directories: recovery points, high watermarks, log start offsets.

In memory they are as in the files. An entry is a promise: up to here a log is flushed, this much of it is
committed, here it starts. It must never exceed the log. So it is lowered before the log is truncated, and
removed with the log, at the latest before another log of that name is made.

Writing waits for the disk, so threads do it, one at a time per directory; a directory that hangs does not
block the others. A thread that lowers entries leaves a bound, and nothing larger is written until the bound
is lifted. So when the event loop truncates, it has nothing to write and does not wait.
Left to others: the values (log_manager.py), what the next start does with them (recovery/recover_log.py).
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Lock
from typing import NamedTuple

import structlog

from ...base.types import TopicPartition
from ..disk import Disk, DiskError, DiskFailed, disk_error
from ..log import checkpoints
from ..log.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS
from ..log.log import Log
from .log_dirs import LogDirs

logger = structlog.get_logger(__name__)

Offsets = Mapping[TopicPartition, int]
Owned = dict[TopicPartition, int]

ALL = (RECOVERY_POINTS, HIGH_WATERMARKS, START_OFFSETS)


class Bounds(NamedTuple):
    """The bounds of a log that is about to be truncated: no file may have more than that."""

    end: int
    start: int

    def of(self, name: str) -> int:
        """The largest value that this checkpoint may have."""
        return self.start if name == START_OFFSETS else self.end


class Lowered(NamedTuple):
    """Entries that stay low until `lift`; `errors` of the logs whose entries may still be too high."""

    bounds: list[Mapping[TopicPartition, Bounds]]
    errors: dict[TopicPartition, DiskError]


class OffsetCheckpoints:
    """The offset checkpoints. The event loop is answered from memory, except that `lower` may write."""

    def __init__(self, disk: Disk, places: LogDirs, directory_of: Mapping[TopicPartition, str]) -> None:
        self._said: dict[str, Owned] = {name: {} for name in ALL}
        self._disk = disk
        self._places = places
        self._directory_of = directory_of
        self._turns = {directory: Lock() for directory in places.configured}
        self._bounds: dict[int, Mapping[TopicPartition, Bounds]] = {}  # by identity: several threads lift
        self._cut: dict[str, Owned] = {name: {} for name in ALL}  # new ends that a slow writer may not know

    @property
    def high_watermarks(self) -> Owned:
        """As last written."""
        return self._said[HIGH_WATERMARKS]

    @property
    def recovery_points(self) -> Owned:
        """Likewise."""
        return self._said[RECOVERY_POINTS]

    @property
    def start_offsets(self) -> Owned:
        """Likewise, of logs that start inside their first segment."""
        return self._said[START_OFFSETS]

    # Logs that are cut, removed, made.

    def lower_all(self, cuts: Mapping[TopicPartition, Bounds]) -> Lowered:
        """Logs are about to be truncated: rewrite each file that has more. Blocking. `lift` must follow.

        If a log is not truncated after all, its entries were too low for a while, which costs only time.
        """
        lowered = Lowered([], {})
        for directory, partitions in self._by_directory(cuts).items():
            with self._turns[directory]:
                bounds = {p: cuts[p] for p in partitions}
                lowered.bounds.append(bounds)
                self._bounds[id(bounds)] = bounds
                try:
                    for name in ALL:
                        if self._says_more(name, bounds):
                            self._put(directory, name, self._said[name])
                except DiskError as error:
                    lowered.errors.update(dict.fromkeys(partitions, error))
        return lowered

    def lift(self, lowered: Lowered) -> None:
        """The logs have been truncated, or will not be."""
        for bounds in lowered.bounds:
            self._bounds.pop(id(bounds), None)
            for partition, bound in bounds.items():
                if self._cut[RECOVERY_POINTS].get(partition) == bound.end:
                    self._cut[RECOVERY_POINTS].pop(partition, None)  # their writer reads fresh values

    def arriving(
        self, directory: str, partition: TopicPartition, recovery_point: int, high_watermark: int
    ) -> None:
        """A log counts as being in this directory from now on: write its entries with the others there. Its
        log start is as it stands in the directory where it was. Blocking. Raises DiskError.
        """
        now = {RECOVERY_POINTS: recovery_point, HIGH_WATERMARKS: high_watermark}
        with self._turns[directory]:
            for name in ALL:
                mine = {partition: now[name]} if name in now else {}
                self._put(directory, name, {**self._said[name], **mine})

    def keep_below(self, recovered: Iterable[Log]) -> None:
        """Lower the entries of recovered logs, which may end before them. Blocking."""
        ends = {each.partition: Bounds(each.end_offset, each.start_offset) for each in recovered}
        lowered = self.lower_all(ends)
        self.lift(lowered)
        for partition, error in lowered.errors.items():
            logger.warning("checkpoint_not_lowered", partition=str(partition), reason=str(error))

    def is_bound(self, partition: TopicPartition) -> bool:
        """Whether the log is about to be truncated."""
        return any(partition in bounds for bounds in tuple(self._bounds.values()))

    def lower(self, partition: TopicPartition, end: int, start: int) -> None:
        """Lower a log's entries; it is truncated right after this, without an await. Raises DiskError.

        Blocking, unless `lower_all` has done it. With the old entries recovery would take the truncation for
        a loss, and new records below the old recovery point for flushed. The log start stays, unless it is
        lower now: records that a client had deleted must not come back after a crash in between.
        """
        assert end >= 0 and start >= 0, f"{partition} cannot be cut to {start}..{end}"
        bounds = {partition: Bounds(end, start)}
        before = {name: self._cut[name].get(partition) for name in (RECOVERY_POINTS, HIGH_WATERMARKS)}
        for name, known in before.items():  # before the check below: a writer looks at `_cut` last
            self._cut[name][partition] = end if known is None else min(end, known)
        try:
            for name in ALL:
                if self._says_more(name, bounds):
                    self._lower_one(name, partition, bounds[partition].of(name))
        except DiskError:
            for name, known in before.items():  # it is not truncated
                if known is None:
                    self._cut[name].pop(partition, None)
                else:
                    self._cut[name][partition] = known
            raise

    def _lower_one(self, name: str, partition: TopicPartition, least: int) -> None:
        directory = self._directory_of[partition]
        with self._turns[directory]:
            if self._said[name].get(partition, 0) > least:
                self._put(directory, name, {**self._said[name], partition: least})

    def forget_removed(self, directory: str, removed: Collection[TopicPartition]) -> None:
        """Drop the entries of removed logs. If there is no room for that, their folder names tell enough."""
        try:
            with self._turns[directory]:
                self._forget(directory, [p for p in removed if p not in self._directory_of])
        except DiskFailed:
            raise
        except DiskError as error:
            logger.warning("checkpoint_not_cleaned", directory=directory, reason=str(error))

    def reset(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, DiskError]:
        """New logs are about to be made: drop the entries of older logs with these names. Blocking.

        Usually they were dropped when those were removed. Returns the errors of logs that still have entries.
        """
        errors: dict[TopicPartition, DiskError] = {}
        for directory, some in self._by_directory(partitions).items():
            with self._turns[directory]:
                try:
                    self._forget(directory, some)
                except DiskError as error:
                    errors.update(dict.fromkeys(some, error))
        return errors

    def _forget(self, directory: str, gone: Iterable[TopicPartition]) -> None:
        for name in ALL:
            said = self._said[name]
            if any(said.get(p) for p in gone):
                self._put(directory, name, {p: at for p, at in dict(said).items() if p not in gone})
            for partition in gone:
                said.pop(partition, None)

    # Given by threads, from time to time; of one directory, or of all.

    def give_watermarks(self, high_watermarks: Callable[[], Offsets], only: str | None = None) -> None:
        """Write high watermarks; logs without a new one keep theirs (KAFKA-1647). Blocking. Raises DiskError.

        `high_watermarks` is called once this writer has its turn: while it waited a log may have been
        truncated more than once, or another one made under its name.
        """
        said = self._said[HIGH_WATERMARKS]
        self._give(HIGH_WATERMARKS, lambda: {**said, **high_watermarks()}, only)

    def give_recovery_points(self, points: Callable[[], Offsets], only: str | None = None) -> None:
        """Write all recovery points; `points` is called likewise. Blocking. Raises DiskError."""
        self._give(RECOVERY_POINTS, points, only)

    def give_recovery_point(self, partition: TopicPartition, point: Callable[[], int]) -> None:
        """Write that of one log, likewise, unless it has just been removed."""
        directory = self._directory_of.get(partition)
        if directory is not None:
            said = self._said[RECOVERY_POINTS]
            self._give(RECOVERY_POINTS, lambda: {**said, partition: point()}, directory)

    def give_starts(self, starts: Callable[[], Offsets], only: str | None = None) -> None:
        """Write all log start offsets, likewise."""
        self._give(START_OFFSETS, starts, only, changed_only=True)

    def _give(
        self, name: str, offsets: Callable[[], Offsets], only: str | None, changed_only: bool = False
    ) -> None:
        """Write in each directory, even if another one fails; then raise."""
        trouble: DiskError | None = None
        for directory in self._places.usable if only is None else [only]:
            try:
                with self._turns[directory]:
                    now = offsets()
                    if not (changed_only and self._mine(directory, now) == self._stands(directory, name)):
                        self._put(directory, name, now)
            except DiskError as error:
                if trouble is None or isinstance(error, DiskFailed):
                    trouble = error
        if trouble is not None:
            raise trouble

    # Files. Only the holder of a directory's lock (`_turns`) writes there.

    def _put(self, directory: str, name: str, offsets: Offsets) -> None:
        """Write the entries of the logs there, none beyond a bound. Raises DiskError.

        If a log is truncated while the file is being written, the file is written again, bounded by the
        lowest end.
        """
        path, cut = f"{directory}/{name}", self._cut[name]
        mine = self._mine(directory, offsets)
        while True:
            known = dict(cut)
            for partition, end in known.items():
                if mine.get(partition, 0) > end:
                    mine[partition] = end
            for bounds in tuple(self._bounds.values()):
                for partition, bound in bounds.items():
                    if mine.get(partition, 0) > bound.of(name):
                        mine[partition] = bound.of(name)
            try:
                checkpoints.write_offsets(self._disk, path, mine)
            except OSError as error:
                raise disk_error(path, error) from error
            said = self._said[name]
            for partition in self._stands(directory, name):
                if partition not in mine:
                    said.pop(partition, None)
            said.update(mine)
            if all(mine.get(partition, 0) <= end for partition, end in dict(cut).items()):
                break
        for partition, end in known.items():
            if self._directory_of.get(partition) in (directory, None) and cut.get(partition) == end:
                cut.pop(partition, None)

    def _mine(self, directory: str, offsets: Offsets) -> Owned:
        where = dict(self._directory_of)
        return {p: at for p, at in dict(offsets).items() if where.get(p) == directory}

    def _stands(self, directory: str, name: str) -> Owned:
        return self._mine(directory, self._said[name])

    def _says_more(self, name: str, bounds: Mapping[TopicPartition, Bounds]) -> bool:
        said = self._said[name]
        return any(said.get(partition, 0) > bound.of(name) for partition, bound in bounds.items())

    def _by_directory(self, partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
        """Partitions by directory, without offline directories."""
        found: dict[str, list[TopicPartition]] = {}
        for partition in partitions:
            directory = self._directory_of.get(partition)
            if directory is not None and directory not in self._places.offline:
                found.setdefault(directory, []).append(partition)
        return found
