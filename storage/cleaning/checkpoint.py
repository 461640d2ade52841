"""CleanerOffsets: up to where each compacted log is clean (`cleaner-offset-checkpoint` per log directory).

An entry also says that the log has gaps, or may soon have some: it is synced before the first swap.
Left to others: the file's format (log/checkpoints.py), what the offsets mean for planning (plan.py).
"""

from collections.abc import Callable, Collection, Mapping
from threading import Lock

from ...base.types import TopicPartition
from ..disk import Disk, DiskError, disk_error
from ..log.checkpoints import write_offsets

CLEANER_OFFSETS = "cleaner-offset-checkpoint"


class CleanerOffsets:
    """The entries of all directories. Threads write them, one per directory; the event loop does not wait."""

    def __init__(
        self,
        disk: Disk,
        directory_of: Callable[[TopicPartition], str | None],
        is_bound: Callable[[TopicPartition], bool] = lambda partition: False,
    ) -> None:
        """`is_bound`: the log is about to be truncated, and its entry was lowered for that."""
        self._disk = disk
        self._directory_of = directory_of
        self._is_bound = is_bound
        self._offsets: dict[TopicPartition, int] = {}
        self._cuts: dict[TopicPartition, int] = {}
        self._stale: dict[TopicPartition, str] = {}  # removed logs that the file of a directory still names
        self._turns: dict[str | None, Lock] = {}  # by directory, held while writing there
        self.on_cut: Callable[[TopicPartition], None] = _nobody  # told when a log is truncated or removed

    def get(self, partition: TopicPartition) -> int | None:
        """Before this offset the log is clean; None if it has never been cleaned."""
        return self._offsets.get(partition)

    def adopt(self, entries: Mapping[TopicPartition, int]) -> None:
        """Take the entries that a file has for existing logs."""
        self._offsets.update(entries)

    def cuts(self, partition: TopicPartition) -> int:
        """How often the log was truncated. A result from before a truncation is worthless after it."""
        return self._cuts.get(partition, 0)

    def note(self, partition: TopicPartition, offset: int, cuts: int) -> bool:
        """Write durably that the log is clean up to `offset`. Returns False if it was truncated since `cuts`
        was read, or is about to be. Blocking. Raises DiskError.
        """
        assert offset >= 0 and cuts <= self.cuts(partition), f"{partition} was not cut {cuts} times yet"
        with self._turn(self._directory_of(partition)):
            if self.cuts(partition) != cuts or self._is_bound(partition):
                return False
            self._write({**self._offsets, partition: offset}, self._directory_of(partition))
            self._offsets[partition] = offset
            if self.cuts(partition) == cuts:
                return True
            if self._directory_of(partition) is None:  # removed meanwhile
                self._offsets.pop(partition, None)
            else:  # truncated meanwhile, to an offset that is not known here
                self._write({**self._offsets, partition: 0}, self._directory_of(partition))
                self._offsets[partition] = 0
            return False

    def lower_all(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, DiskError]:
        """Logs are about to be truncated to these `ends`: lower their entries. Blocking.

        While `is_bound` holds, none of their entries is raised. A writer may have checked that earlier, so we
        wait for it first. Returns the errors of logs whose entry is still too high.
        """
        errors: dict[TopicPartition, DiskError] = {}
        directories: dict[str, list[TopicPartition]] = {}
        for partition in ends:
            directory = self._directory_of(partition)
            if directory is not None:
                directories.setdefault(directory, []).append(partition)
        for directory, partitions in directories.items():
            with self._turn(directory):
                more = {p: ends[p] for p in partitions if self._offsets.get(p, 0) > ends[p]}
                if more:
                    try:
                        self._write({**self._offsets, **more}, directory)
                        self._offsets.update(more)
                    except DiskError as error:
                        errors.update(dict.fromkeys(more, error))
        return errors

    def lower(self, partition: TopicPartition, end: int) -> None:
        """The log is about to end at `end`: records that come there later have not been cleaned.

        Blocking, unless `lower_all` has done it. Raises DiskError.
        """
        self.on_cut(partition)
        self._cuts[partition] = self.cuts(partition) + 1
        if self._offsets.get(partition, 0) > end:
            directory = self._directory_of(partition)
            with self._turn(directory):
                if self._offsets.get(partition, 0) > end:
                    self._write({**self._offsets, partition: end}, directory)
                    self._offsets[partition] = end

    def forget(self, partition: TopicPartition) -> None:
        """The log is about to be removed from its directory. The next write of the file drops its entry, at
        the latest before a log of its name is made there.
        """
        self.on_cut(partition)
        directory = self._directory_of(partition)
        self._cuts[partition] = self.cuts(partition) + 1
        if self._offsets.pop(partition, None) is not None and directory is not None:
            self._stale[partition] = directory

    def reset(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, DiskError]:
        """New logs are about to be made: drop entries of older logs with their names.

        Blocking. Returns the errors of logs that may still have such an entry.
        """
        errors: dict[TopicPartition, DiskError] = {}
        for directory in {self._directory_of(p) for p in partitions if p in self._stale}:
            if directory is not None and directory in dict(self._stale).values():
                try:
                    with self._turn(directory):
                        self._write(self._offsets, directory)
                except DiskError as error:
                    there = [p for p in partitions if self._directory_of(p) == directory]
                    errors.update(dict.fromkeys(there, error))
        return errors

    def _turn(self, directory: str | None) -> Lock:
        return self._turns.setdefault(directory, Lock())

    def _write(self, offsets: Mapping[TopicPartition, int], directory: str | None) -> None:
        if directory is None:
            return
        path, stale = f"{directory}/{CLEANER_OFFSETS}", dict(self._stale)
        mine = {p: offset for p, offset in dict(offsets).items() if self._directory_of(p) == directory}
        try:
            write_offsets(self._disk, path, mine)
        except OSError as error:
            raise disk_error(path, error) from error
        for partition, where in stale.items():
            if where == directory:
                self._stale.pop(partition, None)


def _nobody(_partition: TopicPartition) -> None:
    """No cleaning is under way."""
