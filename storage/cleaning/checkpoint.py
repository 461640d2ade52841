"""Up to where each compacted log is clean: `cleaner-offset-checkpoint` in each log directory.

An entry also says that the log has gaps, or may have them soon: it is on the medium before the first swap.
Left to others: the file's format (checkpoints.py), what the offsets mean for planning (plan.py).
"""

from collections.abc import Callable, Mapping
from threading import Lock

from ...protocol.kinds import TopicPartition
from ..checkpoints import write_offsets
from ..disk import Disk, disk_error

CLEANER_OFFSETS = "cleaner-offset-checkpoint"


class CleanerOffsets:
    """The entries of all directories. Written by threads and, before a cut, by the loop."""

    def __init__(self, disk: Disk, directory_of: Callable[[TopicPartition], str | None]) -> None:
        self._disk = disk
        self._directory_of = directory_of
        self._offsets: dict[TopicPartition, int] = {}
        self._cuts: dict[TopicPartition, int] = {}
        self._writing = Lock()
        self.on_cut: Callable[[TopicPartition], None] = _nobody  # a log loses records, or is gone

    def get(self, partition: TopicPartition) -> int | None:
        """Before this offset the log is clean; None if it has never been cleaned."""
        return self._offsets.get(partition)

    def adopt(self, entries: Mapping[TopicPartition, int]) -> None:
        """Take what a file said about logs that are here."""
        self._offsets.update(entries)

    def cuts(self, partition: TopicPartition) -> int:
        """How often records were cut from the log: what was found out before a cut says nothing after it."""
        return self._cuts.get(partition, 0)

    def note(self, partition: TopicPartition, offset: int, cuts: int) -> bool:
        """The log is clean up to `offset`, on the medium when this returns; False if it has been cut since
        `cuts` was asked. Blocking. Raises DiskError.
        """
        with self._writing:
            if self.cuts(partition) != cuts:
                return False
            self._write({**self._offsets, partition: offset}, self._directory_of(partition))
            self._offsets[partition] = offset
            return True

    def lower(self, partition: TopicPartition, end: int) -> None:
        """The log is about to end at `end`: what comes there later has not been cleaned. Raises DiskError."""
        self.on_cut(partition)
        with self._writing:
            self._cuts[partition] = self.cuts(partition) + 1
            if self._offsets.get(partition, 0) > end:
                self._write({**self._offsets, partition: end}, self._directory_of(partition))
                self._offsets[partition] = end

    def forget(self, partition: TopicPartition) -> None:
        """The log is no longer here. Its entry goes from the file when that is written next."""
        self.on_cut(partition)
        with self._writing:
            self._cuts[partition] = self.cuts(partition) + 1
            self._offsets.pop(partition, None)

    def _write(self, offsets: Mapping[TopicPartition, int], directory: str | None) -> None:
        if directory is None:
            return
        path = f"{directory}/{CLEANER_OFFSETS}"
        mine = {p: offset for p, offset in offsets.items() if self._directory_of(p) == directory}
        try:
            write_offsets(self._disk, path, mine)
        except OSError as error:
            raise disk_error(path, error) from error


def _nobody(_partition: TopicPartition) -> None:
    """No cleaning is under way."""
