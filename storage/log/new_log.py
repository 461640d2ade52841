"""Creating the files of a new log, before the log itself exists.

A file costs microseconds, or milliseconds while the file system writes its journal. A new topic may need ten
thousand of them, so `make` may run in a thread; it touches nothing but the new directory.
Left to others: in which directory (directories/log_dirs.py), the log itself and what must be durable
(directories/log_manager.py, bulk_sync.py).
"""

from collections.abc import Mapping
from contextlib import suppress
from uuid import UUID

from ...base.types import TopicPartition
from ...base.values import dataclass
from ..config import TopicConfig
from ..disk import Disk, DiskError, DiskFailed, LogDamaged, disk_error
from ..segment.segment import Segment
from . import checkpoints
from .relocation import MOVED_FROM


class ReplicaMissing(LogDamaged):
    """A replica's log is not there under its name; `path` is where it may be."""

    def __init__(self, partition: TopicPartition, path: str, error: OSError) -> None:
        super().__init__(path, error)
        self.partition = partition


@dataclass(slots=True)
class Fresh:
    """A log to be created; `make` sets `error` or `segment`."""

    partition: TopicPartition
    topic_id: UUID | None
    config: TopicConfig
    directory: str
    in_place_of: str | None = None  # the directory where there are old files of this name
    segment: Segment | None = None
    error: DiskError | None = None

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.partition}"

    def make(self, disk: Disk, now_ms: int, sync: bool) -> None:
        """Create its directory and empty files; synced if `sync`. Blocking."""
        was_there = disk.exists(self.path)
        try:
            self._make(disk, now_ms, sync)
        except (OSError, DiskError) as error:
            if not was_there:  # the next attempt may take another directory: do not leave the log in two
                with suppress(OSError):
                    disk.rmtree(self.path)
            self.segment = None
            self.error = error if isinstance(error, DiskError) else disk_error(self.path, error)

    def _make(self, disk: Disk, now_ms: int, sync: bool) -> None:
        disk.mkdir(self.path)
        if self.topic_id is not None:
            name = f"{self.path}/{checkpoints.PARTITION_METADATA}"
            checkpoints.write_partition_metadata(disk, name, self.topic_id, sync)
        # recovery must know whether gaps are allowed
        kept = f"{self.path}/{checkpoints.TOPIC_CONFIG}"
        checkpoints.write_topic_config(disk, kept, self.config, self.config.compacted, sync)
        if self.in_place_of is not None:
            disk.replace(f"{self.path}/{MOVED_FROM}", self.in_place_of.encode(), sync)
        self.segment = Segment(disk, self.path, 0, now_ms, create=True)
        if sync:
            disk.sync_dir(self.directory)

    def check(self, offline: Mapping[str, str]) -> None:
        """Fail if its directory went offline meanwhile."""
        if self.segment is not None and self.directory in offline:
            self.segment.close_file()
            self.segment = None
            self.error = DiskFailed(self.path, OSError(offline[self.directory]))
